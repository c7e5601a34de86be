//! Settings: a version that grows, and an audit row for each change.

use super::scene::{Scene, audit};
use super::{Kept, Promise, list, same};
use crate::store::{AuditRow, Settings};
use posthaste_core::filter::AuditFilter;

pub(super) const PROMISES: &[Promise] = list![
    the_version_of_the_settings_grows_with_each_change,
    each_change_of_a_setting_is_audited,
    a_setting_is_swapped_only_if_it_is_as_expected,
];

fn settings(version: i64, all: &[(&str, &str)]) -> Option<Settings> {
    let values = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Some(Settings { version, values })
}

async fn the_version_of_the_settings_grows_with_each_change(scene: Scene) -> Kept {
    let put = async |name: &str, value: Option<&str>| {
        scene.store.put_setting(name.to_owned(), value.map(str::to_owned), audit("set")).await
    };
    same("at first", scene.store.settings(None).await?, settings(0, &[]))?;
    same("nothing new", scene.store.settings(Some(0)).await?, None)?;
    same("the first", put("b", Some("{\"x\":1}")).await?, 1)?;
    same("the second", put("a", Some("")).await?, 2)?;
    let wanted = settings(2, &[("a", ""), ("b", "{\"x\":1}")]);
    same("by name", scene.store.settings(Some(1)).await?, wanted.clone())?;
    same("for whoever knows nothing", scene.store.settings(None).await?, wanted)?;
    same("for whoever knows it all", scene.store.settings(Some(2)).await?, None)?;
    same("changed", put("b", Some("2")).await?, 3)?;
    same("removed", put("a", None).await?, 4)?;
    same("removed again", put("a", None).await?, 5)?;
    same("in the end", scene.store.settings(Some(99)).await?, settings(5, &[("b", "2")]))
}

async fn a_setting_is_swapped_only_if_it_is_as_expected(scene: Scene) -> Kept {
    let swap = async |name: &str, from: &str, to: &str| {
        let from = Some(from.to_owned());
        scene.store.swap_setting(name.to_owned(), from, to.to_owned(), audit("swap")).await
    };
    let make = async |name: &str, to: &str| {
        scene.store.swap_setting(name.to_owned(), None, to.to_owned(), audit("make")).await
    };
    same("a setting that is not there", swap("a", "", "1").await?, false)?;
    scene.store.put_setting("a".to_owned(), Some("1".to_owned()), audit("set")).await?;
    same("another value", swap("a", "2", "3").await?, false)?;
    same("no trace of it", scene.store.settings(None).await?, settings(1, &[("a", "1")]))?;
    same("the value", swap("a", "1", "2").await?, true)?;
    same("what it is now", scene.store.settings(Some(1)).await?, settings(2, &[("a", "2")]))?;
    same("the same again", swap("a", "1", "2").await?, false)?;
    same("made where there is one", make("a", "3").await?, false)?;
    same("made where there is none", make("b", "").await?, true)?;
    same("made again", make("b", "1").await?, false)?;
    same("what there is", scene.store.settings(Some(2)).await?, settings(3, &[("a", "2"), ("b", "")]))?;
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    let actions: Vec<&str> = rows.iter().map(|row| row.audit.action.as_str()).collect();
    same("the audit", actions, ["make", "swap", "set"])
}

async fn each_change_of_a_setting_is_audited(scene: Scene) -> Kept {
    for value in [Some("1".to_owned()), None, None] {
        scene.store.put_setting("a".to_owned(), value, audit("set")).await?;
    }
    let rows = scene.store.audit(AuditFilter::default(), None, 9).await?.rows;
    let wanted = [3, 2, 1].map(|number| AuditRow { number, audit: audit("set"), asked: 1, count: 1 });
    same("the audit", rows, wanted)
}
