//! Waking: due work is announced at its time, and what ran out of time is ended.
//!
//! The next due time is known, so the loop sleeps until then. A look at every bucket at the start, and now and then,
//! is the safety net for whatever another node or an unclear answer left untold.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_core::flow::{Bucket, FlowId};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::policy::{BeforeSend, Decision, decide_before_send};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::journal;
use crate::store::{Act, Change, Overdue, Result, Seen};

/// When somebody wants the loop to look.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    at: Mutex<Option<Timestamp>>,
    look: AtomicBool,
    bell: Notify,
}

impl Alarm {
    /// Something becomes due or expires then.
    pub(crate) fn set(&self, time: Timestamp) {
        let mut at = self.at.lock().expect("no code panics while it sets the alarm");
        if at.is_none_or(|known| time < known) {
            *at = Some(time);
            self.bell.notify_one();
        }
    }

    /// Rows may wait that nobody announced: look at every bucket.
    pub(crate) fn look(&self) {
        self.look.store(true, Ordering::SeqCst);
        self.bell.notify_one();
    }

    fn clear(&self) {
        *self.at.lock().expect("no code panics while it sets the alarm") = None;
    }

    /// Notes when the next look is due anyway, so that what comes later does not ring; answers the earliest of all.
    fn note(&self, next: Option<Timestamp>) -> Option<Timestamp> {
        let mut at = self.at.lock().expect("no code panics while it sets the alarm");
        *at = [*at, next].into_iter().flatten().min();
        *at
    }
}

const PAUSE: Duration = Duration::from_millis(200);

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut rounds = Rounds::start(&shared);
    loop {
        // Whatever was set before this is seen by the look that follows; whatever is set during it rings again.
        shared.alarm.clear();
        match rounds.look(&shared).await {
            Ok(next) => {
                let next = shared.alarm.note(next);
                rounds.sleep(&shared, next).await;
            }
            Err(error) => {
                shared.store_failed("look for due work", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// How far the loop has looked, and when the wider looks are due.
struct Rounds {
    after: (Timestamp, NotificationId),
    sweep_at: Instant,
    ages_at: Instant,
}

impl Rounds {
    fn start(shared: &Shared) -> Self {
        Self {
            after: (shared.node.now(), NotificationId::LAST),
            sweep_at: Instant::now(),
            ages_at: Instant::now(),
        }
    }

    /// One look; answers when the next one is due.
    async fn look(&mut self, shared: &Shared) -> Result<Option<Timestamp>> {
        if Instant::now() >= self.sweep_at || shared.alarm.look.swap(false, Ordering::SeqCst) {
            self.sweep_at = Instant::now() + shared.settings.sweep;
            sweep(shared).await.inspect_err(|_| shared.alarm.look())?;
        }
        if Instant::now() >= self.ages_at {
            self.ages_at = Instant::now() + shared.settings.age_check;
            bury_the_old(shared).await?;
        }
        let now = shared.node.now();
        let next = self.wake(shared, now).await?;
        let expiry = expire(shared, now).await?;
        Ok([next, expiry].into_iter().flatten().min())
    }

    /// Announces what became due up to `now`; returns when the next row is due.
    async fn wake(&mut self, shared: &Shared, now: Timestamp) -> Result<Option<Timestamp>> {
        loop {
            let wakes = shared.store.wakes(self.after, now, shared.settings.batch).await?;
            ready(shared, wakes.buckets.iter().map(|(bucket, _)| *bucket).collect()).await?;
            match wakes.more {
                Some(last) => self.after = last,
                None => {
                    self.after = self.after.max((now, NotificationId::LAST));
                    return Ok(wakes.next);
                }
            }
        }
    }

    async fn sleep(&self, shared: &Shared, next: Option<Timestamp>) {
        let wide = self.sweep_at.min(self.ages_at);
        let until = match next {
            Some(next) => wide.min(Instant::now() + next.since(shared.node.now())),
            None => wide,
        };
        let _ = tokio::time::timeout_at(until, shared.alarm.bell.notified()).await;
    }
}

/// Announces every bucket that holds due rows.
async fn sweep(shared: &Shared) -> Result<()> {
    let mut after = None;
    loop {
        let page = shared.store.buckets(after, shared.settings.batch).await?;
        let now = shared.node.now();
        let due = page.iter().filter(|waiting| waiting.due <= now);
        ready(shared, due.map(|waiting| waiting.bucket).collect()).await?;
        if page.len() < shared.settings.batch {
            return Ok(());
        }
        after = page.last().map(|waiting| waiting.bucket);
    }
}

/// Notes that these buckets may hold due rows.
pub(crate) async fn ready(shared: &Shared, buckets: Vec<Bucket>) -> Result<()> {
    let flows = buckets.iter().map(|bucket| bucket.flow);
    let unknown: Vec<FlowId> = flows.filter(|flow| shared.floor.tenant(*flow).is_none()).collect();
    if !unknown.is_empty() {
        for (flow, key) in shared.store.flows(unknown).await? {
            shared.floor.remember(flow, key);
        }
    }
    for bucket in buckets {
        if let Some(tenant) = shared.floor.tenant(bucket.flow) {
            shared.floor.ready(&tenant, bucket);
        }
    }
    Ok(())
}

/// Ends what expired; answers when the next one expires.
async fn expire(shared: &Shared, now: Timestamp) -> Result<Option<Timestamp>> {
    loop {
        let expiring = shared.store.expiring(now, shared.settings.batch).await?;
        let told = expiring.rows.len();
        let changes: Vec<Change> =
            expiring.rows.into_iter().map(|(id, seen)| Change { id, seen, act: Act::Expire }).collect();
        if !changes.is_empty() {
            let ids: Vec<NotificationId> = changes.iter().map(|change| change.id).collect();
            let made = end(shared, changes, State::Expired, now).await?;
            journal::expired(ids.into_iter().zip(made).filter_map(|(id, made)| made.then_some(id)));
        }
        if told < shared.settings.batch {
            return Ok(expiring.next);
        }
    }
}

/// Buries what was parked for longer than its policy allows. What is not parked is looked at when it is sent.
async fn bury_the_old(shared: &Shared) -> Result<()> {
    let mut after = None;
    loop {
        let now = shared.node.now();
        let overdue = now.earlier(shared.settings.sweep);
        let page = shared.store.overdue(overdue, overdue, after, shared.settings.batch).await?;
        let full = page.len() == shared.settings.batch;
        after = page.last().map(|row| (row.due, row.notification.id));
        let burials: Vec<(&Overdue, Change)> =
            page.iter().filter_map(|row| burial(shared, row, now).map(|change| (row, change))).collect();
        if !burials.is_empty() {
            let changes = burials.iter().map(|(_, change)| change.clone()).collect();
            let made = end(shared, changes, State::DeadLetter, now).await?;
            let buried = burials.iter().zip(made).filter(|(_, made)| *made);
            buried.for_each(|((row, change), _)| journal::buried_unsent(&row.notification, change));
        }
        if !full {
            return Ok(());
        }
    }
}

/// Makes changes that lead to that state; answers which of them were made.
async fn end(shared: &Shared, changes: Vec<Change>, state: State, now: Timestamp) -> Result<Vec<bool>> {
    let made = shared.store.transition(changes, None, now).await?;
    shared.counts.ended(state, made.iter().filter(|made| **made).count());
    Ok(made)
}

fn burial(shared: &Shared, row: &Overdue, now: Timestamp) -> Option<Change> {
    let policy = shared.policies.of(&row.notification);
    let facts = BeforeSend {
        now,
        first_due: row.first_due,
        expires_at: row.notification.expires_at,
        cancel_requested: false,
        interruptions: 0,
    };
    match decide_before_send(&policy, &facts)? {
        // A waiting row has no arrow to Failed: what is too old is kept where an operator sees it.
        Decision::Bury(reason) | Decision::Fail(reason) => {
            Some(bury(row.notification.id, row.seen, DeadLetterId::new(now, shared.random()), reason))
        }
        Decision::Complete | Decision::Cancel | Decision::Expire | Decision::RetryAt { .. } => None,
    }
}

fn bury(id: NotificationId, seen: Seen, dead_letter: DeadLetterId, reason: Reason) -> Change {
    Change { id, seen, act: Act::Bury { dead_letter, reason, text: reason.words().to_owned() } }
}
