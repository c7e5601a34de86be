//! What comes of a simulation. All numbers count notifications or attempts, also where one that was simulated stands for several.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::duration;
use crate::reason::Reason;

/// The most events of the breaker that are told.
pub(super) const MAX_EVENTS: usize = 100;

/// `delivered + dead + failed + expired + waiting` is `arrived`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulation {
    pub arrived: u64,
    pub delivered: u64,
    /// Became dead letters.
    pub dead: u64,
    pub dead_by_reason: BTreeMap<Reason, u64>,
    /// Were given up without a dead letter, by their policy.
    pub failed: u64,
    pub expired: u64,
    /// Have not ended at the end.
    pub waiting: u64,
    pub attempts: u64,
    /// Attempts but for the first of each notification.
    pub retries: u64,
    /// Repeats inside of an attempt.
    pub quick_tries: u64,
    #[serde(with = "crate::duration")]
    pub duration: Duration,
    /// When the last phase in which something fails is over, if it is over before the end.
    #[serde(serialize_with = "maybe")]
    pub outage_ended_at: Option<Duration>,
    /// So long after it nothing that was due waited any more.
    #[serde(serialize_with = "maybe")]
    pub drained_after: Option<Duration>,
    /// So long after it everything that was accepted before had ended.
    #[serde(serialize_with = "maybe")]
    pub settled_after: Option<Duration>,
    /// The longest time from acceptance to delivery.
    #[serde(serialize_with = "maybe")]
    pub slowest_delivery: Option<Duration>,
    pub most_parked: Peak,
    pub most_waiting: Peak,
    /// The most sends in one second.
    pub busiest_second: Peak,
    pub breaker: BreakerSummary,
    /// So many notifications are meant by each that was simulated.
    pub stands_for: u64,
    /// The length of one entry of `load`.
    #[serde(with = "crate::duration")]
    pub step: Duration,
    pub load: Vec<LoadStep>,
}

/// The highest value of something, and when it was reached first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Peak {
    pub count: u64,
    #[serde(with = "crate::duration")]
    pub at: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerSummary {
    /// How many times it opened, also again after a probe.
    pub opened: u64,
    pub probes: u64,
    /// How long nothing but probes was sent.
    #[serde(with = "crate::duration")]
    pub open_for: Duration,
    /// The first 100.
    pub events: Vec<Happening>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Happening {
    #[serde(with = "crate::duration")]
    pub at: Duration,
    /// As in the history of a destination: `opened`, `probed`, `closed` or `paused`.
    pub event: &'static str,
    #[serde(serialize_with = "maybe", skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
}

/// What happened in one step, and what waited at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadStep {
    /// Its start.
    #[serde(with = "crate::duration")]
    pub at: Duration,
    pub arrivals: u64,
    /// Quick tries included.
    pub sends: u64,
    /// Sends that failed.
    pub failures: u64,
    /// Due, and held back by the breaker, a pause, a rate or a concurrency.
    pub parked: u64,
    /// Not ended: what is parked, what waits for the time of its next attempt, and what is under way.
    pub waiting: u64,
}

#[expect(clippy::ref_option, reason = "serde gives a reference")]
fn maybe<S: Serializer>(length: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    match length {
        Some(length) => duration::serialize(length, out),
        None => out.serialize_none(),
    }
}
