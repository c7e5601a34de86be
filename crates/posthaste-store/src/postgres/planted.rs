//! Bugs that tests switch on to check that the conformance suite detects them.

/// Without the feature `planted` no bug can be switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A settlement under any fence is applied while some node holds the row.
    SettleWithoutFence,
    /// A claim returns rows that are leased.
    ClaimIgnoresLease,
    /// The row leaves the queue as a dead letter, but no dead letter is created.
    LostDeadLetter,
    /// The counters are not reduced when a delivered notification leaves the queue.
    CounterDrift,
    /// A repeated request is stored a second time.
    TwinStoredTwice,
    /// A lease is granted to a dead or departed node.
    GrantsToTheDead,
    /// An operation forwards for a node that does not run it.
    ForwardWithoutFence,
    /// A destination is changed although its row is not as expected.
    DestinationSwappedUnseen,
    /// A reservation under an inbound limit is told and not stored.
    ReservationForgotten,
}

impl Planted {
    pub const ALL: [Self; 9] = [
        Self::SettleWithoutFence,
        Self::ClaimIgnoresLease,
        Self::LostDeadLetter,
        Self::CounterDrift,
        Self::TwinStoredTwice,
        Self::GrantsToTheDead,
        Self::ForwardWithoutFence,
        Self::DestinationSwappedUnseen,
        Self::ReservationForgotten,
    ];
}

/// Returns `sql` with a bug. Panics if `right` does not occur, because the bug would then have no effect.
pub(super) fn spoiled(sql: &str, right: &str, wrong: &str) -> String {
    assert!(sql.contains(right), "no planted bug finds `{right}` in:\n{sql}");
    sql.replace(right, wrong)
}
