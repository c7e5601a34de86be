//! The life of one simulated process: it can be paused, and it can die at any await on a seam.

use std::sync::Mutex;

use posthaste_core::lease::NodeId;
use tokio::sync::Notify;

/// How a process fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fare {
    Runs,
    Paused,
    Dead,
}

#[derive(Debug)]
struct Inner {
    fare: Fare,
    node: Option<NodeId>,
    stumbled: bool,
}

/// One process.
#[derive(Debug)]
pub(super) struct Life {
    /// Its number, for people.
    pub(super) number: usize,
    inner: Mutex<Inner>,
    changed: Notify,
}

impl Life {
    pub(super) fn new(number: usize) -> Self {
        let inner = Inner { fare: Fare::Runs, node: None, stumbled: false };
        Self { number, inner: Mutex::new(inner), changed: Notify::new() }
    }

    fn fares(&self) -> Fare {
        self.inner.lock().unwrap().fare
    }

    fn change(&self, from: &[Fare], to: Fare) {
        let mut inner = self.inner.lock().unwrap();
        if from.contains(&inner.fare) {
            inner.fare = to;
            inner.stumbled |= to != Fare::Runs;
            self.changed.notify_waiters();
        }
    }

    pub(super) fn pause(&self) {
        self.change(&[Fare::Runs], Fare::Paused);
    }

    pub(super) fn resume(&self) {
        self.change(&[Fare::Paused], Fare::Runs);
    }

    /// From here on nothing it does has an effect.
    pub(super) fn die(&self) {
        self.change(&[Fare::Runs, Fare::Paused], Fare::Dead);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.fares() == Fare::Dead
    }

    /// Whether it was ever paused, or is dead: then it may not know that its leases are gone.
    pub(super) fn has_stumbled(&self) -> bool {
        self.inner.lock().unwrap().stumbled
    }

    /// Goes on when the process runs; never if it is dead.
    pub(super) async fn runs(&self) {
        self.wait(Fare::Runs).await;
    }

    /// Goes on when the process is dead.
    pub(super) async fn ends(&self) {
        self.wait(Fare::Dead).await;
    }

    async fn wait(&self, fare: Fare) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.fares() == fare {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn joined(&self, node: NodeId) {
        self.inner.lock().unwrap().node = Some(node);
    }

    pub(super) fn node(&self) -> Option<NodeId> {
        self.inner.lock().unwrap().node
    }
}
