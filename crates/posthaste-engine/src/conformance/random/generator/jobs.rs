//! Jobs: few, so that runs meet.

use posthaste_core::job::RunOutcome;
use posthaste_core::time::Timestamp;

use super::{Generator, JOBS};
use crate::store::{JobPlan, JobStart, Why, jobs};

impl Generator {
    pub(super) fn job_call(&mut self) -> jobs::Call {
        let name = JOBS[self.rng.usize(..JOBS.len())].to_owned();
        match self.rng.u32(0..10) {
            0..3 => {
                let cron = self.rng.bool().then(|| format!("{} * * * *", self.rng.u32(0..2)));
                let next_run = self.job_time();
                jobs::Call::Plan { plans: vec![JobPlan { name, cron, next_run }] }
            }
            3..6 => {
                let audit = self.rng.bool().then(|| self.audit("act"));
                jobs::Call::Begin { start: self.job_start(name), audit, now: self.now }
            }
            6..8 => {
                let outcome = match self.rng.u32(0..3) {
                    0 => RunOutcome::Done { count: self.rng.u64(0..9) },
                    1 => RunOutcome::failed(self.rng.u64(0..9), "it broke"),
                    _ => RunOutcome::Interrupted,
                };
                jobs::Call::Finish { run: self.rng.i64(0..12), outcome, now: self.now }
            }
            8 => {
                let (paused, next_run) = (self.rng.bool(), self.job_time());
                jobs::Call::Pause { name, paused, next_run, audit: self.audit("act") }
            }
            _ => {
                let before = self.rng.bool().then(|| self.rng.i64(0..12));
                jobs::Call::Runs { name, before, limit: self.rng.usize(1..4) }
            }
        }
    }

    fn job_start(&mut self, name: String) -> JobStart {
        let node = self.nodes[self.rng.usize(..self.nodes.len())];
        let why = if self.rng.bool() {
            Why::Asked { by: "somebody".to_owned() }
        } else {
            Why::Time { seen: self.job_time(), next_run: self.job_time() }
        };
        JobStart { name, node, node_name: "n".to_owned(), why }
    }

    /// One of few times, so that what is seen is often what is kept.
    fn job_time(&mut self) -> Option<Timestamp> {
        self.rng.bool().then(|| Timestamp::from_millis(self.rng.i64(1..3)))
    }
}
