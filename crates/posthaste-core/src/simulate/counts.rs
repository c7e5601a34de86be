//! What was counted so far.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::reason::Reason;
use crate::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) arrived: u64,
    /// Have not ended.
    pub(super) live: u64,
    pub(super) delivered: u64,
    pub(super) dead: BTreeMap<Reason, u64>,
    pub(super) failed: u64,
    pub(super) expired: u64,
    pub(super) attempts: u64,
    pub(super) retries: u64,
    pub(super) quick_tries: u64,
    pub(super) slowest: Option<Duration>,
}

/// The end of the last outage, and what was found after it.
#[derive(Debug, Default)]
pub(super) struct Outage {
    pub(super) ends: Option<Timestamp>,
    pub(super) is_over: bool,
    /// How many that were accepted before its end have not ended.
    pub(super) before: u64,
    pub(super) drained: Option<Timestamp>,
    pub(super) settled: Option<Timestamp>,
}

impl Outage {
    /// It is over; so many have not ended.
    pub(super) fn over(&mut self, live: u64, now: Timestamp) {
        (self.is_over, self.before) = (true, live);
        self.note_settled(now);
    }

    /// One that was accepted at `first_due` has ended.
    pub(super) fn one_ended(&mut self, first_due: Timestamp, now: Timestamp) {
        if self.is_over && self.ends.is_some_and(|ends| first_due < ends) {
            self.before = self.before.saturating_sub(1);
            self.note_settled(now);
        }
    }

    fn note_settled(&mut self, now: Timestamp) {
        if self.before == 0 && self.settled.is_none() {
            self.settled = Some(now);
        }
    }

    /// How long after its end that was.
    pub(super) fn since(&self, at: Option<Timestamp>) -> Option<Duration> {
        Some(at?.since(self.ends?))
    }
}
