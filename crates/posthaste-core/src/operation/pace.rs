//! How fast an operation forwards: at the pace of each destination.

use std::time::Duration;

use crate::flow::Gate;

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

    /// How many more may be added to those that wait. What goes to a destination that is open or blocked waits in the operation,
    /// but for the one that is to be the probe if nothing else can be.
    pub fn room(self, gate: Gate, waiting: u32) -> u32 {
        match gate {
            Gate::Closed | Gate::Ramp(_) => self.0.saturating_sub(waiting),
            Gate::Probe => u32::from(waiting == 0),
            Gate::Open => 0,
        }
    }
}

/// If this many notifications were accepted during a turn, the rest is as long as the turn.
const BUSY_TURN: u32 = 100;

/// The rest after a turn of the operations of a node, in which so many new notifications were accepted. The more arrive, the more of
/// the store's time is left to them, at most half.
pub fn rest(took: Duration, accepted: u64) -> Duration {
    took.saturating_mul(u32::try_from(accepted).unwrap_or(u32::MAX).min(BUSY_TURN)) / BUSY_TURN
}

/// Deals out a chunk to flows that have so much room: each gets its share, and what some do not need goes to the others.
pub fn shares(rooms: &[u32], chunk: u32) -> Vec<u32> {
    let takers = u32::try_from(rooms.iter().filter(|room| **room > 0).count()).unwrap_or(u32::MAX);
    let Some(fair) = chunk.checked_div(takers) else { return vec![0; rooms.len()] };
    let mut left = chunk;
    let mut take = |most: u32| {
        let taken = most.min(left);
        left -= taken;
        taken
    };
    let mut shares: Vec<u32> = rooms.iter().map(|room| take((*room).min(fair.max(1)))).collect();
    for (share, room) in shares.iter_mut().zip(rooms) {
        *share += take(room - *share);
    }
    shares
}

impl Default for Window {
    fn default() -> Self {
        Self(Self::LEAST * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_after_a_turn_grows_with_what_arrives_up_to_the_length_of_the_turn() {
        let turn = Duration::from_millis(10);
        for (accepted, rest_ms) in [(0, 0), (1, 0), (50, 5), (100, 10), (10_000, 10), (u64::MAX, 10)] {
            assert_eq!(rest(turn, accepted).as_millis(), rest_ms, "{accepted}");
        }
        assert!(rest(Duration::MAX, u64::MAX) <= Duration::MAX);
    }
}
