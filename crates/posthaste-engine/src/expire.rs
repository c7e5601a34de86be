//! Expiry: what ran out of time while it waited is ended.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::journal;
use crate::store::{Act, Change, Result, StoreError};

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        shared.expiry.clear();
        match expire(&shared).await {
            Ok(next) => shared.expiry.sleep(shared.node.now(), next, shared.settings.sweep).await,
            Err(error) => {
                shared.store_failed("end what expired", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Ends what expired; returns when the next row expires.
async fn expire(shared: &Shared) -> Result<Option<Timestamp>> {
    loop {
        let now = shared.node.now();
        let expiring = shared.store.expiring(now, shared.settings.batch).await?;
        let full = expiring.rows.len() == shared.settings.batch;
        let mut any = expiring.rows.is_empty();
        let changes: Vec<Change> = expiring
            .rows
            .into_iter()
            .map(|row| Change { id: row.id, seen: row.seen, act: Act::Expire })
            .collect();
        if !changes.is_empty() {
            let ids: Vec<NotificationId> = changes.iter().map(|change| change.id).collect();
            let made = end(shared, changes, State::Expired, now).await?;
            any = made.contains(&true);
            journal::expired(ids.into_iter().zip(made).filter_map(|(id, made)| made.then_some(id)));
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
