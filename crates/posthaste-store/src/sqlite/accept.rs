//! What arrives: the wide row, the narrow row, and the keys under which repeats are known.

use std::collections::BTreeSet;

use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::state::Lane;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{Acceptance, Accepted, Arrival, Idempotency, Progress, Request};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::fault::Result;
use super::nodes::may_hold;
use super::planted::Planted;
use super::rows::{content_text, maybe_micros};
use super::writer::Tx;

/// A request whose contents were turned into text by whoever asked, so that the writer does not have to.
pub(super) struct Incoming {
    request: Request,
    contents: Vec<String>,
}

impl Incoming {
    /// Writes out the contents.
    pub(super) fn new(request: Request) -> Result<Self> {
        let texts = request.arrivals.iter().map(|arrival| content_text(&arrival.notification.content));
        let contents = texts.collect::<Result<_>>()?;
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
                none => none.insert(Keys::turn(tx.conn, now)?),
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
                 base, generation, interruptions, cancel)
             values (?1, ?2, 0, ?3, ?4, ?5, ?4, 0, ?6, ?7, ?8, ?9, ?10, 0, 0)",
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
        ])?;
        Ok(())
    }
}

/// The hash and the answer of the first request under a key; none if it is not known, or not any more.
pub(super) fn idempotent(
    conn: &Connection,
    tenant: &Tenant,
    key: &str,
    now: Timestamp,
) -> Result<Option<([u8; 32], Vec<u8>)>> {
    for table in TABLES {
        let mut select = conn.prepare_cached(&format!(
            "select hash, answer, at
             from {table}
             where tenant = ?1
             and key = ?2"
        ))?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?));
        let Some((hash, answer, at)) = select.query_row(params![tenant.as_str(), key], read).optional()?
        else {
            continue;
        };
        if now.since(Timestamp::from_micros(at)) < Idempotency::LIFE {
            return Ok(Some((hash, answer)));
        }
    }
    Ok(None)
}

/// The two tables of keys at one moment.
struct Keys {
    now: Timestamp,
    /// The table whose turn it is.
    turn: i64,
}

/// The tables by their turns.
const TABLES: [&str; 2] = ["idempotency_even", "idempotency_odd"];

const fn table(turn: i64) -> &'static str {
    if turn == 0 { TABLES[0] } else { TABLES[1] }
}

impl Keys {
    /// Finds whose turn it is. A table whose turn comes again is emptied first: what it holds is a day old or older.
    fn turn(conn: &Connection, now: Timestamp) -> Result<Self> {
        let life = posthaste_core::time::micros(Idempotency::LIFE);
        let day = now.as_micros().div_euclid(life);
        let turn = day.rem_euclid(2);
        let held: Option<i64> = conn
            .prepare_cached(
                "select day
                 from idempotency_day
                 where turn = ?1",
            )?
            .query_row([turn], |row| row.get(0))
            .optional()?;
        if held.is_none_or(|held| held < day) {
            conn.execute(&format!("delete from {}", table(turn)), [])?;
            conn.execute(
                "insert or replace into idempotency_day (turn, day)
                 values (?1, ?2)",
                [turn, day],
            )?;
        }
        Ok(Self { now, turn })
    }

    /// What a repeat is answered with; none if the key is not known, or not any more.
    fn known(&self, tx: &Tx<'_>, idempotency: &Idempotency) -> Result<Option<Accepted>> {
        if tx.bug(Planted::TwinStoredTwice) {
            return Ok(None);
        }
        let Idempotency { tenant, key, hash, .. } = idempotency;
        let first = idempotent(tx.conn, tenant, key, self.now)?;
        Ok(first
            .map(|(known, answer)| if known == *hash { Accepted::Twin(answer) } else { Accepted::Conflict }))
    }

    fn remember(&self, conn: &Connection, idempotency: &Idempotency) -> Result<()> {
        let mut insert = conn.prepare_cached(&format!(
            "insert or replace into {} (tenant, key, hash, answer, at)
             values (?1, ?2, ?3, ?4, ?5)",
            table(self.turn)
        ))?;
        insert.execute(params![
            idempotency.tenant.as_str(),
            idempotency.key,
            idempotency.hash,
            idempotency.answer,
            self.now.as_micros(),
        ])?;
        Ok(())
    }
}
