//! How fast an operation forwards: at the pace of each destination.

/// How many rows of one flow may wait due while an operation adds to them. It grows while they are sent faster than they are
/// looked at, and shrinks where they pile up, so that new notifications wait behind as few as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(u32);

impl Window {
    /// Never more than these wait due in one flow. The contract allows 1,000; a store on two cores sends these in about 30 ms, and
    /// behind 1,000 the slowest new notifications took 55 ms longer than without an operation.
    pub const MOST: u32 = 400;
    const LEAST: u32 = 50;

    /// The window after so many rows were found waiting.
    #[must_use]
    pub fn after(self, waiting: u32) -> Self {
        if waiting <= self.0 / 4 {
            Self((self.0 * 2).min(Self::MOST))
        } else if waiting > self.0 / 2 {
            Self((self.0 / 2).max(Self::LEAST))
        } else {
            self
        }
    }

    /// How many more may be added to those that wait.
    pub const fn room(self, waiting: u32) -> u32 {
        self.0.saturating_sub(waiting)
    }
}

impl Default for Window {
    fn default() -> Self {
        Self(Self::LEAST * 2)
    }
}
