//! Applies settlements whose leases are still valid.

use posthaste_core::attempt::{Attempt, Response};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::Lease;
use posthaste_core::state::Lane;
use posthaste_core::time::{Timestamp, micros};
use posthaste_engine::store::{Ending, Next, Progress, Settled, Settlement};
use rusqlite::{CachedStatement, Connection, params};

use super::ends::{self, bury};
use super::fault::Result;
use super::planted::Planted;
use super::rows::{bucket, maybe_text, time};
use super::writer::Tx;
use crate::kept::attempts::{tries_from, tries_text};
use crate::kept::places::Ended;
use crate::kept::values;

/// In the order of the batch.
pub(super) fn settle(tx: &mut Tx<'_>, batch: &[Settlement], now: Timestamp) -> Result<Vec<Settled>> {
    let mut statements = Statements::prepare(tx.conn)?;
    batch.iter().map(|item| statements.settle(tx, item, now)).collect()
}

/// The columns of a queue row that a settlement needs.
struct Held {
    lease: Option<Lease>,
    cancel: bool,
    bucket: posthaste_core::flow::Bucket,
    progress: Progress,
}

struct Statements<'c> {
    held: CachedStatement<'c>,
    attempt: CachedStatement<'c>,
    retry: CachedStatement<'c>,
    delete: CachedStatement<'c>,
    ended: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    fn prepare(conn: &'c Connection) -> Result<Self> {
        Ok(Self {
            held: conn.prepare_cached(
                "select node, fence, cancel, flow, lane, priority, attempt, base, generation
                 from queue
                 where id = ?1",
            )?,
            attempt: conn.prepare_cached(
                "insert into attempt (notification, generation, number, started_at, duration, failure, status_code,
                     error, quick_tries, provider, message_id, response_type, response)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?,
            retry: conn.prepare_cached(
                "update queue
                 set lane = 1, due = ?2, delay = ?3, node = null, fence = null, attempt = attempt + 1,
                     interruptions = 0, cancel = 0
                 where id = ?1",
            )?,
            delete: conn.prepare_cached(
                "delete from queue
                 where id = ?1",
            )?,
            ended: conn.prepare_cached(ends::INSERT)?,
        })
    }

    fn settle(&mut self, tx: &mut Tx<'_>, item: &Settlement, now: Timestamp) -> Result<Settled> {
        let Some(held) = self.held(item.id)? else { return Ok(Settled::LeaseLost) };
        let fenced = !tx.bug(Planted::SettleWithoutFence);
        if held.lease.is_none() || (fenced && held.lease != Some(item.lease)) {
            return Ok(Settled::LeaseLost);
        }
        if held.cancel && !item.cancel_seen && !tx.bug(Planted::CancelFlagIgnored) {
            return Ok(Settled::CancelRequested);
        }
        if let Some(attempt) = &item.attempt {
            self.attempt(item.id, attempt)?;
        }
        match &item.next {
            Next::Retry { due, delay } => {
                self.retry.execute(params![item.id.to_bytes(), due.as_micros(), micros(*delay)])?;
                if held.bucket.lane == Lane::Main {
                    tx.deltas.live(held.bucket.flow, Lane::Main, -1);
                    tx.deltas.live(held.bucket.flow, Lane::Retry, 1);
                }
            }
            Next::End(ending) => self.end(tx, item, &held, ending, now)?,
        }
        Ok(Settled::Applied)
    }

    fn held(&mut self, id: NotificationId) -> Result<Option<Held>> {
        let mut rows = self.held.query([id.to_bytes()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (node, fence): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(Some(Held {
            lease: values::lease(node, fence),
            cancel: row.get(2)?,
            bucket: bucket(row, 3)?,
            progress: Progress { attempt: row.get(6)?, base: row.get(7)?, generation: row.get(8)? },
        }))
    }

    fn attempt(&mut self, id: NotificationId, attempt: &Attempt) -> Result<()> {
        let response = attempt.response.as_ref();
        self.attempt.execute(params![
            id.to_bytes(),
            attempt.generation,
            attempt.number,
            attempt.started_at.as_micros(),
            micros(attempt.duration),
            attempt.outcome.code(),
            attempt.status_code,
            attempt.error,
            tries_text(attempt)?,
            attempt.provider,
            attempt.message_id,
            response.and_then(|response| response.content_type.as_ref()),
            response.map(|response| &response.excerpt),
        ])?;
        Ok(())
    }

    fn end(
        &mut self,
        tx: &mut Tx<'_>,
        item: &Settlement,
        held: &Held,
        ending: &Ending,
        now: Timestamp,
    ) -> Result<()> {
        self.delete.execute([item.id.to_bytes()])?;
        let last = item.attempt.as_ref().map_or(held.progress.attempt.saturating_sub(1), |made| made.number);
        let ended = Ended::of(ending, Progress { attempt: last, ..held.progress }, now);
        let ended = match &item.attempt {
            Some(made) => {
                Ended { failure_type: made.outcome.failure_type(), status_code: made.status_code, ..ended }
            }
            None => ends::with_last_attempt(tx.conn, item.id, ended)?,
        };
        if ended.dead_letter.is_some() {
            bury(tx, item.id, &ended)?;
        }
        ends::insert(tx, &mut self.ended, item.id, held.bucket.flow, &ended)?;
        tx.deltas.ended(held.bucket.flow, ended.state, now, 1);
        if !(tx.bug(Planted::CounterDrift) && matches!(ending, Ending::Delivered)) {
            tx.deltas.live(held.bucket.flow, held.bucket.lane, -1);
        }
        Ok(())
    }
}

/// The attempts of one generation, or of all, ordered by number.
pub(super) fn attempts(
    conn: &Connection,
    id: NotificationId,
    generation: Option<u32>,
) -> Result<Vec<Attempt>> {
    let mut select = conn.prepare_cached(
        "select generation, number, started_at, duration, failure, status_code, error, quick_tries, provider,
             message_id, response_type, response
         from attempt
         where notification = ?1
         and (?2 is null or generation = ?2)
         order by generation, number",
    )?;
    let mut rows = select.query(params![id.to_bytes(), generation])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        found.push(read_attempt(row)?);
    }
    Ok(found)
}

fn read_attempt(row: &rusqlite::Row<'_>) -> Result<Attempt> {
    let (quick_tries, last_try_at) = tries_from(maybe_text(row, 7)?)?;
    Ok(Attempt {
        generation: row.get(0)?,
        number: row.get(1)?,
        started_at: time(row, 2)?,
        duration: values::duration(row.get(3)?),
        outcome: values::outcome(row.get(4)?)?,
        status_code: row.get(5)?,
        error: row.get(6)?,
        quick_tries,
        last_try_at,
        provider: row.get(8)?,
        message_id: row.get(9)?,
        response: {
            let (content_type, excerpt): (_, Option<String>) = (row.get(10)?, row.get(11)?);
            excerpt.map(|excerpt| Response { content_type, excerpt })
        },
    })
}
