//! What is taken of inbound limits, and how full the main lane is. A reservation locks the rows of its limits, in the order of their
//! keys.

use std::collections::BTreeSet;

use async_trait::async_trait;
use posthaste_core::inbound::{self, AllTaken, IDLE_AT_ONCE, InboundKey, InboundLimits, Reserved, Wanted};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Inbound};
use tokio_postgres::Row;

use super::fault::{Fault, Result, unless_damaged};
use super::planted::Planted;
use super::rows::{Columns, bigint};
use super::tx::{Mode, Statement, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, look, transact};
use crate::kept::counters::{ALL, CounterKind};
use crate::kept::inbound::{module_text, read};

#[async_trait]
impl Inbound for PostgresStore {
    async fn reserve(
        &self,
        wanted: Vec<Wanted>,
        limits: InboundLimits,
        now: Timestamp,
    ) -> store::Result<Vec<Reserved>> {
        Ok(transact!(self, tx => reserve(&tx, &wanted, limits, now))?)
    }

    async fn inbound_taken(&self, keys: Vec<InboundKey>) -> store::Result<AllTaken> {
        Ok(look!(self, tx => find(&tx, &keys))?)
    }

    async fn main_lane(&self) -> store::Result<u64> {
        Ok(look!(self, tx => main_lane(&tx))?)
    }
}

/// The columns of the keys, one array each.
fn columns<'k>(keys: impl Iterator<Item = &'k InboundKey>) -> (Vec<&'k str>, Vec<&'k str>) {
    keys.map(|key| (key.tenant.as_str(), module_text(key))).unzip()
}

async fn reserve(tx: &Tx, wanted: &[Wanted], limits: InboundLimits, now: Timestamp) -> Result<Vec<Reserved>> {
    let keys: BTreeSet<InboundKey> = wanted.iter().flat_map(|one| one.keys(limits)).collect();
    let (tenants, modules) = columns(keys.iter());
    let locked = bind![tenants => TEXT_ARRAY, modules => TEXT_ARRAY];
    let mut rows = tx.send(Some(Mode::Write), &[statement!(LOCK, locked)], Then::Continue).await?;
    let mut taken = all(&rows.pop().unwrap_or_default())?;
    let reserved = inbound::reserve(&mut taken, wanted, limits, now);
    let (tenants, modules) = columns(taken.keys());
    let texts: Vec<String> = taken.values().map(inbound::Taken::to_text).collect();
    let idle: Vec<i64> = taken.values().map(|taken| taken.idle_from().as_micros()).collect();
    let written =
        bind![tenants => TEXT_ARRAY, modules => TEXT_ARRAY, texts => TEXT_ARRAY, idle => INT8_ARRAY];
    let forgotten = bind![now.as_micros() => INT8, bigint(IDLE_AT_ONCE) => INT8];
    let mut steps: Vec<Statement<'_>> = vec![];
    if !tx.bug(Planted::ReservationForgotten) {
        steps.push(statement!(WRITE, written));
    }
    steps.push(statement!(FORGET, forgotten));
    tx.send(None, &steps, Then::Commit).await?;
    Ok(reserved)
}

/// A row that does not exist is made here: nothing else would keep another node from making it at the same time.
const LOCK: &str = "
    insert into inbound (tenant, module, taken, idle_from)
    select u.tenant, u.module, '', 0
    from unnest($1::text[], $2::text[]) as u (tenant, module)
    on conflict (tenant, module) do update
    set taken = inbound.taken
    returning tenant, module, taken";

const WRITE: &str = "
    update inbound i
    set taken = u.taken, idle_from = u.idle_from
    from unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) as u (tenant, module, taken, idle_from)
    where i.tenant = u.tenant
    and i.module = u.module";

/// A row that another node has locked is in use.
const FORGET: &str = "
    delete from inbound
    where (tenant, module) in (
        select tenant, module
        from inbound
        where idle_from <= $1
        order by idle_from, tenant, module
        limit $2
        for update skip locked)";

async fn find(tx: &Tx, keys: &[InboundKey]) -> Result<AllTaken> {
    let sql = "
        select i.tenant, i.module, i.taken
        from unnest($1::text[], $2::text[]) as u (tenant, module)
        join inbound i on i.tenant = u.tenant and i.module = u.module";
    let (tenants, modules) = columns(keys.iter());
    all(&tx.alone(Mode::Read, sql, bind![tenants => TEXT_ARRAY, modules => TEXT_ARRAY]).await?)
}

/// A damaged row counts as new: it must not keep its tenant from sending.
fn all(rows: &[Row]) -> Result<AllTaken> {
    let mut found = AllTaken::new();
    for row in rows {
        let (tenant, module): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let taken = row.try_get(2)?;
        found.extend(unless_damaged(&(tenant, module), read(tenant, module, taken).map_err(Fault::from))?);
    }
    Ok(found)
}

async fn main_lane(tx: &Tx) -> Result<u64> {
    let sql = "
        select coalesce(sum(n), 0)::bigint
        from counter
        where tenant = $1
        and hour = 0
        and kind = $2";
    let bound = bind![ALL => TEXT, i16::from(CounterKind::Main as u8) => INT2];
    let row = single_row(tx.alone(Mode::Read, sql, bound).await?)?;
    Ok(u64::try_from(Columns::of(&row).take::<i64>()?).unwrap_or(0))
}
