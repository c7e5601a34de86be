//! Settings and their version.

use posthaste_engine::store::Audit;

use super::acts::record;
use super::fault::Result;
use super::news;
use super::rows::Columns;
use super::tx::{Mode, Then, Tx, bind, only, step};

/// The version and every setting by its name.
pub(super) type Settings = (i64, Vec<(String, String)>);

/// Every setting, unless the version is still the known one.
pub(super) async fn settings(tx: &Tx, known: Option<i64>) -> Result<Option<Settings>> {
    let sql = "
        select version, name, value
        from setting_version
        left join setting on version is distinct from $1
        order by name";
    let rows = tx.alone(Mode::Read, sql, bind![known => INT8]).await?;
    let (mut version, mut all) = (0, vec![]);
    for row in &rows {
        let mut columns = Columns::of(row);
        version = columns.take()?;
        let (name, value): (Option<String>, Option<String>) = (columns.take()?, columns.take()?);
        all.extend(name.zip(value));
    }
    Ok((known != Some(version)).then_some((version, all)))
}

/// Sets or removes a setting and answers with the new version. The row of the version lets one come after the other.
pub(super) async fn put(
    tx: &Tx,
    channel: &str,
    name: &str,
    value: Option<&str>,
    audit: &Audit,
) -> Result<i64> {
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
