//! The lists of the audit and of tenants.

use posthaste_core::channel::Channel;
use posthaste_core::filter::AuditFilter;
use posthaste_core::notification::Notification;

use super::lists::page_is;
use crate::conformance::scene::{Scene, at, audit, tenant};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Audit, AuditRow};

pub(super) const PROMISES: &[Promise] = list![
    the_audit_is_listed_newest_first_and_by_tenant,
    the_audit_is_filtered_by_who_did_what_to_what_and_when,
    tenants_are_listed_by_name_and_each_once,
];

async fn the_audit_is_filtered_by_who_did_what_to_what_and_when(mut scene: Scene) -> Kept {
    let rows = [("ada", "cancel", "one", 20), ("bob", "retry", "one", 30), ("ada", "retry", "two", 40)];
    for (number, (actor, action, target, time)) in rows.into_iter().enumerate() {
        let notification = scene.waiting().await?;
        let (actor, target) = (actor.to_owned(), target.to_owned());
        let tenant = (number > 0).then(|| tenant("acme"));
        let said = Audit { tenant, actor, target, at: at(time), ..audit(action) };
        scene.does(&notification, Act::Cancel, Some(said), at(50)).await?;
    }
    let all = AuditFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let actions = |some: &[&str]| some.iter().map(|one| (*one).to_owned()).collect();
    let table: [(AuditFilter, &[i64]); 9] = [
        (AuditFilter { actor: text("ada"), ..all() }, &[3, 1]),
        (AuditFilter { actor: text("ad"), ..all() }, &[]),
        (AuditFilter { actions: actions(&["retry"]), ..all() }, &[3, 2]),
        (AuditFilter { actions: actions(&["retry", "cancel"]), ..all() }, &[3, 2, 1]),
        (AuditFilter { target: text("one"), ..all() }, &[2, 1]),
        (AuditFilter { since: Some(at(30)), ..all() }, &[3, 2]),
        (AuditFilter { until: Some(at(30)), ..all() }, &[1]),
        (AuditFilter { since: Some(at(100_000)), ..all() }, &[]),
        (AuditFilter { actor: text("ada"), ..AuditFilter::of(Some(tenant("acme"))) }, &[3]),
    ];
    let is =
        |what: &str, page, rows: &[i64], next| page_is(what, page, |row: &AuditRow| row.number, rows, next);
    for (filter, wanted) in table {
        let what = format!("{filter:?}");
        is(&what, scene.store.audit(filter, None, 9).await?, wanted, None)?;
    }
    // A page with a next one is cut where the next matching row is left for it.
    let ada = AuditFilter { actor: text("ada"), ..all() };
    is("the first page", scene.store.audit(ada.clone(), None, 1).await?, &[3], Some(3))?;
    is("the last page", scene.store.audit(ada, Some(3), 1).await?, &[1], None)
}

async fn the_audit_is_listed_newest_first_and_by_tenant(mut scene: Scene) -> Kept {
    for whose in [Some("acme"), None, Some("other"), Some("acme")] {
        let notification = scene.waiting().await?;
        let said = Audit { tenant: whose.map(tenant), ..audit("cancel") };
        scene.does(&notification, Act::Cancel, Some(said), at(20)).await?;
    }
    let list = async |whose: Option<&str>, before, limit| -> Result<_, Broken> {
        Ok(scene.store.audit(AuditFilter::of(whose.map(tenant)), before, limit).await?)
    };
    let is = |what, page, rows: &[i64], next| page_is(what, page, |row: &AuditRow| row.number, rows, next);
    is("all", list(None, None, 9).await?, &[4, 3, 2, 1], None)?;
    is("the first page", list(None, None, 3).await?, &[4, 3, 2], Some(2))?;
    is("the last page", list(None, Some(2), 3).await?, &[1], None)?;
    is("of acme", list(Some("acme"), None, 9).await?, &[4, 1], None)?;
    is("of other", list(Some("other"), None, 9).await?, &[3], None)
}

async fn tenants_are_listed_by_name_and_each_once(mut scene: Scene) -> Kept {
    let tenants = async |from: Option<&str>, limit| scene_tenants(&scene, from, limit).await;
    same("at first", tenants(None, 9).await?, [] as [String; 0])?;
    for (name, channel) in [
        ("b", Channel::Push),
        ("b-1", Channel::Push),
        ("B", Channel::Push),
        ("b", Channel::Sms),
        ("c", Channel::Push),
    ] {
        let sent = Notification { tenant: tenant(name), channel, ..scene.draft() };
        scene.accept(&sent, at(0), None).await?;
    }
    let tenants = async |from: Option<&str>, limit| scene_tenants(&scene, from, limit).await;
    same("all", tenants(None, 9).await?, ["B", "b", "b-1", "c"])?;
    same("the first ones", tenants(None, 2).await?, ["B", "b"])?;
    same("from one on", tenants(Some("b"), 2).await?, ["b", "b-1"])?;
    same("from a place between", tenants(Some("b-0"), 9).await?, ["b-1", "c"])?;
    same("after the last", tenants(Some("d"), 9).await?, [] as [String; 0])?;
    same("none", tenants(None, 0).await?, [] as [String; 0])
}

async fn scene_tenants(scene: &Scene, from: Option<&str>, limit: usize) -> Result<Vec<String>, Broken> {
    let found = scene.store.tenants(from.map(tenant), limit).await?;
    Ok(found.iter().map(ToString::to_string).collect())
}
