//! Destinations: rows with versions, their histories, and what waits for them. Each change locks the row of
//! `destination_version`, so that versions become visible in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::channel::Channel;
use posthaste_core::destination::{
    DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationPut, EVENTS_KEPT,
    MAX_EVENTS, REMOVED_AT_ONCE, REMOVED_KEPT, StoredDestination, change_destinations,
};
use posthaste_core::flow::FlowKey;
use posthaste_core::notification::{Priority, Tenant};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Audit, Destinations, FlowsTo, Page};
use tokio_postgres::Row;
use uuid::Uuid;

use self::columns::{EventColumns, KeyColumns, RowColumns};
use super::acts::write_audit;
use super::fault::{Fault, Result, unless_damaged};
use super::planted::Planted;
use super::rows::{Columns, bigint};
use super::tx::{Mode, Statement, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, list, look, notices, transact, transact_quickly};
use crate::kept::damage::Damaged;
use crate::kept::destinations::{event_from, key_from, known_page, new_events, page_of, value_from};
use crate::kept::records::tenant_text;
use crate::kept::values;

mod columns;

#[async_trait]
impl Destinations for PostgresStore {
    async fn put_destinations(
        &self,
        changes: Vec<DestinationChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<DestinationPut>> {
        let channel = self.notify.destinations();
        Ok(transact!(self, tx => put(&tx, &channel, &changes, audit.as_ref(), now))?)
    }

    async fn destinations(&self, keys: Vec<DestinationKey>) -> store::Result<Vec<StoredDestination>> {
        let found = look!(self, tx => find(&tx, &keys))?;
        Ok(found.into_values().filter(|row| row.value.is_some()).collect())
    }

    async fn destination(&self, id: DestinationId) -> store::Result<Option<StoredDestination>> {
        Ok(look!(self, tx => by_id(&tx, id))?)
    }

    async fn destination_page(
        &self,
        tenant: Option<Tenant>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> store::Result<Page<StoredDestination, DestinationKey>> {
        Ok(list!(self, tx => page(&tx, tenant.as_ref(), after.as_ref(), limit))?)
    }

    async fn destinations_since(&self, version: i64, limit: usize) -> store::Result<Vec<StoredDestination>> {
        Ok(transact_quickly!(self, tx, tx => since(&tx, version, limit))?)
    }

    async fn destination_events(
        &self,
        of: Vec<DestinationId>,
        since: Timestamp,
        limit: usize,
    ) -> store::Result<Vec<Vec<DestinationEvent>>> {
        Ok(list!(self, tx => events(&tx, &of, since, limit))?)
    }

    async fn known_destinations(
        &self,
        tenant: Option<Tenant>,
        name: Option<Arc<str>>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> store::Result<Page<DestinationKey, DestinationKey>> {
        Ok(list!(self, tx => known(&tx, tenant.as_ref(), name.as_deref(), after.as_ref(), limit))?)
    }

    async fn parked(&self, of: Vec<FlowsTo>, most: u64, now: Timestamp) -> store::Result<Vec<u64>> {
        Ok(list!(self, tx => parked(&tx, &of, most, now))?)
    }
}

async fn put(
    tx: &Tx,
    channel: &str,
    changes: &[DestinationChange],
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<DestinationPut>> {
    let keys = KeyColumns::of(changes.iter().map(|change| &change.key));
    let locked = statement!("select version from destination_version for update", &[]);
    let bound = keys.bound();
    // A separate statement, so that it sees what was committed while the one before it waited.
    let steps = [locked, statement!(FIND, &bound)];
    let mut answers = tx.send(Some(Mode::Write), &steps, Then::Continue).await?;
    let mut rows = by_key(&answers.pop().unwrap_or_default())?;
    let before: i64 = Columns::of(&single_row(answers.pop().unwrap_or_default())?).take()?;
    let mut version = before;
    let mut changes = changes.to_vec();
    if tx.bug(Planted::DestinationSwappedUnseen) {
        for change in &mut changes {
            change.expected = rows.get(&change.key).map_or(0, StoredDestination::expected);
        }
    }
    let put = change_destinations(&mut rows, &mut version, &changes, now);
    rows.retain(|_, row| row.version > before);
    let (rows, events) = (RowColumns::of(rows.values()), EventColumns::of(&new_events(&changes, &put)));
    let (bound_rows, bound_events) = (rows.bound(), events.bound());
    let trimmed = bind![events.ids => UUID_ARRAY, bigint(MAX_EVENTS) => INT8];
    let grown = bind![version => INT8];
    let told = bind![channel => TEXT, notices::DESTINATION => TEXT];
    let (removed, old) = (now.earlier(REMOVED_KEPT).as_micros(), now.earlier(EVENTS_KEPT).as_micros());
    let forgotten = bind![removed => INT8, bigint(REMOVED_AT_ONCE) => INT8];
    let outdated = bind![old => INT8, bigint(REMOVED_AT_ONCE) => INT8];
    let mut steps: Vec<Statement<'_>> = vec![];
    if version > before {
        steps.push(statement!(UPSERT, &bound_rows));
        steps.push(statement!("update destination_version set version = $1", grown));
        steps.push(statement!(notices::NOTIFY, told));
    }
    if !events.ids.is_empty() {
        steps.push(statement!(ADD_EVENTS, &bound_events));
        steps.push(statement!(TRIM_EVENTS, trimmed));
    }
    steps.push(statement!(FORGET_REMOVED, forgotten));
    steps.push(statement!(FORGET_EVENTS, outdated));
    let count = put.iter().filter(|put| put.is_made()).count();
    match audit.filter(|_| count > 0) {
        Some(audit) => write_audit(tx, None, audit, put.len(), count, steps).await?,
        None => drop(tx.send(None, &steps, Then::Commit).await?),
    }
    Ok(put)
}

const FIND: &str = "
    select d.tenant, d.kind, d.name, d.value, d.version, d.changed
    from unnest($1::text[], $2::smallint[], $3::text[]) as u (tenant, kind, name)
    join destination d on d.tenant = u.tenant and d.kind = u.kind and d.name = u.name";

const UPSERT: &str = "
    insert into destination (tenant, kind, name, id, value, version, changed)
    select *
    from unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[], $5::text[], $6::bigint[], $7::bigint[])
    on conflict (tenant, kind, name) do update
    set value = excluded.value, version = excluded.version, changed = excluded.changed";

const ADD_EVENTS: &str = "
    insert into destination_event (destination, number, at, event, actor, until)
    select u.destination,
        coalesce((select max(e.number) from destination_event e where e.destination = u.destination), 0)
            + row_number() over (partition by u.destination order by u.place),
        u.at, u.event, u.actor, u.until
    from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[]) with ordinality
        as u (destination, at, event, actor, until, place)";

const TRIM_EVENTS: &str = "
    delete from destination_event e
    using unnest($1::uuid[]) as u (destination)
    where e.destination = u.destination
    and e.number <= (select max(m.number) from destination_event m where m.destination = u.destination) - $2";

const FORGET_REMOVED: &str = "
    delete from destination
    where (tenant, kind, name) in (
        select tenant, kind, name
        from destination
        where value is null
        and changed < $1
        order by changed, version
        limit $2)";

const FORGET_EVENTS: &str = "
    delete from destination_event
    where (destination, number) in (
        select destination, number
        from destination_event
        where at < $1
        order by at
        limit $2)";

/// Removed rows are included.
async fn find(tx: &Tx, keys: &[DestinationKey]) -> Result<BTreeMap<DestinationKey, StoredDestination>> {
    let keys = KeyColumns::of(keys.iter());
    by_key(&tx.alone(Mode::Read, FIND, &keys.bound()).await?)
}

async fn by_id(tx: &Tx, id: DestinationId) -> Result<Option<StoredDestination>> {
    let sql = "
        select tenant, kind, name, value, version, changed
        from destination
        where id = $1
        and value is not null";
    Ok(all(&tx.alone(Mode::Read, sql, bind![Uuid::from_bytes(id.to_bytes()) => UUID]).await?)?.pop())
}

async fn page(
    tx: &Tx,
    tenant: Option<&Tenant>,
    after: Option<&DestinationKey>,
    limit: usize,
) -> Result<Page<StoredDestination, DestinationKey>> {
    let (kind, name) = after.map_or((0, ""), |after| (i16::from(after.kind.code()), &*after.name));
    let rows = match tenant {
        Some(tenant) => {
            let bound = bind![kind => INT2, name => TEXT, bigint(limit) => INT8, tenant.as_str() => TEXT];
            tx.alone(Mode::Read, PAGE_OF_TENANT, bound).await?
        }
        None => {
            let first = tenant_text(after.and_then(|after| after.tenant.as_ref()));
            let bound = bind![kind => INT2, name => TEXT, bigint(limit) => INT8, first => TEXT];
            tx.alone(Mode::Read, PAGE, bound).await?
        }
    };
    Ok(page_of(all(&rows)?, rows.len(), limit))
}

const PAGE: &str = "
    select tenant, kind, name, value, version, changed
    from destination
    where (tenant, kind, name) > ($4, $1, $2)
    order by tenant, kind, name
    limit $3";

const PAGE_OF_TENANT: &str = "
    select tenant, kind, name, value, version, changed
    from destination
    where tenant = $4
    and (kind, name) > ($1, $2)
    order by kind, name
    limit $3";

async fn since(tx: &Tx, version: i64, limit: usize) -> Result<Vec<StoredDestination>> {
    let sql = "
        select tenant, kind, name, value, version, changed
        from destination
        where version > $1
        order by version
        limit $2";
    let (mut found, mut after) = (vec![], version);
    loop {
        let asked = limit - found.len();
        let rows = tx.alone(Mode::Read, sql, bind![after => INT8, bigint(asked) => INT8]).await?;
        found.extend(all(&rows)?);
        // Rows are read in place of damaged ones: a short result means that there are no more.
        match rows.last() {
            Some(last) if rows.len() == asked && found.len() < limit => after = last.try_get(4)?,
            Some(_) | None => return Ok(found),
        }
    }
}

async fn events(
    tx: &Tx,
    of: &[DestinationId],
    since: Timestamp,
    limit: usize,
) -> Result<Vec<Vec<DestinationEvent>>> {
    let ids: Vec<Uuid> = of.iter().map(|id| Uuid::from_bytes(id.to_bytes())).collect();
    let bound = bind![ids => UUID_ARRAY, since.as_micros() => INT8, bigint(limit) => INT8];
    let mut found = vec![vec![]; of.len()];
    for row in &tx.alone(Mode::Read, EVENTS, bound).await? {
        let mut columns = Columns::of(row);
        let place: i64 = columns.take()?;
        let (at, code, by, until) =
            (columns.time()?, columns.code()?, columns.take()?, columns.maybe_time()?);
        // Places are counted from 1.
        let place = usize::try_from(place - 1).ok().and_then(|place| of.get(place).zip(found.get_mut(place)));
        let (id, history) = place.ok_or_else(|| Damaged("the place of a destination".to_owned()))?;
        history.extend(unless_damaged(id, event_from(at, code, by, until).map_err(Fault::from))?);
    }
    Ok(found)
}

const EVENTS: &str = "
    select u.place, e.at, e.event, e.actor, e.until
    from unnest($1::uuid[]) with ordinality as u (destination, place)
    cross join lateral (
        select number, at, event, actor, until
        from destination_event
        where destination = u.destination
        and at >= $2
        order by number desc
        limit $3) as e
    order by u.place, e.number desc";

/// Flows of other channels, of which a tenant has only a few, are passed over.
async fn known(
    tx: &Tx,
    tenant: Option<&Tenant>,
    name: Option<&str>,
    after: Option<&DestinationKey>,
    limit: usize,
) -> Result<Page<DestinationKey, DestinationKey>> {
    let (channel, limit_bound) = (i16::from(Channel::Webhook.code()), bigint(limit));
    let last_tenant = after.map_or("", |after| tenant_text(after.tenant.as_ref()));
    let last_name = after.map_or("", |after| &*after.name);
    let rows = match (tenant.map(Tenant::as_str), name) {
        (tenant, Some(name)) => {
            let bound = bind![
                channel => INT2,
                name => TEXT,
                tenant => TEXT,
                last_tenant => TEXT,
                last_name => TEXT,
                limit_bound => INT8,
            ];
            tx.alone(Mode::Read, KNOWN_BY_NAME, bound).await?
        }
        (Some(tenant), None) => {
            let bound = bind![channel => INT2, tenant => TEXT, last_name => TEXT, limit_bound => INT8];
            tx.alone(Mode::Read, KNOWN_OF_TENANT, bound).await?
        }
        (None, None) => {
            let bound = bind![channel => INT2, last_tenant => TEXT, last_name => TEXT, limit_bound => INT8];
            tx.alone(Mode::Read, KNOWN, bound).await?
        }
    };
    let mut found = vec![];
    for row in &rows {
        let destination: &str = row.try_get(1)?;
        found.extend(unless_damaged(&destination, key_of_flow(row, destination))?.flatten());
    }
    Ok(known_page(found, rows.len(), limit))
}

fn key_of_flow(row: &Row, destination: &str) -> Result<Option<DestinationKey>> {
    let tenant = values::tenant(row.try_get(0)?)?;
    let flow = FlowKey { tenant, channel: Channel::Webhook, destination: destination.into() };
    Ok(DestinationKey::of_flow(&flow))
}

const KNOWN: &str = "
    select tenant, destination
    from flow
    where (tenant, channel, destination) > ($2, $1, $3)
    and channel = $1
    order by tenant, channel, destination
    limit $4";

/// In an order that only one index has: by another one the planner would look for the tenant among the flows of all.
const KNOWN_OF_TENANT: &str = "
    select tenant, destination
    from flow
    where (tenant, channel, destination) > ($2, $1, $3)
    and (tenant, channel) <= ($2, $1)
    order by tenant, channel, destination
    limit $4";

const KNOWN_BY_NAME: &str = "
    select tenant, destination
    from flow
    where channel = $1
    and destination = $2
    and ($3::text is null or tenant = $3)
    and (tenant, destination) > ($4, $5)
    order by tenant
    limit $6";

async fn parked(tx: &Tx, of: &[FlowsTo], most: u64, now: Timestamp) -> Result<Vec<u64>> {
    let tenants: Vec<Option<&str>> = of.iter().map(|of| of.tenant.as_ref().map(Tenant::as_str)).collect();
    let destinations: Vec<&str> = of.iter().map(|of| &*of.destination).collect();
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let lanes: Vec<i16> = Lane::ALL.map(|lane| i16::from(lane.code())).to_vec();
    let priorities: Vec<i16> = Priority::ALL.map(|priority| i16::from(priority.code())).to_vec();
    let bound = bind![
        tenants => TEXT_ARRAY,
        destinations => TEXT_ARRAY,
        now.as_micros() => INT8,
        most => INT8,
        lanes => INT2_ARRAY,
        priorities => INT2_ARRAY,
    ];
    let rows = tx.alone(Mode::Read, PARKED, bound).await?;
    rows.iter().map(|row| Ok(Columns::of(row).take::<i64>()?.unsigned_abs())).collect()
}

/// The limits inside keep the planner from reading whole tables.
const PARKED: &str = "
    select (
        select count(*)
        from (
            select 1
            from (
                select f.id
                from flow f
                where f.destination = u.destination
                and (u.tenant is null or f.tenant = u.tenant)
                offset 0) as f
            cross join unnest($5::smallint[]) as l (lane)
            cross join unnest($6::smallint[]) as p (priority)
            cross join lateral (
                select 1
                from queue q
                where q.node is null
                and q.flow = f.id
                and q.lane = l.lane
                and q.priority = p.priority
                and q.due <= $3
                order by q.flow, q.lane, q.priority, q.due
                limit $4) as waiting
            limit $4) as counted)
    from unnest($1::text[], $2::text[]) with ordinality as u (tenant, destination, place)
    order by u.place";

fn by_key(rows: &[Row]) -> Result<BTreeMap<DestinationKey, StoredDestination>> {
    Ok(all(rows)?.into_iter().map(|row| (row.key.clone(), row)).collect())
}

/// Damaged rows are left out.
fn all(rows: &[Row]) -> Result<Vec<StoredDestination>> {
    let mut found = vec![];
    for row in rows {
        let name: &str = row.try_get(2)?;
        found.extend(unless_damaged(&name, read(row))?);
    }
    Ok(found)
}

fn read(row: &Row) -> Result<StoredDestination> {
    let mut columns = Columns::of(row);
    let (tenant, code) = (columns.take()?, columns.code()?);
    Ok(StoredDestination {
        key: key_from(tenant, code, columns.take()?)?,
        value: value_from(columns.take()?)?,
        version: columns.take()?,
        changed: columns.time()?,
    })
}
