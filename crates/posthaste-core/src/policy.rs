//! What to do about failures: how often, how long after, and when to give up.
//!
//! A [`PolicyLayer`] is what a scope says, with every field optional. A [`PolicySet`] holds the layers of all scopes
//! and resolves them into a [`Policy`], where every field is filled. [`decide`] applies it to one outcome.

mod check;
mod decide;
mod layer;
mod preset;
mod preview;
pub mod quick;
mod read;
mod resolve;
mod scope;
mod set;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

pub use check::{
    LONGEST_QUICK_LIMIT, LONGEST_TIMEOUT, MOST_ATTEMPTS, MOST_QUICK_TRIES, MOST_SCHEDULE_ENTRIES,
    MOST_STATUS_CODES, MOST_TEMPLATE_ATTEMPTS,
};
pub use decide::{BeforeSend, Decision, MOST_INTERRUPTIONS, Situation, decide, decide_before_send, is_past};
pub use layer::{PolicyLayer, QuickLayer};
pub use preset::Preset;
pub use preview::{Preview, PreviewedAttempt, preview};
pub use quick::Quick;
pub use resolve::resolve;
pub use scope::{BadScope, Scope};
pub use set::{PolicySet, Source, USUAL_LONGEST_TIMEOUT};

use crate::failure::FailureType;
use crate::jitter::{Base, Jitter};
use crate::strategy::Backoff;

/// A policy with every field filled. It is shown as a layer that says everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// How the delays grow.
    pub backoff: Backoff,
    /// How chance changes them.
    pub jitter: Jitter,
    /// How many attempts a generation has, the first included.
    pub max_attempts: u32,
    /// How long one try may take.
    pub timeout: Duration,
    /// How old a notification may grow, where a scope says so; see [`Policy::max_age`].
    pub named_max_age: Option<Duration>,
    /// Whether what is given up becomes a dead letter; otherwise it ends as Failed.
    pub dead_letter: bool,
    /// Whether `Retry-After` is a lower bound of scheduled retries.
    pub honour_retry_after: bool,
    /// The most that `Retry-After` can ask for.
    pub maximum_retry_after: Duration,
    /// The repeats inside one attempt.
    pub quick: Quick,
    /// Which failures are retried.
    pub retry_on: RetryOn,
}

/// The shortest wait between two tries of one notification, quick or scheduled, whatever strategy and jitter say. Without
/// it a policy of many attempts without delays would be a loop that sends as fast as it can.
pub const LEAST_WAIT: Duration = Duration::from_millis(10);

/// The least that [`Policy::max_age`] is where no scope names it.
const LEAST_MAX_AGE: Duration = Duration::from_secs(24 * 3_600);

impl Policy {
    /// The delay after failed attempt `n` (1, 2, ..) as `draw` picks it, or none if the strategy never retries. It is at
    /// least [`LEAST_WAIT`].
    ///
    /// The budget is not looked at: that is [`decide`]'s business.
    pub fn delay_after(&self, n: u32, previous: Duration, draw: f64) -> Option<Duration> {
        self.base(n, previous).map(|base| self.jitter.apply(base, draw).max(LEAST_WAIT))
    }

    /// The shortest and longest delay after failed attempt `n`, if the previous one was at most `previous`.
    pub fn delay_range(&self, n: u32, previous: Duration) -> Option<(Duration, Duration)> {
        let (shortest, longest) = self.jitter.range(self.base(n, previous)?);
        Some((shortest.max(LEAST_WAIT), longest.max(LEAST_WAIT)))
    }

    /// The longest that all scheduled delays of a generation can add up to.
    pub fn window(&self) -> Duration {
        self.delay_ranges().fold(Duration::ZERO, |sum, (_, longest)| sum.saturating_add(longest))
    }

    /// How long after its first due time a notification is given up: twice the window and at least a day, unless named.
    pub fn max_age(&self) -> Duration {
        self.named_max_age.unwrap_or_else(|| self.window().saturating_mul(2).max(LEAST_MAX_AGE))
    }

    /// Whether a notification of that age is given up. The window is added up only for those older than a day.
    pub fn is_outlived_by(&self, age: Duration) -> bool {
        match self.named_max_age {
            Some(named) => age > named,
            None => age > LEAST_MAX_AGE && age > self.max_age(),
        }
    }

    /// The layer that says everything that this policy says.
    pub fn to_layer(&self) -> PolicyLayer {
        let retry_on =
            FailureType::ALL.map(|failure_type| (failure_type, self.retry_on.allows(failure_type)));
        let schedule = (!self.backoff.schedule.is_empty()).then(|| self.backoff.schedule.to_vec());
        PolicyLayer {
            preset: None,
            strategy: Some(self.backoff.strategy),
            initial_delay: Some(self.backoff.initial_delay),
            multiplier: Some(self.backoff.multiplier),
            maximum_delay: self.backoff.maximum_delay,
            schedule,
            max_attempts: Some(self.max_attempts),
            jitter: Some(self.jitter),
            timeout: Some(self.timeout),
            max_age: Some(self.max_age()),
            dead_letter: Some(self.dead_letter),
            honour_retry_after: Some(self.honour_retry_after),
            maximum_retry_after: Some(self.maximum_retry_after),
            quick: Some(self.quick.to_layer()),
            retry_on: BTreeMap::from(retry_on),
        }
    }

    /// The ranges of the delays after each failed attempt but the last.
    fn delay_ranges(&self) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        (1..self.max_attempts).scan(Duration::ZERO, |previous, n| {
            let range = self.delay_range(n, *previous)?;
            *previous = range.1;
            Some(range)
        })
    }

    fn base(&self, n: u32, previous: Duration) -> Option<Base> {
        let nominal = self.backoff.nominal(n)?;
        Some(Base { nominal, floor: self.backoff.floor(n), previous, cap: self.backoff.maximum_delay })
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_layer().serialize(serializer)
    }
}

/// Which failure types are retried at the scheduled level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryOn([bool; FailureType::ALL.len()]);

impl RetryOn {
    /// Every failure is retried (S2's scheduled level).
    pub const ALL: Self = Self([true; FailureType::ALL.len()]);

    /// Whether a failure of that type is retried.
    pub const fn allows(&self, failure_type: FailureType) -> bool {
        self.0[failure_type as usize]
    }

    /// Decides for one type.
    pub const fn set(&mut self, failure_type: FailureType, retried: bool) {
        self.0[failure_type as usize] = retried;
    }
}

impl Default for RetryOn {
    fn default() -> Self {
        Self(FailureType::ALL.map(FailureType::is_retried_by_default))
    }
}
