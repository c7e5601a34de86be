//! Settings and their version.

use async_trait::async_trait;
use posthaste_engine::store::{self, Audit, Settings, StoredSettings};

use super::acts::write_audit;
use super::fault::Result;
use super::notices;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, single_row, statement};
use super::{PostgresStore, transact, transact_quickly};

#[async_trait]
impl StoredSettings for PostgresStore {
    async fn settings(&self, known: Option<i64>) -> store::Result<Option<Settings>> {
        Ok(transact_quickly!(self, tx, tx => settings(&tx, known))?)
    }

    async fn put_setting(&self, name: String, value: Option<String>, audit: Audit) -> store::Result<i64> {
        Ok(transact!(self, tx => put(&tx, &self.notify.channel, &name, value.as_deref(), &audit))?)
    }
}

/// Returns all settings, or `None` if `known` is the current version.
async fn settings(tx: &Tx, known: Option<i64>) -> Result<Option<Settings>> {
    let sql = "
        select version, name, value
        from setting_version
        left join setting on version is distinct from $1";
    let rows = tx.alone(Mode::Read, sql, bind![known => INT8]).await?;
    let mut found = Settings::default();
    for row in &rows {
        let mut columns = Columns::of(row);
        found.version = columns.take()?;
        let (name, value): (Option<String>, Option<String>) = (columns.take()?, columns.take()?);
        found.values.extend(name.zip(value));
    }
    Ok((known != Some(found.version)).then_some(found))
}

/// Returns the new version. The lock on the row of the version serializes changes.
async fn put(tx: &Tx, channel: &str, name: &str, value: Option<&str>, audit: &Audit) -> Result<i64> {
    let grow = statement!("update setting_version set version = version + 1 returning version", &[]);
    let mut answers = tx.send(Some(Mode::Write), &[grow], Then::Continue).await?;
    let version = Columns::of(&single_row(answers.pop().unwrap_or_default())?).take()?;
    let set = "
        insert into setting (name, value)
        values ($1, $2)
        on conflict (name) do update
        set value = excluded.value";
    let bound = bind![name => TEXT, value => TEXT];
    let change = match value {
        Some(_) => statement!(set, bound),
        None => statement!("delete from setting where name = $1", &bound[..1]),
    };
    let told = bind![channel => TEXT, notices::SETTING => TEXT];
    write_audit(tx, None, audit, 1, 1, vec![change, statement!(notices::NOTIFY, told)]).await?;
    Ok(version)
}
