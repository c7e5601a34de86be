//! A value that tasks can wait on.
//!
//! Unlike tokio's `watch`, waiters are woken in the order they came, so a simulated run can be replayed exactly.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// A small value whose changes can be waited for.
#[derive(Debug)]
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy + PartialEq> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().expect("no code panics while it changes a signal")
    }

    pub(crate) fn get(&self) -> T {
        *self.lock()
    }

    /// Changes the value; returns what it was.
    pub(crate) fn change(&self, change: impl FnOnce(T) -> T) -> T {
        let mut value = self.lock();
        let old = *value;
        *value = change(old);
        if *value != old {
            self.changed.notify_waiters();
        }
        old
    }

    /// Makes every waiter look again.
    pub(crate) fn ring(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `look` finds what it looks for.
    pub(crate) async fn wait<R>(&self, mut look: impl FnMut(T) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listening begins before the look, so that no change falls in between.
            changed.as_mut().enable();
            if let Some(found) = look(self.get()) {
                return found;
            }
            changed.await;
        }
    }
}
