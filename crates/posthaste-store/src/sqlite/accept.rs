//! What arrives: the wide row and the narrow row, unless the key of its request is known.

use std::collections::BTreeSet;

use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Acceptance, Accepted, Arrival, Progress, Request};
use rusqlite::{CachedStatement, Connection, params};

use super::fault::Result;
use super::idempotency::Keys;
use super::nodes::may_hold;
use super::planted::Planted;
use super::writer::Tx;
use crate::kept::values::{content_text, maybe_micros};

/// A request whose contents were serialized by the calling task, to keep that work off the writer thread.
pub(super) struct Incoming {
    request: Request,
    contents: Vec<String>,
}

impl Incoming {
    /// Writes out the contents.
    pub(super) fn new(request: Request) -> Result<Self> {
        let texts = request.arrivals.iter().map(|arrival| content_text(&arrival.notification.content));
        let contents = texts.collect::<std::result::Result<_, _>>()?;
        Ok(Self { request, contents })
    }

    /// How many rows it may write.
    pub(super) fn rows(&self) -> usize {
        self.contents.len() + 1
    }
}

/// Stores each request that is not known yet.
pub(super) fn accept(tx: &mut Tx<'_>, requests: &[Incoming], now: Timestamp) -> Result<Acceptance> {
    assert!(!tx.bug(Planted::WriterPanics), "a test wants this thread to end");
    let mut keys = None;
    let holders = Holders::of(tx, requests)?;
    let mut insert = Inserts::prepare(tx.conn)?;
    let mut answers = Vec::with_capacity(requests.len());
    let mut granted = BTreeSet::new();
    for Incoming { request, contents } in requests {
        if let Some(idempotency) = &request.idempotency {
            let keys = match &mut keys {
                Some(keys) => keys,
                none => none.insert(Keys::turn(tx, now)?),
            };
            if let Some(answer) = keys.known(tx, idempotency)? {
                answers.push(answer);
                continue;
            }
            keys.remember(tx.conn, idempotency)?;
        }
        for (arrival, content) in request.arrivals.iter().zip(contents) {
            let lease = arrival.lease.filter(|lease| holders.may_hold(lease.node));
            insert.arrival(arrival, content, lease)?;
            tx.blocks.note(arrival.notification.id, arrival.flow);
            granted.extend(lease.map(|lease| lease.node));
            tx.deltas.live(arrival.flow, Lane::Main, 1);
        }
        answers.push(Accepted::New);
    }
    Ok(Acceptance { answers, granted: granted.into_iter().collect() })
}

/// Which of the nodes that would hold an arrival may: each is looked up once, and there is seldom more than one.
struct Holders(Vec<(NodeId, bool)>);

impl Holders {
    fn of(tx: &Tx<'_>, requests: &[Incoming]) -> Result<Self> {
        let mut found: Vec<(NodeId, bool)> = vec![];
        let arrivals = requests.iter().flat_map(|incoming| &incoming.request.arrivals);
        for Lease { node, .. } in arrivals.filter_map(|arrival| arrival.lease) {
            if found.iter().all(|(known, _)| *known != node) {
                found.push((node, may_hold(tx, node)?));
            }
        }
        Ok(Self(found))
    }

    fn may_hold(&self, node: NodeId) -> bool {
        self.0.contains(&(node, true))
    }
}

/// The two inserts of an arrival.
struct Inserts<'c> {
    wide: CachedStatement<'c>,
    narrow: CachedStatement<'c>,
}

impl<'c> Inserts<'c> {
    fn prepare(conn: &'c Connection) -> Result<Self> {
        let wide = conn.prepare_cached(
            "insert into notification (id, flow, recipient, priority, template, subject, event_key,
                 correlation_id, not_before, expires, content)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        let narrow = conn.prepare_cached(
            "insert into queue (id, flow, lane, priority, due, expires, first_due, delay, node, fence, attempt,
                 base, generation, interruptions, cancel, own_policy, own_age)
             values (?1, ?2, 0, ?3, ?4, ?5, ?4, 0, ?6, ?7, ?8, ?9, ?10, 0, 0, ?11, ?12)",
        )?;
        Ok(Self { wide, narrow })
    }

    fn arrival(&mut self, arrival: &Arrival, content: &str, lease: Option<Lease>) -> Result<()> {
        let notification = &*arrival.notification;
        let id = notification.id.to_bytes();
        let expires = maybe_micros(notification.expires_at);
        self.wide.execute(params![
            id,
            arrival.flow.0,
            notification.to,
            notification.priority.code(),
            notification.template,
            notification.subject,
            notification.event_key,
            notification.correlation_id,
            maybe_micros(notification.not_before),
            expires,
            content,
        ])?;
        let start = Progress::START;
        self.narrow.execute(params![
            id,
            arrival.flow.0,
            notification.priority.code(),
            arrival.due.as_micros(),
            expires,
            lease.map(|lease| lease.node.0),
            lease.map(|lease| lease.fence.0),
            start.attempt,
            start.base,
            start.generation,
            notification.has_own_policy(),
            notification.has_own_age(),
        ])?;
        Ok(())
    }
}
