//! Fills a page from windows of rows, each read by a statement.

use posthaste_engine::store::Page;

use super::super::fault::{Result, unless_damaged};
use crate::walk::{MAX_BYTES, MAX_LOOKED_AT};

/// Maximum number of index entries that a walk reads: each range contributes as many as the size of the
/// window.
const MAX_ENTRIES: usize = 600_000;

pub(super) struct Filling<T, C> {
    rows: Vec<T>,
    limit: usize,
    bytes: usize,
    last: Option<C>,
}

pub(super) enum Went<C> {
    /// No more rows.
    ToTheEnd,
    /// The page is full, and there are more rows.
    Full,
    /// The limit of the walk was reached at this row, and there are more.
    ToTheBound(C),
}

/// A walk in progress: the next statement reads `size` rows after `at`.
pub(super) struct Window<C> {
    pub(super) at: Option<C>,
    pub(super) size: usize,
    ranges: usize,
    looked_at: usize,
    entries: usize,
    /// The last row within the limit, if the next statement only checks whether there are more rows after it.
    bound: Option<C>,
}

impl<C: Copy> Window<C> {
    pub(super) fn new(start: Option<C>, limit: usize, ranges: usize) -> Self {
        let size = (limit + 1).min(MAX_LOOKED_AT).min((MAX_ENTRIES / ranges.max(1)).max(1));
        Self { at: start, size, ranges, looked_at: 0, entries: 0, bound: None }
    }

    /// Continues after the rows that were read, unless the walk has ended.
    fn go_on(&mut self, looked_at: usize, last: Option<C>) -> Option<Went<C>> {
        if let Some(bound) = self.bound {
            return Some(if looked_at > 0 { Went::ToTheBound(bound) } else { Went::ToTheEnd });
        }
        let Some(last) = last.filter(|_| looked_at == self.size) else { return Some(Went::ToTheEnd) };
        self.at = Some(last);
        self.looked_at += looked_at;
        self.entries += self.size * self.ranges;
        if self.looked_at >= MAX_LOOKED_AT || self.entries >= MAX_ENTRIES {
            (self.bound, self.size) = (Some(last), 1);
            return None;
        }
        let most = (MAX_ENTRIES / self.ranges.max(1)).max(self.size);
        self.size = (self.size * 4).min(MAX_LOOKED_AT - self.looked_at).min(most);
        None
    }
}

impl<T, C: Copy + std::fmt::Debug> Filling<T, C> {
    pub(super) const fn new(limit: usize) -> Self {
        Self { rows: vec![], limit, bytes: 0, last: None }
    }

    /// Adds the rows of a statement. Returns where the walk ended, or `None` if it continues.
    pub(super) fn take(
        &mut self,
        window: &mut Window<C>,
        (looked_at, last): (usize, Option<C>),
        shown: Vec<(C, Result<T>, usize)>,
    ) -> Result<Option<Went<C>>> {
        if window.bound.is_none() {
            // A statement returns one row more than a page has. If some are damaged, the page is short
            // although there are more rows.
            let more = shown.len() > self.limit;
            for (cursor, row, bytes) in shown {
                if self.rows.len() >= self.limit || self.bytes >= MAX_BYTES {
                    return Ok(Some(Went::Full));
                }
                self.bytes += bytes;
                self.rows.extend(unless_damaged(&cursor, row)?);
                self.last = Some(cursor);
            }
            if more {
                return Ok(Some(Went::Full));
            }
        }
        Ok(window.go_on(looked_at, last))
    }

    pub(super) fn page(self, went: Went<C>) -> Page<T, C> {
        let next = match went {
            Went::ToTheEnd => None,
            Went::Full => self.last,
            Went::ToTheBound(cursor) => Some(cursor),
        };
        Page { rows: self.rows, next }
    }
}
