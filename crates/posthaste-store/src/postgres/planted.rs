//! Known bugs that a test switches on to see that the conformance suite catches them.

/// A bug by its name. Without the feature `planted` nothing can switch one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A settlement is taken from anybody while some node holds the row.
    SettleWithoutFence,
    /// A claim hands out rows that somebody holds.
    ClaimIgnoresLease,
    /// The row leaves the queue as a dead letter, and no dead letter appears.
    LostDeadLetter,
    /// The kept counters forget that a delivered notification left the queue.
    CounterDrift,
    /// A repeated request is stored a second time.
    TwinStoredTwice,
    /// A lease is granted to a node that is dead or gone.
    GrantsToTheDead,
}

impl Planted {
    /// Every planted bug.
    pub const ALL: [Self; 6] = [
        Self::SettleWithoutFence,
        Self::ClaimIgnoresLease,
        Self::LostDeadLetter,
        Self::CounterDrift,
        Self::TwinStoredTwice,
        Self::GrantsToTheDead,
    ];
}

/// The statement with a bug in it. A text that is not there would be a bug that no test switches on.
pub(super) fn spoiled(sql: &str, right: &str, wrong: &str) -> String {
    assert!(sql.contains(right), "no planted bug finds `{right}` in:\n{sql}");
    sql.replace(right, wrong)
}
