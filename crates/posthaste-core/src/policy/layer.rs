//! The settings of one scope: a policy with every field optional.

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

/// The part of a policy that one scope sets. Missing fields come from the next wider scope.
///
/// `maxRetries` is accepted as an alias and written as `maxAttempts`. A preset sets every field and so hides
/// all wider scopes; the other fields of the layer apply on top of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLayer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// A schedule without a strategy implies [`Strategy::Schedule`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The delay after the first failed attempt.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub initial_delay: Option<Duration>,
    /// Factor of exponential delays.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number")]
    pub multiplier: Option<f64>,
    /// The cap of exponential and linear delays.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub maximum_delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::list")]
    pub schedule: Option<Vec<Duration>>,
    /// Attempts of one generation, including the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub max_age: Option<Duration>,
    /// Whether a notification that is given up becomes a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<bool>,
    /// Whether `Retry-After` is a lower bound for scheduled retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub honour_retry_after: Option<bool>,
    /// Upper bound on `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub maximum_retry_after: Option<Duration>,
    /// Repeats within one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickLayer>,
    /// Missing types come from the next wider scope.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub retry_on: BTreeMap<FailureType, bool>,
}

/// The part of the quick tries that one scope sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuickLayer {
    /// Number of repeats; the first try is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// The wait before the first repeat.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub delay: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<QuickBackoff>,
    /// Whether a wait is random, between zero and its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<bool>,
    /// Whether `Retry-After` is a lower bound for a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<bool>,
    /// Statuses that are repeated in addition to the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_codes: Option<Vec<u16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Upper bound on the sum of all waits.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::optional")]
    pub limit: Option<Duration>,
}

impl PolicyLayer {
    /// Merges this layer over another one of the same scope (API over file).
    #[must_use]
    pub fn over(&self, below: &Self) -> Self {
        // A preset sets every field, so nothing of `below` remains.
        let below = if self.preset.is_some() { Self::default() } else { below.clone() };
        // A schedule implies its strategy, which `below` must not override.
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

    /// The timeout of this layer or of its preset.
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| self.preset.map(|preset| preset.policy().timeout))
    }

    /// Limits the timeout to `longest`, if the layer sets one.
    pub(super) fn with_timeout_up_to(&self, longest: Duration) -> Cow<'_, Self> {
        match self.own_timeout() {
            Some(timeout) if timeout > longest => Cow::Owned(Self { timeout: Some(longest), ..self.clone() }),
            Some(_) | None => Cow::Borrowed(self),
        }
    }

    /// The strategy of this layer, explicit or implied by a schedule.
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
