//! The notifications of some flows, found by their blocks.

use std::cell::Cell;

use posthaste_core::id::NotificationId;
use rusqlite::{Connection, params};

use super::super::blocks::{ID, before, holder, last, parts};
use super::super::fault::{Fault, Result, unless_damaged};
use crate::walk::MAX_LOOKED_AT;

/// The most blocks that one list looks at.
const MOST_BLOCKS: usize = MAX_LOOKED_AT;

/// The notifications of some flows, newest first.
pub(super) struct OfFlows {
    flows: Vec<i64>,
    looked_at: Cell<usize>,
    stopped: Cell<Option<NotificationId>>,
}

impl OfFlows {
    /// Of these flows, which are in order.
    pub(super) const fn new(flows: Vec<i64>) -> Self {
        Self { flows, looked_at: Cell::new(0), stopped: Cell::new(None) }
    }

    /// Where the next page goes on, if the bound was reached.
    pub(super) fn stopped(&self) -> Option<NotificationId> {
        self.stopped.get()
    }

    /// The next ids, newest first: at least so many, unless there are no more or the bound is reached.
    pub(super) fn fetch(
        &self,
        conn: &Connection,
        (from, until): ([u8; ID], [u8; ID]),
        limit: usize,
    ) -> Result<Vec<NotificationId>> {
        let mut found = vec![];
        if self.flows.is_empty() || self.stopped().is_some() {
            return Ok(found);
        }
        let open = behind(&last(conn)?).max(from.to_vec());
        self.scan(conn, (&open, &until), limit, &mut found)?;
        if found.len() >= limit {
            return Ok(found);
        }
        let newest = holder(conn, &until)?.unwrap_or_else(|| vec![u8::MAX; ID]);
        let mut select = conn.prepare_cached(
            "select upto, flows
             from block
             where upto <= ?1
             and upto >= ?2
             order by upto desc",
        )?;
        let mut rows = select.query(params![newest, from])?;
        while found.len() < limit
            && let Some(row) = rows.next()?
        {
            let upto: [u8; ID] = row.get(0)?;
            if self.looked_at.replace(self.looked_at.get() + 1) >= MOST_BLOCKS {
                // The greatest id of this block may be its `upto`.
                let next = u128::from_be_bytes(upto).saturating_add(1);
                self.stopped.set(Some(NotificationId::from_bytes(next.to_be_bytes())));
                break;
            }
            let flows = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            match unless_damaged(&"block", self.of_block(conn, &upto, flows))? {
                Some(mut ids) => {
                    ids.retain(|id| *id >= from && *id < until);
                    ids.sort_by(|one, other| other.cmp(one));
                    ids.dedup();
                    found.extend(ids.into_iter().map(NotificationId::from_bytes));
                }
                None => {
                    let low = behind(&before(conn, &upto)?).max(from.to_vec());
                    let high = behind(&upto).min(until.to_vec());
                    self.scan(conn, (&low, &high), usize::MAX, &mut found)?;
                }
            }
        }
        Ok(found)
    }

    fn of_block(&self, conn: &Connection, upto: &[u8; ID], flows: &[u8]) -> Result<Vec<[u8; ID]>> {
        let parts = parts(flows, Some(&self.flows))?;
        if parts.is_empty() {
            return Ok(vec![]);
        }
        let mut select = conn.prepare_cached("select ids from block where upto = ?1")?;
        let mut rows = select.query([upto])?;
        let row = rows.next()?.ok_or_else(|| Fault::damaged("a block is gone"))?;
        let ids = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        let mut found = vec![];
        for part in parts {
            found.extend_from_slice(part.ids(ids)?);
        }
        Ok(found)
    }

    /// Adds what the notifications from `low` until before `high` say, so many at most.
    fn scan(
        &self,
        conn: &Connection,
        (low, high): (&[u8], &[u8]),
        limit: usize,
        found: &mut Vec<NotificationId>,
    ) -> Result<()> {
        let mut select = conn.prepare_cached(
            "select id, flow
             from notification
             where id >= ?1
             and id < ?2
             order by id desc",
        )?;
        let mut rows = select.query(params![low, high])?;
        let most = found.len().saturating_add(limit);
        while found.len() < most
            && let Some(row) = rows.next()?
        {
            if self.flows.binary_search(&row.get(1)?).is_ok() {
                found.push(NotificationId::from_bytes(row.get(0)?));
            }
        }
        Ok(())
    }
}

/// The least value that is greater.
fn behind(id: &[u8]) -> Vec<u8> {
    [id, &[0]].concat()
}
