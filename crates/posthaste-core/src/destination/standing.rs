//! How a destination stands at one moment, for people and programs.

use super::Destination;
use crate::breaker::{Breaker, Failures};
use crate::time::Timestamp;

/// What is sent to a destination. The names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DestinationState {
    /// Everything, as far as limits and a ramp let it.
    Closed,
    /// Nothing.
    Open,
    /// One probe is under way.
    HalfOpen,
}

impl DestinationState {
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "halfOpen",
        }
    }
}

/// The state in a word of S2. The names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// Nothing is wrong.
    Well,
    /// Failures are counted, or it ramps up.
    Monitoring,
    Blocked,
}

impl Label {
    pub const ALL: [Self; 3] = [Self::Well, Self::Monitoring, Self::Blocked];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Well => "",
            Self::Monitoring => "MONITORING",
            Self::Blocked => "BLOCKED",
        }
    }
}

/// What keeps a destination from its full speed. The names are labels of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hindrance {
    /// A person blocks it.
    Blocked,
    Open,
    HalfOpen,
    Ramping,
    /// It asked for silence.
    Paused,
    /// Failures are counted.
    Failing,
}

impl Hindrance {
    pub const ALL: [Self; 6] =
        [Self::Blocked, Self::Open, Self::HalfOpen, Self::Ramping, Self::Paused, Self::Failing];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Open => "open",
            Self::HalfOpen => "halfOpen",
            Self::Ramping => "ramping",
            Self::Paused => "paused",
            Self::Failing => "failing",
        }
    }
}

/// Breaker and block as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub state: DestinationState,
    pub label: Label,
    /// Failed attempts in a row.
    pub failures: Option<Failures>,
    /// Since when nothing but probes is sent.
    pub blocked_at: Option<Timestamp>,
    /// When the next probe may be sent. None while a person blocks it: a block does not lapse.
    pub blocked_until: Option<Timestamp>,
    /// It is closed again, but not at full speed yet.
    pub is_ramping: bool,
}

impl Destination {
    /// A block counts more than what the breaker says.
    pub fn standing(&self, now: Timestamp) -> Standing {
        let failures = self.breaker.failures();
        let shut = |state, blocked_at, blocked_until| Standing {
            state,
            label: Label::Blocked,
            failures,
            blocked_at: Some(blocked_at),
            blocked_until,
            is_ramping: false,
        };
        if let Some(block) = &self.block {
            return shut(DestinationState::Open, block.at, None);
        }
        match self.breaker {
            Breaker::Open { since, until } => shut(DestinationState::Open, since.opened_at, Some(until)),
            Breaker::HalfOpen { since, until, .. } => {
                shut(DestinationState::HalfOpen, since.opened_at, Some(until))
            }
            Breaker::Closed { .. } | Breaker::Ramping { .. } => {
                let is_ramping = self.breaker.ramp(now).is_some();
                let label = if failures.is_some() || is_ramping { Label::Monitoring } else { Label::Well };
                Standing {
                    state: DestinationState::Closed,
                    label,
                    failures,
                    blocked_at: None,
                    blocked_until: None,
                    is_ramping,
                }
            }
        }
    }
}

impl Destination {
    /// The first that applies; none if it is well.
    pub fn hindrance(&self, now: Timestamp) -> Option<Hindrance> {
        let standing = self.standing(now);
        match standing.state {
            _ if self.block.is_some() => Some(Hindrance::Blocked),
            DestinationState::Open => Some(Hindrance::Open),
            DestinationState::HalfOpen => Some(Hindrance::HalfOpen),
            DestinationState::Closed if self.paused(now).is_some() => Some(Hindrance::Paused),
            DestinationState::Closed if standing.is_ramping => Some(Hindrance::Ramping),
            DestinationState::Closed => standing.failures.map(|_| Hindrance::Failing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::{Break, RAMP};
    use crate::destination::Block;

    const AT: Timestamp = Timestamp::from_millis(7);

    fn with(breaker: Breaker) -> Destination {
        Destination { breaker, ..Destination::default() }
    }

    #[test]
    fn a_block_counts_more_than_the_breaker_and_has_no_end() {
        let failures = Failures { count: 10, first_at: AT, last_at: AT };
        let since = Break { opened_at: AT, pause: 1, failures };
        let (later, over) = (AT.later(RAMP / 2), AT.later(RAMP));
        let ramping = Breaker::Ramping { since, closed_at: AT, again: None };
        use DestinationState::{Closed, HalfOpen, Open};
        for (breaker, now, state, label, until) in [
            (Breaker::default(), AT, Closed, "", None),
            (Breaker::Closed { failures: Some(failures) }, AT, Closed, "MONITORING", None),
            (Breaker::Open { since, until: later }, AT, Open, "BLOCKED", Some(later)),
            (Breaker::Open { since, until: later }, over, Open, "BLOCKED", Some(later)),
            (Breaker::HalfOpen { since, node: 1, until: later }, AT, HalfOpen, "BLOCKED", Some(later)),
            (ramping, later, Closed, "MONITORING", None),
            (ramping, over, Closed, "", None),
        ] {
            let standing = with(breaker).standing(now);
            assert_eq!(
                (standing.state, standing.label.name(), standing.blocked_until),
                (state, label, until)
            );
            assert_eq!(standing.is_ramping, label == "MONITORING" && standing.failures.is_none());
            assert_eq!(standing.blocked_at, until.map(|_| AT));
            let block = Some(Block { by: "ada".to_owned(), reason: None, at: later });
            let blocked = Destination { block, ..with(breaker) }.standing(now);
            assert_eq!((blocked.state, blocked.label, blocked.blocked_until), (Open, Label::Blocked, None));
            assert_eq!((blocked.blocked_at, blocked.failures), (Some(later), standing.failures));
        }
    }
    #[test]
    fn what_counts_most_is_what_hinders() {
        let failures = Failures { count: 10, first_at: AT, last_at: AT };
        let since = Break { opened_at: AT, pause: 1, failures };
        let later = AT.later(RAMP / 2);
        for (breaker, alone, paused) in [
            (Breaker::default(), None, "paused"),
            (Breaker::Closed { failures: Some(failures) }, Some("failing"), "paused"),
            (Breaker::Ramping { since, closed_at: AT, again: None }, Some("ramping"), "paused"),
            (Breaker::Open { since, until: later }, Some("open"), "open"),
            (Breaker::HalfOpen { since, node: 1, until: later }, Some("halfOpen"), "halfOpen"),
        ] {
            let name = |one: &Destination| one.hindrance(AT).map(Hindrance::name);
            let one = with(breaker);
            assert_eq!(name(&one), alone);
            let one = Destination { paused_until: Some(later), ..one };
            assert_eq!(name(&one), Some(paused));
            let one = one.blocked("ada", None, AT).unwrap().0;
            assert_eq!(name(&one), Some("blocked"));
        }
    }
}
