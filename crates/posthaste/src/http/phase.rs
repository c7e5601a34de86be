//! What a connection is doing, and since when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::server::Limits;

/// The phase of one connection: three bits and microseconds since the server started, in one word.
#[derive(Debug)]
pub(super) struct Phase {
    started: Instant,
    word: AtomicU64,
}

/// The low bits of the word that hold the phase; the rest is its start in microseconds.
const PHASE_BITS: u32 = 3;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;

impl Phase {
    /// Nothing has come yet, or a head is coming.
    const HEAD: u64 = 0;
    /// A request is being answered.
    const ANSWER: u64 = 1;
    /// The body of an answer is on its way, with or without an end.
    const SENDING: u64 = 2;
    /// The body is complete, but some of it may not have left yet.
    const SENT: u64 = 3;
    /// The answer has left, and no further request has begun.
    const IDLE: u64 = 4;
    /// The connection speaks another protocol.
    const UPGRADED: u64 = 5;
    /// The connection is being closed to make room. No other phase follows.
    const CLOSING: u64 = 6;

    pub(super) fn new(started: Instant) -> Self {
        let phase = Self { started, word: AtomicU64::new(0) };
        phase.word.store(phase.now(Self::HEAD), Ordering::Relaxed);
        phase
    }

    fn now(&self, phase: u64) -> u64 {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX >> PHASE_BITS);
        micros << PHASE_BITS | phase
    }

    /// Enters a phase if `from` accepts the present one, and returns whether it did.
    fn enter(&self, phase: u64, from: impl Fn(u64) -> bool) -> bool {
        let next = self.now(phase);
        let entered = self.word.try_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (word & PHASE_MASK != Self::CLOSING && from(word & PHASE_MASK)).then_some(next)
        });
        entered.is_ok()
    }

    /// A request has come. False if the connection is being closed: then the request must not be answered.
    pub(super) fn request(&self) -> bool {
        self.enter(Self::ANSWER, |_| true)
    }

    /// The answer begins, or a stream has made progress.
    pub(super) fn sending(&self) {
        self.enter(Self::SENDING, |_| true);
    }

    /// The body of the answer is complete.
    pub(super) fn sent(&self) {
        self.enter(Self::SENT, |phase| phase == Self::SENDING);
    }

    /// Everything that was written has left. Returns whether the connection is idle by that.
    pub(super) fn flushed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PHASE_MASK == Self::SENT
            && self.enter(Self::IDLE, |phase| phase == Self::SENT)
    }

    /// Bytes came: after an answer they are the head of the next request.
    pub(super) fn received(&self) {
        if self.word.load(Ordering::Relaxed) & PHASE_MASK == Self::IDLE {
            self.enter(Self::HEAD, |phase| phase == Self::IDLE);
        }
    }

    pub(super) fn upgraded(&self) {
        self.enter(Self::UPGRADED, |_| true);
    }

    /// Since when the connection is idle, as a number to order and to close it by.
    pub(super) fn idle_since(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        (word & PHASE_MASK == Self::IDLE).then_some(word)
    }

    /// Closes a connection if it has been idle since then, and returns whether it did.
    pub(super) fn close_idle(&self, since: u64) -> bool {
        let closing = since & !PHASE_MASK | Self::CLOSING;
        self.word.compare_exchange(since, closing, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Closes a connection that is not in the middle of a request: it is idle, or its head is not complete.
    pub(super) fn close_between_requests(&self) -> bool {
        self.enter(Self::CLOSING, |phase| matches!(phase, Self::IDLE | Self::HEAD))
    }

    /// Closes a connection whose client has not read its answer yet.
    pub(super) fn close_unread(&self) -> bool {
        self.enter(Self::CLOSING, |phase| matches!(phase, Self::SENDING | Self::SENT))
    }

    /// Whether the connection has been in this phase for longer than it may.
    pub(super) fn is_over(&self, limits: &Limits) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let limit = match word & PHASE_MASK {
            Self::ANSWER => limits.answer,
            Self::HEAD => limits.head,
            _ => limits.idle,
        };
        self.started.elapsed().saturating_sub(Duration::from_micros(word >> PHASE_BITS)) > limit
    }
}
