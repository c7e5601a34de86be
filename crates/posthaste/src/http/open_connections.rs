//! The open connections, and which of them is closed to make room for a new one when there are as many as
//! there may be.
//!
//! Any client can open connections and leave them idle, with a key or without. It must not keep out a probe
//! or another caller. The idle timeout would close such connections too, but a supervisor gives up sooner.
//!
//! Invariant: a connection is never closed to make room while a request of it is being answered.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::phase::Phase;

/// The part of all connections that those without a valid key may have even if the others are idle.
const SHARE_WITHOUT_KEY: usize = 8;
/// How many idle connections one search remembers, so that not every new connection costs a search.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(super) struct OpenConnections {
    started: Instant,
    /// As many connections without a key are not closed while one with a key is idle.
    share: usize,
    lists: Mutex<Lists>,
    /// Whether a new connection waits because nothing could be closed for it.
    is_full: AtomicBool,
    closable: Notify,
}

#[derive(Debug, Default)]
struct Lists {
    last: u64,
    /// In the order in which they were accepted.
    without_key: BTreeMap<u64, Arc<State>>,
    with_key: BTreeMap<u64, Arc<State>>,
    /// Those with a key that were idle for longest at the last search, the longest idle one last.
    longest_idle: Vec<(u64, Arc<State>)>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    close: Notify,
}

/// One open connection.
#[derive(Debug)]
pub struct OpenConnection {
    all: Arc<OpenConnections>,
    number: u64,
    has_key: AtomicBool,
    state: Arc<State>,
}

impl OpenConnections {
    /// At most so many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            share: (most / SHARE_WITHOUT_KEY).max(1),
            lists: Mutex::default(),
            is_full: AtomicBool::new(false),
            closable: Notify::new(),
        })
    }

    /// A connection that was just accepted.
    pub(super) fn add(self: &Arc<Self>) -> OpenConnection {
        let state = Arc::new(State { phase: Phase::new(self.started), close: Notify::new() });
        self.is_full.store(false, Ordering::SeqCst);
        let mut lists = self.lock();
        lists.last += 1;
        let number = lists.last;
        lists.without_key.insert(number, state.clone());
        OpenConnection { all: self.clone(), number, has_key: AtomicBool::new(false), state }
    }

    /// Closes one connection for another, and returns whether there was one that could be closed. If not,
    /// `closable` tells when to try again.
    pub(super) fn close_one(&self) -> bool {
        self.is_full.store(true, Ordering::SeqCst);
        let mut lists = self.lock();
        let closed = lists.close_without_key_beyond(self.share)
            || lists.close_longest_idle()
            || lists.close_without_key_beyond(0)
            || lists.close_without_key(Phase::close_unread);
        if closed {
            self.is_full.store(false, Ordering::SeqCst);
        }
        closed
    }

    /// Waits until another connection may be closable.
    pub(super) async fn closable(&self) {
        self.closable.notified().await;
    }

    fn tell_if_full(&self) {
        if self.is_full.load(Ordering::SeqCst) {
            self.closable.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().expect("no code panics while it changes these lists")
    }
}

impl Lists {
    fn close_without_key_beyond(&mut self, share: usize) -> bool {
        self.without_key.len() > share && self.close_without_key(Phase::close_between_requests)
    }

    /// Closes the connection without a key that was accepted first, of those for which `close` agrees.
    fn close_without_key(&mut self, close: impl Fn(&Phase) -> bool) -> bool {
        let Some((&number, state)) = self.without_key.iter().find(|(_, state)| close(&state.phase)) else {
            return false;
        };
        state.close.notify_one();
        self.without_key.remove(&number);
        true
    }

    /// Closes the connection with a key that has been idle for longest.
    fn close_longest_idle(&mut self) -> bool {
        // What became idle after the last search has been idle for a shorter time than what that search
        // found.
        self.close_remembered() || {
            self.search();
            self.close_remembered()
        }
    }

    fn close_remembered(&mut self) -> bool {
        while let Some((since, state)) = self.longest_idle.pop() {
            if state.phase.close_idle(since) {
                state.close.notify_one();
                return true;
            }
        }
        false
    }

    fn search(&mut self) {
        let idle = self.with_key.values().filter_map(|state| Some((state.phase.idle_since()?, state)));
        let mut idle: Vec<_> = idle.map(|(since, state)| (since, state.clone())).collect();
        idle.sort_by_key(|(since, _)| Reverse(*since));
        self.longest_idle = idle.split_off(idle.len().saturating_sub(REMEMBERED));
    }
}

impl OpenConnection {
    pub(super) fn phase(&self) -> &Phase {
        &self.state.phase
    }

    /// The connection has shown a valid key.
    pub(crate) fn has_valid_key(&self) {
        // Seen in every request, so the lock is for the first one only.
        if !self.has_key.load(Ordering::Relaxed) && !self.has_key.swap(true, Ordering::Relaxed) {
            let mut lists = self.all.lock();
            if let Some(state) = lists.without_key.remove(&self.number) {
                lists.with_key.insert(self.number, state);
            }
        }
    }

    /// The connection has shown a key that is not valid, or none where one is needed.
    pub(super) fn has_no_valid_key(&self) {
        if self.has_key.load(Ordering::Relaxed) && self.has_key.swap(false, Ordering::Relaxed) {
            let mut lists = self.all.lock();
            if let Some(state) = lists.with_key.remove(&self.number) {
                lists.without_key.insert(self.number, state);
            }
        }
    }

    /// Everything that was written has left.
    pub(super) fn flushed(&self) {
        if self.phase().flushed() {
            self.all.tell_if_full();
        }
    }

    /// The answer begins, or is held back. A connection without a key can be closed from here on.
    pub(super) fn sending(&self) {
        self.phase().sending();
        self.all.tell_if_full();
    }

    /// Waits until the connection has to make room for another.
    pub(super) async fn closed(&self) {
        self.state.close.notified().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut lists = self.all.lock();
        lists.without_key.remove(&self.number);
        lists.with_key.remove(&self.number);
        lists.longest_idle.retain(|(_, state)| !Arc::ptr_eq(state, &self.state));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn closes(connection: &OpenConnection) -> bool {
        tokio::time::timeout(Duration::ZERO, connection.closed()).await.is_ok()
    }

    /// The connection has answered a request, with a valid key or without.
    async fn answers(connection: &OpenConnection, with_key: bool) {
        // Each becomes idle at a time of its own.
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(connection.phase().request());
        match with_key {
            true => connection.has_valid_key(),
            false => connection.has_no_valid_key(),
        }
        connection.sending();
        connection.phase().sent();
        connection.flushed();
    }

    #[tokio::test(start_paused = true)]
    async fn those_without_a_key_make_room_first_but_for_their_share() {
        let all = OpenConnections::new(16);
        let [known, gone, first, second, third] = [0; 5].map(|_| all.add());
        answers(&known, true).await;
        drop(gone);
        assert!(all.close_one());
        assert!(closes(&first).await && !closes(&second).await);
        // Two are an eighth of sixteen.
        assert!(all.close_one());
        assert!(closes(&known).await);
        assert!(all.close_one() && all.close_one());
        assert!(closes(&second).await && closes(&third).await);
        assert!(!all.close_one());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_one_makes_room_and_one_with_a_request_never_does() {
        let all = OpenConnections::new(4);
        let [first, second, third, busy] = [0; 4].map(|_| all.add());
        for connection in [&busy, &first, &second, &third, &first] {
            answers(connection, true).await;
        }
        assert!(busy.phase().request());
        assert!(all.close_one());
        assert!(closes(&second).await);
        assert!(!second.phase().request(), "a request that comes too late is not answered");
        // What was found idle may be busy by now: its next request has begun, or its answer has not left.
        third.phase().received();
        assert!(first.phase().request());
        first.sending();
        first.phase().sent();
        assert!(!all.close_one());
        first.flushed();
        all.closable().await;
        assert!(all.close_one());
        assert!(closes(&first).await && !closes(&third).await && !closes(&busy).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_key_that_does_not_read_its_answer_makes_room_last() {
        let all = OpenConnections::new(4);
        let [unread, known, upgraded] = [0; 3].map(|_| all.add());
        assert!(unread.phase().request() && upgraded.phase().request());
        upgraded.phase().upgraded();
        unread.sending();
        answers(&known, true).await;
        assert!(all.close_one());
        assert!(closes(&known).await);
        assert!(all.close_one());
        assert!(closes(&unread).await);
        assert!(!all.close_one(), "an upgraded connection stays");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_not_remembered() {
        let all = OpenConnections::new(4);
        for with_key in [true, false, true] {
            let connections = [0; 3].map(|_| all.add());
            for connection in &connections {
                answers(connection, with_key).await;
            }
            assert!(all.close_one());
        }
        let lists = all.lock();
        assert!(lists.without_key.is_empty() && lists.with_key.is_empty() && lists.longest_idle.is_empty());
    }
}
