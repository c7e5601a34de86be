//! Figures by the hour of the busiest destinations.

use std::sync::Arc;

use posthaste_core::lease::NodeId;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::DestinationHour;

use crate::kept::counters::ALL;
use crate::kept::series;
use crate::postgres::fault::Result;
use crate::postgres::rows::Columns;
use crate::postgres::tx::{Mode, Tx, bind};

/// In key order. Each node writes only rows of its own, so that no two wait for each other.
pub(super) async fn put(tx: &Tx, rows: &[DestinationHour]) -> Result<()> {
    let sorted = series::sorted_hours(rows);
    let starts: Vec<i64> = sorted.keys().map(|key| key.0).collect();
    let tenants: Vec<&str> = sorted.keys().map(|key| key.1).collect();
    let nodes: Vec<i64> = sorted.keys().map(|key| key.2).collect();
    let places: Vec<i32> = sorted.keys().map(|key| i32::from(key.3)).collect();
    let channels: Vec<i16> = sorted.values().map(|row| i16::from(row.channel.code())).collect();
    let destinations: Vec<&str> = sorted.values().map(|row| &*row.destination).collect();
    let counts: Vec<i64> = sorted.values().map(|row| series::count(row.count)).collect();
    let texts: Vec<String> = sorted.values().map(|row| series::text(&row.figures)).collect();
    // A row that has less is one from before: its write was given up, and happens late.
    let sql = "
        insert into destination_hour (at, tenant, node, place, channel, destination, count, figures)
        select *
        from unnest($1::bigint[], $2::text[], $3::bigint[], $4::integer[], $5::smallint[], $6::text[], $7::bigint[],
            $8::text[])
        on conflict (at, tenant, node, place) do update
        set channel = excluded.channel, destination = excluded.destination, count = excluded.count,
            figures = excluded.figures
        where destination_hour.count < excluded.count";
    let bound = bind![
        starts => INT8_ARRAY,
        tenants => TEXT_ARRAY,
        nodes => INT8_ARRAY,
        places => INT4_ARRAY,
        channels => INT2_ARRAY,
        destinations => TEXT_ARRAY,
        counts => INT8_ARRAY,
        texts => TEXT_ARRAY,
    ];
    tx.alone(Mode::Write, sql, bound).await?;
    Ok(())
}

pub(super) async fn get(
    tx: &Tx,
    tenant: Option<&Tenant>,
    destination: &Arc<str>,
    (from, until): (Timestamp, Timestamp),
) -> Result<Vec<DestinationHour>> {
    let sql = "
        select at, node, place, channel, count, figures
        from destination_hour
        where tenant = $1
        and destination = $2
        and at >= $3
        and at < $4
        order by at, node, place";
    let name = tenant.map_or(ALL, Tenant::as_str);
    let bound = bind![
        name => TEXT,
        &**destination => TEXT,
        from.as_micros() => INT8,
        until.as_micros() => INT8,
    ];
    let rows = tx.alone(Mode::Read, sql, bound).await?;
    let read = |row| {
        let mut columns = Columns::of(row);
        Ok(DestinationHour {
            tenant: tenant.cloned(),
            at: columns.time()?,
            node: NodeId(columns.take()?),
            place: u16::try_from(columns.take::<i32>()?).unwrap_or(u16::MAX),
            channel: columns.channel()?,
            destination: destination.clone(),
            count: columns.take::<i64>()?.unsigned_abs(),
            figures: series::read(columns.take()?),
        })
    };
    rows.iter().map(read).collect()
}

/// Removes the oldest rows.
pub(in crate::postgres) const PRUNE: &str = "
    delete from destination_hour
    where ctid = any(array(
        select ctid
        from destination_hour
        where at < $1
        order by at, tenant, node, place
        limit $2))
    returning 1";
