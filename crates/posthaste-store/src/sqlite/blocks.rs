//! Blocks list notifications by flow, about 2,000 that follow each other by id, so that a list of few flows skips the others.
//!
//! Invariant: a notification whose id is not greater than the last `upto` is in the block with the least `upto` that is not
//! less than its id. What is newer is open: it is in no block, and found by a look at the notifications themselves.
//!
//! A notification that is removed leaves its block, and what is left of neighbours becomes one block. A block may still name one
//! that was removed by a version before.

use std::collections::BTreeMap;

use posthaste_core::flow::FlowId;
use posthaste_core::id::NotificationId;
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::{Fault, Result, unless_damaged};

/// How many notifications a new block has. A block to which late ones were added has up to twice as many.
const SIZE: usize = 2_000;
/// How many of the newest notifications are left open at least. Ids are made before a notification is accepted, so they come
/// in nearly their order. One that comes after its block was written costs a rewrite of that block.
const LEFT_OPEN: usize = 4_000;
/// How many notifications are read at once to fill the blocks of a file from before.
const FILLED_AT_ONCE: usize = 20_000;

/// The length of an id.
pub(super) const ID: usize = 16;
/// The length of an entry of `flows`.
const ENTRY: usize = 12;

/// A notification: its id and its flow.
type Row = ([u8; ID], i64);

/// What the writer knows of the blocks.
#[derive(Default)]
pub(super) struct Blocks {
    /// What is in no block yet; none if it has to be read from the file.
    open: Option<Open>,
    /// What this transaction has written.
    arrived: Vec<Row>,
}

impl Blocks {
    /// Notes a notification that was written.
    pub(super) fn note(&mut self, id: NotificationId, flow: FlowId) {
        self.arrived.push((id.to_bytes(), flow.0));
    }

    /// Forgets everything: the transaction was rolled back.
    pub(super) fn clear(&mut self) {
        self.open = None;
        self.arrived.clear();
    }

    /// Writes the blocks of what was noted.
    pub(super) fn write(&mut self, conn: &Connection) -> Result<()> {
        if self.arrived.is_empty() {
            return Ok(());
        }
        let (was_known, open) = match &mut self.open {
            Some(open) => (true, open),
            none => (false, none.insert(Open::read(conn, None)?)),
        };
        let mut late = vec![];
        for row in self.arrived.drain(..) {
            if row.0.as_slice() <= open.after.as_slice() {
                late.push(row);
            } else if was_known {
                open.rows.push(row);
            }
        }
        add(conn, late)?;
        open.close(conn)
    }
}

impl Blocks {
    /// Takes removed notifications out of the blocks. They are in order.
    pub(super) fn remove(&mut self, conn: &Connection, gone: &[[u8; ID]]) -> Result<()> {
        let is_gone = |(id, _): &Row| gone.binary_search(id).is_ok();
        if let Some(open) = &mut self.open {
            open.rows.retain(|row| !is_gone(row));
        }
        let (mut rest, newest) = (gone, last(conn)?);
        while let Some(first) = rest.first()
            && let Some(upto) = holder(conn, first)?
        {
            rest = &rest[rest.partition_point(|id| id.as_slice() <= upto.as_slice())..];
            let Some(mut rows) = unless_damaged(&"block", read(conn, &upto))? else { continue };
            rows.retain(|row| !is_gone(row));
            if rows.len() <= SIZE / 2 {
                rows = with_neighbour(conn, &upto, rows)?;
            }
            // The last block stays, also without a row: what is newer than it is open.
            if rows.is_empty() && upto != newest {
                delete(conn, &upto)?;
            } else {
                insert(conn, &upto, &rows)?;
            }
        }
        Ok(())
    }
}

/// The rows of a block together with those of the block before it, which is deleted, if both fit into one.
fn with_neighbour(conn: &Connection, upto: &[u8], mut rows: Vec<Row>) -> Result<Vec<Row>> {
    let neighbour = before(conn, upto)?;
    if neighbour.is_empty() {
        return Ok(rows);
    }
    if let Some(older) = unless_damaged(&"block", read(conn, &neighbour))?
        && older.len() + rows.len() <= SIZE
    {
        delete(conn, &neighbour)?;
        rows.extend(older);
        rows.sort();
    }
    Ok(rows)
}

fn delete(conn: &Connection, upto: &[u8]) -> Result<()> {
    conn.prepare_cached("delete from block where upto = ?1")?.execute([upto])?;
    Ok(())
}

/// Writes the blocks of a file that was filled without them. Each transaction is short, and one that was not made is made
/// at the next start.
pub(super) fn fill(conn: &Connection) -> rusqlite::Result<()> {
    let broken = |fault| match fault {
        Fault::Sqlite(error) => error,
        Fault::Damaged(damaged) => rusqlite::Error::ToSqlConversionFailure(Box::new(damaged)),
    };
    let mut told = false;
    loop {
        let transaction = conn.unchecked_transaction()?;
        let mut open = Open::read(&transaction, Some(FILLED_AT_ONCE)).map_err(broken)?;
        let more = open.rows.len() == FILLED_AT_ONCE;
        open.close(&transaction).map_err(broken)?;
        transaction.commit()?;
        if !more {
            return Ok(());
        }
        if !told {
            tracing::info!("older notifications are being listed by flow");
            told = true;
        }
    }
}

/// What is in no block yet.
struct Open {
    /// The greatest id that belongs to a block; empty, which is less than every id, if there is no block.
    after: Vec<u8>,
    rows: Vec<Row>,
}

impl Open {
    /// Reads the oldest of what is open, so many or all.
    fn read(conn: &Connection, limit: Option<usize>) -> Result<Self> {
        let after = last(conn)?;
        let mut select = conn.prepare_cached(
            "select id, flow
             from notification
             where id > ?1
             order by id
             limit ?2",
        )?;
        // A negative limit is none.
        let limit = limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = select.query_map(params![after, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows = rows.collect::<rusqlite::Result<_>>()?;
        Ok(Self { after, rows })
    }

    /// Moves the oldest rows into blocks, once there are enough for one.
    fn close(&mut self, conn: &Connection) -> Result<()> {
        if self.rows.len() < LEFT_OPEN + SIZE {
            return Ok(());
        }
        self.rows.sort();
        self.rows.dedup();
        let full = self.rows.len().saturating_sub(LEFT_OPEN) / SIZE * SIZE;
        for block in self.rows[..full].chunks(SIZE) {
            if let Some((upto, _)) = block.last() {
                insert(conn, upto, block)?;
                self.after = upto.to_vec();
            }
        }
        self.rows.drain(..full);
        Ok(())
    }
}

/// The greatest `upto`; empty if there is no block.
pub(super) fn last(conn: &Connection) -> Result<Vec<u8>> {
    let mut select = conn.prepare_cached(
        "select upto
         from block
         order by upto desc
         limit 1",
    )?;
    Ok(select.query_row([], |row| row.get(0)).optional()?.unwrap_or_default())
}

/// The `upto` of the block before that one; empty if it is the first.
pub(super) fn before(conn: &Connection, upto: &[u8]) -> Result<Vec<u8>> {
    let mut select = conn.prepare_cached(
        "select upto
         from block
         where upto < ?1
         order by upto desc
         limit 1",
    )?;
    Ok(select.query_row([upto], |row| row.get(0)).optional()?.unwrap_or_default())
}

/// The `upto` of the block that an id belongs to; none if it is open.
pub(super) fn holder(conn: &Connection, id: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut select = conn.prepare_cached(
        "select upto
         from block
         where upto >= ?1
         order by upto
         limit 1",
    )?;
    Ok(select.query_row([id], |row| row.get(0)).optional()?)
}

/// Adds notifications to the blocks that they belong to.
fn add(conn: &Connection, late: Vec<Row>) -> Result<()> {
    let mut of_block: BTreeMap<Vec<u8>, Vec<Row>> = BTreeMap::new();
    for row in late {
        let upto = holder(conn, &row.0)?.ok_or_else(|| Fault::damaged("no block holds an id"))?;
        of_block.entry(upto).or_default().push(row);
    }
    for (upto, late) in of_block {
        let mut rows = match unless_damaged(&"block", read(conn, &upto))? {
            Some(rows) => rows,
            None => written(conn, &upto)?,
        };
        rows.extend(late);
        rows.sort();
        rows.dedup();
        // One that has become too large is split; the last part keeps the name.
        let parts = if rows.len() <= 2 * SIZE { 1 } else { rows.len().div_ceil(SIZE) };
        let mut parts = rows.chunks(rows.len().div_ceil(parts)).peekable();
        while let Some(part) = parts.next() {
            match part.last() {
                Some((id, _)) if parts.peek().is_some() => insert(conn, id, part)?,
                _ => insert(conn, &upto, part)?,
            }
        }
    }
    Ok(())
}

/// What a block lists.
fn read(conn: &Connection, upto: &[u8]) -> Result<Vec<Row>> {
    let mut select = conn.prepare_cached(
        "select flows, ids
         from block
         where upto = ?1",
    )?;
    let (flows, ids): (Vec<u8>, Vec<u8>) = select.query_row([upto], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut rows = Vec::with_capacity(ids.len() / ID);
    for part in parts(&flows, None)? {
        rows.extend(part.ids(&ids)?.iter().map(|id| (*id, part.flow)));
    }
    if rows.len() * ID != ids.len() {
        return Err(Fault::damaged("a block has ids of no flow"));
    }
    Ok(rows)
}

/// What a block has to list, by the notifications themselves.
fn written(conn: &Connection, upto: &[u8]) -> Result<Vec<Row>> {
    let mut select = conn.prepare_cached(
        "select id, flow
         from notification
         where id > ?1
         and id <= ?2",
    )?;
    let bound = params![before(conn, upto)?, upto];
    let rows = select.query_map(bound, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn insert(conn: &Connection, upto: &[u8], rows: &[Row]) -> Result<()> {
    let mut rows: Vec<Row> = rows.to_vec();
    rows.sort_by_key(|(_, flow)| *flow);
    let mut flows = vec![];
    let mut ids = Vec::with_capacity(rows.len() * ID);
    for of_flow in rows.chunk_by(|one, other| one.1 == other.1) {
        for (id, _) in of_flow {
            ids.extend_from_slice(id);
        }
        let end = u32::try_from(ids.len() / ID).map_err(|_| Fault::damaged("a block is too large"))?;
        flows.extend_from_slice(&of_flow[0].1.to_be_bytes());
        flows.extend_from_slice(&end.to_be_bytes());
    }
    let mut insert = conn.prepare_cached(
        "insert or replace into block (upto, flows, ids)
         values (?1, ?2, ?3)",
    )?;
    insert.execute(params![upto, flows, ids])?;
    Ok(())
}

/// Where the ids of one flow are in a block.
pub(super) struct Part {
    flow: i64,
    start: usize,
    end: usize,
}

impl Part {
    /// The ids of the flow, oldest first.
    pub(super) fn ids<'b>(&self, ids: &'b [u8]) -> Result<&'b [[u8; ID]]> {
        let (ids, rest) = ids.as_chunks::<ID>();
        let found = if rest.is_empty() { ids.get(self.start..self.end) } else { None };
        found.ok_or_else(|| Fault::damaged("the ids of a block do not fit its flows"))
    }
}

/// The parts of a block, from its column `flows`: those of the wanted flows, which are in order, or all.
pub(super) fn parts(flows: &[u8], wanted: Option<&[i64]>) -> Result<Vec<Part>> {
    let (entries, rest) = flows.as_chunks::<ENTRY>();
    if !rest.is_empty() {
        return Err(Fault::damaged("the flows of a block are cut off"));
    }
    let part = |at: usize| Part {
        flow: flow(&entries[at]),
        start: if at == 0 { 0 } else { end(&entries[at - 1]) },
        end: end(&entries[at]),
    };
    Ok(match wanted {
        // The shorter of the two is gone through, and each of it looked up in the longer.
        Some(wanted) if wanted.len() < entries.len() => {
            let find = |wanted: &i64| entries.binary_search_by_key(wanted, flow).ok();
            wanted.iter().filter_map(find).map(part).collect()
        }
        Some(wanted) => {
            let is_wanted = |at: &usize| wanted.binary_search(&flow(&entries[*at])).is_ok();
            (0..entries.len()).filter(is_wanted).map(part).collect()
        }
        None => (0..entries.len()).map(part).collect(),
    })
}

fn flow(entry: &[u8; ENTRY]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *entry;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn end(entry: &[u8; ENTRY]) -> usize {
    let [.., a, b, c, d] = *entry;
    u32::from_be_bytes([a, b, c, d]) as usize
}
