//! Settings and their version.

use async_trait::async_trait;
use posthaste_engine::store::{self, Audit, Settings, StoredSettings};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::acts::write_audit;
use super::fault::Result;
use super::writer::Tx;

#[async_trait]
impl StoredSettings for SqliteStore {
    async fn settings(&self, known: Option<i64>) -> store::Result<Option<Settings>> {
        self.read(move |reader| settings(&reader.conn, known)).await
    }

    async fn put_setting(&self, name: String, value: Option<String>, audit: Audit) -> store::Result<i64> {
        self.write(1, move |tx| put(tx, &name, value.as_deref(), &audit)).await
    }

    async fn swap_setting(
        &self,
        name: String,
        from: Option<String>,
        to: String,
        audit: Audit,
    ) -> store::Result<bool> {
        self.write(1, move |tx| swap(tx, &name, from.as_deref(), &to, &audit)).await
    }
}

/// Returns all settings, or `None` if `known` is the current version.
fn settings(conn: &Connection, known: Option<i64>) -> Result<Option<Settings>> {
    let version = version(conn)?;
    if known == Some(version) {
        return Ok(None);
    }
    let mut select = conn.prepare_cached(
        "select name, value
         from setting",
    )?;
    let all = select.query_map([], |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Some(Settings { version, values: all.collect::<rusqlite::Result<_>>()? }))
}

/// Returns the new version.
fn put(tx: &mut Tx<'_>, name: &str, value: Option<&str>, audit: &Audit) -> Result<i64> {
    match value {
        Some(value) => tx.conn.execute(
            "insert into setting (name, value)
             values (?1, ?2)
             on conflict (name) do update
             set value = excluded.value",
            params![name, value],
        )?,
        None => tx.conn.execute("delete from setting where name = ?1", [name])?,
    };
    tx.conn.execute("update setting_version set version = version + 1", [])?;
    write_audit(tx.conn, audit, 1, 1)?;
    version(tx.conn)
}

/// Returns whether the setting was as expected.
fn swap(tx: &mut Tx<'_>, name: &str, from: Option<&str>, to: &str, audit: &Audit) -> Result<bool> {
    let mut select = tx.conn.prepare_cached("select value from setting where name = ?1")?;
    let found: Option<String> = select.query_row([name], |row| row.get(0)).optional()?;
    drop(select);
    if found.as_deref() != from {
        return Ok(false);
    }
    put(tx, name, Some(to), audit)?;
    Ok(true)
}

fn version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("select version from setting_version")?.query_row([], |row| row.get(0))?)
}
