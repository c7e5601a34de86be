//! The load over time: steps of a round length, and the highest values.

use std::time::Duration;

use super::outcome::{LoadStep, Peak};
use crate::time::Timestamp;

/// The most steps.
pub(super) const MAX_STEPS: u32 = 240;

/// Lengths of a step in seconds.
const LENGTHS: [u64; 15] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600];
const DAY: u64 = 86_400;

/// The shortest round length of which there are not too many steps.
pub(super) fn step(duration: Duration) -> Duration {
    let fits = |secs: &u64| duration <= Duration::from_secs(*secs) * MAX_STEPS;
    let days = duration.as_secs().div_ceil(DAY * u64::from(MAX_STEPS)).max(1);
    Duration::from_secs(LENGTHS.into_iter().find(fits).unwrap_or(days * DAY))
}

/// Counts, of what was simulated.
#[derive(Debug)]
pub(super) struct Load {
    length: Duration,
    steps: Vec<LoadStep>,
    present: LoadStep,
    present_ends: Timestamp,
    most_parked: Peak,
    most_waiting: Peak,
    busiest: Peak,
    /// The present second and its sends.
    second: (u64, u64),
}

impl Load {
    pub(super) fn new(duration: Duration) -> Self {
        let length = step(duration);
        Self {
            length,
            steps: Vec::with_capacity(MAX_STEPS as usize),
            present: LoadStep::default(),
            present_ends: Timestamp::EPOCH.later(length),
            most_parked: Peak::default(),
            most_waiting: Peak::default(),
            busiest: Peak::default(),
            second: (0, 0),
        }
    }

    pub(super) fn step_ends(&self) -> Timestamp {
        self.present_ends
    }

    pub(super) fn arrived(&mut self) {
        self.present.arrivals += 1;
    }

    pub(super) fn sent(&mut self, now: Timestamp) {
        self.present.sends += 1;
        let second = now.since(Timestamp::EPOCH).as_secs();
        if second != self.second.0 {
            self.second = (second, 0);
        }
        self.second.1 += 1;
        raise(&mut self.busiest, self.second.1, Duration::from_secs(second));
    }

    pub(super) fn failed(&mut self) {
        self.present.failures += 1;
    }

    pub(super) fn waits(&mut self, parked: u64, waiting: u64, now: Timestamp) {
        let at = now.since(Timestamp::EPOCH);
        raise(&mut self.most_parked, parked, at);
        raise(&mut self.most_waiting, waiting, at);
    }

    /// Whether the present step began before that.
    pub(super) fn has_begun(&self, before: Timestamp) -> bool {
        Timestamp::EPOCH.later(self.present.at) < before
    }

    /// The present step is over.
    pub(super) fn end_step(&mut self, parked: u64, waiting: u64) {
        let next = self.present.at.saturating_add(self.length);
        self.steps.push(LoadStep { parked, waiting, ..self.present });
        self.present = LoadStep { at: next, ..LoadStep::default() };
        self.present_ends = Timestamp::EPOCH.later(next).later(self.length);
    }

    /// The steps, and the highest of: parked, waiting, sends in a second. Each simulated one counts as so many.
    pub(super) fn finish(self, times: u64) -> (Duration, Vec<LoadStep>, [Peak; 3]) {
        let steps = self.steps.into_iter().map(|step| LoadStep {
            at: step.at,
            arrivals: step.arrivals * times,
            sends: step.sends * times,
            failures: step.failures * times,
            parked: step.parked * times,
            waiting: step.waiting * times,
        });
        let peaks = [self.most_parked, self.most_waiting, self.busiest];
        let peaks = peaks.map(|peak| Peak { count: peak.count * times, at: peak.at });
        (self.length, steps.collect(), peaks)
    }
}

fn raise(peak: &mut Peak, count: u64, at: Duration) {
    if count > peak.count {
        *peak = Peak { count, at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_a_round_length_and_are_not_too_many() {
        let table = [
            (1, 1),
            (240, 1),
            (241, 2),
            (4_800, 30),
            (7_200, 30),
            (86_400, 600),
            (30 * DAY, 21_600),
            (366 * DAY, 172_800),
        ];
        for (secs, expected) in table {
            assert_eq!(step(Duration::from_secs(secs)), Duration::from_secs(expected), "{secs}");
        }
        for secs in 1..100_000u64 {
            let steps = Duration::from_secs(secs * 300).as_secs_f64()
                / step(Duration::from_secs(secs * 300)).as_secs_f64();
            assert!(steps <= f64::from(MAX_STEPS), "{secs}");
        }
    }
}
