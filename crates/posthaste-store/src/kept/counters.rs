//! The changes that a transaction makes to the kept counters.

use std::collections::HashMap;

use posthaste_core::flow::FlowId;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;
use posthaste_engine::store::ChannelStats;

use super::damage::{Damaged, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum CounterKind {
    /// Rows of the main lane, leased or not.
    Main = 0,
    /// Rows of the retry lane, leased or not.
    Retry = 1,
    /// Ended as a dead letter.
    Dead = 2,
    /// Ended as delivered, by the hour of the end.
    Delivered = 3,
    /// Ended in any way, by the hour of the end.
    Ended = 4,
}

/// The tenant of the sums over all tenants. No tenant can have this name.
pub(crate) const ALL: &str = "";

/// The changes of one transaction, by flow, kind and hour.
#[derive(Default)]
pub(crate) struct Deltas {
    of: HashMap<(FlowId, CounterKind, i64), i64>,
}

pub(crate) struct Delta {
    pub(crate) flow: FlowId,
    pub(crate) kind: CounterKind,
    pub(crate) hour: i64,
    pub(crate) by: i64,
}

impl Deltas {
    /// Counts a queue row that is added (`by` = 1) or removed (-1).
    pub(crate) fn live(&mut self, flow: FlowId, lane: Lane, by: i64) {
        let kind = match lane {
            Lane::Main => CounterKind::Main,
            Lane::Retry => CounterKind::Retry,
        };
        self.add(flow, kind, 0, by);
    }

    /// Counts an ended row that is added (`by` = 1) or removed (-1).
    pub(crate) fn ended(&mut self, flow: FlowId, state: State, at: Timestamp, by: i64) {
        let hour = at.as_hours();
        self.add(flow, CounterKind::Ended, hour, by);
        match state {
            State::Succeeded => self.add(flow, CounterKind::Delivered, hour, by),
            State::DeadLetter => self.add(flow, CounterKind::Dead, 0, by),
            State::Failed | State::Cancelled | State::Expired => {}
            State::Pending | State::Processing | State::RetryScheduled | State::Retrying => {}
        }
    }

    fn add(&mut self, flow: FlowId, kind: CounterKind, hour: i64, by: i64) {
        *self.of.entry((flow, kind, hour)).or_default() += by;
    }

    /// Discards the changes of a transaction that was rolled back.
    pub(crate) fn clear(&mut self) {
        self.of.clear();
    }

    /// Takes all changes that are not zero, in no order.
    pub(crate) fn take(&mut self) -> Vec<Delta> {
        let delta = |((flow, kind, hour), by)| Delta { flow, kind, hour, by };
        self.of.drain().filter(|(_, by)| *by != 0).map(delta).collect()
    }
}

/// Sets the field of `stats` that shows this kind of counter.
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
