//! Known bugs that a test switches on to see that the conformance suite catches them, and readers that a test keeps busy.

/// A bug by its name. Without the feature `planted` nothing can switch one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A settlement is taken from anybody while some node holds the row.
    SettleWithoutFence,
    /// The row leaves the queue as a dead letter, and no dead letter appears.
    LostDeadLetter,
    /// A claim hands out rows that are not due yet.
    ClaimIgnoresDue,
    /// A lease that is taken back leaves the count of interruptions as it was.
    ReclaimForgetsInterruption,
    /// A settlement that did not know of a request to cancel is recorded all the same.
    CancelFlagIgnored,
    /// The kept counters forget that a delivered notification left the queue.
    CounterDrift,
    /// A repeated request is stored a second time.
    TwinStoredTwice,
    /// A release of one grant gives back everything that the node holds.
    ReleaseTakesAll,
    /// A node that is alive loses its leases to whoever asks.
    ReclaimFromTheLiving,
    /// A lease is granted to a node that is dead or gone.
    GrantsToTheDead,
    /// An act is done whatever became of the notification since it was seen.
    ActWithoutLooking,
    /// The thread that writes panics at the first arrival. No answer tells of it, so it is not among `ALL`.
    WriterPanics,
}

impl Planted {
    /// Every planted bug that the conformance suite sees.
    pub const ALL: [Self; 11] = [
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
    ];
}

/// Readers that do nothing else until this is dropped.
#[cfg(feature = "planted")]
pub struct Occupied {
    _held: Vec<std::sync::mpsc::Sender<()>>,
}

#[cfg(feature = "planted")]
impl super::SqliteStore {
    /// Occupies every reader of lists.
    pub async fn occupy_lists(&self) -> Occupied {
        let readers = self.readers.as_ref().expect("the threads run until the drop");
        Occupied { _held: readers.lists.occupy().await }
    }

    /// Occupies every reader but those of the engine.
    pub async fn occupy_people(&self) -> Occupied {
        let readers = self.readers.as_ref().expect("the threads run until the drop");
        let mut held = readers.lists.occupy().await;
        held.extend(readers.keys.occupy().await);
        Occupied { _held: held }
    }
}
