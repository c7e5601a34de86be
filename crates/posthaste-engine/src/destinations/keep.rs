//! The loop that reads what other nodes and people changed, writes what this node saw, and moves what changes by time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posthaste_core::destination::{
    DestinationChange, DestinationEvent, DestinationKey, DestinationKind, DestinationPut, REMOVED_KEPT,
    StoredDestination,
};
use posthaste_core::flow::{FlowId, FlowKey};
use posthaste_core::rate::Share;
use posthaste_core::slots::Gated;
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

use crate::accept::flow_ids;
use crate::engine::Shared;
use crate::journal;
use crate::store::{DESTINATIONS_LEVEL, Result};

/// Minimum pause between two writes of failure counts.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// The same for what cannot wait.
const BETWEEN_URGENT: Duration = Duration::from_millis(20);
/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);
/// Without anything to do the loop looks so often.
const IDLE: Duration = Duration::from_secs(60);

/// Reads everything before the first send: what is known to be down is not tried.
pub(crate) async fn start(shared: &Shared) -> Result<()> {
    let now = shared.node.now();
    let nodes = shared.store.nodes(now).await?;
    let alive = || nodes.iter().filter(|node| node.alive);
    if alive().map(|node| node.level).min().is_some_and(|level| level >= DESTINATIONS_LEVEL) {
        shared.destinations.is_on.store(true, Ordering::Relaxed);
    }
    let before = alive().filter(|node| node.id < shared.node.id()).count();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    shared.destinations.lock().set_share(Share::new(count(before), count(alive().count())));
    for provider in shared.destinations.providers.clone() {
        let key = DestinationKey::provider(&provider.name);
        let limits = shared.settings.file_limits(&key);
        let place = shared.destinations.key_of(&provider).map(Gated::Key);
        if let Some(place) = place.filter(|_| limits != Default::default()) {
            shared.destinations.lock().meet(place, key, limits);
        }
    }
    if shared.destinations.is_on() {
        read(shared).await?;
    }
    shared.apply_bounds();
    Ok(())
}

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (mut written_at, mut read_at) = (Instant::now(), Instant::now());
    loop {
        let _ = tokio::time::timeout(pause(&shared, written_at), shared.destinations.bell.notified()).await;
        if !shared.destinations.is_on() {
            continue;
        }
        if let Err(error) = turn(&shared, &mut written_at, &mut read_at).await {
            shared.store_failed("keep what is known of destinations", &error);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// How long there is nothing to do unless the bell rings.
fn pause(shared: &Shared, written_at: Instant) -> Duration {
    if !shared.destinations.is_on() {
        return IDLE;
    }
    let memory = shared.destinations.lock();
    let after = |least: Duration| least.saturating_sub(written_at.elapsed());
    let write = match (memory.is_dirty(), memory.urgent) {
        (true, true) => after(BETWEEN_URGENT),
        (true, false) => after(BETWEEN_WRITES),
        (false, _) => IDLE,
    };
    let by_time = memory.next_time().map_or(IDLE, |at| at.since(shared.node.now()));
    // A timer may be a little early.
    write.min(by_time.max(Duration::from_millis(1)))
}

async fn turn(shared: &Shared, written_at: &mut Instant, read_at: &mut Instant) -> Result<()> {
    if shared.destinations.to_read.swap(false, Ordering::Relaxed) {
        if read_at.elapsed() > REMOVED_KEPT / 2 {
            read_all(shared).await.inspect_err(|_| shared.destinations.ask_to_read())?;
        }
        read(shared).await.inspect_err(|_| shared.destinations.ask_to_read())?;
        *read_at = Instant::now();
    }
    shared.destinations.lock().time_passed(shared.node.now());
    shared.apply_bounds();
    let least = if shared.destinations.lock().urgent { BETWEEN_URGENT } else { BETWEEN_WRITES };
    if written_at.elapsed() >= least {
        *written_at = Instant::now();
        write(shared).await?;
    }
    Ok(())
}

/// Reads what changed since the last time.
async fn read(shared: &Shared) -> Result<()> {
    loop {
        let version = shared.destinations.lock().version;
        let rows = shared.store.destinations_since(version, shared.settings.batch).await?;
        let more = rows.len() == shared.settings.batch;
        let last = rows.last().map(|row| row.version);
        learn(shared, rows).await?;
        let mut memory = shared.destinations.lock();
        memory.version = memory.version.max(last.unwrap_or(0));
        drop(memory);
        if !more {
            return Ok(());
        }
    }
}

/// Forgets what was removed while nobody asked, for so long that the store does not know of it any more.
async fn read_all(shared: &Shared) -> Result<()> {
    let (mut all, mut after) = (BTreeSet::new(), None);
    loop {
        let page = shared.store.destination_page(None, after, shared.settings.batch).await?;
        all.extend(page.rows.into_iter().map(|row| row.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    shared.destinations.lock().keep_only(&all);
    Ok(())
}

/// Takes rows as they are in the store. Those of known places count at once, before the numbers of the other flows are asked for.
/// That may take long while nothing is committed, so a send looks whether its destination is among these.
pub(super) async fn learn(shared: &Shared, rows: Vec<StoredDestination>) -> Result<()> {
    let (node, now) = (shared.node.id(), shared.node.now());
    let mut unknown: Vec<(FlowKey, StoredDestination)> = vec![];
    for row in rows {
        let file = shared.settings.file_limits(&row.key);
        let place = match row.key.kind {
            DestinationKind::Provider => {
                let all = shared.destinations.providers.iter();
                let provider = all.clone().find(|provider| *provider.name == *row.key.name);
                provider.and_then(|provider| shared.destinations.key_of(provider)).map(Gated::Key)
            }
            DestinationKind::Webhook | DestinationKind::Subscription => {
                shared.destinations.lock().place(&row.key)
            }
        };
        match (place, row.key.flow()) {
            (Some(place), _) => shared.destinations.lock().learn(place, row, file, node, now),
            (None, Some(flow)) if row.value.is_some() => unknown.push((flow, row)),
            (None, _) => drop(shared.destinations.lock().take_unplaced(&row.key)),
        }
    }
    shared.place_later(unknown.iter().map(|(_, row)| row.clone()));
    shared.apply_bounds();
    let keys = unknown.iter().map(|(flow, _)| flow.clone()).collect();
    let flows: Vec<FlowId> = flow_ids(shared, keys).await?;
    for (flow, (_, row)) in flows.into_iter().zip(unknown) {
        shared.place(flow, &row.key);
    }
    shared.apply_bounds();
    Ok(())
}

/// Writes what was seen, a batch at a time.
async fn write(shared: &Shared) -> Result<()> {
    loop {
        let now = shared.node.now();
        let changes = shared.destinations.lock().changes(shared.settings.batch, now);
        shared.apply_bounds();
        if changes.is_empty() {
            return Ok(());
        }
        let asked = changes.iter().map(|(_, change)| change.clone()).collect();
        match shared.store.put_destinations(asked, None, now).await {
            Ok(put) => {
                for ((place, change), put) in changes.iter().zip(put) {
                    written(shared, *place, change, put);
                }
            }
            Err(error) => {
                let places = changes.iter().map(|(place, _)| *place);
                shared.destinations.lock().not_written(places);
                shared.destinations.ask_to_read();
                return Err(error);
            }
        }
        if changes.len() < shared.settings.batch {
            return Ok(());
        }
    }
}

/// Notes what the store said to a change.
pub(super) fn written(shared: &Shared, place: Gated, change: &DestinationChange, put: DestinationPut) {
    let (node, now): (_, Timestamp) = (shared.node.id(), shared.node.now());
    let made = shared.destinations.lock().written(place, change, put, node, now);
    if made {
        tell(shared, &change.key, &change.events);
    }
    shared.apply_bounds();
}

fn tell(shared: &Shared, key: &DestinationKey, events: &[DestinationEvent]) {
    for event in events {
        shared.counts.destination(event.event);
        journal::destination(key, event);
    }
}
