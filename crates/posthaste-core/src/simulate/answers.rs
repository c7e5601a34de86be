//! What the simulated destination answers at which time, and what each answer means.

use std::time::Duration;

use super::Scenario;
use super::draws::Draws;
use super::script::{Said, WHOLE};
use super::target::stretch;
use crate::breaker::Health;
use crate::classify::{Verdict, classify};
use crate::provider::Route;
use crate::reply::{Answer, Fault, Reply};
use crate::time::Timestamp;

/// One answer, and everything about it that is always the same.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) reply: Reply,
    pub(super) verdict: Verdict,
    pub(super) health: Health,
    pub(super) takes: Duration,
}

/// The place of the answer that all is well.
const WELL: u16 = 0;

#[derive(Debug)]
pub(super) struct Answers {
    all: Vec<Prepared>,
    phases: Vec<Timed>,
    /// The present one.
    phase: usize,
}

#[derive(Debug)]
struct Timed {
    ends: Timestamp,
    /// The sum of the shares so far, and the answer.
    answers: Vec<(u32, u16)>,
    has_failures: bool,
}

impl Answers {
    pub(super) fn new(scenario: &Scenario, stands_for: u64) -> Self {
        let factor = stretch(scenario, stands_for);
        let well = Said { reply: Reply::http(200), takes: None };
        let mut all = vec![prepared(scenario, &well, factor)];
        let (mut phases, mut ends) = (vec![], Timestamp::EPOCH);
        for phase in &scenario.script.phases {
            ends = phase.lasts.map_or(Timestamp::MAX, |lasts| ends.later(lasts));
            let (mut answers, mut sum, mut has_failures) = (vec![], 0, false);
            for (share, said) in &phase.answers {
                sum += share;
                answers.push((sum, u16::try_from(all.len()).unwrap_or(u16::MAX)));
                let one = prepared(scenario, said, factor);
                has_failures |= one.verdict != Verdict::Delivered;
                all.push(one);
            }
            phases.push(Timed { ends, answers, has_failures });
        }
        Self { all, phases, phase: 0 }
    }

    /// The end of the last phase in which something fails.
    pub(super) fn outage_ends(&self) -> Option<Timestamp> {
        self.phases.iter().rev().find(|phase| phase.has_failures).map(|phase| phase.ends)
    }

    pub(super) fn get(&self, answer: u16) -> &Prepared {
        &self.all[usize::from(answer)]
    }

    /// What a try is answered that is made now. Time never goes back.
    pub(super) fn pick(&mut self, now: Timestamp, draws: &mut Draws) -> u16 {
        while self.phases.get(self.phase).is_some_and(|phase| phase.ends <= now) {
            self.phase += 1;
        }
        let Some(phase) = self.phases.get(self.phase) else { return WELL };
        if let [(WHOLE, answer)] = phase.answers[..] {
            return answer;
        }
        let drawn = (draws.next() * f64::from(WHOLE)) as u32;
        phase.answers.iter().find(|(sum, _)| drawn < *sum).map_or(WELL, |(_, answer)| *answer)
    }
}

/// An answer that takes too long is our own timeout.
fn prepared(scenario: &Scenario, said: &Said, factor: f64) -> Prepared {
    let timeout = scenario.policy.timeout;
    let named = said.takes.unwrap_or(scenario.response_time);
    let (reply, takes) = match said.reply.answer {
        Answer::Fault(Fault::Timeout) => (said.reply.clone(), timeout),
        _ if named >= timeout => (Reply::fault(Fault::Timeout, "no answer in time"), timeout),
        Answer::Http { .. } | Answer::Smtp { .. } | Answer::Taken | Answer::Refused | Answer::Fault(_) => {
            (said.reply.clone(), named)
        }
    };
    let verdict = classify(scenario.channel, &Route::Direct, &reply, &scenario.overrides);
    let takes = takes.mul_f64(factor);
    Prepared { health: Health::of(verdict, &reply), reply, verdict, takes }
}
