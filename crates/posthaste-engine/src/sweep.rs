//! The sweep: a look at every bucket at the start, and now and then. It is the safety net for what another node or an
//! unclear answer left untold, and brings in what was left out because a tenant had too many buckets in line.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::flow::Bucket;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::store::Waiting;

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);
/// Sweeps by the clock take at most one part in so many of the time, where several nodes share the store.
const SHARED_STORE: u32 = 20;
/// The same for a node that has the store to itself, and misses no hint of another.
const OWN_STORE: u32 = 100;
/// Sweeps that somebody asked for take at most one part in so many of the time.
const ASKED_SHARE: u32 = 4;

/// Asks for a sweep.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    bell: Notify,
}

impl Sweep {
    /// Rows may wait that nobody announced.
    pub(crate) fn ask(&self) {
        self.bell.notify_one();
    }
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut from = None;
    loop {
        let begun = Instant::now();
        let took = sweep(&shared, &mut from).await;
        tokio::time::sleep(took * (ASKED_SHARE - 1)).await;
        let share = if shared.store.is_shared() { SHARED_STORE } else { OWN_STORE };
        let next = begun + shared.settings.sweep.max(took * share);
        let _ = tokio::time::timeout_at(next, shared.sweep.bell.notified()).await;
    }
}

/// Announces every bucket that holds due rows, beginning after `from`. The next sweep begins where the first bucket was left
/// out, so that each has its turn. Returns how long the store worked for it: the time of an outage does not count, or the next
/// sweep would come minutes after it.
async fn sweep(shared: &Shared, from: &mut Option<Bucket>) -> Duration {
    shared.slots.sweep_begins();
    let mut took = Duration::ZERO;
    let (begin, mut after, mut left_out) = (*from, *from, None);
    let mut wrapped = begin.is_none();
    loop {
        let begun = Instant::now();
        let (page, waited) = page(shared, after).await;
        took += begun.elapsed().saturating_sub(waited);
        let now = shared.node.now();
        let due = page.iter().filter(|waiting| waiting.due <= now);
        let refused = shared.slots.ready(due.map(|Waiting { bucket, tenant, .. }| (tenant, *bucket)));
        left_out = left_out.or(refused);
        let last = page.last().map(|waiting| waiting.bucket);
        let round = wrapped && begin.is_some_and(|begin| last.is_none_or(|last| last > begin));
        if round || (wrapped && page.len() < shared.settings.batch) {
            break;
        }
        if page.len() < shared.settings.batch {
            (wrapped, after) = (true, None);
        } else {
            after = last;
        }
    }
    *from = left_out;
    shared.slots.sweep_ended();
    took
}

/// The next buckets, and how long the store did not serve. A page that the store cannot serve is asked for again, so that a
/// sweep gets to its end.
async fn page(shared: &Shared, after: Option<Bucket>) -> (Vec<Waiting>, Duration) {
    let begun = Instant::now();
    loop {
        let waited = begun.elapsed();
        match shared.store.buckets(after, shared.settings.batch).await {
            Ok(page) => return (page, waited),
            Err(error) => {
                shared.store_failed("look at every bucket", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
