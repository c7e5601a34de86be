//! The description of simulations.

use std::borrow::Cow;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::{DurationText, names};
use crate::policy::PolicyLayer;
use crate::reason::Reason;
use crate::simulate::{Asked, BreakerSummary, Happening, LoadStep, Peak, Simulation};

// As `Asked::from_json` reads them.
/// An outage to be simulated.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct AskedSchema {
    policy: Option<PolicyLayer>,
    /// New notifications a second.
    #[schema(minimum = 0.001, maximum = 1_000_000)]
    rate: f64,
    /// What the destination answers, phase after phase: `ok for 10m, 503 for 20m, 10% timeouts and 5% 500 for 1h`.
    #[schema(min_length = 1, max_length = 4096)]
    script: String,
    /// How long notifications arrive and are sent. By default as long as the script, and an hour more if it does not end with `ok for ..`.
    duration: Option<DurationText>,
    breaker: Option<BreakerOfSimulation>,
    limits: Option<LimitsOfSimulation>,
    /// How long an answer takes where the script does not say it; `100ms` by default.
    response_time: Option<DurationText>,
    /// Each notification expires so long after its acceptance.
    expires_after: Option<DurationText>,
    /// The same seed gives the same; 1 by default.
    seed: Option<u32>,
}

/// What is left out is as the server is configured.
#[derive(ToSchema)]
#[schema(as = SimulatedBreaker, rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct BreakerOfSimulation {
    #[schema(minimum = 1, maximum = 1_000_000)]
    failure_threshold: Option<u32>,
    first_break: Option<DurationText>,
    break_duration: Option<DurationText>,
    /// At least `breakDuration`.
    forget_after: Option<DurationText>,
}

/// What may be sent to the destination.
#[derive(ToSchema)]
#[schema(as = SimulatedLimits)]
#[expect(dead_code, reason = "it only describes the fields")]
struct LimitsOfSimulation {
    /// So many a second.
    #[schema(minimum = 0.001, maximum = 1_000_000)]
    rate: Option<f64>,
    /// So many at once.
    #[schema(minimum = 1, maximum = 1_000_000)]
    concurrency: Option<u32>,
}

described_as!(Asked, "SimulationRequest", AskedSchema);

/// What came of it. `delivered`, `dead`, `failed`, `expired` and `waiting` add up to `arrived`. Durations count from the start.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct SimulationSchema {
    arrived: u64,
    delivered: u64,
    /// Became dead letters.
    dead: u64,
    #[schema(value_type = BTreeMap<String, u64>)]
    dead_by_reason: std::collections::BTreeMap<Reason, u64>,
    /// Were given up without a dead letter, by their policy.
    failed: u64,
    expired: u64,
    /// Have not ended at the end.
    waiting: u64,
    attempts: u64,
    /// Attempts but for the first of each notification.
    retries: u64,
    /// Repeats inside of an attempt.
    quick_tries: u64,
    duration: String,
    /// When the last phase in which something fails is over; null if it is not, or there is none.
    outage_ended_at: Option<String>,
    /// So long after it nothing that was due waited any more.
    drained_after: Option<String>,
    /// So long after it everything that was accepted before had ended.
    settled_after: Option<String>,
    /// The longest time from acceptance to delivery.
    slowest_delivery: Option<String>,
    most_parked: Peak,
    most_waiting: Peak,
    /// The most sends in one second.
    busiest_second: Peak,
    breaker: BreakerSummary,
    /// So many notifications are meant by each that was simulated. More than 1: the run was thinned.
    #[schema(minimum = 1)]
    stands_for: u64,
    /// The length of one entry of `load`.
    step: String,
    /// At most 240.
    load: Vec<LoadStep>,
}

described_as!(Simulation, "Simulation", SimulationSchema);

/// The highest value, and when it was reached first.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct PeakSchema {
    count: u64,
    at: String,
}

described_as!(Peak, "SimulatedPeak", PeakSchema);

/// What the breaker did.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct BreakerSummarySchema {
    /// How many times it opened, also again after a probe.
    opened: u64,
    probes: u64,
    /// How long nothing but probes was sent.
    open_for: String,
    /// The first 100.
    events: Vec<Happening>,
}

described_as!(BreakerSummary, "SimulatedBreakerSummary", BreakerSummarySchema);

struct EventName;

described!(EventName, "SimulatedEventName", names("What happened", ["opened", "probed", "closed", "paused"]));

/// One event of the breaker, or a pause that was asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct HappeningSchema {
    at: String,
    event: EventName,
    until: Option<String>,
}

described_as!(Happening, "SimulatedEvent", HappeningSchema);

/// What happened in one step, and what waited at its end.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct LoadStepSchema {
    /// Its start.
    at: String,
    arrivals: u64,
    /// Quick tries included.
    sends: u64,
    failures: u64,
    /// Due, and held back by the breaker, a pause, a rate or a concurrency.
    parked: u64,
    /// Not ended, what is parked included.
    waiting: u64,
}

described_as!(LoadStep, "SimulatedLoad", LoadStepSchema);
