//! What people and programs look at.

use std::sync::Arc;

use posthaste_core::attempt::{Attempt, Outcome, Progress};
use posthaste_core::channel::Channel;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{AuditFilter, Filter};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::reason::Reason;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::acts::AuditRow;
use super::slice::slice;
use super::waking::DueCursor;

slice! {
    /// Looks that change nothing.
    pub trait Reads {
        /// A notification as it stands, without its history.
        read Get: fn get(id: NotificationId) -> Option<View>;

        /// Several of them, each once, in id order. One that does not exist, or cannot be read, is left out.
        read GetMany: fn get_many(ids: Vec<NotificationId>) -> Vec<View>;

        /// Its attempts and events, oldest first.
        read History: fn history(id: NotificationId) -> History;

        /// Notifications, newest first. Looks at a bounded number of rows, so a page may be short and still have a next.
        read Page: fn page(
            filter: Filter,
            before: Option<NotificationId>,
            limit: usize,
        ) -> Page<View, NotificationId>;

        /// What waits for a retry, soonest first.
        read RetryQueue: fn retry_queue(
            filter: Filter,
            after: Option<DueCursor>,
            limit: usize,
        ) -> Page<View, DueCursor>;

        /// A dead letter with its payload and attempts.
        read DeadLetter: fn dead_letter(id: DeadLetterId) -> Option<DeadLetterView>;

        /// Dead letters, newest first.
        read DeadLetters: fn dead_letters(
            filter: Filter,
            before: Option<DeadLetterId>,
            limit: usize,
        ) -> Page<DeadLetterView, DeadLetterId>;

        /// Who did what, newest first; `before` is the number of the last row seen. Looks at a bounded number of rows.
        read Audit: fn audit(filter: AuditFilter, before: Option<i64>, limit: usize) -> Page<AuditRow, i64>;

        /// The kept counters, for one tenant or for all.
        read Stats: fn stats(tenant: Option<Tenant>, now: Timestamp) -> Stats;

        /// The tenants that have ever sent something, by name (as bytes), this one and those after it.
        read Tenants: fn tenants(from: Option<Tenant>, limit: usize) -> Vec<Tenant>;
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins, if there may be one.
    pub next: Option<C>,
}

/// A notification as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// What was accepted.
    pub notification: Arc<Notification>,
    /// Its state.
    pub state: State,
    /// Where it stands in its attempts.
    pub progress: Progress,
    /// When the next attempt is due, while it lives.
    pub due: Option<Timestamp>,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// What the last attempt said if it failed, of whichever generation.
    pub last_error: Option<LastError>,
    /// How it ended.
    pub end: Option<End>,
}

impl View {
    /// How many attempts were made, counted as `Progress::attempt` is.
    pub const fn attempts_made(&self) -> u32 {
        // Of what lives, `attempt` is the running or next one.
        let not_made = if self.end.is_some() { 0 } else { 1 };
        self.progress.attempt.saturating_sub(not_made)
    }

    /// Why it ended, in words. Age and expiry mostly end what is not being sent, so the stored text has no error then: the
    /// last attempt has it.
    pub fn why(&self) -> Option<&str> {
        let end = self.end.as_ref()?;
        let by_time = self.state == State::Expired || end.reason == Some(Reason::MaxAgeExceeded);
        let error = self.last_error.as_ref().and_then(|last| last.error.as_deref());
        let text = || end.text.as_deref().or_else(|| end.reason.map(Reason::words));
        error.filter(|_| by_time).or_else(text)
    }
}

/// What a failed attempt said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    /// The error in words.
    pub error: Option<String>,
    /// The status code, if there was an answer.
    pub status_code: Option<u16>,
}

impl LastError {
    /// None if there is no attempt or it delivered.
    pub fn of(attempt: Option<&Attempt>) -> Option<Self> {
        let failed = attempt.filter(|attempt| attempt.outcome != Outcome::Delivered)?;
        Some(Self { error: failed.error.clone(), status_code: failed.status_code })
    }
}

/// How a notification ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Why, if it was not delivered.
    pub reason: Option<Reason>,
    /// Why, in words.
    pub text: Option<String>,
    /// The dead letter that it ended as, also where that was discarded since.
    pub dead_letter: Option<DeadLetterId>,
    /// How the last attempt failed; none if it delivered or there was none. Not known, and none, where a node of an older
    /// version recorded the end.
    pub failure_type: Option<FailureType>,
    /// The status code of the last attempt, known as `failure_type` is.
    pub status_code: Option<u16>,
}

/// The past of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// Attempts in the order of generation and number.
    pub attempts: Vec<Attempt>,
    /// What else happened, in its order.
    pub events: Vec<HistoryEvent>,
}

/// Something that happened beside the attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEvent {
    /// When.
    pub at: Timestamp,
    /// What: `interrupted`, or the word of an act.
    pub word: String,
    /// Who, where a person or program did it.
    pub actor: Option<String>,
    /// In which generation.
    pub generation: u32,
    /// At which attempt.
    pub attempt: u32,
}

/// A dead letter with its own snapshot of what was to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetterView {
    /// Its name.
    pub id: DeadLetterId,
    /// The notification as it was accepted, kept with the dead letter.
    pub notification: Arc<Notification>,
    /// Why.
    pub reason: Reason,
    /// Why, in words.
    pub text: String,
    /// The attempts of the generation that died, without responses.
    pub attempts: Vec<Attempt>,
    /// Where it stands.
    pub status: DeadLetterStatus,
    /// When it died: the time that its name carries, so that lists by time are lists by name.
    pub created_at: Timestamp,
    /// When somebody acted on it.
    pub resolved_at: Option<Timestamp>,
    /// Who did.
    pub resolved_by: Option<String>,
    /// How the last of its attempts failed; none if it delivered or there was none.
    pub failure_type: Option<FailureType>,
    /// The status code of the last of its attempts.
    pub status_code: Option<u16>,
    /// What groups it with dead letters of the same cause; none where it was not computed.
    pub fingerprint: Option<[u8; 16]>,
    /// When it was deleted, if it was: it is kept for a while.
    pub deleted_at: Option<Timestamp>,
    /// When it was last restored: its period counts from then.
    pub restored_at: Option<Timestamp>,
}

impl DeadLetterView {
    /// What the last of its attempts said, if it failed.
    pub fn last_error(&self) -> Option<LastError> {
        LastError::of(self.attempts.last())
    }

    /// Why, in words: the last error where it died of its age, as `View::why` has it.
    pub fn why(&self) -> &str {
        let error = self.attempts.last().and_then(|last| last.error.as_deref());
        error.filter(|_| self.reason == Reason::MaxAgeExceeded).unwrap_or(&self.text)
    }
}

/// The kept counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// For each channel that has any.
    pub channels: Vec<(Channel, ChannelStats)>,
    /// When the longest waiting row was due, among those that are due and nobody holds. Of one tenant it is exact if the
    /// tenant has up to 500 flows, or if that row is among the 1,000 longest due rows of all tenants; else it is the oldest
    /// row of 500 of its flows, so that the cost does not grow with the number of flows.
    pub oldest_due: Option<Timestamp>,
}

/// The kept counters of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelStats {
    /// Pending.
    pub queued: u64,
    /// Processing and Retrying: what nodes hold. Up to 5,000 held rows of all tenants are counted; first attempts beyond
    /// them still count as queued.
    pub sending: u64,
    /// RetryScheduled and Retrying.
    pub in_retry: u64,
    /// Dead letters that nobody has acted on.
    pub in_dead_letter: u64,
    /// Ended as Succeeded in the last 24 hours, by whole hours.
    pub delivered_24h: u64,
    /// Ended in any way in the last 24 hours, by whole hours.
    pub ended_24h: u64,
}
