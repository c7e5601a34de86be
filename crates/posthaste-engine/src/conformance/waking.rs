//! What becomes due, expires or has waited for long, told of the rows that nobody holds.

use posthaste_core::flow::Bucket;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Notification, Priority};
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use super::scene::{Scene, TICK, at, bucket};
use super::{Broken, Kept, Promise, list, same};
use crate::store::{Act, Expiring, Overdue, Seen, Wakes};

pub(super) const PROMISES: &[Promise] = list![
    a_stretch_of_time_wakes_the_buckets_that_become_due_in_it,
    what_somebody_holds_wakes_nobody,
    retries_and_new_generations_wake_too,
    waiting_rows_that_expire_are_told_the_earliest_first,
    what_is_held_or_ended_does_not_expire,
    buckets_are_listed_with_their_earliest_due_time,
    what_is_long_overdue_is_told_in_its_order,
];

impl Scene {
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

async fn a_stretch_of_time_wakes_the_buckets_that_become_due_in_it(mut scene: Scene) -> Kept {
    same("an empty store", scene.store.wakes(at(0), at(9)).await?, Wakes::default())?;
    let (one, two, three) = (scene.due(30).await?, scene.due(20).await?, scene.due(10).await?);
    let urgent = Notification { destination: one.destination.clone(), ..scene.draft() };
    let urgent = Notification { priority: Priority::Critical, ..urgent };
    scene.accept(&urgent, at(30), None).await?;
    let again = Notification { destination: one.destination.clone(), ..scene.draft() };
    scene.accept(&again, at(25), None).await?;

    let first = scene.main_of(&one).await?;
    let (second, third) = (scene.main_of(&two).await?, scene.main_of(&three).await?);
    let critical = Bucket { priority: Priority::Critical, ..first };
    let sorted = |mut buckets: Vec<Bucket>| {
        buckets.sort();
        buckets
    };
    let wakes = scene.store.wakes(at(10), at(30)).await?;
    same("after 10 up to 30", wakes.buckets, sorted(vec![first, critical, second]))?;
    same("nothing comes later", wakes.next, None)?;
    let wakes = scene.store.wakes(at(10).earlier(TICK), at(20)).await?;
    let wanted = Wakes { buckets: sorted(vec![third, second]), next: Some(at(25)) };
    same("up to 20", wakes, wanted)?;
    let wakes = scene.store.wakes(at(10), at(20).earlier(TICK)).await?;
    same("in between", wakes, Wakes { buckets: vec![], next: Some(at(20)) })?;
    let wakes = scene.store.wakes(Timestamp::MIN, Timestamp::MAX).await?;
    same("all of time", wakes.buckets, sorted(vec![first, critical, second, third]))?;
    same("the end of time", wakes.next, None)
}

async fn what_somebody_holds_wakes_nobody(mut scene: Scene) -> Kept {
    let (notification, lease) = scene.held().await?;
    let all = async |scene: &Scene| scene.store.wakes(at(-9), at(9)).await;
    same("while it is held", all(&scene).await?, Wakes::default())?;
    same("buckets while it is held", scene.store.buckets(None, 9).await?, [])?;
    scene.store.release(lease, None).await?;
    let wanted = scene.main_of(&notification).await?;
    same("when it was given back", all(&scene).await?.buckets, [wanted])?;
    scene.does(&notification, Act::Cancel, None, at(5)).await?;
    same("when it has ended", all(&scene).await?, Wakes::default())?;
    same("buckets when it has ended", scene.store.buckets(None, 9).await?, [])
}

async fn retries_and_new_generations_wake_too(mut scene: Scene) -> Kept {
    let retry = scene.in_state(State::RetryScheduled).await?;
    let retry_bucket = bucket(scene.flow_of(&retry).await?, Lane::Retry);
    let wakes = scene.store.wakes(at(0), at(60)).await?;
    same("a retry", wakes, Wakes { buckets: vec![retry_bucket], next: None })?;
    scene.does(&retry, Act::RetryNow, None, at(40)).await?;
    let wakes = scene.store.wakes(at(39), at(40)).await?;
    same("a retry made due", wakes, Wakes { buckets: vec![retry_bucket], next: None })?;
    let dead = scene.in_state(State::DeadLetter).await?;
    scene.does(&dead, Act::Requeue, None, at(50)).await?;
    let wakes = scene.store.wakes(at(49), at(50)).await?;
    same("a requeued one", wakes, Wakes { buckets: vec![scene.main_of(&dead).await?], next: None })
}

async fn waiting_rows_that_expire_are_told_the_earliest_first(mut scene: Scene) -> Kept {
    same("an empty store", scene.store.expiring(at(99), 9).await?, Expiring::default())?;
    scene.due(0).await?;
    let (late, early, also) = (scene.expires(30).await?, scene.expires(10).await?, scene.expires(10).await?);
    let rows = |all: &[&Notification]| all.iter().map(|one| (one.id, FRESH)).collect::<Vec<_>>();
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
    let wanted = Expiring { rows: vec![(notification.id, seen)], next: None };
    same("while it waits for a retry", scene.store.expiring(at(99), 9).await?, wanted)?;
    scene.does(&notification, Act::Expire, None, at(11)).await?;
    same("when it has ended", scene.store.expiring(at(99), 9).await?, Expiring::default())?;
    same("its state", scene.state(&notification).await?, State::Expired)
}

async fn buckets_are_listed_with_their_earliest_due_time(mut scene: Scene) -> Kept {
    let one = scene.due(30).await?;
    let urgent = Notification { destination: one.destination.clone(), ..scene.draft() };
    let urgent = Notification { priority: Priority::High, ..urgent };
    scene.accept(&urgent, at(40), None).await?;
    let sooner = Notification { destination: one.destination.clone(), ..scene.draft() };
    scene.accept(&sooner, at(20), None).await?;
    let retry = scene.in_state(State::RetryScheduled).await?;
    scene.held().await?;
    let first = scene.main_of(&one).await?;
    let mut wanted = vec![
        (first, at(20)),
        (Bucket { priority: Priority::High, ..first }, at(40)),
        (bucket(scene.flow_of(&retry).await?, Lane::Retry), at(60)),
    ];
    wanted.sort();
    same("all", scene.store.buckets(None, 9).await?, wanted.clone())?;
    same("the first two", scene.store.buckets(None, 2).await?, &wanted[..2])?;
    same("after the first", scene.store.buckets(Some(wanted[0].0), 9).await?, &wanted[1..])?;
    same("after the last", scene.store.buckets(Some(wanted[2].0), 9).await?, [])
}

async fn what_is_long_overdue_is_told_in_its_order(mut scene: Scene) -> Kept {
    let (late, early, also) = (scene.due(20).await?, scene.due(10).await?, scene.due(10).await?);
    scene.held().await?;
    let retry = scene.in_state(State::RetryScheduled).await?;
    let row = |notification: &Notification, second| Overdue {
        notification: notification.clone().into(),
        seen: FRESH,
        due: at(second),
        first_due: at(second),
    };
    let ask = async |due: i64, first: i64, after: Option<(Timestamp, NotificationId)>, limit| {
        scene.store.overdue(at(due), at(first), after, limit).await
    };
    let all = [row(&early, 10), row(&also, 10), row(&late, 20)];
    same("before 21", ask(21, 21, None, 9).await?, all.clone())?;
    same("before 20", ask(20, 20, None, 9).await?, &all[..2])?;
    same("first due before 20", ask(21, 20, None, 9).await?, &all[..2])?;
    same("the first two", ask(21, 21, None, 2).await?, &all[..2])?;
    same("after the first", ask(21, 21, Some((at(10), early.id)), 9).await?, &all[1..])?;
    same("after the last", ask(21, 21, Some((at(20), late.id)), 9).await?, [])?;
    let retried = Overdue {
        seen: Seen { state: State::RetryScheduled, generation: 1, attempt: 2 },
        due: at(60),
        first_due: at(0),
        ..row(&retry, 0)
    };
    same("a retry, by its first due time", ask(61, 1, None, 9).await?, [retried])
}
