//! What a destination allows one node at one moment.

use std::time::Duration;

use super::{Destination, SendLimits};
use crate::breaker::Breaker;
use crate::flow::{Gate, Limits};
use crate::rate::{Share, Traffic};
use crate::slots::Bounds;
use crate::time::Timestamp;

/// When it is time for the probe, each node waits so much longer than the one before it: the first with a slot sends it, and the
/// others hear of it before they claim a row in vain.
const BETWEEN_PROBERS: Duration = Duration::from_millis(500);

impl Destination {
    /// What the breaker and a block say to the node with this share.
    pub fn gate_for(&self, share: Share, now: Timestamp) -> Gate {
        match self.gate(now) {
            Gate::Probe if self.turn_to_probe(share).is_some_and(|turn| now < turn) => Gate::Open,
            Gate::Ramp(at_once) => Gate::Ramp(share.of(at_once)),
            gate @ (Gate::Closed | Gate::Open | Gate::Probe) => gate,
        }
    }

    /// Whether nothing but a probe may be sent now.
    pub fn is_shut(&self, now: Timestamp) -> bool {
        self.gate(now).is_shut() || self.paused(now).is_some()
    }

    /// Everything that the node with this share holds it to. `limits` are those in force.
    pub fn bounds(&self, limits: SendLimits, share: Share, now: Timestamp) -> Bounds {
        let ramp = self.breaker.ramp(now).map(|ramp| ramp.per_second);
        let rate = [limits.rate.map(|rate| rate.as_per_second()), ramp].into_iter().flatten();
        let rate = rate.reduce(f64::min).map(|per_second| share.of_rate(per_second));
        let limits = Limits {
            gate: self.gate_for(share, now),
            paused_until: self.paused(now),
            concurrency: limits.concurrency.map(|most| share.of(most)),
            ..Limits::default()
        };
        Bounds { limits, rate, retries: self.retry_budget(share, now) }
    }

    /// When `bounds` changes next by time alone, but for the end of a pause.
    pub fn changes_at(&self, share: Share, now: Timestamp) -> Option<Timestamp> {
        let turn = self.turn_to_probe(share).filter(|turn| *turn > now);
        self.breaker.changes_at(now).into_iter().chain(turn).min()
    }

    fn turn_to_probe(&self, share: Share) -> Option<Timestamp> {
        match self.breaker {
            Breaker::Open { until, .. } | Breaker::HalfOpen { until, .. } => {
                Some(until.later(BETWEEN_PROBERS.saturating_mul(share.place())))
            }
            Breaker::Closed { .. } | Breaker::Ramping { .. } => None,
        }
    }

    /// While it is open, the last probe of any node counts; while it ramps up, one node has the least that is always allowed.
    fn retry_budget(&self, share: Share, now: Timestamp) -> Option<Traffic> {
        let mut budget = Traffic::default();
        match self.breaker {
            Breaker::Closed { .. } => None,
            Breaker::Open { since, .. } | Breaker::HalfOpen { since, .. } => {
                budget.heard_of_retry(since.failures.last_at);
                Some(budget)
            }
            Breaker::Ramping { .. } if self.breaker.is_budgeted(now) => {
                Some(budget.with_least(share.is_first()))
            }
            Breaker::Ramping { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::{Break, Failures};
    use crate::rate::Rate;
    use crate::state::Lane;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn broken() -> Break {
        Break {
            opened_at: at(0),
            pause: 10_000_000,
            failures: Failures { count: 10, first_at: at(0), last_at: at(0) },
        }
    }

    #[test]
    fn nodes_take_turns_to_probe() {
        let open = Breaker::Open { since: broken(), until: at(10_000) };
        let open = Destination { breaker: open, ..Destination::default() };
        let (first, third) = (Share::WHOLE, Share::new(2, 3));
        assert_eq!(open.gate_for(first, at(9_999)), Gate::Open);
        assert_eq!(
            (open.gate_for(first, at(10_000)), open.gate_for(third, at(10_000))),
            (Gate::Probe, Gate::Open)
        );
        assert_eq!(open.gate_for(third, at(11_000)), Gate::Probe);
        assert_eq!(
            (open.changes_at(third, at(0)), open.changes_at(third, at(10_000))),
            (Some(at(10_000)), Some(at(11_000)))
        );
        assert_eq!(open.changes_at(third, at(11_000)), None);
        assert!(open.is_shut(at(11_000)));
    }

    #[test]
    fn a_ramp_and_a_rate_are_shared_by_the_nodes_and_the_lower_one_counts() {
        let ramping = Breaker::Ramping { since: broken(), closed_at: at(0), again: None };
        let ramping = Destination { breaker: ramping, ..Destination::default() };
        let limits = SendLimits { rate: Some(Rate::per_second(4.0).unwrap()), concurrency: Some(3) };
        let bounds = ramping.bounds(limits, Share::new(0, 2), at(0));
        assert_eq!(
            (bounds.limits.gate, bounds.limits.concurrency, bounds.rate),
            (Gate::Ramp(1), Some(2), Some(2.0))
        );
        let second = ramping.bounds(SendLimits::default(), Share::new(1, 2), at(0));
        assert_eq!((second.limits.gate, second.rate), (Gate::Ramp(0), Some(5.0)));
        assert_eq!(bounds.retries.map(|retries| retries.room(at(0))), Some(1));
        assert_eq!(second.retries.map(|retries| retries.room(at(0))), Some(0));
        let over = ramping.bounds(SendLimits::default(), Share::WHOLE, at(60_000));
        assert_eq!(over, Bounds::default());
    }

    #[test]
    fn a_probe_waits_for_the_retry_budget_of_all_nodes() {
        let open = Breaker::Open { since: broken(), until: at(1_000) };
        let open = Destination { breaker: open, ..Destination::default() };
        let room = |now| {
            let bounds = open.bounds(SendLimits::default(), Share::WHOLE, now);
            let retries_left = bounds.retries.map(|retries| retries.room(now));
            Limits { retries_left, ..bounds.limits }.room_in(Lane::Main, now)
        };
        assert_eq!((room(at(500)), room(at(1_000)), room(at(10_000))), (0, 0, 1));
    }
}
