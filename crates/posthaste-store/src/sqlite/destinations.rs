//! Destinations: rows with versions, their histories, and what waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::channel::Channel;
use posthaste_core::destination::{
    DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationKind, DestinationPut,
    EVENTS_KEPT, MAX_EVENTS, REMOVED_AT_ONCE, REMOVED_KEPT, StoredDestination, change_destinations,
};
use posthaste_core::flow::FlowKey;
use posthaste_core::notification::{Priority, Tenant};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Audit, Destinations, FlowsTo, Page};
use rusqlite::{Connection, Row, Rows, params};

use super::SqliteStore;
use super::acts::write_audit;
use super::fault::{Fault, Result, unless_damaged};
use super::planted::Planted;
use super::rows::{maybe_text, maybe_time, time};
use super::writer::Tx;
use crate::kept::destinations::{event_from, key_from, known_page, new_events, page_of, value_from};
use crate::kept::records::tenant_text;
use crate::kept::values;

#[async_trait]
impl Destinations for SqliteStore {
    async fn put_destinations(
        &self,
        changes: Vec<DestinationChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<DestinationPut>> {
        self.write(changes.len(), move |tx| put(tx, changes.clone(), audit.as_ref(), now)).await
    }

    async fn destinations(&self, keys: Vec<DestinationKey>) -> store::Result<Vec<StoredDestination>> {
        self.find(move |reader| {
            let found = load(&reader.conn, keys.iter())?;
            Ok(found.into_values().filter(|row| row.value.is_some()).collect())
        })
        .await
    }

    async fn destination(&self, id: DestinationId) -> store::Result<Option<StoredDestination>> {
        self.find(move |reader| {
            let mut select = reader.conn.prepare_cached(
                "select tenant, kind, name, value, version, changed
                 from destination
                 where id = ?1
                 and value is not null",
            )?;
            Ok(look(select.query([id.to_bytes()])?)?.found.pop())
        })
        .await
    }

    async fn destination_page(
        &self,
        tenant: Option<Tenant>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> store::Result<Page<StoredDestination, DestinationKey>> {
        self.list(move |reader| page(&reader.conn, tenant.as_ref(), after.as_ref(), limit)).await
    }

    async fn destinations_since(&self, version: i64, limit: usize) -> store::Result<Vec<StoredDestination>> {
        self.read(move |reader| since(&reader.conn, version, limit)).await
    }

    async fn destination_events(
        &self,
        of: Vec<DestinationId>,
        since: Timestamp,
        limit: usize,
    ) -> store::Result<Vec<Vec<DestinationEvent>>> {
        self.list(move |reader| of.iter().map(|id| events(&reader.conn, *id, since, limit)).collect()).await
    }

    async fn known_destinations(
        &self,
        tenant: Option<Tenant>,
        name: Option<Arc<str>>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> store::Result<Page<DestinationKey, DestinationKey>> {
        self.list(move |reader| known(&reader.conn, tenant.as_ref(), name.as_deref(), after.as_ref(), limit))
            .await
    }

    async fn parked(&self, of: Vec<FlowsTo>, most: u64, now: Timestamp) -> store::Result<Vec<u64>> {
        self.list(move |reader| of.iter().map(|flows| parked(&reader.conn, flows, most, now)).collect()).await
    }
}

fn put(
    tx: &Tx<'_>,
    mut changes: Vec<DestinationChange>,
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<DestinationPut>> {
    let mut rows = load(tx.conn, changes.iter().map(|change| &change.key))?;
    let before: i64 =
        tx.conn.prepare_cached("select version from destination_version")?.query_row([], |row| row.get(0))?;
    let mut version = before;
    if tx.bug(Planted::DestinationSwappedUnseen) {
        for change in &mut changes {
            change.expected = rows.get(&change.key).map_or(0, StoredDestination::expected);
        }
    }
    let put = change_destinations(&mut rows, &mut version, &changes, now);
    write(tx.conn, rows.values().filter(|row| row.version > before))?;
    if version > before {
        tx.conn.prepare_cached("update destination_version set version = ?1")?.execute([version])?;
    }
    add_events(tx.conn, &new_events(&changes, &put))?;
    let count = put.iter().filter(|put| put.is_made()).count();
    if let Some(audit) = audit.filter(|_| count > 0) {
        let [asked, count] = [put.len(), count].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        write_audit(tx.conn, audit, asked, count)?;
    }
    clean(tx.conn, now)?;
    Ok(put)
}

fn write<'r>(conn: &Connection, rows: impl Iterator<Item = &'r StoredDestination>) -> Result<()> {
    let mut upsert = conn.prepare_cached(
        "insert into destination (tenant, kind, name, id, value, version, changed)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         on conflict (tenant, kind, name) do update
         set value = excluded.value, version = excluded.version, changed = excluded.changed",
    )?;
    for StoredDestination { key, version, value, changed } in rows {
        upsert.execute(params![
            tenant_text(key.tenant.as_ref()),
            key.kind.code(),
            &*key.name,
            key.id().to_bytes(),
            value.as_ref().map(posthaste_core::destination::Destination::to_json),
            version,
            changed.as_micros(),
        ])?;
    }
    Ok(())
}

fn add_events(conn: &Connection, events: &[(DestinationId, &DestinationEvent)]) -> Result<()> {
    let mut insert = conn.prepare_cached(
        "insert into destination_event (destination, number, at, event, actor, until)
         select ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5
         from destination_event
         where destination = ?1",
    )?;
    let mut trim = conn.prepare_cached(
        "delete from destination_event
         where destination = ?1
         and number <= (select max(number) from destination_event where destination = ?1) - ?2",
    )?;
    for (id, event) in events {
        let until = values::maybe_micros(event.until);
        insert.execute(params![id.to_bytes(), event.at.as_micros(), event.event.code(), event.by, until])?;
        trim.execute(params![id.to_bytes(), i64::try_from(MAX_EVENTS).unwrap_or(i64::MAX)])?;
    }
    Ok(())
}

/// Deletes some events and removed rows that have become too old.
fn clean(conn: &Connection, now: Timestamp) -> Result<()> {
    let most = i64::try_from(REMOVED_AT_ONCE).unwrap_or(i64::MAX);
    let mut removed = conn.prepare_cached(
        "delete from destination
         where (tenant, kind, name) in (
             select tenant, kind, name
             from destination
             where value is null
             and changed < ?1
             order by changed, version
             limit ?2)",
    )?;
    removed.execute([now.earlier(REMOVED_KEPT).as_micros(), most])?;
    let mut old = conn.prepare_cached(
        "delete from destination_event
         where (destination, number) in (
             select destination, number
             from destination_event
             where at < ?1
             order by at
             limit ?2)",
    )?;
    old.execute([now.earlier(EVENTS_KEPT).as_micros(), most])?;
    Ok(())
}

/// Removed rows are included.
fn load<'k>(
    conn: &Connection,
    keys: impl Iterator<Item = &'k DestinationKey>,
) -> Result<BTreeMap<DestinationKey, StoredDestination>> {
    let mut select = conn.prepare_cached(
        "select tenant, kind, name, value, version, changed
         from destination
         where tenant = ?1
         and kind = ?2
         and name = ?3",
    )?;
    let mut found = BTreeMap::new();
    for key in keys {
        let rows = select.query(params![tenant_text(key.tenant.as_ref()), key.kind.code(), &*key.name])?;
        found.extend(look(rows)?.found.into_iter().map(|row| (row.key.clone(), row)));
    }
    Ok(found)
}

pub(super) fn page(
    conn: &Connection,
    tenant: Option<&Tenant>,
    after: Option<&DestinationKey>,
    limit: usize,
) -> Result<Page<StoredDestination, DestinationKey>> {
    let mut looked = Looked { found: vec![], rows: 0, version: None };
    match tenant {
        Some(tenant) => {
            // One range after the other: compared as a pair, all kinds of the tenant would be read.
            let mut select = conn.prepare_cached(
                "select tenant, kind, name, value, version, changed
                 from destination
                 where tenant = ?1
                 and kind = ?2
                 and name > ?3
                 order by name
                 limit ?4",
            )?;
            for kind in DestinationKind::ALL {
                let name = match after {
                    Some(after) if after.kind > kind => continue,
                    Some(after) if after.kind == kind => &*after.name,
                    Some(_) | None => "",
                };
                let rest = i64::try_from(limit - looked.rows).unwrap_or(i64::MAX);
                looked.add(look(select.query(params![tenant.as_str(), kind.code(), name, rest])?)?);
            }
        }
        None => {
            let mut select = conn.prepare_cached(
                "select tenant, kind, name, value, version, changed
                 from destination
                 where (tenant, kind, name) > (?1, ?2, ?3)
                 order by tenant, kind, name
                 limit ?4",
            )?;
            let first = after.map_or(("", 0, ""), |after| {
                (tenant_text(after.tenant.as_ref()), after.kind.code(), &*after.name)
            });
            let bound = i64::try_from(limit).unwrap_or(i64::MAX);
            looked.add(look(select.query(params![first.0, first.1, first.2, bound])?)?);
        }
    }
    Ok(page_of(looked.found, looked.rows, limit))
}

fn since(conn: &Connection, version: i64, limit: usize) -> Result<Vec<StoredDestination>> {
    let mut select = conn.prepare_cached(
        "select tenant, kind, name, value, version, changed
         from destination indexed by destination_changes
         where version > ?1
         order by version
         limit ?2",
    )?;
    let (mut found, mut after) = (vec![], version);
    loop {
        let asked = limit - found.len();
        let bound = i64::try_from(asked).unwrap_or(i64::MAX);
        let looked = look(select.query(params![after, bound])?)?;
        found.extend(looked.found);
        // Rows are read in place of damaged ones: a short result means that there are no more.
        match looked.version {
            Some(version) if looked.rows == asked && found.len() < limit => after = version,
            Some(_) | None => return Ok(found),
        }
    }
}

fn events(
    conn: &Connection,
    id: DestinationId,
    since: Timestamp,
    limit: usize,
) -> Result<Vec<DestinationEvent>> {
    let mut select = conn.prepare_cached(
        "select at, event, actor, until
         from destination_event
         where destination = ?1
         and at >= ?2
         order by number desc
         limit ?3",
    )?;
    let bound = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query(params![id.to_bytes(), since.as_micros(), bound])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let event = event_from(time(row, 0)?, row.get(1)?, row.get(2)?, maybe_time(row, 3)?);
        found.extend(unless_damaged(&id, event.map_err(Fault::from))?);
    }
    Ok(found)
}

/// Flows of other channels, of which a tenant has only a few, are passed over.
pub(super) fn known(
    conn: &Connection,
    tenant: Option<&Tenant>,
    name: Option<&str>,
    after: Option<&DestinationKey>,
    limit: usize,
) -> Result<Page<DestinationKey, DestinationKey>> {
    let (channel, bound) = (Channel::Webhook.code(), i64::try_from(limit).unwrap_or(i64::MAX));
    let last_tenant = after.map_or("", |after| tenant_text(after.tenant.as_ref()));
    let last_name = after.map_or("", |after| &*after.name);
    let found = match (tenant.map(Tenant::as_str), name) {
        (tenant, Some(name)) => {
            let mut select = conn.prepare_cached(KNOWN_BY_NAME)?;
            flows_of(select.query(params![channel, name, tenant, last_tenant, last_name, bound])?)?
        }
        (Some(tenant), None) => {
            let mut select = conn.prepare_cached(KNOWN_OF_TENANT)?;
            flows_of(select.query(params![channel, tenant, last_name, bound])?)?
        }
        (None, None) => {
            let mut select = conn.prepare_cached(KNOWN)?;
            flows_of(select.query(params![channel, last_tenant, last_name, bound])?)?
        }
    };
    let (keys, looked_at) = found;
    Ok(known_page(keys, looked_at, limit))
}

/// The plus keeps SQLite from sorting all flows of a tenant.
const KNOWN: &str = "
    select tenant, destination
    from flow
    where (tenant, channel, destination) > (?2, ?1, ?3)
    and +channel = ?1
    order by tenant, channel, destination
    limit ?4";

const KNOWN_OF_TENANT: &str = "
    select tenant, destination
    from flow
    where channel = ?1
    and tenant = ?2
    and destination > ?3
    order by destination
    limit ?4";

const KNOWN_BY_NAME: &str = "
    select tenant, destination
    from flow indexed by flow_destination
    where channel = ?1
    and destination = ?2
    and (?3 is null or tenant = ?3)
    and (tenant, destination) > (?4, ?5)
    order by tenant
    limit ?6";

/// The destinations of flows, and how many rows were read for them.
fn flows_of(mut rows: Rows<'_>) -> Result<(Vec<DestinationKey>, usize)> {
    let (mut found, mut looked_at) = (vec![], 0);
    while let Some(row) = rows.next()? {
        let destination: Arc<str> = row.get(1)?;
        found.extend(unless_damaged(&destination, key_of_flow(row, destination.clone()))?.flatten());
        looked_at += 1;
    }
    Ok((found, looked_at))
}

fn key_of_flow(row: &Row<'_>, destination: Arc<str>) -> Result<Option<DestinationKey>> {
    let tenant = values::tenant(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
    Ok(DestinationKey::of_flow(&FlowKey { tenant, channel: Channel::Webhook, destination }))
}

pub(super) fn parked(conn: &Connection, of: &FlowsTo, most: u64, now: Timestamp) -> Result<u64> {
    let mut flows = conn.prepare_cached(
        "select id
         from flow indexed by flow_destination
         where destination = ?1
         and (?2 is null or tenant = ?2)",
    )?;
    let mut count = conn.prepare_cached(
        "select count(*)
         from (
             select 1
             from queue indexed by queue_claim
             where node is null
             and flow = ?1
             and lane = ?2
             and priority = ?3
             and due <= ?4
             limit ?5)",
    )?;
    let mut found = 0;
    let mut rows = flows.query(params![&*of.destination, of.tenant.as_ref().map(Tenant::as_str)])?;
    while found < most
        && let Some(row) = rows.next()?
    {
        let flow: i64 = row.get(0)?;
        for (lane, priority) in Lane::ALL.into_iter().flat_map(|lane| Priority::ALL.map(|one| (lane, one))) {
            let rest = i64::try_from(most - found).unwrap_or(i64::MAX);
            let bound = params![flow, lane.code(), priority.code(), now.as_micros(), rest];
            found += count.query_row(bound, |row| row.get::<_, i64>(0))?.unsigned_abs();
        }
    }
    Ok(found)
}

struct Looked {
    /// Without the damaged ones.
    found: Vec<StoredDestination>,
    /// Number of rows, with the damaged ones.
    rows: usize,
    /// Of the last row.
    version: Option<i64>,
}

impl Looked {
    fn add(&mut self, more: Self) {
        self.found.extend(more.found);
        self.rows += more.rows;
        self.version = more.version.or(self.version);
    }
}

fn look(mut rows: Rows<'_>) -> Result<Looked> {
    let mut looked = Looked { found: vec![], rows: 0, version: None };
    while let Some(row) = rows.next()? {
        let name: String = row.get(2)?;
        looked.found.extend(unless_damaged(&name, read(row))?);
        looked.rows += 1;
        looked.version = Some(row.get(4)?);
    }
    Ok(looked)
}

fn read(row: &Row<'_>) -> Result<StoredDestination> {
    let text = |column| -> Result<&str> { Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?) };
    Ok(StoredDestination {
        key: key_from(text(0)?, row.get(1)?, text(2)?)?,
        value: value_from(maybe_text(row, 3)?)?,
        version: row.get(4)?,
        changed: time(row, 5)?,
    })
}
