//! Bugs with names, switched on by a test to show that the checks around the store would see them.

/// A bug that `ModelStore::plant` switches on. Each is one small `if` where such a bug would be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A settle is taken from anyone, as long as somebody holds the row.
    SettleWithoutFence,
    /// A notification ends as a dead letter, but the dead letter itself is not kept.
    LostDeadLetter,
    /// Leases are taken back from a node that is alive.
    ReclaimAlive,
    /// A claim hands out rows that somebody holds.
    ClaimIgnoresLease,
    /// A claim hands out rows before they are due.
    ClaimIgnoresDue,
    /// A settle does not keep the attempt.
    AttemptRowLost,
    /// A scheduled retry has the number of the attempt that failed.
    RetryKeepsAttemptNumber,
    /// A settle that knows nothing of a request to cancel goes through.
    CancelFlagIgnored,
    /// A repeated request is stored once more.
    TwinStoredTwice,
    /// A lease that is taken back leaves no event.
    ReclaimWithoutEvent,
    /// What ends is still counted among what lives.
    CounterDrift,
    /// A requeued notification leaves its dead letter pending.
    RequeueKeepsDeadLetterPending,
    /// A node that was declared dead comes back to life by a heartbeat.
    HeartbeatRevivesDead,
    /// A lease is granted to a node that is dead or gone.
    GrantsToTheDead,
    /// An act is made on a notification that no longer stands as it was seen.
    ActWithoutLooking,
    /// A manual retry starts its numbers from 1, as a requeue does.
    RetryNumbersFromOne,
    /// A record is put although it is not as expected.
    PutIgnoresVersion,
    /// A job is started while a run of it is under way.
    TwoRunsOfAJob,
    /// A pass of retention goes on where the last one ended, so that what ended late stays for ever.
    PrunePassesOnce,
    /// A notification is removed although a dead letter names it.
    PruneForgetsDeadLetter,
    /// A notification or a dead letter is removed although an operation that is not finished names it.
    PruneForgetsOperation,
    /// A dead letter is soft-deleted, and later purged, while it is pending.
    PruneTakesPending,
    /// What is removed is still counted among what ended.
    PruneKeepsCounting,
    /// A failure group goes on counting a dead letter that was resolved.
    GroupKeepsResolved,
    /// Marking does not keep where its walk stands.
    MarkingForgetsCursor,
    /// A batch is staged that was staged before.
    StagedTwice,
    /// A batch is staged although it was staged since it was read.
    StagedUnseen,
    /// An operation forwards items that were not staged, for any node.
    ForwardWithoutFence,
    /// An operation that is stopped leaves an item behind.
    ItemLostAtCancel,
    /// A destination is changed although its row is not as expected.
    DestinationSwappedUnseen,
    /// A reservation under an inbound limit is told and not stored.
    ReservationForgotten,
}

impl Planted {
    /// Every bug that can be planted.
    pub const ALL: [Self; 31] = [
        Self::SettleWithoutFence,
        Self::LostDeadLetter,
        Self::ReclaimAlive,
        Self::ClaimIgnoresLease,
        Self::ClaimIgnoresDue,
        Self::AttemptRowLost,
        Self::RetryKeepsAttemptNumber,
        Self::CancelFlagIgnored,
        Self::TwinStoredTwice,
        Self::ReclaimWithoutEvent,
        Self::CounterDrift,
        Self::RequeueKeepsDeadLetterPending,
        Self::HeartbeatRevivesDead,
        Self::GrantsToTheDead,
        Self::ActWithoutLooking,
        Self::RetryNumbersFromOne,
        Self::PutIgnoresVersion,
        Self::TwoRunsOfAJob,
        Self::PrunePassesOnce,
        Self::PruneForgetsDeadLetter,
        Self::PruneForgetsOperation,
        Self::PruneTakesPending,
        Self::PruneKeepsCounting,
        Self::GroupKeepsResolved,
        Self::MarkingForgetsCursor,
        Self::StagedTwice,
        Self::StagedUnseen,
        Self::ForwardWithoutFence,
        Self::ItemLostAtCancel,
        Self::DestinationSwappedUnseen,
        Self::ReservationForgotten,
    ];
}
