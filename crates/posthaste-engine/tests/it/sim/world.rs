//! The simulated world: chance, faults, the one store, and the first promise that was broken.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;
use posthaste_engine::model_store::ModelStore;
use tokio::task::JoinSet;

use super::checks::{Shadow, acknowledged_are_there};
use super::ledger::Ledger;
use super::life::Life;
use crate::rig::PausedClock;

/// How likely things go wrong, in thousandths, and for how long the store is out of reach.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// A process dies at an await on a seam.
    pub(super) crash: u32,
    /// The store refuses before it did anything.
    pub(super) refuse: u32,
    /// The store did it and says that it did not.
    pub(super) lie: u32,
    /// The store says that it did not, and does it later.
    pub(super) late: u32,
    /// The store is out of reach until then.
    pub(super) outage_until: Option<Timestamp>,
    /// The store commits nothing until then.
    pub(super) stalled_until: Option<Timestamp>,
}

/// Everything that the parts of a run share.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) clock: PausedClock,
    pub(super) model: ModelStore,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) faults: Mutex<Faults>,
    /// Calls that were answered as an error and have not happened yet.
    pub(super) open: Mutex<JoinSet<()>>,
    shadow: Mutex<Shadow>,
    /// Whether processes know that they share the store, and gather what they ask of it.
    pub(super) shared: bool,
    /// Whether destinations are down now and then.
    pub(super) has_outages: bool,
    /// Whether tries wait for their channel now and then.
    pub(super) unready: bool,
    chance: Mutex<fastrand::Rng>,
    broken: Mutex<Option<String>>,
    steps: AtomicU64,
    trace: Mutex<DefaultHasher>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults, has_outages: bool) -> Self {
        let clock = PausedClock::start();
        Self {
            seed,
            clock,
            model: ModelStore::with_clock(move || clock.now()),
            ledger: Mutex::default(),
            faults: Mutex::new(faults),
            open: Mutex::default(),
            shadow: Mutex::default(),
            chance: Mutex::new(fastrand::Rng::with_seed(seed)),
            shared: seed % 2 == 1,
            has_outages,
            unready: seed % 5 == 4,
            broken: Mutex::new(None),
            steps: AtomicU64::new(0),
            trace: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Draws from the one source of chance.
    pub(super) fn draw<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.chance.lock().unwrap())
    }

    /// Whether something happens that happens `thousandths` times in a thousand.
    pub(super) fn strikes(&self, thousandths: u32) -> bool {
        thousandths > 0 && self.draw(|chance| chance.u32(0..1_000)) < thousandths
    }

    /// A little time passes, as it does on every way to a store or a sink.
    pub(super) async fn latency(&self) {
        let micros = self
            .draw(|chance| if chance.u8(0..4) == 0 { chance.u64(0..20_000) } else { chance.u64(0..2_000) });
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    /// One step was made: it is part of the trace, and every promise is looked at.
    pub(super) fn step(&self, life: &Life, what: &str) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let mut trace = self.trace.lock().unwrap();
        (life.number, what, self.now()).hash(&mut *trace);
        drop(trace);
        let ledger = self.ledger.lock().unwrap();
        let broken = self.shadow.lock().unwrap().check(&self.model, &ledger, what);
        let broken = broken.and_then(|()| acknowledged_are_there(&self.model, &ledger));
        drop(ledger);
        if let Err(broken) = broken {
            self.break_promise(format!("after {what} on process {}: {broken}", life.number));
        }
    }

    /// Keeps what a check found, if it found something.
    pub(super) fn expect(&self, check: Result<(), String>) {
        if let Err(broken) = check {
            self.break_promise(broken);
        }
    }

    /// Keeps the first broken promise.
    pub(super) fn break_promise(&self, what: String) {
        let at = self.steps();
        self.broken.lock().unwrap().get_or_insert_with(|| format!("step {at}: {what}"));
    }

    pub(super) fn broken(&self) -> Option<String> {
        self.broken.lock().unwrap().clone()
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace.lock().unwrap().finish()
    }
}
