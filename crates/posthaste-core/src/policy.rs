//! Retry policies: number of attempts, delays, and when to give up.
//!
//! A [`PolicyLayer`] holds the settings of one scope, all of them optional. A [`PolicySet`] holds the layers
//! of all scopes and resolves them into a [`Policy`], which has every field. [`decide`] applies it to one
//! result.

mod check;
mod decide;
mod layer;
mod oldest;
mod preset;
mod preview;
pub mod quick;
mod read;
mod resolve;
mod scope;
mod set;
mod sources;
mod trial;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

pub use check::{
    MAX_ATTEMPTS, MAX_QUICK_LIMIT, MAX_QUICK_TRIES, MAX_SCHEDULE_ENTRIES, MAX_STATUS_CODES,
    MAX_TEMPLATE_ATTEMPTS, MAX_TIMEOUT,
};
pub use decide::{
    BeforeSend, Decision, MAX_INTERRUPTIONS, Situation, decide, decide_before_send, is_past, silence_until,
};
pub use layer::{PolicyLayer, QuickLayer};
pub use preset::Preset;
pub use preview::{PlannedAttempt, Preview, PreviewedAttempt, preview, preview_after};
pub use quick::Quick;
pub use resolve::resolve;
pub use scope::{BadScope, Scope};
pub use set::{DEFAULT_LONGEST_TIMEOUT, PolicySet, Source};
pub use sources::Sources;
pub use trial::Place;

use crate::failure::FailureType;
use crate::jitter::{Base, Jitter};
use crate::strategy::Backoff;

/// A resolved policy. In JSON it is a layer with every field.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub backoff: Backoff,
    pub jitter: Jitter,
    /// Attempts of one generation, including the first.
    pub max_attempts: u32,
    pub timeout: Duration,
    /// `None` if no scope sets it; see [`Policy::max_age`].
    pub named_max_age: Option<Duration>,
    /// Whether a notification that is given up becomes a dead letter. Otherwise it ends as Failed.
    pub dead_letter: bool,
    /// Whether `Retry-After` is a lower bound for scheduled retries.
    pub honour_retry_after: bool,
    /// Upper bound on `Retry-After`.
    pub maximum_retry_after: Duration,
    /// Repeats within one attempt.
    pub quick: Quick,
    pub retry_on: RetryOn,
}

/// Minimum wait between two tries of one notification, quick or scheduled. Without it a policy with many
/// attempts and no delays would be a busy loop.
pub const MIN_WAIT: Duration = Duration::from_millis(10);

/// Lower bound of [`Policy::max_age`] if no scope sets it.
const DEFAULT_MIN_MAX_AGE: Duration = Duration::from_secs(24 * 3_600);

impl Policy {
    /// The delay after failed attempt `n` (1, 2, ..), picked by `draw`; `None` if the strategy never retries.
    /// At least [`MIN_WAIT`].
    ///
    /// [`decide`] checks the number of attempts, not this.
    pub fn delay_after(&self, n: u32, previous: Duration, draw: f64) -> Option<Duration> {
        self.base(n, previous).map(|base| self.jitter.apply(base, draw).max(MIN_WAIT))
    }

    /// The shortest and the longest delay after failed attempt `n`, if the previous delay was at most
    /// `previous`.
    pub fn delay_range(&self, n: u32, previous: Duration) -> Option<(Duration, Duration)> {
        let (shortest, longest) = self.jitter.range(self.base(n, previous)?);
        Some((shortest.max(MIN_WAIT), longest.max(MIN_WAIT)))
    }

    /// Upper bound on the sum of all scheduled delays of a generation.
    pub fn window(&self) -> Duration {
        self.delay_ranges().fold(Duration::ZERO, |sum, (_, longest)| sum.saturating_add(longest))
    }

    /// Maximum age, counted from the first due time. The default is twice the window, at least a day.
    pub fn max_age(&self) -> Duration {
        self.named_max_age.unwrap_or_else(|| self.window().saturating_mul(2).max(DEFAULT_MIN_MAX_AGE))
    }

    /// Whether a notification of this age is given up. The window is computed only beyond a day, because it
    /// is slow.
    pub fn is_exceeded_by(&self, age: Duration) -> bool {
        match self.named_max_age {
            Some(named) => age > named,
            None => age > DEFAULT_MIN_MAX_AGE && age > self.max_age(),
        }
    }

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

    /// The ranges of the delays after each failed attempt except the last.
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
    /// For S2's scheduled level.
    pub const ALL: Self = Self([true; FailureType::ALL.len()]);

    pub const fn allows(&self, failure_type: FailureType) -> bool {
        self.0[failure_type as usize]
    }

    pub const fn set(&mut self, failure_type: FailureType, retried: bool) {
        self.0[failure_type as usize] = retried;
    }
}

impl Default for RetryOn {
    fn default() -> Self {
        Self(FailureType::ALL.map(FailureType::is_retried_by_default))
    }
}
