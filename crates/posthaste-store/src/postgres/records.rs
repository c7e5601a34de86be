//! Records and their versions. Each change locks the row of `record_version`, so that versions become visible
//! in order.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::notification::Tenant;
use posthaste_core::record::{Record, RecordChange, RecordKey, RecordKind, change_records};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, Audit, Page, Records};
use tokio_postgres::Row;

use super::acts::write_audit;
use super::fault::{Result, unless_damaged};
use super::rows::{Columns, bigint};
use super::tx::{Bound, Mode, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, list, look, transact};
use crate::kept::records::{key_from, page_of, tenant_text};

#[async_trait]
impl Records for PostgresStore {
    async fn put_records(
        &self,
        changes: Vec<RecordChange>,
        audit: Option<Audit>,
        now: Timestamp,
    ) -> store::Result<Vec<Option<i64>>> {
        Ok(transact!(self, tx => put(&tx, &changes, audit.as_ref(), now))?)
    }

    async fn records(&self, keys: Vec<RecordKey>) -> store::Result<Vec<Record>> {
        let found = look!(self, tx => find(&tx, &keys))?;
        Ok(found.into_values().filter(|record| record.value.is_some()).collect())
    }

    async fn record_page(
        &self,
        kind: RecordKind,
        tenant: Option<Tenant>,
        after: Option<RecordKey>,
        limit: usize,
    ) -> store::Result<Page<Record, RecordKey>> {
        Ok(list!(self, tx => page(&tx, kind, tenant.as_ref(), after.as_ref(), limit))?)
    }

    async fn records_since(
        &self,
        kind: RecordKind,
        version: i64,
        limit: usize,
    ) -> store::Result<Vec<Record>> {
        Ok(transact!(self, tx => since(&tx, kind, version, limit))?)
    }
}

const FIND: &str = "
    select r.kind, r.tenant, r.name, r.number, r.value, r.version, r.changed
    from unnest($1::smallint[], $2::text[], $3::text[]) as u (kind, tenant, name)
    join record r on r.kind = u.kind and r.tenant = u.tenant and r.name = u.name";

const UPSERT: &str = "
    insert into record (kind, tenant, name, number, value, version, changed)
    select *
    from unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
    on conflict (kind, tenant, name) do update
    set number = excluded.number, value = excluded.value, version = excluded.version, changed = excluded.changed";

async fn put(
    tx: &Tx,
    changes: &[RecordChange],
    audit: Option<&Audit>,
    now: Timestamp,
) -> Result<Vec<Option<i64>>> {
    let keys = KeyColumns::of(changes.iter().map(|change| &change.key));
    let locked = statement!("select version from record_version for update", &[]);
    let bound = keys.bound();
    // A separate statement, so that it sees what was committed while the one before it waited.
    let steps = [locked, statement!(FIND, &bound)];
    let mut answers = tx.send(Some(Mode::Write), &steps, Then::Continue).await?;
    let mut records = by_key(&answers.pop().unwrap_or_default())?;
    let before: i64 = Columns::of(&single_row(answers.pop().unwrap_or_default())?).take()?;
    let mut version = before;
    let made = change_records(&mut records, &mut version, changes.to_vec(), now);
    records.retain(|_, record| record.version > before);
    let keys = KeyColumns::of(records.keys());
    let numbers: Vec<i64> = records.values().map(|record| record.number).collect();
    let values: Vec<Option<&str>> = records.values().map(|record| record.value.as_deref()).collect();
    let versions: Vec<i64> = records.values().map(|record| record.version).collect();
    let changed: Vec<i64> = records.values().map(|record| record.changed.as_micros()).collect();
    let put = bind![
        keys.kinds => INT2_ARRAY,
        keys.tenants => TEXT_ARRAY,
        keys.names => TEXT_ARRAY,
        numbers => INT8_ARRAY,
        values => TEXT_ARRAY,
        versions => INT8_ARRAY,
        changed => INT8_ARRAY,
    ];
    let grown = bind![version => INT8];
    let steps = vec![statement!(UPSERT, put), statement!("update record_version set version = $1", grown)];
    let count = made.iter().flatten().count();
    match audit.filter(|_| count > 0) {
        Some(audit) => write_audit(tx, None, audit, made.len(), count, steps).await?,
        None => drop(tx.send(None, &steps, Then::Commit).await?),
    }
    Ok(made)
}

async fn find(tx: &Tx, keys: &[RecordKey]) -> Result<BTreeMap<RecordKey, Record>> {
    let keys = KeyColumns::of(keys.iter());
    by_key(&tx.alone(Mode::Read, FIND, &keys.bound()).await?)
}

async fn page(
    tx: &Tx,
    kind: RecordKind,
    tenant: Option<&Tenant>,
    after: Option<&RecordKey>,
    limit: usize,
) -> Result<Page<Record, RecordKey>> {
    let name = after.map_or("", RecordKey::name);
    let (code, limit_bound) = (i16::from(kind.code()), bigint(limit));
    let rows = match tenant {
        Some(tenant) => {
            let bound = bind![code => INT2, name => TEXT, limit_bound => INT8, tenant.as_str() => TEXT];
            tx.alone(Mode::Read, PAGE_OF_TENANT, bound).await?
        }
        None => {
            let first = tenant_text(after.and_then(RecordKey::tenant));
            let bound = bind![code => INT2, name => TEXT, limit_bound => INT8, first => TEXT];
            tx.alone(Mode::Read, PAGE, bound).await?
        }
    };
    Ok(page_of(all(&rows)?, rows.len(), limit))
}

/// After the tenant `$4` and the name `$2`.
const PAGE: &str = "
    select kind, tenant, name, number, value, version, changed
    from record
    where kind = $1
    and (tenant, name) > ($4, $2)
    order by tenant, name
    limit $3";

/// Of the tenant `$4`.
const PAGE_OF_TENANT: &str = "
    select kind, tenant, name, number, value, version, changed
    from record
    where kind = $1
    and tenant = $4
    and name > $2
    order by name
    limit $3";

async fn since(tx: &Tx, kind: RecordKind, version: i64, limit: usize) -> Result<Vec<Record>> {
    let sql = "
        select kind, tenant, name, number, value, version, changed
        from record
        where kind = $1
        and version > $2
        order by version
        limit $3";
    let (mut found, mut after) = (vec![], version);
    loop {
        let asked = limit - found.len();
        let bound = bind![i16::from(kind.code()) => INT2, after => INT8, bigint(asked) => INT8];
        let rows = tx.alone(Mode::Read, sql, bound).await?;
        found.extend(all(&rows)?);
        // Rows are read in place of damaged ones: a short result means that there are no more.
        match rows.last() {
            Some(last) if rows.len() == asked && found.len() < limit => after = last.try_get(5)?,
            Some(_) | None => return Ok(found),
        }
    }
}

struct KeyColumns<'k> {
    kinds: Vec<i16>,
    tenants: Vec<&'k str>,
    names: Vec<&'k str>,
}

impl<'k> KeyColumns<'k> {
    fn of(keys: impl Iterator<Item = &'k RecordKey>) -> Self {
        let mut columns = Self { kinds: vec![], tenants: vec![], names: vec![] };
        for key in keys {
            columns.kinds.push(i16::from(key.kind().code()));
            columns.tenants.push(tenant_text(key.tenant()));
            columns.names.push(key.name());
        }
        columns
    }

    fn bound(&self) -> Vec<Bound<'_>> {
        let bound: &[Bound<'_>] =
            bind![self.kinds => INT2_ARRAY, self.tenants => TEXT_ARRAY, self.names => TEXT_ARRAY];
        bound.to_vec()
    }
}

fn by_key(rows: &[Row]) -> Result<BTreeMap<RecordKey, Record>> {
    Ok(all(rows)?.into_iter().map(|record| (record.key.clone(), record)).collect())
}

/// Damaged rows are left out.
fn all(rows: &[Row]) -> Result<Vec<Record>> {
    let mut found = vec![];
    for row in rows {
        let name: &str = row.try_get(2)?;
        found.extend(unless_damaged(&name, read(row))?);
    }
    Ok(found)
}

fn read(row: &Row) -> Result<Record> {
    let mut columns = Columns::of(row);
    let (code, tenant) = (columns.code()?, columns.take()?);
    let key = key_from(code, tenant, columns.take()?)?;
    Ok(Record {
        key,
        number: columns.take()?,
        value: columns.take()?,
        version: columns.take()?,
        changed: columns.time()?,
    })
}
