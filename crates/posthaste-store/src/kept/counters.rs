//! What a transaction changes in the kept sums, before it is written.

use std::collections::HashMap;

use posthaste_core::flow::FlowId;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::ChannelStats;

use super::damage::{Damaged, Result};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Rows of the main lane, held or not.
    Main = 0,
    /// Rows of the retry lane, held or not.
    Retry = 1,
    /// Ended as a dead letter.
    Dead = 2,
    /// Ended as delivered, by the hour of the end.
    Delivered = 3,
    /// Ended in any way, by the hour of the end.
    Ended = 4,
}

/// The name under which the sums over all tenants are kept; no tenant can have it.
pub(crate) const ALL: &str = "";

/// What a transaction changes in the counters.
#[derive(Default)]
pub(crate) struct Deltas {
    of: HashMap<(FlowId, Kind, i64), i64>,
}

/// A change of one sum of a flow.
pub(crate) struct Delta {
    pub(crate) flow: FlowId,
    pub(crate) kind: Kind,
    pub(crate) hour: i64,
    pub(crate) by: i64,
}

impl Deltas {
    /// A row of the queue appears (1) or goes (-1).
    pub(crate) fn live(&mut self, flow: FlowId, lane: Lane, by: i64) {
        let kind = match lane {
            Lane::Main => Kind::Main,
            Lane::Retry => Kind::Retry,
        };
        self.add(flow, kind, 0, by);
    }

    /// An end at that time appears (1) or goes (-1).
    pub(crate) fn ended(&mut self, flow: FlowId, state: State, at: Timestamp, by: i64) {
        let hour = at.as_hours();
        self.add(flow, Kind::Ended, hour, by);
        match state {
            State::Succeeded => self.add(flow, Kind::Delivered, hour, by),
            State::DeadLetter => self.add(flow, Kind::Dead, 0, by),
            State::Failed | State::Cancelled | State::Expired => {}
            State::Pending | State::Processing | State::RetryScheduled | State::Retrying => {}
        }
    }

    fn add(&mut self, flow: FlowId, kind: Kind, hour: i64, by: i64) {
        *self.of.entry((flow, kind, hour)).or_default() += by;
    }

    /// Forgets the changes of a transaction that was rolled back.
    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }

    /// Takes all changes out, without those that cancel each other, in no order.
    pub(crate) fn take(&mut self) -> Vec<Delta> {
        let delta = |((flow, kind, hour), by)| Delta { flow, kind, hour, by };
        self.of.drain().filter(|(_, by)| *by != 0).map(delta).collect()
    }
}

/// Writes the sum of one kind into what is shown.
pub(crate) fn show(stats: &mut ChannelStats, kind: u8, n: i64) -> Result<()> {
    let n = u64::try_from(n).unwrap_or(0);
    match kind {
        0 => stats.queued = n,
        1 => stats.in_retry = n,
        2 => stats.in_dead_letter = n,
        3 => stats.delivered_24h = n,
        4 => stats.ended_24h = n,
        _ => return Err(Damaged(format!("counter kind {kind}"))),
    }
    Ok(())
}
