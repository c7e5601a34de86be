//! What one scope says: a policy with every field optional.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::Preset;
use super::quick::{QuickBackoff, When};
use crate::failure::FailureType;
use crate::jitter::{Jitter, Number};
use crate::strategy::Strategy;

/// The part of a policy that one scope sets; what it leaves out comes from the next scope below.
///
/// `maxRetries` is read as an alias and written as `maxAttempts`. A preset first fills every field, so that nothing of
/// the scopes below shows through; the other fields then apply on top of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLayer {
    /// The named policy to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// How delays grow. A schedule without a strategy implies [`Strategy::Schedule`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The delay after the first failed attempt.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub initial_delay: Option<Duration>,
    /// By how much an exponential delay grows.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number")]
    pub multiplier: Option<f64>,
    /// The cap of exponential and linear delays.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub maximum_delay: Option<Duration>,
    /// The delays of a schedule.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::list")]
    pub schedule: Option<Vec<Duration>>,
    /// How many attempts a generation has, the first included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// How chance changes delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// How long one try may take.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub timeout: Option<Duration>,
    /// How old a notification may grow.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub max_age: Option<Duration>,
    /// Whether what is given up becomes a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<bool>,
    /// Whether `Retry-After` is a lower bound of scheduled retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub honour_retry_after: Option<bool>,
    /// The most that `Retry-After` can ask for.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub maximum_retry_after: Option<Duration>,
    /// The repeats inside one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickLayer>,
    /// Which failures are retried; types that are missing come from the next scope.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub retry_on: BTreeMap<FailureType, bool>,
}

/// The part of the quick tries that one scope sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuickLayer {
    /// How often a try is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// The wait before the first repeat.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub delay: Option<Duration>,
    /// How the waits grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<QuickBackoff>,
    /// Whether a wait is drawn between zero and its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<bool>,
    /// Whether `Retry-After` is a lower bound of a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<bool>,
    /// Statuses that are repeated besides the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_codes: Option<Vec<u16>>,
    /// What may be repeated at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// What the waits may add up to.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub limit: Option<Duration>,
}

impl PolicyLayer {
    /// This layer laid over another of the same scope (API over file), as one layer.
    #[must_use]
    pub fn over(&self, below: &Self) -> Self {
        // A preset fills every field, so nothing of what lies below it is left.
        let below = if self.preset.is_some() { Self::default() } else { below.clone() };
        // A schedule brings its own strategy and must not be switched off by the strategy below.
        let strategy = self.strategy.or(if self.schedule.is_some() { None } else { below.strategy });
        let mut retry_on = below.retry_on;
        retry_on.extend(self.retry_on.iter().map(|(failure_type, retried)| (*failure_type, *retried)));
        Self {
            preset: self.preset.or(below.preset),
            strategy,
            initial_delay: self.initial_delay.or(below.initial_delay),
            multiplier: self.multiplier.or(below.multiplier),
            maximum_delay: self.maximum_delay.or(below.maximum_delay),
            schedule: self.schedule.clone().or(below.schedule),
            max_attempts: self.max_attempts.or(below.max_attempts),
            jitter: self.jitter.or(below.jitter),
            timeout: self.timeout.or(below.timeout),
            max_age: self.max_age.or(below.max_age),
            dead_letter: self.dead_letter.or(below.dead_letter),
            honour_retry_after: self.honour_retry_after.or(below.honour_retry_after),
            maximum_retry_after: self.maximum_retry_after.or(below.maximum_retry_after),
            quick: match (&self.quick, below.quick) {
                (Some(upper), Some(below)) => Some(upper.over(below)),
                (upper, below) => upper.clone().or(below),
            },
            retry_on,
        }
    }

    /// The timeout that this layer sets, by itself or by its preset.
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| self.preset.map(|preset| preset.policy().timeout))
    }

    /// The same layer with a timeout of at most `longest`, if it sets one.
    pub(super) fn with_timeout_up_to(&self, longest: Duration) -> Cow<'_, Self> {
        match self.own_timeout() {
            Some(timeout) if timeout > longest => Cow::Owned(Self { timeout: Some(longest), ..self.clone() }),
            Some(_) | None => Cow::Borrowed(self),
        }
    }

    /// The strategy that this layer sets, by name or by bringing a schedule.
    pub(super) fn own_strategy(&self) -> Option<Strategy> {
        self.strategy.or(self.schedule.as_ref().map(|_| Strategy::Schedule))
    }
}

impl QuickLayer {
    fn over(&self, below: Self) -> Self {
        Self {
            tries: self.tries.or(below.tries),
            delay: self.delay.or(below.delay),
            backoff: self.backoff.or(below.backoff),
            jitter: self.jitter.or(below.jitter),
            retry_after: self.retry_after.or(below.retry_after),
            status_codes: self.status_codes.clone().or(below.status_codes),
            when: self.when.or(below.when),
            limit: self.limit.or(below.limit),
        }
    }
}

impl<'de> Deserialize<'de> for PolicyLayer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_json(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn number<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    number.map(Number).serialize(serializer)
}
