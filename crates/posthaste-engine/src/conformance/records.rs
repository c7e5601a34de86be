//! Records: compare-and-swap, pages, and what changed since a version.

use posthaste_core::filter::AuditFilter;
use posthaste_core::record::{Expected, Record, RecordChange, RecordKey, RecordKind};

use super::scene::{Scene, at, audit, tenant};
use super::{Kept, Promise, list, same};
use crate::store::{AuditRow, Result};

pub(super) const PROMISES: &[Promise] = list![
    a_record_is_put_only_where_it_is_as_expected,
    records_are_found_by_their_keys,
    pages_of_records_are_in_the_order_of_their_keys,
    what_changed_since_a_version_is_told_with_what_was_removed,
    changes_of_records_are_audited_together,
];

fn key(kind: RecordKind, owner: &str, name: &str) -> RecordKey {
    let owner = (!owner.is_empty()).then(|| tenant(owner));
    RecordKey::new(kind, owner, name).expect("the suite names its records in plain letters")
}

fn change(key: RecordKey, value: Option<&str>, expected: Expected) -> RecordChange {
    RecordChange { key, number: 7, value: value.map(str::to_owned), expected }
}

fn put(owner: &str, name: &str) -> RecordChange {
    change(key(RecordKind::Template, owner, name), Some("{}"), Expected::Anything)
}

fn template(name: &str) -> RecordKey {
    key(RecordKind::Template, "acme", name)
}

async fn a_record_is_put_only_where_it_is_as_expected(scene: Scene) -> Kept {
    let put = async |value: Option<&str>, expected| -> Result<Option<i64>> {
        let changes = vec![change(template("a"), value, expected)];
        Ok(scene.store.put_records(changes, None, at(1)).await?[0])
    };
    same("version 9 of none", put(Some("0"), Expected::Version(9)).await?, None)?;
    same("a new one", put(Some("1"), Expected::Absent).await?, Some(1))?;
    same("a new one again", put(Some("2"), Expected::Absent).await?, None)?;
    same("the version that it has", put(Some("ü \u{1f980}"), Expected::Version(1)).await?, Some(2))?;
    same("a version that it had", put(Some("4"), Expected::Version(1)).await?, None)?;
    let kept = scene.store.records(vec![template("a")]).await?;
    let wanted = Record {
        key: template("a"),
        number: 7,
        value: Some("ü \u{1f980}".to_owned()),
        version: 2,
        changed: at(1),
    };
    same("what is kept", kept, [wanted])?;
    same("a removal", put(None, Expected::Version(2)).await?, Some(3))?;
    same("what is gone", put(None, Expected::Anything).await?, None)?;
    same("the version of what is gone", put(Some("5"), Expected::Version(3)).await?, None)?;
    same("the same name again", put(Some("6"), Expected::Absent).await?, Some(4))
}

async fn records_are_found_by_their_keys(scene: Scene) -> Kept {
    let gone = change(template("gone"), None, Expected::Anything);
    let changes = vec![put("acme", "b"), put("", "b"), put("acme", "a"), put("acme", "gone"), gone];
    scene.store.put_records(changes, None, at(1)).await?;
    let other = key(RecordKind::Contact, "acme", "a");
    let asked = vec![template("b"), template("gone"), other, template("b"), template("a"), template("none")];
    let found = scene.store.records(asked).await?;
    let keys: Vec<RecordKey> = found.into_iter().map(|record| record.key).collect();
    same("each once, in order", keys, [template("a"), template("b")])?;
    same("nothing asked", scene.store.records(vec![]).await?, vec![])
}

async fn pages_of_records_are_in_the_order_of_their_keys(scene: Scene) -> Kept {
    let names = [("globex", "a"), ("acme", "b"), ("acme", "Z"), ("", "x"), ("acme", "é"), ("acme", "bb")];
    let mut changes: Vec<RecordChange> = names.map(|(owner, name)| put(owner, name)).into();
    changes.push(change(template("bb"), None, Expected::Anything));
    changes.push(change(key(RecordKind::Note, "acme", "c"), Some("{}"), Expected::Absent));
    scene.store.put_records(changes, None, at(1)).await?;
    let walk = async |owner: Option<&str>, limit| -> Result<Vec<RecordKey>> {
        let (mut keys, mut after) = (vec![], None);
        loop {
            let owner = owner.map(tenant);
            let page = scene.store.record_page(RecordKind::Template, owner, after, limit).await?;
            keys.extend(page.rows.into_iter().map(|record| record.key));
            after = page.next;
            if after.is_none() {
                return Ok(keys);
            }
        }
    };
    let of = |names: &[(&str, &str)]| -> Vec<RecordKey> {
        names.iter().map(|(owner, name)| key(RecordKind::Template, owner, name)).collect()
    };
    for limit in 1..8 {
        let all = of(&[("", "x"), ("acme", "Z"), ("acme", "b"), ("acme", "é"), ("globex", "a")]);
        same("all tenants", walk(None, limit).await?, all)?;
        let acme = of(&[("acme", "Z"), ("acme", "b"), ("acme", "é")]);
        same("one tenant", walk(Some("acme"), limit).await?, acme)?;
        same("no records", walk(Some("none"), limit).await?, vec![])?;
    }
    Ok(())
}

async fn what_changed_since_a_version_is_told_with_what_was_removed(scene: Scene) -> Kept {
    let other = change(key(RecordKind::Note, "acme", "n"), Some("{}"), Expected::Absent);
    let changes = vec![put("acme", "a"), other, put("globex", "b"), put("acme", "c")];
    scene.store.put_records(changes, None, at(1)).await?;
    let changes = vec![put("acme", "a"), change(template("c"), None, Expected::Anything)];
    scene.store.put_records(changes, None, at(2)).await?;
    let since = async |version, limit| -> Result<Vec<(i64, String, bool)>> {
        let found = scene.store.records_since(RecordKind::Template, version, limit).await?;
        let told = |record: Record| (record.version, record.key.name().to_owned(), record.value.is_some());
        Ok(found.into_iter().map(told).collect())
    };
    let all = [(3, "b", true), (5, "a", true), (6, "c", false)];
    let all = all.map(|(version, name, kept)| (version, name.to_owned(), kept));
    same("from the start", since(0, 9).await?, all.clone())?;
    same("two", since(0, 2).await?, &all[..2])?;
    same("the rest", since(5, 2).await?, &all[2..])?;
    same("nothing new", since(6, 9).await?, vec![])
}

async fn changes_of_records_are_audited_together(scene: Scene) -> Kept {
    let refused = change(template("a"), Some("{}"), Expected::Version(9));
    let changes = vec![put("acme", "a"), put("acme", "b"), refused.clone()];
    scene.store.put_records(changes, Some(audit("put")), at(1)).await?;
    scene.store.put_records(vec![refused], Some(audit("put")), at(1)).await?;
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    same("the audit", rows, [AuditRow { number: 1, audit: audit("put"), asked: 3, count: 2 }])
}
