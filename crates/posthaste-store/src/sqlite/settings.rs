//! Settings and their version.

use posthaste_engine::store::Audit;
use rusqlite::{Connection, Row, params};

use super::acts::record;
use super::fault::Result;
use super::writer::Tx;

/// The version and every setting by its name.
pub(super) type Settings = (i64, Vec<(String, String)>);

/// Every setting, unless the version is still the known one.
pub(super) fn settings(conn: &Connection, known: Option<i64>) -> Result<Option<Settings>> {
    let version = version(conn)?;
    if known == Some(version) {
        return Ok(None);
    }
    let mut select = conn.prepare_cached(
        "select name, value
         from setting
         order by name",
    )?;
    let all = select.query_map([], |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Some((version, all.collect::<rusqlite::Result<_>>()?)))
}

/// Sets or removes a setting and answers with the new version.
pub(super) fn put(tx: &mut Tx<'_>, name: &str, value: Option<&str>, audit: &Audit) -> Result<i64> {
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
    record(tx.conn, audit, 1, 1)?;
    version(tx.conn)
}

fn version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("select version from setting_version")?.query_row([], |row| row.get(0))?)
}
