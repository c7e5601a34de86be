//! What a page shows of a running sink: what arrived, and the dial.

use std::sync::Arc;

use super::dial::Dial;
use super::{ReceivedRequest, SinkState};

/// A running sink, as its page knows it.
#[derive(Clone)]
pub struct Inbox(Arc<SinkState>);

impl Inbox {
    pub(super) fn new(state: Arc<SinkState>) -> Self {
        Self(state)
    }

    /// The address of a path of the sink.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.address)
    }

    /// How many requests came, and the remembered ones with their numbers, oldest first.
    pub fn numbered(&self) -> (u64, Vec<(u64, ReceivedRequest)>) {
        let (latest, total) = self.0.arrivals.list_and_total();
        let first = total - latest.len() as u64 + 1;
        (total, (first..).zip(latest).collect())
    }

    /// How the next request is answered, if not as its path says.
    pub fn dial(&self) -> Option<Dial> {
        self.0.dials.get()
    }

    /// Sets the dial; none turns it back.
    pub fn turn(&self, dial: Option<Dial>) {
        self.0.dials.set(dial);
    }

    /// Forgets all requests and all positions in sequences.
    pub fn clear(&self) {
        self.0.clear();
    }
}
