//! Waking: due work is announced at its time. The next due time is known, so the loop sleeps until then.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::time::Timestamp;
use tokio::sync::Notify;

use crate::engine::Shared;
use crate::store::{Result, Wakes};

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);
/// The most rows of one look.
const PAGE: usize = 5_000;
/// The most waves that are read beside each other. Beyond it the sweep finds the rest.
const MOST_BEHIND: usize = 16;

/// Everything up to this row was seen.
type Cursor = (Timestamp, NotificationId);

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
    let mut rounds = Rounds::new(shared.node.now());
    loop {
        shared.due.clear();
        match rounds.look(&shared).await {
            Ok(_) if !rounds.behind.is_empty() => {}
            Ok(next) => shared.due.sleep(&shared, next, shared.settings.sweep).await,
            Err(error) => {
                shared.store_failed("look for due work", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// How far the loop has looked. Where more becomes due at once than a page holds, the rest is read page by page beside what
/// becomes due later: a wave of one tenant's retries does not make others' late.
struct Rounds {
    after: Cursor,
    /// What was not read to its end, and until when it was due.
    behind: VecDeque<(Cursor, Timestamp)>,
}

impl Rounds {
    /// What was due before is found by the first sweep.
    fn new(now: Timestamp) -> Self {
        Self { after: (now, NotificationId::LAST), behind: VecDeque::new() }
    }

    /// Announces what became due since the last look and a page of what is behind; returns when the next row becomes due.
    async fn look(&mut self, shared: &Shared) -> Result<Option<Timestamp>> {
        let until = shared.node.now();
        let wakes = page(shared, self.after, until).await?;
        self.after = (until, NotificationId::LAST);
        if let Some(cursor) = wakes.more {
            self.behind.push_back((cursor, until));
            if self.behind.len() > MOST_BEHIND {
                self.behind.pop_front();
                shared.sweep.ask();
            }
        } else if let Some((cursor, until)) = self.behind.front_mut() {
            match page(shared, *cursor, *until).await?.more {
                Some(more) => *cursor = more,
                None => drop(self.behind.pop_front()),
            }
        }
        Ok(wakes.next)
    }
}

async fn page(shared: &Shared, after: Cursor, until: Timestamp) -> Result<Wakes> {
    let wakes = shared.store.wakes(after, until, PAGE).await?;
    shared.slots.ready(wakes.buckets.iter().map(|(bucket, tenant)| (tenant, *bucket)));
    Ok(wakes)
}
