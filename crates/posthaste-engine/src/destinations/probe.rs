//! The probe: the one try while a breaker is open. The row is claimed first, then the store is asked, by compare-and-swap; who loses
//! gives the row back unsent.

use std::time::Duration;

use posthaste_core::breaker::Health;
use posthaste_core::lease::NodeId;
use posthaste_core::slots::Gated;
use posthaste_core::time::Timestamp;

use super::keep;
use crate::engine::Shared;
use crate::planted::Planted;

/// How much longer than its try a probe may be under way before it counts as lost.
const MARGIN: Duration = Duration::from_secs(10);

/// The right to send the probe. What came of it is told when it is dropped.
pub(crate) struct ProbeInHand<'s> {
    shared: &'s Shared,
    place: Gated,
    node: NodeId,
    /// Until when it must have come back.
    pub(crate) until: Timestamp,
    /// What came of it; unknown until something did.
    pub(crate) health: Health,
}

impl Drop for ProbeInHand<'_> {
    fn drop(&mut self) {
        self.shared.destinations.lock().probed(self.place, self.node, self.health);
        self.shared.apply_bounds();
        self.shared.destinations.bell.notify_one();
    }
}

/// Asks for the probe. None if another node has it, or the store did not say.
pub(crate) async fn begin(shared: &Shared, place: Gated, timeout: Duration) -> Option<ProbeInHand<'_>> {
    let (node, now) = (shared.node.id(), shared.node.now());
    let lasts = timeout.saturating_add(MARGIN);
    let change = shared.destinations.lock().begin_probe(place, node, lasts, now)?;
    let in_hand = ProbeInHand { shared, place, node, until: now.later(lasts), health: Health::Unknown };
    if shared.has(Planted::ProbesUnasked) {
        return Some(in_hand);
    }
    let put = shared.store.put_destinations(vec![change.clone()], None, now).await;
    let lost = match put.map(|mut put| put.pop()) {
        Ok(Some(put)) => {
            let was_made = put.is_made();
            keep::written(shared, place, &change, put);
            !was_made
        }
        Ok(None) => true,
        Err(error) => {
            shared.store_failed("ask for a probe", &error);
            shared.destinations.ask_to_read();
            true
        }
    };
    if lost {
        std::mem::forget(in_hand);
        shared.destinations.lock().no_probe(place);
        shared.apply_bounds();
        return None;
    }
    Some(in_hand)
}
