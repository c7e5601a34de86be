//! Connections that have not shown a valid key: the first to be closed when there are as many connections as may be.
//!
//! Whoever has no key can open connections and leave them idle. They must not keep out a probe, or a caller with a key, so the
//! oldest of them makes room. Its own limits would close it too, but only after seconds in which a supervisor gives up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

/// The guests among the connections, in the order in which they were accepted.
#[derive(Debug, Default)]
pub(super) struct Guests {
    open: Mutex<Numbered>,
    /// Rings when a connection becomes a guest.
    came: Notify,
}

#[derive(Debug, Default)]
struct Numbered {
    last: u64,
    guests: BTreeMap<u64, Arc<Notify>>,
}

/// One connection. It begins as a guest and remains one until it shows a valid key.
#[derive(Debug)]
pub struct Guest {
    all: Arc<Guests>,
    number: u64,
    is_guest: AtomicBool,
    close: Arc<Notify>,
}

impl Guests {
    /// A connection that was just accepted.
    pub(super) fn enter(self: &Arc<Self>) -> Guest {
        let close = Arc::new(Notify::new());
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        open.guests.insert(number, close.clone());
        Guest { all: self.clone(), number, is_guest: AtomicBool::new(true), close }
    }

    /// Closes the guest that was accepted first, and returns whether there was one.
    pub(super) fn close_oldest(&self) -> bool {
        let oldest = self.lock().guests.pop_first();
        oldest.inspect(|(_, close)| close.notify_one()).is_some()
    }

    /// Waits until another connection becomes a guest.
    pub(super) async fn more(&self) {
        self.came.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.open.lock().expect("no code panics while it counts the guests")
    }
}

impl Guest {
    /// The connection has shown a valid key, and is not closed to make room any more.
    pub(super) fn is_known(&self) {
        // Seen in every request, so the lock is for the first one only.
        if self.is_guest.load(Ordering::Relaxed) && self.is_guest.swap(false, Ordering::Relaxed) {
            self.all.lock().guests.remove(&self.number);
        }
    }

    /// The connection has shown a key that is not valid, or none where one is needed.
    pub(super) fn is_unknown(&self) {
        if !self.is_guest.swap(true, Ordering::Relaxed) {
            self.all.lock().guests.insert(self.number, self.close.clone());
            self.all.came.notify_one();
        }
    }

    /// Waits until the connection has to make room for another.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.all.lock().guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn closes(guest: &Guest) -> bool {
        tokio::time::timeout(Duration::ZERO, guest.closed()).await.is_ok()
    }

    #[tokio::test]
    async fn the_oldest_without_a_key_makes_room_and_one_with_a_key_never_does() {
        let guests = Arc::<Guests>::default();
        let [known, gone, first, second] = [0; 4].map(|_| guests.enter());
        known.is_known();
        drop(gone);
        assert!(guests.close_oldest());
        assert!(closes(&first).await && !closes(&second).await);
        assert!(guests.close_oldest());
        assert!(closes(&second).await);
        assert!(!guests.close_oldest(), "a connection with a key is no guest");
        // A key that was revoked does not count any more.
        known.is_unknown();
        guests.more().await;
        assert!(guests.close_oldest());
        assert!(closes(&known).await);
    }

    #[test]
    fn what_has_ended_is_not_remembered() {
        let guests = Arc::<Guests>::default();
        for _ in 0..10 {
            let guest = guests.enter();
            guest.is_known();
            guest.is_unknown();
        }
        assert!(guests.lock().guests.is_empty());
    }
}
