//! Flows and quotas: how many notifications of which flow may be sent now.
//!
//! A flow is what shares one fate: a tenant's notifications over one channel to one destination. Breaker, ramp, rate,
//! pause and concurrency all come down to one number, the flow's room. Parking is a room of 0.

use std::sync::Arc;

use crate::channel::Channel;
use crate::notification::{Notification, Priority, Tenant};
use crate::state::Lane;
use crate::time::Timestamp;

/// A flow's small number in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub i64);

/// What a flow is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Whose notifications.
    pub tenant: Tenant,
    /// Over which channel.
    pub channel: Channel,
    /// Where to.
    pub destination: Arc<str>,
}

impl FlowKey {
    /// The flow that a notification belongs to.
    pub fn of(notification: &Notification) -> Self {
        Self {
            tenant: notification.tenant.clone(),
            channel: notification.channel,
            destination: notification.destination.clone(),
        }
    }
}

/// The rows of one flow, lane and priority: what a quota is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// The flow.
    pub flow: FlowId,
    /// The lane.
    pub lane: Lane,
    /// The priority.
    pub priority: Priority,
}

/// How many rows of a bucket a claim may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Which rows.
    pub bucket: Bucket,
    /// How many at most.
    pub limit: u32,
}

/// What the destination's breaker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gate {
    /// All is well.
    #[default]
    Closed,
    /// Nothing may be sent.
    Open,
    /// One probe may be sent while nothing else is under way.
    Probe,
    /// It has just recovered: at most this many at once.
    Ramp(u32),
}

impl Gate {
    /// Whether nothing but a probe may be sent.
    pub const fn is_shut(self) -> bool {
        match self {
            Self::Open | Self::Probe => true,
            Self::Closed | Self::Ramp(_) => false,
        }
    }

    /// The one that lets most pass: what may go to several destinations goes to that one.
    pub fn widest(gates: impl IntoIterator<Item = Self>) -> Option<Self> {
        let width = |gate: &Self| match gate {
            Self::Open => 0,
            Self::Probe => 1,
            Self::Ramp(most) => 2 + u64::from(*most),
            Self::Closed => u64::MAX,
        };
        gates.into_iter().max_by_key(width)
    }
}

/// Everything that bounds a flow at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// The breaker.
    pub gate: Gate,
    /// A 429 asked for silence until then.
    pub paused_until: Option<Timestamp>,
    /// What the rate still allows now, if there is one.
    pub rate_left: Option<u32>,
    /// How many retries and probes the retry budget still allows now, while it applies.
    pub retries_left: Option<u32>,
    /// The most at once, if there is such a limit.
    pub concurrency: Option<u32>,
    /// How many are under way.
    pub in_flight: u32,
}

impl Limits {
    /// How many more of the lane may be started at `now`; 0 means that it is parked.
    pub fn room_in(&self, lane: Lane, now: Timestamp) -> u32 {
        let most = if self.is_budgeted(lane) { self.retries_left.unwrap_or(u32::MAX) } else { u32::MAX };
        self.room(now).min(most)
    }

    /// Whether what starts now counts for the retry budget.
    pub const fn is_budgeted(&self, lane: Lane) -> bool {
        matches!(lane, Lane::Retry) || matches!(self.gate, Gate::Probe)
    }

    /// Whether nothing may start even while nothing is under way, whatever the rate.
    pub fn is_shut(&self, now: Timestamp) -> bool {
        Self { in_flight: 0, rate_left: None, ..*self }.room(now) == 0
    }

    /// How many more may be started at `now`; 0 means that the flow is parked.
    pub fn room(&self, now: Timestamp) -> u32 {
        if self.paused_until.is_some_and(|until| now < until) {
            return 0;
        }
        let gate = match self.gate {
            Gate::Closed => u32::MAX,
            Gate::Open => 0,
            Gate::Probe => 1u32.saturating_sub(self.in_flight),
            Gate::Ramp(most) => most.saturating_sub(self.in_flight),
        };
        let concurrency = self.concurrency.map_or(u32::MAX, |most| most.saturating_sub(self.in_flight));
        gate.min(concurrency).min(self.rate_left.unwrap_or(u32::MAX))
    }
}

/// How many notifications a node works on at once, with room kept for each lane, so that neither a wave of retries
/// nor a wave of new notifications shuts the other out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The most at once.
    pub total: u32,
}

impl Capacity {
    /// The share of the total that only `lane` may use: half of it for first attempts, a quarter for retries.
    pub const fn reserved(self, lane: Lane) -> u32 {
        match lane {
            Lane::Main => self.total / 2,
            Lane::Retry => self.total / 4,
        }
    }

    /// The most that one flow may take, so that a destination that hangs leaves half to the others.
    pub fn per_flow(self) -> u32 {
        (self.total / 2).max(1)
    }

    /// The places of `lane` that are kept for tenants that hold fewer than this: an eighth of the most that the lane
    /// may use. A lane of fewer than 8 places keeps none.
    pub fn kept_for_small(self, lane: Lane) -> u32 {
        self.free(lane, 0, 0) / 8
    }

    /// Whether the total is too small to reserve anything for a lane, so that the lanes only take turns.
    pub const fn is_shared_by_turns(self) -> bool {
        self.total < 4
    }

    /// How many more of `lane` may be started while `main` and `retry` are under way.
    ///
    /// What the other lane has reserved and does not use yet stays free for it.
    pub fn free(self, lane: Lane, main: u32, retry: u32) -> u32 {
        let (other, other_in_flight) = match lane {
            Lane::Main => (Lane::Retry, retry),
            Lane::Retry => (Lane::Main, main),
        };
        let reserved = if self.is_shared_by_turns() { 0 } else { self.reserved(other) };
        let kept = reserved.saturating_sub(other_in_flight);
        self.total.saturating_sub(main).saturating_sub(retry).saturating_sub(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    #[test]
    fn every_limit_can_park_a_flow() {
        let free = Limits::default();
        let cases = [
            (free, u32::MAX),
            (Limits { gate: Gate::Open, ..free }, 0),
            (Limits { gate: Gate::Probe, ..free }, 1),
            (Limits { gate: Gate::Probe, in_flight: 1, ..free }, 0),
            (Limits { gate: Gate::Ramp(4), in_flight: 1, ..free }, 3),
            (Limits { gate: Gate::Ramp(4), in_flight: 9, ..free }, 0),
            (Limits { paused_until: Some(at(11)), ..free }, 0),
            (Limits { paused_until: Some(at(10)), ..free }, u32::MAX),
            (Limits { rate_left: Some(0), ..free }, 0),
            (Limits { rate_left: Some(7), concurrency: Some(5), in_flight: 2, ..free }, 3),
            (Limits { rate_left: Some(2), concurrency: Some(5), in_flight: 2, ..free }, 2),
        ];
        for (limits, room) in cases {
            assert_eq!(limits.room(at(10)), room, "{limits:?}");
        }
    }

    #[test]
    fn a_retry_budget_bounds_retries_and_the_probe_and_nothing_else() {
        let spent = Limits { retries_left: Some(0), ..Limits::default() };
        assert_eq!((spent.room_in(Lane::Retry, at(0)), spent.room_in(Lane::Main, at(0))), (0, u32::MAX));
        let probe = Limits { gate: Gate::Probe, ..spent };
        assert_eq!((probe.room_in(Lane::Retry, at(0)), probe.room_in(Lane::Main, at(0))), (0, 0));
        let probe = Limits { retries_left: Some(1), in_flight: 1, ..probe };
        assert_eq!((probe.room_in(Lane::Main, at(0)), probe.is_shut(at(0))), (0, false));
        assert!(Limits { gate: Gate::Open, ..spent }.is_shut(at(0)));
    }

    #[test]
    fn a_wave_in_one_lane_leaves_the_other_its_reserve() {
        let capacity = Capacity { total: 256 };
        assert_eq!(capacity.free(Lane::Main, 192, 0), 0);
        assert_eq!(capacity.free(Lane::Retry, 192, 0), 64);
        assert_eq!(capacity.free(Lane::Retry, 0, 128), 0);
        assert_eq!(capacity.free(Lane::Main, 0, 128), 128);
    }

    #[test]
    fn a_total_of_four_keeps_room_for_each_lane_and_a_smaller_one_for_neither() {
        // Under way in main and retry, and how many more may be started in main and in retry.
        let of_four = [
            ((0, 0), (3, 2)),
            ((1, 0), (2, 2)),
            ((2, 0), (1, 2)),
            ((3, 0), (0, 1)),
            ((0, 1), (3, 1)),
            ((0, 2), (2, 0)),
            ((1, 1), (2, 1)),
            ((2, 1), (1, 1)),
            ((1, 2), (1, 0)),
            ((3, 1), (0, 0)),
            ((2, 2), (0, 0)),
        ];
        let of_less = (1..4).flat_map(|total| {
            let under_way =
                (0..=total).flat_map(move |main| (0..=total - main).map(move |retry| (main, retry)));
            under_way.map(move |(main, retry)| {
                let left = total - main - retry;
                (total, ((main, retry), (left, left)))
            })
        });
        for (total, ((main, retry), expected)) in of_four.map(|row| (4, row)).into_iter().chain(of_less) {
            let capacity = Capacity { total };
            let free = (capacity.free(Lane::Main, main, retry), capacity.free(Lane::Retry, main, retry));
            assert_eq!(free, expected, "{main} and {retry} of {total} are under way");
        }
    }

    proptest! {
        #[test]
        fn a_lane_that_takes_all_it_may_leaves_the_other_its_reserve(total in 4u32..2_000) {
            let capacity = Capacity { total };
            let (main, retry) = (capacity.free(Lane::Main, 0, 0), capacity.free(Lane::Retry, 0, 0));
            prop_assert_eq!(capacity.free(Lane::Retry, main, 0), capacity.reserved(Lane::Retry).max(1));
            prop_assert_eq!(capacity.free(Lane::Main, 0, retry), capacity.reserved(Lane::Main).max(1));
        }

        #[test]
        fn no_lane_goes_beyond_the_total(total in 0u32..2_000, main in 0u32..2_000, retry in 0u32..2_000) {
            let capacity = Capacity { total };
            for lane in Lane::ALL {
                prop_assert!(capacity.free(lane, main, retry) <= total.saturating_sub(main + retry));
            }
        }

        #[test]
        fn some_lane_may_go_on_while_anything_is_free(left in 1u32..2_000, main in 0u32..2_000, retry in 0u32..2_000) {
            let capacity = Capacity { total: left + main + retry };
            prop_assert!(Lane::ALL.into_iter().any(|lane| capacity.free(lane, main, retry) > 0));
        }
    }
}
