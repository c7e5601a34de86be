//! Figures by the minute and by the hour, and when retries are due.

mod hours;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::series::{Points, Span};
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{self, DestinationHour, RetryLoad, Series, SeriesRow};

pub(super) use self::hours::PRUNE as PRUNE_HOURS;
use super::fault::Result;
use super::rows::{Columns, bigint};
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, list, transact};
use crate::kept::counters::ALL;
use crate::kept::series;
use crate::stats_limits::MAX_LOAD_FLOWS;

#[async_trait]
impl Series for PostgresStore {
    async fn put_series(&self, rows: Vec<SeriesRow>) -> store::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        Ok(transact!(self, tx => put(&tx, &rows))?)
    }

    async fn series(
        &self,
        tenant: Option<Tenant>,
        span: Span,
        from: Timestamp,
        until: Timestamp,
    ) -> store::Result<Vec<SeriesRow>> {
        Ok(list!(self, tx => get(&tx, tenant.as_ref(), span, from, until))?)
    }

    async fn put_destination_hours(&self, rows: Vec<DestinationHour>) -> store::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        Ok(transact!(self, tx => hours::put(&tx, &rows))?)
    }

    async fn destination_hours(
        &self,
        tenant: Option<Tenant>,
        destination: Arc<str>,
        from: Timestamp,
        until: Timestamp,
    ) -> store::Result<Vec<DestinationHour>> {
        Ok(list!(self, tx => hours::get(&tx, tenant.as_ref(), &destination, (from, until)))?)
    }

    async fn retry_load(
        &self,
        tenant: Option<Tenant>,
        points: Points,
        limit: usize,
    ) -> store::Result<RetryLoad> {
        Ok(list!(self, tx => load(&tx, tenant.as_ref(), points, limit))?)
    }
}

/// In key order. Each node writes only rows of its own, so that no two wait for each other.
async fn put(tx: &Tx, rows: &[SeriesRow]) -> Result<()> {
    let sorted = series::sorted(rows);
    let tenants: Vec<&str> = sorted.keys().map(|key| key.0).collect();
    let spans: Vec<i16> = sorted.keys().map(|key| i16::from(key.1)).collect();
    let starts: Vec<i64> = sorted.keys().map(|key| key.2).collect();
    let channels: Vec<i16> = sorted.keys().map(|key| i16::from(key.3)).collect();
    let nodes: Vec<i64> = sorted.keys().map(|key| key.4).collect();
    let weights: Vec<i64> = sorted.values().map(|figures| series::weight(figures)).collect();
    let texts: Vec<String> = sorted.values().map(|figures| series::text(figures)).collect();
    // A row that has less is one from before: its write was given up, and happens late.
    let sql = "
        insert into series (tenant, span, at, channel, node, weight, figures)
        select *
        from unnest($1::text[], $2::smallint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::text[])
        on conflict (tenant, span, at, channel, node) do update
        set weight = excluded.weight, figures = excluded.figures
        where series.weight < excluded.weight";
    let bound = bind![
        tenants => TEXT_ARRAY,
        spans => INT2_ARRAY,
        starts => INT8_ARRAY,
        channels => INT2_ARRAY,
        nodes => INT8_ARRAY,
        weights => INT8_ARRAY,
        texts => TEXT_ARRAY,
    ];
    tx.alone(Mode::Write, sql, bound).await?;
    Ok(())
}

async fn get(
    tx: &Tx,
    tenant: Option<&Tenant>,
    span: Span,
    from: Timestamp,
    until: Timestamp,
) -> Result<Vec<SeriesRow>> {
    let sql = "
        select at, channel, node, figures
        from series
        where tenant = $1
        and span = $2
        and at >= $3
        and at < $4
        order by at, channel, node";
    let name = tenant.map_or(ALL, Tenant::as_str);
    let bound = bind![
        name => TEXT,
        i16::from(span.code()) => INT2,
        from.as_micros() => INT8,
        until.as_micros() => INT8,
    ];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let read = |row| {
        let mut columns = Columns::of(row);
        Ok(SeriesRow {
            tenant: tenant.cloned(),
            span,
            at: columns.time()?,
            channel: columns.channel()?,
            node: NodeId(columns.take()?),
            figures: series::read(columns.take()?),
        })
    };
    rows.iter().map(read).collect()
}

const ALL_RETRIES: &str = "
    select due
    from queue
    where lane = 1
    and due < $1
    and $2 = ''
    order by due
    limit $3";

/// The flows of a tenant one after the other, so that the retries of others do not matter.
fn retries_of_tenant() -> String {
    format!(
        "select q.due
         from (
             select id
             from flow
             where tenant = $2
             limit {MAX_LOAD_FLOWS}) as theirs
         cross join lateral (
             select due
             from queue
             where queue.lane = 1
             and queue.flow = theirs.id
             and queue.due < $1
             order by due
             limit $3) as q
         limit $3"
    )
}

async fn load(tx: &Tx, tenant: Option<&Tenant>, points: Points, limit: usize) -> Result<RetryLoad> {
    let retries = if tenant.is_some() { retries_of_tenant() } else { ALL_RETRIES.to_owned() };
    let counted = format!(
        "select greatest((due - $4) / $5, 0), count(*)
         from ({retries}) as retries
         group by 1"
    );
    let flows = format!(
        "select count(*)
         from (
             select
             from flow
             where tenant = $1
             limit {MAX_LOAD_FLOWS}) as theirs"
    );
    let name = tenant.map_or(ALL, Tenant::as_str);
    let bound = bind![
        points.end().as_micros() => INT8,
        name => TEXT,
        bigint(limit) => INT8,
        points.first().as_micros() => INT8,
        micros(points.length()) => INT8,
    ];
    let steps = [statement!(counted, bound), statement!(flows, bind![name => TEXT])];
    let mut answers = tx.send(Some(Mode::Read), &steps, Then::Commit).await?;
    let flows: i64 = Columns::of(&single_row(answers.pop().unwrap_or_default())?).take()?;
    let mut load = RetryLoad { counts: vec![0; points.count()], complete: true };
    let mut found = 0;
    for row in &answers.pop().unwrap_or_default() {
        let mut columns = Columns::of(row);
        let (place, count): (i64, i64) = (columns.take()?, columns.take()?);
        found += count;
        let place = usize::try_from(place).unwrap_or(0).min(points.count() - 1);
        load.counts[place] += count.unsigned_abs();
    }
    load.complete = found < bigint(limit) && flows < MAX_LOAD_FLOWS;
    Ok(load)
}

/// Removes the oldest rows, those of minutes first.
pub(super) const PRUNE: &str = "
    delete from series
    where ctid = any(array(
        select ctid
        from series
        where span in (0, 1)
        and at < $1
        order by span, at, tenant, channel, node
        limit $2))
    returning 1";
