//! Bugs with names, switched on by a test to show that the simulation would see them in the engine.
//!
//! Invariant: without the feature `testing` none of them can be switched on, and the compiler drops their branches.

use crate::engine::Shared;

/// A bug that `Settings::planted` switches on. Each is one small `if` where such a bug would be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A try starts without a look at how long the lease lasts.
    SendWithoutLease,
    /// An outcome that the store did not take is dropped.
    DropOutcome,
    /// A node never compares what the store says it holds with what it knows.
    NeverCompares,
    /// A node that stops gives back what is still being sent, as if it had not been.
    LeaveWhileSending,
    /// An attempt keeps its slot between two quick tries.
    KeepSlotBetweenTries,
    /// A quick try starts without a slot.
    TryWithoutSlot,
    /// What finds its destination closed counts as a failed attempt.
    ParkingSpends,
    /// A node sends the probe without asking the store.
    ProbesUnasked,
    /// Nothing holds back what waited for a destination that is back.
    NoRamp,
    /// Once open, a breaker is never probed.
    NeverProbes,
    /// A node sends although it knows that the breaker is open.
    SendsWhileOpen,
    /// Operations forward to destinations that are open or blocked.
    OperationsIgnoreBreakers,
    /// Each flow has the limits of its provider for itself.
    LimitOfEachFlow,
    /// What an inbound limit defers is sent at once.
    LostDeferral,
    /// The loop that accepts panics at the first arrival.
    PanicAtAccept,
}

impl Shared {
    #[cfg(feature = "testing")]
    pub(crate) fn has(&self, bug: Planted) -> bool {
        self.settings.planted == Some(bug)
    }

    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "the twin of a method that looks at the settings")]
    pub(crate) const fn has(&self, _bug: Planted) -> bool {
        false
    }
}
