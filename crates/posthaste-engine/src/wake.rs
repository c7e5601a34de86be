//! Waking: due work is announced at its time. The next due time is known, so the loop sleeps until then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;

use crate::engine::Shared;
use crate::store::Result;

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);
/// The most rows of one look.
const PAGE: usize = 5_000;

/// The time at which a loop has to look next.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    at: Mutex<Option<Timestamp>>,
    bell: Notify,
}

impl Alarm {
    /// Something happens then.
    pub(crate) fn set(&self, time: Timestamp) {
        let mut at = self.at.lock().expect("no code panics while it sets the alarm");
        if at.is_none_or(|known| time < known) {
            *at = Some(time);
            self.bell.notify_one();
        }
    }

    /// Something may happen at a time that nobody knows: the loop has to look.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// A look begins. What was set before is seen by it; what is set during it rings again.
    pub(crate) fn clear(&self) {
        *self.at.lock().expect("no code panics while it sets the alarm") = None;
    }

    /// Sleeps until `next`, until the earliest time that is set, or for `longest`. A later time that is set meanwhile does
    /// not ring.
    pub(crate) async fn sleep(&self, shared: &Shared, next: Option<Timestamp>, longest: Duration) {
        let earliest = {
            let mut at = self.at.lock().expect("no code panics while it sets the alarm");
            *at = [*at, next].into_iter().flatten().min();
            *at
        };
        let wait = earliest.map_or(longest, |time| longest.min(time.since(shared.node.now())));
        let _ = tokio::time::timeout(wait, self.bell.notified()).await;
    }
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    // What was due before is found by the first sweep.
    let mut after = (shared.node.now(), NotificationId::LAST);
    loop {
        shared.due.clear();
        match look(&shared, &mut after).await {
            Ok(next) => shared.due.sleep(&shared, next, shared.settings.sweep).await,
            Err(error) => {
                shared.store_failed("look for due work", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Announces what became due since the last look; returns when the next row becomes due.
async fn look(shared: &Shared, after: &mut (Timestamp, NotificationId)) -> Result<Option<Timestamp>> {
    let until = shared.node.now();
    loop {
        let wakes = shared.store.wakes(*after, until, PAGE).await?;
        shared.floor.ready(wakes.buckets.iter().map(|(bucket, tenant)| (tenant, *bucket)));
        match wakes.more {
            Some(cursor) => *after = cursor,
            None => {
                *after = (until, NotificationId::LAST);
                return Ok(wakes.next);
            }
        }
    }
}
