//! Items that cannot be forwarded: how a runner finds the one without holding up the rest.
//!
//! A store says that something among the items of a chunk cannot be read, and does nothing. So fewer and fewer of the flow are
//! forwarded together: what is before the damaged item is done, and then that item is the first of its flow and alone.

use std::collections::HashMap;

use posthaste_core::flow::FlowId;
use posthaste_core::operation::MOST_TRIES;
use tokio::time::Instant;

use super::work::TRY_AGAIN;

/// Flows whose next items could not be forwarded.
#[derive(Default)]
pub(super) struct Damaged(HashMap<FlowId, Narrowed>);

struct Narrowed {
    /// The most that are forwarded together.
    most: u32,
    /// How often one alone could not be forwarded.
    tries: u32,
    /// The others go on meanwhile.
    again: Instant,
}

impl Damaged {
    /// How many of a flow may be forwarded together now.
    pub(super) fn most(&self, flow: FlowId) -> u32 {
        match self.0.get(&flow) {
            None => u32::MAX,
            Some(narrowed) if narrowed.again > Instant::now() => 0,
            Some(narrowed) => narrowed.most,
        }
    }

    /// Up to so many of a flow could not be forwarded. Returns whether its first one is to be ejected.
    pub(super) fn note(&mut self, flow: FlowId, most: u32) -> bool {
        let now = Instant::now();
        let narrowed = self.0.entry(flow).or_insert(Narrowed { most, tries: 0, again: now });
        if most > 1 {
            (narrowed.most, narrowed.tries) = (most / 2, 0);
            return false;
        }
        narrowed.tries += 1;
        narrowed.again = now + TRY_AGAIN;
        narrowed.tries >= MOST_TRIES
    }

    pub(super) fn were_fine(&mut self, flows: &[FlowId]) {
        if self.0.is_empty() {
            return;
        }
        for flow in flows {
            self.0.remove(flow);
        }
    }
}
