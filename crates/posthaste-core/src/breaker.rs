//! The circuit breaker of a destination (S2): what failures, probes and time make of it.
//!
//! Closed, it counts failed attempts in a row over all nodes. Open, nothing is sent until its time is up; then exactly one probe goes
//! out. A probe that fails opens it again for twice as long, one that succeeds closes it, and the flow ramps up. The state is
//! shared: a step is computed here and written by compare-and-swap.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::classify::Verdict;
use crate::failure::FailureType;
use crate::flow::Gate;
use crate::lease::NodeId;
use crate::reply::{Answer, Fault, Reply};
use crate::time::{Timestamp, micros};

/// `[breaker]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// So many failed attempts in a row open it.
    pub failure_threshold: u32,
    /// The first break; one over `break_duration` counts as that.
    pub first_break: Duration,
    /// The longest break.
    pub break_duration: Duration,
    /// After so long without a call it is forgotten. Never shorter than the longest break.
    pub forget_after: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failure_threshold: 10,
            first_break: Duration::from_secs(10),
            break_duration: Duration::from_secs(300),
            forget_after: Duration::from_secs(600),
        }
    }
}

impl BreakerSettings {
    fn first(&self) -> Duration {
        self.first_break.min(self.break_duration)
    }

    /// The break after a probe that failed.
    fn after(&self, pause: Duration) -> Duration {
        pause.saturating_mul(2).clamp(self.first(), self.break_duration)
    }

    fn forget_after(&self) -> Duration {
        self.forget_after.max(self.break_duration)
    }

    /// While it ramps up, fewer failures in a row open it again.
    fn threshold_in_ramp(&self) -> u32 {
        self.failure_threshold.min(3)
    }
}

/// How long an open breaker is kept at least after its probe is due.
const PROBE_GRACE: Duration = Duration::from_secs(60);

/// What an attempt says about its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It took the notification.
    Up,
    /// It is to blame: it failed for the time being, was too slow or could not be reached.
    Down,
    /// It answered, but not so that it could be blamed (410, 404, 429 ..).
    Answered,
    /// Nothing: the notification or this node is to blame.
    Unknown,
}

impl Health {
    pub fn of(verdict: Verdict, reply: &Reply) -> Self {
        let Verdict::Failed(failure) = verdict else { return Self::Up };
        if let Answer::Fault(Fault::Forbidden | Fault::Unsendable | Fault::NoProvider | Fault::Broken) =
            reply.answer
        {
            return Self::Unknown;
        }
        match failure.failure_type {
            FailureType::Temporary | FailureType::Timeout | FailureType::NetworkFailure => Self::Down,
            FailureType::Unknown
            | FailureType::Permanent
            | FailureType::RateLimit
            | FailureType::AuthenticationFailure
            | FailureType::InvalidRecipient
            | FailureType::QuotaExceeded => Self::Answered,
        }
    }
}

/// Failed attempts in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    pub count: u32,
    #[serde(with = "crate::micros")]
    pub first_at: Timestamp,
    #[serde(with = "crate::micros")]
    pub last_at: Timestamp,
}

impl Failures {
    fn and(self, later: Self) -> Self {
        Self {
            count: self.count.saturating_add(later.count),
            first_at: self.first_at.min(later.first_at),
            last_at: self.last_at.max(later.last_at),
        }
    }
}

/// What one node saw of a destination since it last told the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Whether an attempt succeeded; only the failures after the last success count.
    pub succeeded: bool,
    pub failures: Option<Failures>,
}

impl Tally {
    pub fn add(&mut self, health: Health, now: Timestamp) {
        match health {
            Health::Up => *self = Self { succeeded: true, failures: None },
            Health::Down => {
                let one = Failures { count: 1, first_at: now, last_at: now };
                self.failures = Some(self.failures.map_or(one, |known| known.and(one)));
            }
            Health::Answered | Health::Unknown => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What was seen before, and then this.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        if self.succeeded {
            return self;
        }
        let failures = match (earlier.failures, self.failures) {
            (Some(before), Some(since)) => Some(before.and(since)),
            (before, since) => since.or(before),
        };
        Self { succeeded: earlier.succeeded, failures }
    }
}

/// A break and what led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// When it opened first; probes that fail do not change it.
    #[serde(with = "crate::micros")]
    pub opened_at: Timestamp,
    /// How long the present break lasts, in microseconds.
    pub pause: i64,
    pub failures: Failures,
}

/// The state that all nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Breaker {
    Closed {
        failures: Option<Failures>,
    },
    Open {
        #[serde(flatten)]
        since: Break,
        #[serde(with = "crate::micros")]
        until: Timestamp,
    },
    /// One probe is under way.
    HalfOpen {
        #[serde(flatten)]
        since: Break,
        node: i64,
        /// The probe counts as lost after that.
        #[serde(with = "crate::micros")]
        until: Timestamp,
    },
    /// A probe succeeded: closed, but not at full speed yet.
    Ramping {
        #[serde(flatten)]
        since: Break,
        #[serde(with = "crate::micros")]
        closed_at: Timestamp,
        /// Since then.
        again: Option<Failures>,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failures: None }
    }
}

/// What happened to a breaker, for the history of its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerEvent {
    Opened { until: Timestamp },
    Probed,
    Closed,
}

/// How much a flow may get while it ramps up, over all nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    pub at_once: u32,
    pub per_second: f64,
}

/// How long a ramp lasts.
pub const RAMP: Duration = Duration::from_secs(60);
/// What is allowed doubles after each of these.
const RAMP_STEP: Duration = Duration::from_secs(6);
/// So many a second for each that is allowed at once.
const RAMP_RATE: f64 = 10.0;
/// A break that a person or a restart ends at once would leave no time between two probes.
const SHORTEST_BREAK: Duration = Duration::from_millis(100);

impl Breaker {
    /// Whether it lets pass at `now`. A probe that is lost lets the next one pass.
    pub fn gate(&self, now: Timestamp) -> Gate {
        match self {
            Self::Closed { .. } => Gate::Closed,
            Self::Open { until, .. } | Self::HalfOpen { until, .. } if now < *until => Gate::Open,
            Self::Open { .. } | Self::HalfOpen { .. } => Gate::Probe,
            Self::Ramping { .. } => self.ramp(now).map_or(Gate::Closed, |ramp| Gate::Ramp(ramp.at_once)),
        }
    }

    /// What is allowed while it ramps up; none if it does not, or not any more.
    pub fn ramp(&self, now: Timestamp) -> Option<Ramp> {
        let Self::Ramping { closed_at, .. } = self else { return None };
        let since = now.since(*closed_at);
        let steps = u32::try_from(since.as_secs() / RAMP_STEP.as_secs()).unwrap_or(u32::MAX);
        let at_once = 1u32.checked_shl(steps).unwrap_or(u32::MAX);
        (since < RAMP).then(|| Ramp { at_once, per_second: f64::from(at_once) * RAMP_RATE })
    }

    /// Whether the retry budget applies: from the opening until the ramp is over.
    pub fn is_budgeted(&self, now: Timestamp) -> bool {
        match self {
            Self::Closed { .. } => false,
            Self::Open { .. } | Self::HalfOpen { .. } => true,
            Self::Ramping { .. } => self.ramp(now).is_some(),
        }
    }

    /// When `gate`, `ramp` or `is_budgeted` change next by time alone.
    pub fn changes_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { until, .. } | Self::HalfOpen { until, .. } => (*until > now).then_some(*until),
            Self::Ramping { closed_at, .. } => {
                let steps = now.since(*closed_at).as_secs() / RAMP_STEP.as_secs() + 1;
                let next =
                    closed_at.later(RAMP_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX)));
                (next <= closed_at.later(RAMP)).then_some(next)
            }
        }
    }

    /// The failures in a row that are known.
    pub const fn failures(&self) -> Option<Failures> {
        match self {
            Self::Closed { failures } => *failures,
            Self::Open { since, .. } | Self::HalfOpen { since, .. } => Some(since.failures),
            Self::Ramping { again, .. } => *again,
        }
    }

    /// What a node saw changes the count. Once open, only probes count.
    #[must_use]
    pub fn tallied(
        self,
        tally: Tally,
        settings: &BreakerSettings,
        now: Timestamp,
    ) -> (Self, Option<BreakerEvent>) {
        let sum = |known: Option<Failures>| match (known.filter(|_| !tally.succeeded), tally.failures) {
            (Some(known), Some(new)) => Some(known.and(new)),
            (known, new) => new.or(known),
        };
        match self {
            Self::Closed { failures } => {
                let known = failures.filter(|known| now.since(known.last_at) < settings.forget_after());
                match sum(known) {
                    Some(failures) if failures.count >= settings.failure_threshold => {
                        Self::opened(now, failures, settings.first(), now)
                    }
                    failures => (Self::Closed { failures }, None),
                }
            }
            Self::Ramping { since, closed_at, again } => match sum(again) {
                Some(failures) if self.ramp(now).is_none() => Self::Closed { failures: None }.tallied(
                    Tally { succeeded: true, failures: Some(failures) },
                    settings,
                    now,
                ),
                Some(failures) if failures.count >= settings.threshold_in_ramp() => {
                    Self::opened(since.opened_at, failures, settings.after(since.pause()), now)
                }
                again => (Self::Ramping { since, closed_at, again }, None),
            },
            Self::Open { .. } | Self::HalfOpen { .. } => (self, None),
        }
    }

    /// The node may send the one probe, which is lost after `lasts`. None if it is not the time for one.
    pub fn probe(self, node: NodeId, lasts: Duration, now: Timestamp) -> Option<(Self, BreakerEvent)> {
        match self {
            Self::Open { since, until } | Self::HalfOpen { since, until, .. } if until <= now => {
                Some((Self::HalfOpen { since, node: node.0, until: now.later(lasts) }, BreakerEvent::Probed))
            }
            Self::Closed { .. } | Self::Open { .. } | Self::HalfOpen { .. } | Self::Ramping { .. } => None,
        }
    }

    /// The probe of the node came back. Any answer of the destination closes the breaker but one that blames it; a probe that says
    /// nothing leaves the next one its turn at once. None if the node has no probe under way.
    pub fn probed(
        self,
        node: NodeId,
        health: Health,
        settings: &BreakerSettings,
        now: Timestamp,
    ) -> Option<(Self, Option<BreakerEvent>)> {
        let Self::HalfOpen { since, node: prober, .. } = self else { return None };
        if prober != node.0 {
            return None;
        }
        Some(match health {
            Health::Up | Health::Answered => {
                (Self::Ramping { since, closed_at: now, again: None }, Some(BreakerEvent::Closed))
            }
            Health::Down => {
                let failures = since.failures.and(Failures { count: 1, first_at: now, last_at: now });
                Self::opened(since.opened_at, failures, settings.after(since.pause()), now)
            }
            Health::Unknown => (Self::Open { since, until: now.later(SHORTEST_BREAK) }, None),
        })
    }

    /// When it says nothing any more that a new one would not say.
    pub fn forgotten_at(&self, settings: &BreakerSettings) -> Timestamp {
        match self {
            Self::Closed { failures: None } => Timestamp::MIN,
            Self::Closed { failures: Some(failures) } => failures.last_at.later(settings.forget_after()),
            // The probe that is due then has its time.
            Self::Open { since, until } => {
                since.failures.last_at.later(settings.forget_after()).max(until.later(PROBE_GRACE))
            }
            Self::HalfOpen { until, .. } => until.later(settings.forget_after()),
            Self::Ramping { closed_at, .. } => closed_at.later(RAMP),
        }
    }

    fn opened(
        opened_at: Timestamp,
        failures: Failures,
        pause: Duration,
        now: Timestamp,
    ) -> (Self, Option<BreakerEvent>) {
        let until = now.later(pause.max(SHORTEST_BREAK));
        let since = Break { opened_at, pause: micros(pause), failures };
        (Self::Open { since, until }, Some(BreakerEvent::Opened { until }))
    }
}

impl Break {
    fn pause(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.pause).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
