//! Expiry: what ran out of time while it waited is ended.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::series::Happened;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::store::{Act, Change, ExpiringRow, Result, StoreError};
use crate::{journal, series};

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        shared.expiry.clear();
        match expire(&shared, &mut 0).await {
            Ok(next) => shared.expiry.sleep(shared.node.now(), next, shared.settings.sweep).await,
            Err(error) => {
                shared.store_failed("end what expired", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Ends what expired, and counts it; returns when the next row expires.
pub(crate) async fn expire(shared: &Shared, count: &mut u64) -> Result<Option<Timestamp>> {
    loop {
        let now = shared.node.now();
        let expiring = shared.store.expiring(now, shared.settings.batch).await?;
        let full = expiring.rows.len() == shared.settings.batch;
        let mut any = expiring.rows.is_empty();
        let expire = |row: &ExpiringRow| Change { id: row.id, seen: row.seen, act: Act::Expire };
        let changes: Vec<Change> = expiring.rows.iter().map(expire).collect();
        if !changes.is_empty() {
            let tenants = shared.heard_tenants(changes.iter().map(|change| change.id)).await;
            let whose = changes.iter().filter_map(|change| Some((change.id, tenants.get(&change.id)?)));
            let named = shared.named(whose).await;
            let made = end(shared, changes, State::Expired, now).await?;
            any = made.contains(&true);
            *count += made.iter().filter(|made| **made).count() as u64;
            let ended = expiring.rows.into_iter().zip(made).filter_map(|(row, made)| made.then_some(row));
            let ended: Vec<ExpiringRow> = ended.collect();
            journal::expired(shared, (&named, &tenants), &ended, now);
            let ended = ended.iter().map(|row| (row.id, Happened::Expired));
            series::ended_waiting(shared, ended).await;
        }
        if !full {
            return Ok(expiring.next);
        }
        if !any {
            // The same rows would come again. What they wait for is not known.
            return Ok(None);
        }
    }
}

/// Makes changes that lead to that state; returns which of them were made. One that makes no sense to the store is left out
/// and does not keep the others from being made.
pub(crate) async fn end(
    shared: &Shared,
    changes: Vec<Change>,
    state: State,
    now: Timestamp,
) -> Result<Vec<bool>> {
    let made = match shared.store.transition(changes.clone(), None, None, now).await {
        Err(StoreError::Corrupt { .. }) => end_each(shared, changes, now).await?,
        made => made?,
    };
    shared.counts.ended(state, made.iter().filter(|made| **made).count());
    Ok(made)
}

async fn end_each(shared: &Shared, changes: Vec<Change>, now: Timestamp) -> Result<Vec<bool>> {
    let mut made = Vec::with_capacity(changes.len());
    for change in changes {
        let id = change.id;
        match shared.store.transition(vec![change], None, None, now).await {
            Ok(one) => made.push(one == [true]),
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(%id, %error, "a damaged notification cannot be ended");
                made.push(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}
