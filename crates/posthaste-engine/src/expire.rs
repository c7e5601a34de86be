//! Expiry: what ran out of time while it waited is ended.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use crate::engine::Shared;
use crate::journal;
use crate::store::{Act, Change, Result};

/// The pause after a store error.
const PAUSE: Duration = Duration::from_millis(200);

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        shared.expiry.clear();
        match expire(&shared).await {
            Ok(next) => shared.expiry.sleep(&shared, next, shared.settings.sweep).await,
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
        let count = expiring.rows.len();
        let changes: Vec<Change> =
            expiring.rows.into_iter().map(|(id, seen)| Change { id, seen, act: Act::Expire }).collect();
        if !changes.is_empty() {
            let ids: Vec<NotificationId> = changes.iter().map(|change| change.id).collect();
            let made = end(shared, changes, State::Expired, now).await?;
            journal::expired(ids.into_iter().zip(made).filter_map(|(id, made)| made.then_some(id)));
        }
        if count < shared.settings.batch {
            return Ok(expiring.next);
        }
    }
}

/// Makes changes that lead to that state; returns which of them were made.
pub(crate) async fn end(
    shared: &Shared,
    changes: Vec<Change>,
    state: State,
    now: Timestamp,
) -> Result<Vec<bool>> {
    let made = shared.store.transition(changes, None, now).await?;
    shared.counts.ended(state, made.iter().filter(|made| **made).count());
    Ok(made)
}
