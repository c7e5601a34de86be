//! Bugs that tests switch on to check that the conformance suite detects them, and readers that tests keep
//! busy.

/// Without the feature `planted` no bug can be switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A settlement under any fence is applied while some node holds the row.
    SettleWithoutFence,
    /// The row leaves the queue as a dead letter, but no dead letter is created.
    LostDeadLetter,
    /// A claim returns rows that are not due yet.
    ClaimIgnoresDue,
    /// A reclaimed row does not count an interruption.
    ReclaimForgetsInterruption,
    /// A settlement that did not see a request to cancel is applied.
    CancelFlagIgnored,
    /// The counters are not reduced when a delivered notification leaves the queue.
    CounterDrift,
    /// A repeated request is stored a second time.
    TwinStoredTwice,
    /// A release of one grant releases everything that the node holds.
    ReleaseTakesAll,
    /// The leases of a live node can be reclaimed.
    ReclaimFromTheLiving,
    /// A lease is granted to a dead or departed node.
    GrantsToTheDead,
    /// An act is applied although the notification has changed since it was seen.
    ActWithoutLooking,
    /// A failure group goes on counting a dead letter that was resolved.
    GroupKeepsResolved,
    /// An operation forwards for a node that does not run it.
    ForwardWithoutFence,
    /// A destination is changed although its row is not as expected.
    DestinationSwappedUnseen,
    /// A reservation under an inbound limit is told and not stored.
    ReservationForgotten,
    /// The writer panics at the first arrival. No result reveals it, so it is not in `ALL`.
    WriterPanics,
}

impl Planted {
    /// The bugs that the conformance suite detects.
    pub const ALL: [Self; 15] = [
        Self::SettleWithoutFence,
        Self::LostDeadLetter,
        Self::ClaimIgnoresDue,
        Self::ReclaimForgetsInterruption,
        Self::CancelFlagIgnored,
        Self::CounterDrift,
        Self::TwinStoredTwice,
        Self::ReleaseTakesAll,
        Self::ReclaimFromTheLiving,
        Self::GrantsToTheDead,
        Self::ActWithoutLooking,
        Self::GroupKeepsResolved,
        Self::ForwardWithoutFence,
        Self::DestinationSwappedUnseen,
        Self::ReservationForgotten,
    ];
}

/// Occupies readers until it is dropped.
#[cfg(feature = "planted")]
pub struct Occupied {
    _held: Vec<std::sync::mpsc::Sender<()>>,
}

#[cfg(feature = "planted")]
impl super::SqliteStore {
    pub async fn occupy_lists(&self) -> Occupied {
        let readers = self.readers.as_ref().expect("the threads run until the drop");
        Occupied { _held: readers.lists.occupy().await }
    }

    /// Occupies all readers except those of the engine.
    pub async fn occupy_people(&self) -> Occupied {
        let readers = self.readers.as_ref().expect("the threads run until the drop");
        let mut held = readers.lists.occupy().await;
        held.extend(readers.keys.occupy().await);
        Occupied { _held: held }
    }
}
