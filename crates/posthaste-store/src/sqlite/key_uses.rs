//! Last uses of API keys.

use async_trait::async_trait;
use posthaste_core::id::KeyId;
use posthaste_engine::store::{self, KeyUse, KeyUses};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::fault::Result;
use super::rows::time;
use super::writer::Tx;

#[async_trait]
impl KeyUses for SqliteStore {
    async fn note_key_uses(&self, uses: Vec<KeyUse>, gone: Vec<KeyId>) -> store::Result<()> {
        self.write(uses.len() + gone.len(), move |tx| note(tx, &uses, &gone)).await
    }

    async fn key_uses(&self) -> store::Result<Vec<KeyUse>> {
        self.list(|reader| all(&reader.conn)).await
    }
}

fn note(tx: &Tx<'_>, uses: &[KeyUse], gone: &[KeyId]) -> Result<()> {
    let mut note = tx.conn.prepare_cached(
        "insert into key_use (key, at)
         values (?1, ?2)
         on conflict (key) do update
         set at = excluded.at
         where at < excluded.at",
    )?;
    for one in uses {
        note.execute(params![one.key.to_bytes(), one.at.as_micros()])?;
    }
    let mut forget = tx.conn.prepare_cached("delete from key_use where key = ?1")?;
    for key in gone {
        forget.execute([key.to_bytes()])?;
    }
    Ok(())
}

fn all(conn: &Connection) -> Result<Vec<KeyUse>> {
    let mut select = conn.prepare_cached(
        "select key, at
         from key_use
         order by key",
    )?;
    let mut rows = select.query([])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(KeyUse { key: KeyId::from_bytes(row.get(0)?), at: time(row, 1)? });
    }
    Ok(found)
}
