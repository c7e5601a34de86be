//! Settings and their version.

use async_trait::async_trait;
use posthaste_engine::store::{self, Audit, Settings, StoredSettings};

use super::acts::record;
use super::fault::Result;
use super::news;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, only, step};
use super::{PostgresStore, prompt, transact};

#[async_trait]
impl StoredSettings for PostgresStore {
    async fn settings(&self, known: Option<i64>) -> store::Result<Option<Settings>> {
        Ok(prompt!(self, tx, tx => settings(&tx, known))?)
    }

    async fn put_setting(&self, name: String, value: Option<String>, audit: Audit) -> store::Result<i64> {
        Ok(transact!(self, tx => put(&tx, &self.way.channel, &name, value.as_deref(), &audit))?)
    }
}

/// Every setting, unless the version is still the known one.
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

/// Sets or removes a setting and returns the new version. The row of the version lets one come after the other.
async fn put(tx: &Tx, channel: &str, name: &str, value: Option<&str>, audit: &Audit) -> Result<i64> {
    let grow = step!("update setting_version set version = version + 1 returning version", &[]);
    let mut answers = tx.send(Some(Mode::Write), &[grow], Then::GoOn).await?;
    let version = Columns::of(&only(answers.pop().unwrap_or_default())?).take()?;
    let set = "
        insert into setting (name, value)
        values ($1, $2)
        on conflict (name) do update
        set value = excluded.value";
    let bound = bind![name => TEXT, value => TEXT];
    let change = match value {
        Some(_) => step!(set, bound),
        None => step!("delete from setting where name = $1", &bound[..1]),
    };
    let told = bind![channel => TEXT, news::SETTING => TEXT];
    record(tx, None, audit, 1, 1, vec![change, step!(news::NOTIFY, told)]).await?;
    Ok(version)
}
