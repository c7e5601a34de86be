//! What an outage would do: the attempts of a policy against a destination that answers by a script, in virtual time.
//!
//! The decisions are those of the engine: policy, classifier, breaker, ramp, retry budget, rate, concurrency and the turns of
//! the lanes. One node and one destination are simulated; the destination has the node for itself.

mod answers;
mod arrivals;
mod bucket;
mod counts;
mod draws;
mod outcome;
mod read;
mod run;
mod script;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::outcome::{BreakerSummary, Happening, LoadStep, Peak, Simulation};
pub use self::read::Asked;
use self::run::Run;
pub use self::script::{BadScript, Script};
use crate::breaker::BreakerSettings;
use crate::channel::Channel;
use crate::classify::Overrides;
use crate::destination::SendLimits;
use crate::policy::Policy;
use crate::rate::Rate;

/// Everything that a simulation depends on.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub policy: Policy,
    /// Whose table of answers counts.
    pub channel: Channel,
    pub overrides: Overrides,
    /// New notifications a second.
    pub rate: Rate,
    pub script: Script,
    pub breaker: BreakerSettings,
    /// Of the destination.
    pub limits: SendLimits,
    /// `engine.concurrency`: the most that the node sends at once.
    pub concurrency: u32,
    /// How long an answer takes if the script does not say it.
    pub response_time: Duration,
    /// How long after its acceptance each notification expires.
    pub expires_after: Option<Duration>,
    pub duration: Duration,
    pub seed: u64,
}

/// How much is simulated one by one. Beyond it one simulated notification stands for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    pub notifications: u64,
    pub sends: u64,
}

impl Effort {
    /// A few seconds of a processor and some hundred MB at most: a day at 100 a second is simulated one by one.
    pub const LARGE: Self = Self { notifications: 10_000_000, sends: 20_000_000 };
    /// Some tens of milliseconds and a few MB: for a server that has other things to do.
    pub const SMALL: Self = Self { notifications: 200_000, sends: 600_000 };
}

/// Runs a scenario. What comes of it depends on nothing but the arguments.
pub fn simulate(scenario: &Scenario, effort: Effort) -> Simulation {
    let arrivals = scenario.rate.as_per_second() * scenario.duration.as_secs_f64();
    let mut stands_for = ((arrivals / effort.notifications.max(1) as f64).ceil() as u64).max(1);
    loop {
        match Run::new(scenario, stands_for).whole(effort.sends.max(1)) {
            Ok(simulation) => return simulation,
            // So many times as long as it came, and some more.
            Err(done) => {
                let missing = (1.2 / done.clamp(0.001, 1.0)).ceil() as u64;
                stands_for = stands_for.saturating_mul(missing.max(2));
            }
        }
    }
}
