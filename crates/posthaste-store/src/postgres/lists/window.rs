//! A page that is filled from windows of rows, each a statement.

use posthaste_engine::store::Page;

use super::super::fault::{Result, unless_damaged};
use crate::walk::{MOST_BYTES, MOST_LOOKED_AT};

/// The most entries of indexes that a walk reads: each range gives as many as the window is large.
const MOST_ENTRIES: usize = 600_000;

/// A page that is being filled.
pub(super) struct Filling<T, C> {
    rows: Vec<T>,
    limit: usize,
    bytes: usize,
    last: Option<C>,
}

/// Where a walk ended.
pub(super) enum Went<C> {
    /// Nothing is left that the list could show.
    ToTheEnd,
    /// The page is full, and a row is left for the next one.
    Full,
    /// This is the last row that it may look at, and there are more.
    ToTheBound(C),
}

/// A walk on its way: the next statement asks for `size` rows behind `at`.
pub(super) struct Window<C> {
    pub(super) at: Option<C>,
    pub(super) size: usize,
    ranges: usize,
    looked_at: usize,
    entries: usize,
    /// The bound, if the next statement only asks whether anything is left behind it.
    bound: Option<C>,
}

impl<C: Copy> Window<C> {
    pub(super) fn new(start: Option<C>, limit: usize, ranges: usize) -> Self {
        let size = (limit + 1).min(MOST_LOOKED_AT).min((MOST_ENTRIES / ranges.max(1)).max(1));
        Self { at: start, size, ranges, looked_at: 0, entries: 0, bound: None }
    }

    /// Goes on behind the rows that were looked at, unless the walk has ended.
    fn go_on(&mut self, looked_at: usize, last: Option<C>) -> Option<Went<C>> {
        if let Some(bound) = self.bound {
            return Some(if looked_at > 0 { Went::ToTheBound(bound) } else { Went::ToTheEnd });
        }
        let Some(last) = last.filter(|_| looked_at == self.size) else { return Some(Went::ToTheEnd) };
        self.at = Some(last);
        self.looked_at += looked_at;
        self.entries += self.size * self.ranges;
        if self.looked_at >= MOST_LOOKED_AT || self.entries >= MOST_ENTRIES {
            (self.bound, self.size) = (Some(last), 1);
            return None;
        }
        let most = (MOST_ENTRIES / self.ranges.max(1)).max(self.size);
        self.size = (self.size * 4).min(MOST_LOOKED_AT - self.looked_at).min(most);
        None
    }
}

impl<T, C: Copy + std::fmt::Debug> Filling<T, C> {
    pub(super) const fn new(limit: usize) -> Self {
        Self { rows: vec![], limit, bytes: 0, last: None }
    }

    /// Takes what a statement of the walk showed. Returns where the walk ended, or nothing if it goes on.
    pub(super) fn take(
        &mut self,
        window: &mut Window<C>,
        (looked_at, last): (usize, Option<C>),
        shown: Vec<(C, Result<T>, usize)>,
    ) -> Result<Option<Went<C>>> {
        if window.bound.is_none() {
            // A statement shows one more than a page has. Where some of them are damaged, the page is short and rows are left.
            let more = shown.len() > self.limit;
            for (cursor, row, bytes) in shown {
                if self.rows.len() >= self.limit || self.bytes >= MOST_BYTES {
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
