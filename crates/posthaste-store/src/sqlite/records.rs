//! Records and their versions.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::notification::Tenant;
use posthaste_core::record::{Record, RecordChange, RecordKey, RecordKind, change_records};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Audit, Page, Records};
use rusqlite::{Connection, Row, Rows, params};

use super::SqliteStore;
use super::acts::write_audit;
use super::fault::{Result, unless_damaged};
use super::rows::time;
use super::writer::Tx;
use crate::kept::records::{key_from, page_of, tenant_text};

#[async_trait]
impl Records for SqliteStore {
    async fn put_records(
        &self,
        changes: Vec<RecordChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<Option<i64>>> {
        self.write(changes.len(), move |tx| put(tx, changes.clone(), audit.as_ref(), now)).await
    }

    async fn records(&self, keys: Vec<RecordKey>) -> store::Result<Vec<Record>> {
        self.find(move |reader| {
            let found = load(&reader.conn, &keys)?;
            Ok(found.into_values().filter(|record| record.value.is_some()).collect())
        })
        .await
    }

    async fn record_page(
        &self,
        kind: RecordKind,
        tenant: Option<Tenant>,
        after: Option<RecordKey>,
        limit: usize,
    ) -> store::Result<Page<Record, RecordKey>> {
        self.list(move |reader| page(&reader.conn, kind, tenant.as_ref(), after.as_ref(), limit)).await
    }

    async fn records_since(
        &self,
        kind: RecordKind,
        version: i64,
        limit: usize,
    ) -> store::Result<Vec<Record>> {
        self.read(move |reader| since(&reader.conn, kind, version, limit)).await
    }
}

fn put(
    tx: &Tx<'_>,
    changes: Vec<RecordChange>,
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<Option<i64>>> {
    let keys: Vec<RecordKey> = changes.iter().map(|change| change.key.clone()).collect();
    let mut records = load(tx.conn, &keys)?;
    let before =
        tx.conn.prepare_cached("select version from record_version")?.query_row([], |row| row.get(0))?;
    let mut version: i64 = before;
    let made = change_records(&mut records, &mut version, changes, now);
    let mut upsert = tx.conn.prepare_cached(
        "insert into record (kind, tenant, name, number, value, version, changed)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         on conflict (kind, tenant, name) do update
         set number = excluded.number, value = excluded.value, version = excluded.version, changed = excluded.changed",
    )?;
    for record in records.values().filter(|record| record.version > before) {
        upsert.execute(params![
            record.key.kind().code(),
            tenant_text(record.key.tenant()),
            record.key.name(),
            record.number,
            record.value,
            record.version,
            record.changed.as_micros(),
        ])?;
    }
    tx.conn.prepare_cached("update record_version set version = ?1")?.execute([version])?;
    let count = made.iter().flatten().count();
    if let Some(audit) = audit.filter(|_| count > 0) {
        let [asked, count] = [made.len(), count].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        write_audit(tx.conn, audit, asked, count)?;
    }
    Ok(made)
}

/// Removed records are included.
fn load(conn: &Connection, keys: &[RecordKey]) -> Result<BTreeMap<RecordKey, Record>> {
    let mut select = conn.prepare_cached(
        "select kind, tenant, name, number, value, version, changed
         from record
         where kind = ?1
         and tenant = ?2
         and name = ?3",
    )?;
    let mut found = BTreeMap::new();
    for key in keys {
        let rows = select.query(params![key.kind().code(), tenant_text(key.tenant()), key.name()])?;
        found.extend(look(rows)?.records.into_iter().map(|record| (record.key.clone(), record)));
    }
    Ok(found)
}

/// Two selects: with (tenant, name) compared as a pair SQLite would read all records of the tenant.
fn page(
    conn: &Connection,
    kind: RecordKind,
    tenant: Option<&Tenant>,
    after: Option<&RecordKey>,
    limit: usize,
) -> Result<Page<Record, RecordKey>> {
    let mut select = conn.prepare_cached(
        "select kind, tenant, name, number, value, version, changed
         from (
             select *
             from record
             where kind = ?1
             and tenant = ?2
             and name > ?3
             order by name
             limit ?5)
         union all
         select kind, tenant, name, number, value, version, changed
         from (
             select *
             from record
             where kind = ?1
             and tenant > ?2
             and ?4
             order by tenant, name
             limit ?5)
         limit ?5",
    )?;
    let first = after.map_or_else(|| tenant_text(tenant), |after| tenant_text(after.tenant()));
    let name = after.map_or("", RecordKey::name);
    let limit_bound = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = select.query(params![kind.code(), first, name, tenant.is_none(), limit_bound])?;
    let Looked { records, rows, .. } = look(rows)?;
    Ok(page_of(records, rows, limit))
}

fn since(conn: &Connection, kind: RecordKind, version: i64, limit: usize) -> Result<Vec<Record>> {
    let mut select = conn.prepare_cached(
        "select kind, tenant, name, number, value, version, changed
         from record
         where kind = ?1
         and version > ?2
         order by version
         limit ?3",
    )?;
    let (mut found, mut after) = (vec![], version);
    loop {
        let asked = limit - found.len();
        let bound = i64::try_from(asked).unwrap_or(i64::MAX);
        let Looked { records, rows, version } = look(select.query(params![kind.code(), after, bound])?)?;
        found.extend(records);
        // Rows are read in place of damaged ones: a short result means that there are no more.
        match version {
            Some(version) if rows == asked && found.len() < limit => after = version,
            Some(_) | None => return Ok(found),
        }
    }
}

struct Looked {
    /// Without the damaged ones.
    records: Vec<Record>,
    /// Number of rows, with the damaged ones.
    rows: usize,
    /// Of the last row.
    version: Option<i64>,
}

fn look(mut rows: Rows<'_>) -> Result<Looked> {
    let mut found = Looked { records: vec![], rows: 0, version: None };
    while let Some(row) = rows.next()? {
        let name: String = row.get(2)?;
        found.records.extend(unless_damaged(&name, read(row))?);
        found.rows += 1;
        found.version = Some(row.get(5)?);
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> Result<Record> {
    let tenant = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    let key = key_from(row.get(0)?, tenant, row.get(2)?)?;
    Ok(Record { key, number: row.get(3)?, value: row.get(4)?, version: row.get(5)?, changed: time(row, 6)? })
}
