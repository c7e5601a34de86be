//! Several ranges of indexes as one walk, and the page that is filled from walks.

use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Debug;

use posthaste_engine::store::Page;

use super::super::fault::{Result, unless_damaged};
use crate::walk::{MAX_BYTES, MAX_LOOKED_AT};

/// The most keys that are fetched from a range at once.
const LARGEST_CHUNK: usize = 512;

/// What fetches keys: of which range, behind which key, how many.
type Fetch<'f, K> = dyn FnMut(usize, Option<K>, usize) -> Result<Vec<K>> + 'f;

/// The keys of several ranges, greatest first. Keys are fetched in chunks, so a range that is never reached costs one fetch.
pub(super) struct Merge<'f, K> {
    fetch: Box<Fetch<'f, K>>,
    /// What was fetched of each range and not yet taken; none where the range is at its end.
    fetched: Vec<Option<VecDeque<K>>>,
    heads: BinaryHeap<(K, usize)>,
    chunk: usize,
}

impl<'f, K: Ord + Copy> Merge<'f, K> {
    /// So many ranges behind `start`, for a page of `limit` rows.
    pub(super) fn new(
        ranges: usize,
        start: Option<K>,
        limit: usize,
        fetch: impl FnMut(usize, Option<K>, usize) -> Result<Vec<K>> + 'f,
    ) -> Result<Self> {
        // The rows of a page, and one that says whether there are more, may all come from one range.
        let chunk = ((limit + 1) / ranges.max(1)).clamp(4, LARGEST_CHUNK);
        let fetched = (0..ranges).map(|_| Some(VecDeque::new())).collect();
        let heads = BinaryHeap::with_capacity(ranges);
        let mut merge = Self { fetch: Box::new(fetch), fetched, heads, chunk };
        for range in 0..ranges {
            merge.advance(range, start)?;
        }
        Ok(merge)
    }

    /// The next key of all ranges.
    fn next(&mut self) -> Result<Option<K>> {
        let Some((key, range)) = self.heads.pop() else { return Ok(None) };
        self.advance(range, Some(key))?;
        Ok(Some(key))
    }

    /// Brings the next key of that range, which comes behind `after`, among the heads.
    fn advance(&mut self, range: usize, after: Option<K>) -> Result<()> {
        let Some(fetched) = &mut self.fetched[range] else { return Ok(()) };
        if fetched.is_empty() {
            fetched.extend((self.fetch)(range, after, self.chunk)?);
        }
        match fetched.pop_front() {
            Some(key) => self.heads.push((key, range)),
            None => self.fetched[range] = None,
        }
        Ok(())
    }
}

/// What a row of a page keeps in memory, in bytes of content.
pub(super) trait Weigh {
    fn weight(&self) -> usize;
}

/// A page that is being filled.
pub(super) struct Filling<T, K> {
    rows: Vec<T>,
    limit: usize,
    bytes: usize,
    last: Option<K>,
}

/// Where a walk ended.
pub(super) enum Went<K> {
    /// Nothing is left that the list could show.
    ToTheEnd,
    /// The page is full, and a row is left for the next one.
    Full,
    /// This is the last row that it may look at, and there are more.
    ToTheBound(K),
}

impl<T: Weigh, K: Ord + Copy + Debug> Filling<T, K> {
    pub(super) const fn new(limit: usize) -> Self {
        Self { rows: vec![], limit, bytes: 0, last: None }
    }

    /// Looks at rows until the page is full, the bound is reached or none are left. A damaged row is passed over.
    pub(super) fn walk(
        &mut self,
        merge: &mut Merge<'_, K>,
        mut look: impl FnMut(K) -> Result<Option<T>>,
    ) -> Result<Went<K>> {
        let (mut looked_at, mut last) = (0, None);
        while let Some(key) = merge.next()? {
            if let Some(last) = last.filter(|_| looked_at == MAX_LOOKED_AT) {
                return Ok(Went::ToTheBound(last));
            }
            looked_at += 1;
            last = Some(key);
            let Some(row) = unless_damaged(&key, look(key))?.flatten() else { continue };
            if self.rows.len() >= self.limit || self.bytes >= MAX_BYTES {
                return Ok(Went::Full);
            }
            self.bytes += row.weight();
            self.rows.push(row);
            self.last = Some(key);
        }
        Ok(Went::ToTheEnd)
    }

    /// The page, where the last walk went so far. None if no walk was made.
    pub(super) fn page(self, went: Went<K>) -> Page<T, K> {
        let next = match went {
            Went::ToTheEnd => None,
            Went::Full => self.last,
            Went::ToTheBound(key) => Some(key),
        };
        Page { rows: self.rows, next }
    }
}
