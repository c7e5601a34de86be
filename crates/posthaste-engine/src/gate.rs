//! The gate before the senders: who may send now.
//!
//! More notifications fit into memory than may be sent at once, so the rules that share out the places share out the
//! sends as well: room is kept for each lane, and no flow takes more than half. Otherwise those that hang would hold
//! every send, and the others would have a place and nothing to do with it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use posthaste_core::flow::{Capacity, FlowId};
use posthaste_core::state::Lane;
use posthaste_core::turns::InFlight;
use tokio::sync::oneshot;

use crate::floor::Place;

/// The gate. The lock is never held across an await.
#[derive(Debug)]
pub(crate) struct Gate {
    capacity: Capacity,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    busy: InFlight,
    by_flow: HashMap<FlowId, u32>,
    /// Those who wait, by lane and flow, which take turns.
    waiting: HashMap<Place, VecDeque<oneshot::Sender<Pass>>>,
    line: VecDeque<Place>,
    closed: bool,
}

/// The right to send, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    place: Place,
}

impl Gate {
    pub(crate) fn new(sends: u32) -> Arc<Self> {
        Arc::new(Self { capacity: Capacity { total: sends }, inner: Mutex::default() })
    }

    /// Waits for the right to send; none once the gate is closed.
    pub(crate) async fn enter(self: &Arc<Self>, place: Place) -> Option<Pass> {
        let turn = {
            let mut inner = self.lock();
            if inner.closed {
                return None;
            }
            if inner.fits(self.capacity, place) {
                inner.take(place);
                return Some(Pass { gate: self.clone(), place });
            }
            inner.wait(place)
        };
        turn.await.ok()
    }

    /// Sends everyone away who waits.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.waiting.clear();
        inner.line.clear();
    }

    fn leave(self: &Arc<Self>, place: Place) {
        let mut admitted = Vec::new();
        {
            let mut inner = self.lock();
            inner.give_back(place);
            while let Some((place, turn)) = inner.next(self.capacity) {
                inner.take(place);
                admitted.push((turn, Pass { gate: self.clone(), place }));
            }
        }
        for (turn, pass) in admitted {
            // A pass that nobody waits for any more comes back here when it is dropped.
            let _ = turn.send(pass);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the gate")
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.leave(self.place);
    }
}

impl Inner {
    fn fits(&self, capacity: Capacity, place: Place) -> bool {
        let of_flow = self.by_flow.get(&place.flow).copied().unwrap_or(0);
        of_flow < (capacity.total / 2).max(1)
            && capacity.free(place.lane, self.busy.main, self.busy.retry) > 0
    }

    /// The first in the line that may go, which goes to the end of it if more of its kind wait.
    fn next(&mut self, capacity: Capacity) -> Option<(Place, oneshot::Sender<Pass>)> {
        let is_full = |lane| capacity.free(lane, self.busy.main, self.busy.retry) == 0;
        if Lane::ALL.into_iter().all(is_full) {
            return None;
        }
        let index = self.line.iter().position(|place| self.fits(capacity, *place))?;
        let place = self.line.remove(index)?;
        let kind = self.waiting.get_mut(&place)?;
        let turn = kind.pop_front()?;
        if kind.is_empty() {
            self.waiting.remove(&place);
        } else {
            self.line.push_back(place);
        }
        Some((place, turn))
    }

    fn wait(&mut self, place: Place) -> oneshot::Receiver<Pass> {
        let (turn, comes) = oneshot::channel();
        let kind = self.waiting.entry(place).or_default();
        if kind.is_empty() {
            self.line.push_back(place);
        }
        kind.push_back(turn);
        comes
    }

    fn take(&mut self, place: Place) {
        *self.of(place.lane) += 1;
        *self.by_flow.entry(place.flow).or_default() += 1;
    }

    fn give_back(&mut self, place: Place) {
        let busy = self.of(place.lane);
        *busy = busy.saturating_sub(1);
        let of_flow = self.by_flow.entry(place.flow).or_default();
        *of_flow = of_flow.saturating_sub(1);
        if *of_flow == 0 {
            self.by_flow.remove(&place.flow);
        }
    }

    fn of(&mut self, lane: Lane) -> &mut u32 {
        match lane {
            Lane::Main => &mut self.busy.main,
            Lane::Retry => &mut self.busy.retry,
        }
    }
}
