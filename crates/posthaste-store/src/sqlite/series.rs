//! Figures by the minute and by the hour, and when retries are due.

mod hours;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::series::{Points, Span};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, DestinationHour, RetryLoad, Series, SeriesRow};
use rusqlite::{Connection, params};

pub(super) use self::hours::{OldHour, old as old_hours, remove as remove_hours};
use super::SqliteStore;
use super::fault::Result;
use super::rows::time;
use super::writer::Tx;
use crate::kept::counters::ALL;
use crate::kept::{series, values};
use crate::stats_limits::MAX_LOAD_FLOWS;

#[async_trait]
impl Series for SqliteStore {
    async fn put_series(&self, rows: Vec<SeriesRow>) -> store::Result<()> {
        self.write(rows.len(), move |tx| put(tx, &rows)).await
    }

    async fn series(
        &self,
        tenant: Option<Tenant>,
        span: Span,
        from: Timestamp,
        until: Timestamp,
    ) -> store::Result<Vec<SeriesRow>> {
        self.list(move |reader| get(&reader.conn, tenant.as_ref(), span, from, until)).await
    }

    async fn put_destination_hours(&self, rows: Vec<DestinationHour>) -> store::Result<()> {
        self.write(rows.len(), move |tx| hours::put(tx, &rows)).await
    }

    async fn destination_hours(
        &self,
        tenant: Option<Tenant>,
        destination: Arc<str>,
        from: Timestamp,
        until: Timestamp,
    ) -> store::Result<Vec<DestinationHour>> {
        self.list(move |reader| hours::get(&reader.conn, tenant.as_ref(), &destination, (from, until))).await
    }

    async fn retry_load(
        &self,
        tenant: Option<Tenant>,
        points: Points,
        limit: usize,
    ) -> store::Result<RetryLoad> {
        self.list(move |reader| load(&reader.conn, tenant.as_ref(), points, limit)).await
    }
}

fn put(tx: &Tx<'_>, rows: &[SeriesRow]) -> Result<()> {
    // A row that has less is one from before: its write was given up, and happens late.
    let mut upsert = tx.conn.prepare_cached(
        "insert into series (tenant, span, at, channel, node, weight, figures)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         on conflict (tenant, span, at, channel, node) do update
         set weight = excluded.weight, figures = excluded.figures
         where weight < excluded.weight",
    )?;
    for ((tenant, span, at, channel, node), figures) in series::sorted(rows) {
        let (weight, text) = (series::weight(figures), series::text(figures));
        upsert.execute(params![tenant, span, at, channel, node, weight, text])?;
    }
    Ok(())
}

fn get(
    conn: &Connection,
    tenant: Option<&Tenant>,
    span: Span,
    from: Timestamp,
    until: Timestamp,
) -> Result<Vec<SeriesRow>> {
    let mut select = conn.prepare_cached(
        "select at, channel, node, figures
         from series
         where tenant = ?1
         and span = ?2
         and at >= ?3
         and at < ?4
         order by at, channel, node",
    )?;
    let name = tenant.map_or(ALL, Tenant::as_str);
    let mut rows = select.query(params![name, span.code(), from.as_micros(), until.as_micros()])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let text = row.get_ref(3)?.as_str().unwrap_or_default();
        found.push(SeriesRow {
            tenant: tenant.cloned(),
            span,
            at: time(row, 0)?,
            channel: values::channel(row.get(1)?)?,
            node: NodeId(row.get(2)?),
            figures: series::read(text),
        });
    }
    Ok(found)
}

const ALL_RETRIES: &str = "
    select due
    from queue indexed by queue_retry
    where lane = 1
    and due < ?1
    and ?2 = ''
    order by due
    limit ?3";

/// The flows of a tenant one after the other, so that the retries of others do not matter.
const RETRIES_OF_TENANT: &str = "
    select queue.due
    from (
        select id
        from flow
        where tenant = ?2
        limit ?4) as theirs
    cross join queue indexed by queue_retry_flow
    on queue.flow = theirs.id
    where queue.lane = 1
    and queue.due < ?1
    limit ?3";

fn load(conn: &Connection, tenant: Option<&Tenant>, points: Points, limit: usize) -> Result<RetryLoad> {
    let (end, most) = (points.end().as_micros(), i64::try_from(limit).unwrap_or(i64::MAX));
    let mut load = RetryLoad { counts: vec![0; points.count()], complete: true };
    let mut found = 0;
    let mut count = |mut rows: rusqlite::Rows<'_>| -> Result<()> {
        while let Some(row) = rows.next()? {
            found += 1;
            load.counts[points.place(time(row, 0)?).unwrap_or(0)] += 1;
        }
        Ok(())
    };
    match tenant {
        None => count(conn.prepare_cached(ALL_RETRIES)?.query(params![end, ALL, most])?)?,
        Some(tenant) => count(conn.prepare_cached(RETRIES_OF_TENANT)?.query(params![
            end,
            tenant.as_str(),
            most,
            MAX_LOAD_FLOWS
        ])?)?,
    }
    let flows = match tenant {
        None => 0,
        Some(tenant) => flows_of(conn, tenant)?,
    };
    load.complete = found < most && flows < MAX_LOAD_FLOWS;
    Ok(load)
}

fn flows_of(conn: &Connection, tenant: &Tenant) -> Result<i64> {
    let mut select = conn.prepare_cached(
        "select count(*)
         from (
             select 1
             from flow
             where tenant = ?1
             limit ?2)",
    )?;
    Ok(select.query_row(params![tenant.as_str(), MAX_LOAD_FLOWS], |row| row.get(0))?)
}

/// Tenant, span, start, channel and node of a row.
pub(super) type OldRow = (String, i64, i64, i64, i64);

/// The oldest rows, those of minutes first.
pub(super) fn old(conn: &Connection, before: Timestamp, limit: i64) -> Result<Vec<OldRow>> {
    let mut select = conn.prepare_cached(
        "select tenant, span, at, channel, node
         from series indexed by series_at
         where span in (0, 1)
         and at < ?1
         order by span, at, tenant, channel, node
         limit ?2",
    )?;
    let read =
        |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let found = select.query_map(params![before.as_micros(), limit], read)?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn remove(tx: &Tx<'_>, rows: &[OldRow]) -> Result<usize> {
    let mut delete = tx.conn.prepare_cached(
        "delete from series
         where tenant = ?1
         and span = ?2
         and at = ?3
         and channel = ?4
         and node = ?5",
    )?;
    let mut removed = 0;
    for (tenant, span, at, channel, node) in rows {
        removed += delete.execute(params![tenant, span, at, channel, node])?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
