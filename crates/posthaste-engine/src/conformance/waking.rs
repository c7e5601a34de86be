//! What becomes due, expires or has waited for long, told of the rows that nobody holds.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Content, Notification, Priority};
use posthaste_core::policy::PolicyLayer;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::scene::{Scene, TICK, at, bucket, burial, tenant};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Act, DueCursor, Expiring, ExpiringRow, Overdue, Seen, Waiting, Wakes, Woken};

pub(super) const PROMISES: &[Promise] = list![
    a_stretch_of_time_wakes_the_buckets_that_become_due_in_it,
    wakes_come_in_pages_that_lose_no_row_and_tell_none_twice,
    a_bucket_is_told_once_in_a_page,
    what_somebody_holds_wakes_nobody,
    retries_and_new_generations_wake_too,
    waiting_rows_that_expire_are_told_the_earliest_first,
    what_is_held_or_ended_does_not_expire,
    buckets_are_listed_with_their_tenant_and_earliest_due_time,
    what_is_long_overdue_is_told_in_its_order,
    what_is_overdue_is_read_whole_only_where_its_policy_depends_on_it,
    what_says_itself_how_old_it_may_become_is_told_apart,
];

impl Scene {
    /// What becomes due after everything that is due at `after`.
    async fn woken(&self, after: Timestamp, until: Timestamp) -> Result<Wakes, Broken> {
        Ok(self.store.wakes(DueCursor::after_all_at(after), until, 99).await?)
    }

    async fn due(&mut self, second: i64) -> Result<Notification, Broken> {
        let notification = self.draft();
        self.accept(&notification, at(second), None).await?;
        Ok(notification)
    }

    async fn main_of(&self, notification: &Notification) -> Result<Bucket, Broken> {
        Ok(bucket(self.flow_of(notification).await?, Lane::Main))
    }

    async fn expires(&mut self, second: i64) -> Result<Notification, Broken> {
        let notification = Notification { expires_at: Some(at(second)), ..self.draft() };
        self.accept(&notification, at(0), None).await?;
        Ok(notification)
    }
}

const FRESH: Seen = Seen { state: State::Pending, generation: 1, attempt: 1 };

/// Buckets of acme, in their order.
fn of_acme(mut buckets: Vec<Bucket>) -> Vec<Woken> {
    buckets.sort();
    buckets.into_iter().map(|bucket| Woken { bucket, tenant: tenant("acme") }).collect()
}

fn woken(buckets: Vec<Bucket>, next: Option<Timestamp>) -> Wakes {
    Wakes { buckets: of_acme(buckets), more: None, next }
}

async fn a_stretch_of_time_wakes_the_buckets_that_become_due_in_it(mut scene: Scene) -> Kept {
    same("an empty store", scene.woken(at(0), at(9)).await?, Wakes::default())?;
    let (one, two, three) = (scene.due(30).await?, scene.due(20).await?, scene.due(10).await?);
    let urgent = Notification { destination: one.destination.clone(), ..scene.draft() };
    let urgent = Notification { priority: Priority::Critical, ..urgent };
    scene.accept(&urgent, at(30), None).await?;
    let again = Notification { destination: one.destination.clone(), ..scene.draft() };
    scene.accept(&again, at(25), None).await?;

    let first = scene.main_of(&one).await?;
    let (second, third) = (scene.main_of(&two).await?, scene.main_of(&three).await?);
    let critical = Bucket { priority: Priority::Critical, ..first };
    let wakes = scene.woken(at(10), at(30)).await?;
    same("after 10 up to 30", wakes, woken(vec![first, critical, second], None))?;
    let wakes = scene.woken(at(10).earlier(TICK), at(20)).await?;
    same("up to 20", wakes, woken(vec![third, second], Some(at(25))))?;
    let wakes = scene.woken(at(10), at(20).earlier(TICK)).await?;
    same("in between", wakes, woken(vec![], Some(at(20))))?;
    let wakes = scene.woken(Timestamp::MIN, Timestamp::MAX).await?;
    same("all of time", wakes, woken(vec![first, critical, second, third], None))?;
    let wakes = scene.woken(at(20), at(5)).await?;
    same("a stretch that ends before it begins", wakes, woken(vec![], Some(at(25))))?;
    let theirs = scene.full_draft();
    scene.accept(&theirs, at(50), None).await?;
    let bucket = Bucket { priority: theirs.priority, ..scene.main_of(&theirs).await? };
    let wanted = Wakes { buckets: vec![Woken { bucket, tenant: theirs.tenant }], ..Wakes::default() };
    same("of another tenant", scene.woken(at(40), at(60)).await?, wanted)
}

async fn wakes_come_in_pages_that_lose_no_row_and_tell_none_twice(mut scene: Scene) -> Kept {
    let mut rows = vec![];
    // Each row has a bucket of its own, so that buckets tell the rows. Most are due at the same time.
    for second in [20, 10, 20, 20, 30, 20, 10, 20] {
        let notification = scene.due(second).await?;
        let place = DueCursor { due: at(second), id: notification.id };
        rows.push((place, scene.main_of(&notification).await?));
    }
    scene.due(40).await?;
    rows.sort();
    for limit in 1..=9 {
        let mut after = DueCursor::after_all_at(at(0));
        for page in rows.chunks(limit) {
            let wakes = scene.store.wakes(after, at(30), limit).await?;
            let buckets = of_acme(page.iter().map(|(_, bucket)| *bucket).collect());
            let last = page.last().map(|(place, _)| *place);
            let more = last.filter(|_| page.len() == limit);
            let next = more.is_none().then_some(at(40));
            same("a page", wakes, Wakes { buckets, more, next })?;
            after = more.unwrap_or(after);
        }
        if rows.len() % limit == 0 {
            let wakes = scene.store.wakes(after, at(30), limit).await?;
            same("after the last row", wakes, woken(vec![], Some(at(40))))?;
        }
    }
    let (place, bucket) = rows[4];
    let id = NotificationId::from_bytes((u128::from_be_bytes(place.id.to_bytes()) - 1).to_be_bytes());
    let before = DueCursor { id, ..place };
    let wakes = scene.store.wakes(before, at(30), 1).await?;
    same(
        "a cursor right before a row",
        wakes,
        Wakes { buckets: of_acme(vec![bucket]), more: Some(place), next: None },
    )?;
    let wakes = scene.store.wakes(place, at(19), 9).await?;
    same("a stretch that ends before the cursor", wakes, woken(vec![], Some(at(20))))
}

async fn a_bucket_is_told_once_in_a_page(mut scene: Scene) -> Kept {
    let first = scene.due(10).await?;
    let mut ids = vec![];
    for second in [10, 10, 11, 12] {
        let again = Notification { destination: first.destination.clone(), ..scene.draft() };
        scene.accept(&again, at(second), None).await?;
        ids.push(again.id);
    }
    let bucket = scene.main_of(&first).await?;
    let wakes = scene.store.wakes(DueCursor::after_all_at(at(0)), at(20), 3).await?;
    let place = DueCursor { due: at(10), id: ids[1] };
    let wanted = Wakes { buckets: of_acme(vec![bucket]), more: Some(place), next: None };
    same("three rows of one bucket", wakes, wanted)?;
    let wakes = scene.store.wakes(place, at(20), 3).await?;
    same("the other two", wakes, woken(vec![bucket], None))
}

async fn what_somebody_holds_wakes_nobody(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    let all = async |scene: &Scene| scene.woken(at(-9), at(9)).await;
    same("while it is held", all(&scene).await?, Wakes::default())?;
    same("buckets while it is held", scene.store.buckets(None, 9).await?, [])?;
    scene.store.release(lease, None).await?;
    let wanted = scene.main_of(&notification).await?;
    same("when it was given back", all(&scene).await?, woken(vec![wanted], None))?;
    scene.does(&notification, Act::Cancel, None, at(5)).await?;
    same("when it has ended", all(&scene).await?, Wakes::default())?;
    same("buckets when it has ended", scene.store.buckets(None, 9).await?, [])
}

async fn retries_and_new_generations_wake_too(mut scene: Scene) -> Kept {
    let retry = scene.in_state(State::RetryScheduled).await?;
    let retry_bucket = bucket(scene.flow_of(&retry).await?, Lane::Retry);
    let wakes = scene.woken(at(0), at(60)).await?;
    same("a retry", wakes, woken(vec![retry_bucket], None))?;
    scene.does(&retry, Act::RetryNow, None, at(40)).await?;
    let wakes = scene.woken(at(39), at(40)).await?;
    same("a retry made due", wakes, woken(vec![retry_bucket], None))?;
    let dead = scene.in_state(State::DeadLetter).await?;
    scene.does(&dead, Act::Requeue, None, at(50)).await?;
    let wakes = scene.woken(at(49), at(50)).await?;
    same("a requeued one", wakes, woken(vec![scene.main_of(&dead).await?], None))
}

async fn waiting_rows_that_expire_are_told_the_earliest_first(mut scene: Scene) -> Kept {
    same("an empty store", scene.store.expiring(at(99), 9).await?, Expiring::default())?;
    scene.due(0).await?;
    let (late, early, also) = (scene.expires(30).await?, scene.expires(10).await?, scene.expires(10).await?);
    let rows = |all: &[&Notification]| {
        all.iter().map(|one| ExpiringRow { id: one.id, seen: FRESH }).collect::<Vec<_>>()
    };
    let told = |rows, next| Expiring { rows, next };
    let now = scene.store.expiring(at(10).earlier(TICK), 9).await?;
    same("a tick too early", now, told(rows(&[]), Some(at(10))))?;
    let now = scene.store.expiring(at(10), 9).await?;
    same("in time", now, told(rows(&[&early, &also]), Some(at(30))))?;
    let now = scene.store.expiring(at(99), 1).await?;
    same("cut by the limit", now, told(rows(&[&early]), Some(at(10))))?;
    let now = scene.store.expiring(at(99), 2).await?;
    same("cut between two times", now, told(rows(&[&early, &also]), Some(at(30))))?;
    let now = scene.store.expiring(at(99), 3).await?;
    same("all", now, told(rows(&[&early, &also, &late]), None))
}

async fn what_is_held_or_ended_does_not_expire(mut scene: Scene) -> Kept {
    let notification = scene.expires(10).await?;
    let lease = scene.lease().await?;
    scene.claim(&notification, Lane::Main, lease, at(5)).await?;
    same("while it is held", scene.store.expiring(at(99), 9).await?, Expiring::default())?;
    scene.fail(&notification, lease, super::scene::retry_at(at(60))).await?;
    let seen = Seen { state: State::RetryScheduled, generation: 1, attempt: 2 };
    let wanted = Expiring { rows: vec![ExpiringRow { id: notification.id, seen }], next: None };
    same("while it waits for a retry", scene.store.expiring(at(99), 9).await?, wanted)?;
    scene.does(&notification, Act::Expire, None, at(11)).await?;
    same("when it has ended", scene.store.expiring(at(99), 9).await?, Expiring::default())?;
    same("its state", scene.state(&notification).await?, State::Expired)
}

async fn buckets_are_listed_with_their_tenant_and_earliest_due_time(mut scene: Scene) -> Kept {
    let one = scene.due(30).await?;
    let urgent = Notification { destination: one.destination.clone(), ..scene.draft() };
    let urgent = Notification { priority: Priority::High, ..urgent };
    scene.accept(&urgent, at(40), None).await?;
    let sooner = Notification { destination: one.destination.clone(), ..scene.draft() };
    scene.accept(&sooner, at(20), None).await?;
    // More rows in one bucket than a store may care to walk.
    for _ in 0..20 {
        let another = Notification { destination: one.destination.clone(), ..scene.draft() };
        scene.accept(&another, at(35), None).await?;
    }
    let retry = scene.in_state(State::RetryScheduled).await?;
    let theirs = scene.full_draft();
    scene.accept(&theirs, at(50), None).await?;
    scene.held().await?;
    // A retry of the first flow, and one that has the same flow and priority in the other lane.
    let (again, lease) =
        (Notification { destination: one.destination.clone(), ..scene.draft() }, scene.lease().await?);
    scene.accept(&again, at(0), Some(lease)).await?;
    scene.fail(&again, lease, super::scene::retry_at(at(70))).await?;
    let (first, retries) = (scene.main_of(&one).await?, bucket(scene.flow_of(&retry).await?, Lane::Retry));
    let other = Bucket { priority: theirs.priority, ..scene.main_of(&theirs).await? };
    let waiting = |bucket, second| Waiting { bucket, tenant: tenant("acme"), due: at(second) };
    let mut wanted = vec![
        waiting(first, 20),
        waiting(Bucket { priority: Priority::High, ..first }, 40),
        waiting(Bucket { lane: Lane::Retry, ..first }, 70),
        waiting(retries, 60),
        Waiting { tenant: theirs.tenant, ..waiting(other, 50) },
    ];
    wanted.sort_by_key(|waiting| waiting.bucket);
    same("all", scene.store.buckets(None, 9).await?, wanted.clone())?;
    for (place, one) in wanted.iter().enumerate() {
        let (before, rest) = wanted.split_at(place + 1);
        same("the first of them", scene.store.buckets(None, place + 1).await?, before)?;
        same("after one of them", scene.store.buckets(Some(one.bucket), 9).await?, rest)?;
    }
    let between = Bucket { priority: Priority::Low, lane: Lane::Main, ..first };
    let rest: Vec<Waiting> = wanted.iter().filter(|waiting| waiting.bucket > between).cloned().collect();
    same("after a bucket without rows", scene.store.buckets(Some(between), 9).await?, rest)
}

async fn what_is_long_overdue_is_told_in_its_order(mut scene: Scene) -> Kept {
    let (late, early, also) = (scene.due(20).await?, scene.due(10).await?, scene.due(10).await?);
    scene.held().await?;
    let retry = scene.in_state(State::RetryScheduled).await?;
    let row = |notification: &Notification, second| Overdue {
        id: notification.id,
        tenant: notification.tenant.clone(),
        channel: notification.channel,
        notification: None,
        expires_at: notification.expires_at,
        seen: FRESH,
        due: at(second),
        first_due: at(second),
    };
    let ask = async |due: i64, first: i64, after: Option<DueCursor>, limit| {
        scene.store.overdue(at(due), at(first), after, limit).await
    };
    let all = [row(&early, 10), row(&also, 10), row(&late, 20)];
    same("before 21", ask(21, 21, None, 9).await?, all.clone())?;
    same("before 20", ask(20, 20, None, 9).await?, &all[..2])?;
    same("first due before 20", ask(21, 20, None, 9).await?, &all[..2])?;
    same("the first two", ask(21, 21, None, 2).await?, &all[..2])?;
    same("after the first", ask(21, 21, Some(DueCursor { due: at(10), id: early.id }), 9).await?, &all[1..])?;
    same("after the last", ask(21, 21, Some(DueCursor { due: at(20), id: late.id }), 9).await?, [])?;
    let retried = Overdue {
        seen: Seen { state: State::RetryScheduled, generation: 1, attempt: 2 },
        due: at(60),
        first_due: at(0),
        ..row(&retry, 0)
    };
    same("a retry, by its first due time", ask(61, 1, None, 9).await?, [retried.clone()])?;
    let with_retry = [all.to_vec(), vec![retried.clone()]].concat();
    same("beside others", ask(61, 21, None, 9).await?, with_retry.clone())?;
    same("within the limit", ask(61, 21, None, 3).await?, all)?;
    let after = |row: &Overdue| Some(DueCursor { due: row.due, id: row.id });
    same("after what is due sooner", ask(61, 21, after(&with_retry[1]), 9).await?, &with_retry[2..])?;
    same("after the last of them", ask(61, 21, after(&with_retry[2]), 9).await?, [retried.clone()])?;
    same("after a place between", ask(61, 5, after(&with_retry[2]), 9).await?, [retried.clone()])?;
    same("after it", ask(61, 5, after(&retried), 9).await?, [])
}

async fn what_says_itself_how_old_it_may_become_is_told_apart(mut scene: Scene) -> Kept {
    let with = |policy: PolicyLayer, draft: Notification| Notification {
        content: Content { policy: Some(policy), ..draft.content },
        ..draft
    };
    let max_age = Some(Duration::from_secs(60));
    let aged = PolicyLayer { max_age, ..PolicyLayer::default() };
    let own = PolicyLayer { max_attempts: Some(2), ..PolicyLayer::default() };
    let (plain, other) = (scene.draft(), with(own, scene.draft()));
    let first = with(aged.clone(), scene.draft());
    let second = with(PolicyLayer { max_attempts: Some(2), ..aged }, scene.draft());
    for (notification, due) in [(&plain, 1), (&other, 1), (&second, 2), (&first, 1)] {
        scene.accept(notification, at(due), None).await?;
    }
    let told = async |scene: &Scene, due: i64, after: Option<DueCursor>, limit| {
        let rows = scene.store.overdue_by_own_age(at(due), after, limit).await?;
        Ok::<_, Broken>(rows.into_iter().map(|row| (row.id, row.notification)).collect::<Vec<_>>())
    };
    let row = |one: &Notification| (one.id, Some(Arc::new(one.clone())));
    same("in their order", told(&scene, 3, None, 9).await?, [row(&first), row(&second)])?;
    same("the first", told(&scene, 3, None, 1).await?, [row(&first)])?;
    let place = Some(DueCursor { due: at(1), id: first.id });
    same("after it", told(&scene, 3, place, 9).await?, [row(&second)])?;
    same("those that are due", told(&scene, 2, None, 9).await?, [row(&first)])?;
    let lease = scene.lease().await?;
    scene.claim(&first, Lane::Main, lease, at(10)).await?;
    same("what is held", told(&scene, 3, None, 9).await?, [row(&second)])?;
    let name = scene.grave();
    scene.fail(&first, lease, burial(name)).await?;
    scene.does(&first, Act::Requeue, None, at(20)).await?;
    same("what was requeued", told(&scene, 99, None, 9).await?, [row(&second), row(&first)])
}

async fn what_is_overdue_is_read_whole_only_where_its_policy_depends_on_it(mut scene: Scene) -> Kept {
    let policy = Some(PolicyLayer { max_attempts: Some(2), ..PolicyLayer::default() });
    let (plain, draft, own) = (scene.draft(), scene.draft(), scene.draft());
    let templated = Notification { template: Some("welcome".to_owned()), ..draft };
    let own = Notification { content: Content { policy, ..own.content }, ..own };
    let expiring = Notification { expires_at: Some(at(90)), ..scene.draft() };
    let all = [plain, templated, own, expiring];
    for notification in &all {
        scene.accept(notification, at(1), None).await?;
    }
    let told = async |scene: &Scene| {
        let rows = scene.store.overdue(at(99), at(99), None, 9).await?;
        Ok::<_, Broken>(rows.into_iter().map(|row| (row.id, row.notification, row.expires_at)).collect())
    };
    let wanted: Vec<_> = all
        .iter()
        .zip([false, true, true, false])
        .map(|(one, whole)| (one.id, whole.then(|| Arc::new(one.clone())), one.expires_at))
        .collect();
    same::<Vec<_>, _>("what arrived", told(&scene).await?, wanted.clone())?;
    for notification in &all {
        let lease = scene.lease().await?;
        scene.claim(notification, Lane::Main, lease, at(10)).await?;
        let name = scene.grave();
        scene.fail(notification, lease, burial(name)).await?;
        scene.does(notification, Act::Requeue, None, at(20)).await?;
    }
    same::<Vec<_>, _>("what was requeued", told(&scene).await?, wanted)
}
