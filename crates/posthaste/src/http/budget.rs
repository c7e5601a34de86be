//! The memory that bodies of requests may take, all together: connections alone would bound it far too high.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::problem::{Kind, Problem, Result};

/// The most bytes of bodies that are held at once.
const ALL: usize = 256 * 1024 * 1024;
/// The part of it that large bodies cannot take, so that small ones find room beside them.
const KEPT_FREE: usize = ALL / 8;

/// What is held now.
#[derive(Debug, Default)]
pub(super) struct Budget {
    held: AtomicUsize,
}

/// How much of the budget a body may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// All of it.
    Small,
    /// All but what is kept free.
    Large,
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    size: Size,
    bytes: usize,
}

impl Budget {
    /// A body of which nothing has come yet.
    pub(super) fn begin(self: &Arc<Self>, size: Size) -> Held {
        Held { budget: self.clone(), size, bytes: 0 }
    }
}

impl Held {
    /// More bytes came; refused if there is no room for them.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<()> {
        let most = match self.size {
            Size::Small => ALL,
            Size::Large => ALL - KEPT_FREE,
        };
        let held = self.budget.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        // Counted also where it is refused, for the drop that follows gives all of it back.
        self.bytes += bytes;
        if held > most {
            let detail = "too many large requests are being read; nothing of this one was stored: ask again";
            return Err(Problem::new(Kind::Overloaded, detail));
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_leave_room_for_small_ones_and_what_ends_is_given_back() {
        let budget = Arc::<Budget>::default();
        let (mut large, mut another) = (budget.begin(Size::Large), budget.begin(Size::Large));
        large.grow(ALL - KEPT_FREE - 1).unwrap();
        assert_eq!(another.grow(2).unwrap_err().kind, Kind::Overloaded);
        drop(another);
        let mut another = budget.begin(Size::Large);
        another.grow(1).unwrap();
        let (mut small, mut last) = (budget.begin(Size::Small), budget.begin(Size::Small));
        small.grow(KEPT_FREE).unwrap();
        assert_eq!(last.grow(1).unwrap_err().kind, Kind::Overloaded);
        drop((large, another, small, last));
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
