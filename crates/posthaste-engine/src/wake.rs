//! Waking: due work is announced at its time. The next due time is known, so the loop sleeps until then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::store::{DueCursor, Result, Wakes};

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);
/// The most rows of one look.
const PAGE: usize = 5_000;
/// The most waves that are read beside each other. Beyond it the sweep finds the rest.
const MOST_BEHIND: usize = 16;

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut rounds = Rounds::new(shared.node.now());
    loop {
        shared.due.clear();
        match rounds.look(&shared).await {
            Ok(_) if !rounds.behind.is_empty() => {}
            Ok(next) => shared.due.sleep(shared.node.now(), next, shared.settings.sweep).await,
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
    /// Everything up to this place was seen.
    after: DueCursor,
    /// What was not read to its end, and until when it was due.
    behind: VecDeque<(DueCursor, Timestamp)>,
}

impl Rounds {
    /// What was due before is found by the first sweep.
    fn new(now: Timestamp) -> Self {
        Self { after: DueCursor::after_all_at(now), behind: VecDeque::new() }
    }

    /// Announces what became due since the last look and a page of what is behind; returns when the next row becomes due.
    async fn look(&mut self, shared: &Shared) -> Result<Option<Timestamp>> {
        let until = shared.node.now();
        let wakes = page(shared, self.after, until).await?;
        self.after = DueCursor::after_all_at(until);
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

async fn page(shared: &Shared, after: DueCursor, until: Timestamp) -> Result<Wakes> {
    let wakes = shared.store.wakes(after, until, PAGE).await?;
    shared.slots.ready(wakes.buckets.iter().map(|woken| (&woken.tenant, woken.bucket)));
    Ok(wakes)
}
