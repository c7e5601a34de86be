//! What is taken of inbound limits, and how full the main lane is.

use std::collections::BTreeSet;

use async_trait::async_trait;
use posthaste_core::channel::Channel;
use posthaste_core::inbound::{self, AllTaken, IDLE_AT_ONCE, InboundKey, InboundLimits, Reserved, Wanted};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Inbound};
use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::fault::{Fault, Result, unless_damaged};
use super::planted::Planted;
use super::writer::Tx;
use crate::kept::counters::{ALL, CounterKind};
use crate::kept::inbound::{module_text, read};

#[async_trait]
impl Inbound for SqliteStore {
    async fn reserve(
        &self,
        wanted: Vec<Wanted>,
        limits: InboundLimits,
        now: Timestamp,
    ) -> store::Result<Vec<Reserved>> {
        self.write(wanted.len(), move |tx| reserve(tx, &wanted, limits, now)).await
    }

    async fn inbound_taken(&self, keys: Vec<InboundKey>) -> store::Result<AllTaken> {
        self.find(move |reader| load(&reader.conn, keys.iter())).await
    }

    async fn main_lane(&self) -> store::Result<u64> {
        self.read(|reader| main_lane(&reader.conn)).await
    }
}

fn reserve(tx: &Tx<'_>, wanted: &[Wanted], limits: InboundLimits, now: Timestamp) -> Result<Vec<Reserved>> {
    let keys: BTreeSet<InboundKey> = wanted.iter().flat_map(|one| one.keys(limits)).collect();
    let mut taken = load(tx.conn, keys.iter())?;
    let reserved = inbound::reserve(&mut taken, wanted, limits, now);
    if !tx.bug(Planted::ReservationForgotten) {
        let mut upsert = tx.conn.prepare_cached(
            "insert into inbound (tenant, module, taken, idle_from)
             values (?1, ?2, ?3, ?4)
             on conflict (tenant, module) do update
             set taken = excluded.taken, idle_from = excluded.idle_from",
        )?;
        for (key, taken) in &taken {
            let idle_from = taken.idle_from().as_micros();
            upsert.execute(params![key.tenant.as_str(), module_text(key), taken.to_text(), idle_from])?;
        }
    }
    let mut forget = tx.conn.prepare_cached(
        "delete from inbound
         where (tenant, module) in (
             select tenant, module
             from inbound
             where idle_from <= ?1
             order by idle_from, tenant, module
             limit ?2)",
    )?;
    forget.execute([now.as_micros(), i64::try_from(IDLE_AT_ONCE).unwrap_or(i64::MAX)])?;
    Ok(reserved)
}

/// A damaged row counts as new: it must not keep its tenant from sending.
fn load<'k>(conn: &Connection, keys: impl Iterator<Item = &'k InboundKey>) -> Result<AllTaken> {
    let mut select = conn.prepare_cached(
        "select tenant, module, taken
         from inbound
         where tenant = ?1
         and module = ?2",
    )?;
    let mut found = AllTaken::new();
    for key in keys {
        let mut rows = select.query(params![key.tenant.as_str(), module_text(key)])?;
        while let Some(row) = rows.next()? {
            found.extend(unless_damaged(key, read_row(row))?);
        }
    }
    Ok(found)
}

fn read_row(row: &Row<'_>) -> Result<(InboundKey, inbound::Taken)> {
    let text = |column| -> Result<&str> { Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?) };
    read(text(0)?, text(1)?, text(2)?).map_err(Fault::from)
}

fn main_lane(conn: &Connection) -> Result<u64> {
    let mut select = conn.prepare_cached(
        "select coalesce(sum(n), 0)
         from counter
         where tenant = ?1
         and channel = ?2
         and kind = ?3
         and hour = 0",
    )?;
    let mut rows = 0;
    for channel in Channel::ALL {
        let bound = params![ALL, channel.code(), CounterKind::Main as u8];
        rows += select.query_row(bound, |row| row.get::<_, i64>(0))?;
    }
    Ok(u64::try_from(rows).unwrap_or(0))
}
