//! Retention: small chunks and periods of minutes, so that passes meet what changes.

use std::time::Duration;

use posthaste_core::id::DeadLetterId;
use posthaste_core::retention::Kind;

use super::Generator;
use crate::store::{Prune, retention};

impl Generator {
    pub(super) fn retention_call(&mut self) -> retention::Call {
        if self.rng.u32(0..5) == 0 {
            let dead_letter = self.some_grave().unwrap_or(DeadLetterId::new(self.now, 1));
            return retention::Call::ShowDeleted { dead_letter, audit: self.audit("act") };
        }
        // Each store has counters of another shape, so how many rows were removed is not compared.
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Counters).collect();
        let kind = kinds[self.rng.usize(..kinds.len())];
        let cut_off = self.now.earlier(Duration::from_secs([0, 60, 600, 7_200][self.rng.usize(0..4)]));
        let prune = Prune { kind, cut_off, limit: self.rng.usize(1..6), now: self.now };
        retention::Call::Prune { prune, audit: self.audit("act") }
    }
}
