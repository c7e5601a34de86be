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

    async fn swap_setting(
        &self,
        name: String,
        from: Option<String>,
        to: String,
        audit: Audit,
    ) -> store::Result<bool> {
        Ok(transact!(self, tx => swap(&tx, &self.notify.channel, &name, (from.as_deref(), &to), &audit))?)
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
    write(tx, channel, name, value, audit).await?;
    Ok(version)
}

/// Returns whether the setting was as expected.
async fn swap(
    tx: &Tx,
    channel: &str,
    name: &str,
    (from, to): (Option<&str>, &str),
    audit: &Audit,
) -> Result<bool> {
    let lock = statement!("select version from setting_version for update", &[]);
    // A separate statement, so that it sees what was committed while the one before it waited.
    let named = bind![name => TEXT];
    let look = statement!("select value from setting where name = $1", named);
    let mut answers = tx.send(Some(Mode::Write), &[lock, look], Then::Continue).await?;
    let rows = answers.pop().unwrap_or_default();
    let found: Option<String> = rows.first().map(|row| Columns::of(row).take()).transpose()?;
    if found.as_deref() != from {
        tx.send(None, &[], Then::Commit).await?;
        return Ok(false);
    }
    let grow = statement!("update setting_version set version = version + 1", &[]);
    tx.send(None, &[grow], Then::Continue).await?;
    write(tx, channel, name, Some(to), audit).await?;
    Ok(true)
}

/// Writes the value and the audit row, tells other nodes, and commits.
async fn write(tx: &Tx, channel: &str, name: &str, value: Option<&str>, audit: &Audit) -> Result<()> {
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
    write_audit(tx, None, audit, 1, 1, vec![change, statement!(notices::NOTIFY, told)]).await
}
