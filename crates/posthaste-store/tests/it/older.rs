//! What the version before wrote is read as what this one writes, and the other way round.

use std::time::Duration;

use posthaste_core::attempt::QuickTry;
use posthaste_core::failure::FailureType;
use posthaste_core::flow::FlowId;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::state::Lane;
use posthaste_engine::store::{DeadLetterView, End, LEVEL, Pulse, Queue, Store};

use crate::scene::{HOLD, Scene, at, beside, buried, fill, id, key, lease, notification, quota};

/// An attempt of a dead letter as the version before reads it: a list of exactly these.
type OldAttempt = (u32, u32, i64, i64, Option<u8>, Option<u16>, Option<String>, Vec<OldQuickTry>);
type OldQuickTry = (i64, u64, u8, Option<u16>, Option<String>);

/// Rows as the version before wrote them, in either dialect: one notification ended as a dead letter after
/// its second attempt, one was delivered, one was cancelled before its first.
pub(crate) fn rows(quote: impl Fn([u8; 16]) -> String) -> String {
    let [dead, delivered, cancelled] = [0, 1, 2].map(|number| quote(id(number).to_bytes()));
    let letter = quote(LETTER.to_bytes());
    format!(
        "insert into flow (tenant, channel, destination) values ('acme', 0, 'd');
         insert into notification (id, flow, priority, recipient, content)
         values ({dead}, 1, 2, 'r', '{{\"body\":{{\"text\":\"hello\"}}}}'),
             ({delivered}, 1, 2, 'r', '{{\"body\":{{\"text\":\"hello\"}}}}'),
             ({cancelled}, 1, 2, 'r', '{{\"body\":{{\"text\":\"hello\"}}}}');
         insert into attempt (notification, generation, number, started_at, duration, failure, status_code)
         values ({dead}, 1, 1, 5, 6, 1, 503), ({dead}, 1, 2, 7, 8, 2, 404), ({delivered}, 1, 1, 5, 6, null, 200);
         insert into ended (id, state, at, generation, base, attempt, reason, text, dead_letter)
         values ({dead}, 6, 9, 1, 0, 2, 'PERMANENT_FAILURE', 'gone', {letter}),
             ({delivered}, 2, 9, 1, 0, 1, null, null, null),
             ({cancelled}, 7, 9, 1, 0, 0, null, null, null)"
    )
}

/// The name of the dead letter.
pub(crate) const LETTER: DeadLetterId = DeadLetterId::FIRST;

/// The attempts of the dead letter, as they were kept.
pub(crate) const ATTEMPTS: &str = "[[1,1,5,6,1,503,null,[]],[1,2,7,8,2,404,null,[]]]";

/// What is shown of these rows.
pub(crate) async fn is_shown(store: &dyn Store) {
    let end = |shown: Option<End>| shown.map(|end| (end.failure_type, end.status_code));
    let ended = async |number| end(store.get(id(number)).await.unwrap().unwrap().end);
    assert_eq!(ended(0).await, Some((Some(FailureType::Permanent), Some(404))));
    assert_eq!(ended(2).await, Some((None, None)));
    let dead = store.dead_letter(LETTER).await.unwrap().unwrap();
    assert_eq!((dead.failure_type, dead.status_code), (Some(FailureType::Permanent), Some(404)));
    assert_eq!(dead.attempts, store.history(id(0)).await.unwrap().attempts);
}

#[tokio::test]
async fn rows_from_before_are_filled_by_the_step() {
    let scene = Scene::new();
    let page = include_str!("../../../../docs/migrations.md");
    let back = page.split("```sql").nth(2).unwrap().split("```").next().unwrap();
    let hex = |bytes: [u8; 16]| format!("x'{:032x}'", u128::from_be_bytes(bytes));
    let scene = scene.reopen_after(|conn| {
        conn.execute_batch(back).unwrap();
        conn.execute_batch(&rows(hex)).unwrap();
        let letter = format!(
            "insert into dead_letter (id, notification, flow, recipient, priority, content, reason, text, attempts, status,
                 created_at)
             select {}, id, flow, recipient, priority, content, 'PERMANENT_FAILURE', 'gone', '{ATTEMPTS}', 0, 9
             from notification
             where id = {}",
            hex(LETTER.to_bytes()),
            hex(id(0).to_bytes())
        );
        conn.execute_batch(&letter).unwrap();
    });
    is_shown(&scene.store).await;
    let tenants = |sql: &str| -> String {
        beside(&scene.path(), |conn| conn.query_row(sql, [], |row| row.get(0)).unwrap())
    };
    assert_eq!(tenants("select group_concat(coalesce(tenant, '-') order by id) from ended"), "acme,-,acme");
    assert_eq!(tenants("select tenant from dead_letter"), "acme");
}

/// A dead letter as a store keeps and shows it.
pub(crate) async fn dies(store: &dyn Store) -> DeadLetterView {
    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let flow = fill(store, &key("acme", "d"), 0, 1).await;
    let batch = store.claim(vec![quota(flow, Lane::Main, 1)], lease(node, 1), at(1)).await.unwrap().claimed;
    let mut settlement = buried(&batch[0], LETTER);
    if let Some(attempt) = &mut settlement.attempt {
        attempt.error = Some("no".to_owned());
        attempt.provider = Some("a".to_owned());
        attempt.message_id = Some("nul \0".to_owned());
        attempt.quick_tries = vec![QuickTry {
            started_at: attempt.started_at,
            duration_ms: 20,
            failure_type: FailureType::Timeout,
            status_code: None,
            error: String::new(),
        }];
        attempt.last_try_at = Some(at(1).later(Duration::from_millis(50)));
    }
    store.settle(vec![settlement], at(2)).await.unwrap();
    store.dead_letter(LETTER).await.unwrap().unwrap()
}

/// The attempts that are kept with that dead letter can be read by the version before.
pub(crate) fn is_read_before(kept: &str, dead: &DeadLetterView) {
    let attempts: Vec<OldAttempt> = serde_json::from_str(kept).unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].4, attempts[0].5, attempts[0].6.as_deref()), (Some(2), Some(200), Some("no")));
    assert_eq!(dead.attempts[0].provider.as_deref(), Some("a"));
    // It shows the last try as a quick try more.
    let tries: Vec<_> =
        attempts[0].7.iter().map(|(_, took, code, status, _)| (*took, *code, *status)).collect();
    assert_eq!(tries, [(20, 3, None), (70, 2, Some(200))]);
    let shown = &dead.attempts[0];
    assert_eq!((shown.quick_tries.len(), &*shown.quick_tries[0].error), (1, ""));
    assert_eq!(shown.last_try_at, Some(at(1).later(Duration::from_millis(50))));
}

#[tokio::test]
async fn attempts_of_a_dead_letter_can_be_read_by_the_version_before() {
    let scene = Scene::new();
    let dead = dies(&scene.store).await;
    let sql = "select attempts from dead_letter";
    let kept: String = beside(&scene.path(), |conn| conn.query_row(sql, [], |row| row.get(0)).unwrap());
    is_read_before(&kept, &dead);
}

/// Claims what waits in the second flow: it is sent there, wherever it was accepted for.
pub(crate) async fn is_sent_where_it_waits(store: &dyn Store, other: FlowId) {
    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let claimed = store.claim(vec![quota(other, Lane::Main, 9)], lease(node, 1), at(1)).await.unwrap();
    let wanted: Vec<NotificationId> = vec![id(0)];
    assert_eq!(claimed.claimed.iter().map(|claimed| claimed.notification.id).collect::<Vec<_>>(), wanted);
    assert_eq!(*claimed.claimed[0].notification, notification(id(0), &key("acme", "other")));
}

#[tokio::test]
async fn a_claimed_row_has_the_destination_of_the_flow_that_it_waits_in() {
    let scene = Scene::new();
    fill(&scene.store, &key("acme", "d"), 0, 1).await;
    let other = scene.store.intern(vec![key("acme", "other")]).await.unwrap()[0];
    let scene = scene.reopen_after(|conn| {
        assert_eq!(conn.execute("update queue set flow = ?1", [other.0]).unwrap(), 1);
    });
    is_sent_where_it_waits(&scene.store, other).await;
}

/// A node as the version before makes it, alive until ten seconds from the start.
pub(crate) fn node(dead: &str) -> String {
    let (expires, begin) = (at(10).as_micros(), at(0).as_micros());
    format!(
        "insert into node (name, joined, beat, expires, dead) values ('old', {begin}, {begin}, {expires}, {dead})"
    )
}

/// A cluster understands what its lowest node does, while that lives.
pub(crate) async fn level_is_the_lowest(store: &dyn Store) {
    let node = store.join("new".to_owned(), HOLD, at(0)).await.unwrap().node;
    for (second, wanted) in [(9, 0), (10, LEVEL)] {
        let pulse = store.heartbeat(node, HOLD, at(second)).await.unwrap();
        assert!(matches!(pulse, Pulse::Alive { level, .. } if level == wanted), "{pulse:?}");
    }
    let levels: Vec<u32> = store.nodes(at(10)).await.unwrap().iter().map(|node| node.level).collect();
    assert_eq!(levels, [0, LEVEL]);
}

#[tokio::test]
async fn a_cluster_has_the_level_of_its_lowest_node() {
    let scene = Scene::new();
    // While the file is open: at its opening all nodes of earlier processes are dead.
    beside(&scene.path(), |conn| conn.execute_batch(&node("0")).unwrap());
    level_is_the_lowest(&scene.store).await;
}

/// A thousand parked rows without a policy of their own are told although their notifications are gone.
pub(crate) async fn are_told_without_their_content(store: &dyn Store) {
    let rows = store.overdue(at(9), at(9), None, 2_000).await.unwrap();
    assert_eq!(rows.len(), 1_000);
    assert!(rows.iter().all(|row| row.notification.is_none() && row.tenant.as_str() == "acme"));
}

#[tokio::test]
async fn what_is_overdue_without_a_policy_of_its_own_costs_no_look_at_its_content() {
    let scene = Scene::new();
    fill(&scene.store, &key("acme", "d"), 0, 1_000).await;
    beside(&scene.path(), |conn| conn.execute_batch("delete from notification").unwrap());
    are_told_without_their_content(&scene.store).await;
}
