//! Last uses of API keys.

use std::collections::BTreeMap;

use async_trait::async_trait;
use posthaste_core::id::KeyId;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{self, KeyUse, KeyUses};
use uuid::Uuid;

use super::fault::Result;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, statement};
use super::{PostgresStore, list, transact};

#[async_trait]
impl KeyUses for PostgresStore {
    async fn note_key_uses(&self, uses: Vec<KeyUse>, gone: Vec<KeyId>) -> store::Result<()> {
        Ok(transact!(self, tx => note(&tx, &uses, &gone))?)
    }

    async fn key_uses(&self) -> store::Result<Vec<KeyUse>> {
        Ok(list!(self, tx => all(&tx))?)
    }
}

/// In the order of the keys, so that two nodes cannot wait for each other. An upsert takes each row only once.
async fn note(tx: &Tx, uses: &[KeyUse], gone: &[KeyId]) -> Result<()> {
    let mut last: BTreeMap<KeyId, Timestamp> = BTreeMap::new();
    for one in uses {
        let known = last.entry(one.key).or_insert(one.at);
        *known = one.at.max(*known);
    }
    let keys: Vec<Uuid> = last.keys().map(|key| uuid(*key)).collect();
    let times: Vec<i64> = last.values().map(|at| at.as_micros()).collect();
    let mut gone: Vec<Uuid> = gone.iter().map(|key| uuid(*key)).collect();
    gone.sort_unstable();
    let note = "
        insert into key_use (key, at)
        select *
        from unnest($1::uuid[], $2::bigint[])
        on conflict (key) do update
        set at = excluded.at
        where key_use.at < excluded.at";
    let forget = "delete from key_use where key = any($1)";
    let (noted, forgotten) = (bind![keys => UUID_ARRAY, times => INT8_ARRAY], bind![gone => UUID_ARRAY]);
    let steps = [statement!(note, noted), statement!(forget, forgotten)];
    tx.send(Some(Mode::Write), &steps, Then::Commit).await?;
    Ok(())
}

async fn all(tx: &Tx) -> Result<Vec<KeyUse>> {
    let rows = tx.alone(Mode::Read, "select key, at from key_use order by key", &[]).await?;
    let read = |row| {
        let mut columns = Columns::of(row);
        let key = KeyId::from_bytes(columns.take::<Uuid>()?.into_bytes());
        Ok(KeyUse { key, at: columns.time()? })
    };
    rows.iter().map(read).collect()
}

const fn uuid(key: KeyId) -> Uuid {
    Uuid::from_bytes(key.to_bytes())
}
