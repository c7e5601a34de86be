//! Figures by the hour of the busiest destinations.

use std::sync::Arc;

use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::DestinationHour;
use rusqlite::{Connection, params};

use crate::kept::counters::ALL;
use crate::kept::{series, values};
use crate::sqlite::fault::Result;
use crate::sqlite::rows::time;
use crate::sqlite::writer::Tx;

pub(super) fn put(tx: &Tx<'_>, rows: &[DestinationHour]) -> Result<()> {
    // A row that has less is one from before: its write was given up, and happens late.
    let mut upsert = tx.conn.prepare_cached(
        "insert into destination_hour (at, tenant, node, place, channel, destination, count, figures)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         on conflict (at, tenant, node, place) do update
         set channel = excluded.channel, destination = excluded.destination, count = excluded.count,
             figures = excluded.figures
         where count < excluded.count",
    )?;
    for ((at, tenant, node, place), row) in series::sorted_hours(rows) {
        let (count, text) = (series::count(row.count), series::text(&row.figures));
        upsert.execute(params![
            at,
            tenant,
            node,
            place,
            row.channel.code(),
            &*row.destination,
            count,
            text
        ])?;
    }
    Ok(())
}

pub(super) fn get(
    conn: &Connection,
    tenant: Option<&Tenant>,
    destination: &Arc<str>,
    (from, until): (Timestamp, Timestamp),
) -> Result<Vec<DestinationHour>> {
    let mut select = conn.prepare_cached(
        "select at, node, place, channel, count, figures
         from destination_hour indexed by destination_hour_destination
         where tenant = ?1
         and destination = ?2
         and at >= ?3
         and at < ?4
         order by at, node, place",
    )?;
    let name = tenant.map_or(ALL, Tenant::as_str);
    let mut rows = select.query(params![name, &**destination, from.as_micros(), until.as_micros()])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(DestinationHour {
            tenant: tenant.cloned(),
            at: time(row, 0)?,
            node: NodeId(row.get(1)?),
            place: row.get(2)?,
            channel: values::channel(row.get(3)?)?,
            destination: destination.clone(),
            count: row.get::<_, i64>(4)?.unsigned_abs(),
            figures: series::read(row.get_ref(5)?.as_str().unwrap_or_default()),
        });
    }
    Ok(found)
}

/// Start, tenant, node and place of a row.
pub(in crate::sqlite) type OldHour = (i64, String, i64, i64);

/// The oldest rows.
pub(in crate::sqlite) fn old(conn: &Connection, before: Timestamp, limit: i64) -> Result<Vec<OldHour>> {
    let mut select = conn.prepare_cached(
        "select at, tenant, node, place
         from destination_hour
         where at < ?1
         order by at, tenant, node, place
         limit ?2",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let found = select.query_map(params![before.as_micros(), limit], read)?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

pub(in crate::sqlite) fn remove(tx: &Tx<'_>, rows: &[OldHour]) -> Result<usize> {
    let mut delete = tx.conn.prepare_cached(
        "delete from destination_hour
         where at = ?1
         and tenant = ?2
         and node = ?3
         and place = ?4",
    )?;
    let mut removed = 0;
    for (at, tenant, node, place) in rows {
        removed += delete.execute(params![at, tenant, node, place])?;
    }
    Ok(removed)
}
