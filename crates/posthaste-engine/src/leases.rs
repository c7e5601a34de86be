//! The leases that this node knows of, and the search for those that it does not.
//!
//! A call that the store answered with an error may still happen, even later. What it leased is then held by a node that
//! is alive and does not know of it, so nobody would ever send it. Every few heartbeats the node compares what the store
//! says it holds with what it knows, and gives the rest back.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Fence, Lease};
use tokio::time::Instant;

use crate::engine::{Engine, Shared};
use crate::journal;
use crate::planted::Planted;
use crate::store::{Held, Result};

/// The number of heartbeats between two comparisons.
const BEATS: u32 = 4;
/// The most rows of one look at the store: more than a node holds with the usual settings.
const PAGE: usize = 5_000;

/// The leases that this node knows of.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    known: Mutex<Known>,
    unknown: Mutex<Option<Unknown>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Grants whose call to the store is not answered yet.
    asked: HashSet<Fence>,
    /// Rows in hand: to be sent, waiting in memory, or with a report that is not recorded yet. A row may be in hand twice: an
    /// answer under an earlier grant can come late.
    rows: HashSet<(NotificationId, Fence)>,
}

/// Leases that the last comparison found in the store and not in memory, and gave back or could not give back.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    count: usize,
    /// Every comparison since then has found some.
    since: Instant,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code panics while it notes a lease")
    }

    /// The store is asked for rows under that grant.
    pub(crate) fn asked(&self, lease: Lease) {
        self.lock().asked.insert(lease.fence);
    }

    /// The store answered, and these rows are in hand; none if it answered with an error.
    pub(crate) fn answered(&self, lease: Lease, rows: impl IntoIterator<Item = NotificationId>) {
        let mut known = self.lock();
        known.rows.extend(rows.into_iter().map(|id| (id, lease.fence)));
        known.asked.remove(&lease.fence);
    }

    /// These rows are not in hand any more. Returns how many are named.
    pub(crate) fn done(&self, rows: impl IntoIterator<Item = (Lease, NotificationId)>) -> usize {
        let mut known = self.lock();
        let mut count = 0;
        for (lease, id) in rows {
            known.rows.remove(&(id, lease.fence));
            count += 1;
        }
        count
    }

    /// Adds those of the rows that this node does not know of.
    fn add_unknown(&self, held: &[Held], unknown: &mut BTreeMap<Fence, Vec<NotificationId>>) {
        let known = self.lock();
        for Held { id, fence } in held {
            if !known.rows.contains(&(*id, *fence)) && !known.asked.contains(fence) {
                unknown.entry(*fence).or_default().push(*id);
            }
        }
    }

    fn compared(&self, count: usize) {
        let mut unknown = self.unknown.lock().expect("no code panics while it notes a comparison");
        let since = unknown.map_or_else(Instant::now, |unknown| unknown.since);
        *unknown = (count > 0).then_some(Unknown { count, since });
    }
}

impl Engine {
    /// The number of leases that the last comparison found in the store and not in memory.
    pub fn unknown_leases(&self) -> usize {
        self.unknown_now().map_or(0, |unknown| unknown.count)
    }

    /// For how long every comparison has found such leases. Those of one comparison are given back at once, so a difference
    /// that lasts means that something is wrong.
    pub fn leases_unknown_for(&self) -> Duration {
        self.unknown_now().map_or(Duration::ZERO, |unknown| unknown.since.elapsed())
    }

    fn unknown_now(&self) -> Option<Unknown> {
        *self.shared.leases.unknown.lock().expect("no code panics while it notes a comparison")
    }
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(shared.settings.beat * BEATS).await;
        if shared.has(Planted::NeverCompares) {
            continue;
        }
        if let Err(error) = compare(&shared).await {
            shared.store_failed("compare leases", &error);
        }
    }
}

/// Gives back what the store says this node holds and the node does not know of.
async fn compare(shared: &Shared) -> Result<()> {
    let node = shared.node.id();
    let mut unknown: BTreeMap<Fence, Vec<NotificationId>> = BTreeMap::new();
    let mut after = None;
    loop {
        let held = shared.store.held(node, after, PAGE).await?;
        // Memory is looked at after the store. A row that is settled in between is not released by what follows, and not
        // counted: it is not held under that grant any more.
        shared.leases.add_unknown(&held, &mut unknown);
        match held.last() {
            Some(last) if held.len() == PAGE => after = Some(last.id),
            _ => break,
        }
    }
    let mut count = 0;
    let mut failed = None;
    for (fence, ids) in unknown {
        let (lease, asked) = (Lease { node, fence }, ids.len());
        match shared.store.release(lease, Some(ids)).await {
            Ok(released) => {
                given_back(shared, lease, released);
                count += released;
            }
            Err(error) => {
                count += asked;
                failed = Some(error);
            }
        }
    }
    shared.leases.compared(count);
    failed.map_or(Ok(()), Err)
}

fn given_back(shared: &Shared, lease: Lease, released: usize) {
    if released > 0 {
        tracing::warn!(?lease, released, "gave back leases of a call that was answered as an error");
        shared.counts.given_back(released);
        journal::gave_up_leases(shared);
        shared.sweep.ask();
        shared.hints.anywhere();
    }
}
