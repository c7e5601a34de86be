//! Acts: what people and programs do to a notification outside of its delivery, and what each act changes.
//!
//! `effect` is the only place that decides an act. Stores load a standing and write the effect, and the engine asks the
//! same function whether an act is possible.

use crate::attempt::Progress;
use crate::dead_letter::DeadLetterStatus;
use crate::id::{DeadLetterId, NotificationId};
use crate::policy::is_past;
use crate::reason::Reason;
use crate::state::{Event, State};
use crate::time::Timestamp;

/// What can be done to a notification. Each leaves an event in its history, but for `Expire` and `Bury`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A waiting one ends as Cancelled.
    Cancel,
    /// A leased one is marked: a success still counts, a failure ends it as Cancelled. Its state stays.
    RequestCancel,
    /// A scheduled retry becomes due at once.
    RetryNow,
    /// A waiting one ends as Expired.
    Expire,
    /// A waiting one becomes a dead letter.
    Bury {
        /// The name of the dead letter.
        dead_letter: DeadLetterId,
        /// Why.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
    /// A dead letter's notification opens a new generation with attempts from 1; the dead letter is requeued.
    Requeue,
    /// A failed or dead one opens a new generation whose attempts go on counting; its pending dead letter, if there
    /// is one, is requeued.
    Retry,
    /// A dead letter is given up: Failed, `DISCARDED`, its dead letter cancelled and resolved now. The time of its end
    /// stays that of its death, for nothing was tried since.
    Discard,
    /// An edited copy is sent in place of a dead letter: Failed, `REPLACED`, its dead letter cancelled and resolved now.
    Replace {
        /// The edited copy.
        by: NotificationId,
    },
    /// A pending dead letter has outlived its period: Failed, its dead letter soft-deleted, with the status that it had.
    Delete,
    /// A discarded one, or one that was pending when it was soft-deleted, comes back: DeadLetter with the reason and the time
    /// that it had, its dead letter pending.
    Restore,
}

impl Act {
    /// The arrow that the act takes; none where the state stays as it is.
    pub const fn event(&self) -> Option<Event> {
        match self {
            Self::Cancel => Some(Event::Cancel),
            Self::RequestCancel | Self::RetryNow => None,
            Self::Expire => Some(Event::Expire),
            Self::Bury { .. } => Some(Event::Bury),
            Self::Requeue => Some(Event::Requeue),
            Self::Retry => Some(Event::Retry),
            Self::Discard | Self::Delete => Some(Event::Discard),
            Self::Replace { .. } => Some(Event::Replace),
            Self::Restore => Some(Event::Restore),
        }
    }

    /// The word in the history and in the audit; none for what the engine does by itself.
    pub const fn word(&self) -> Option<&'static str> {
        match self {
            Self::Cancel | Self::RequestCancel => Some("cancel"),
            Self::RetryNow => Some("retry-now"),
            Self::Expire | Self::Bury { .. } => None,
            Self::Requeue => Some("requeue"),
            Self::Retry => Some("retry"),
            Self::Discard => Some("discard"),
            Self::Delete => Some("delete"),
            Self::Replace { .. } => Some("edit-and-retry"),
            Self::Restore => Some("restore"),
        }
    }
}

/// How a notification stood when it was looked at: a change is made only while this is still so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its state.
    pub state: State,
    /// Its generation.
    pub generation: u32,
    /// Its running or next attempt; at the end the last one made.
    pub attempt: u32,
}

/// How a notification stands, as far as acts ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: State,
    pub progress: Progress,
    /// When the next attempt is due; none at the end.
    pub due: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
    /// Why it ended, if it ended without delivery.
    pub reason: Option<Reason>,
    /// The dead letter that it ended as, also if it was discarded since; none while the notification lives.
    pub dead_letter: Option<Letter>,
}

/// A dead letter, as far as acts ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub id: DeadLetterId,
    pub status: DeadLetterStatus,
    /// Whether it is soft-deleted.
    pub deleted: bool,
    /// Why the notification died.
    pub reason: Option<Reason>,
    pub text: String,
}

impl Standing {
    pub const fn seen(&self) -> Seen {
        let Progress { generation, attempt, .. } = self.progress;
        Seen { state: self.state, generation, attempt }
    }

    /// The dead letter and its status.
    pub fn letter(&self) -> Option<(DeadLetterId, DeadLetterStatus)> {
        self.dead_letter.as_ref().map(|letter| (letter.id, letter.status))
    }

    /// The dead letter with another status, if there is one.
    fn resolve(&self, status: DeadLetterStatus) -> Option<Resolution> {
        self.dead_letter.as_ref().map(|letter| Resolution { id: letter.id, status, deleted_at: None })
    }
}

/// How a notification ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Succeeded.
    Delivered,
    /// Cancelled.
    Cancelled,
    /// Expired.
    Expired,
    /// Failed, without a dead letter.
    Failed {
        /// Why.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
    /// DeadLetter: the row leaves the queue and the dead letter appears in the same transaction.
    Buried {
        /// The name of the new dead letter.
        dead_letter: DeadLetterId,
        /// Why.
        reason: Reason,
        /// Why, in words.
        text: String,
    },
}

impl Ending {
    /// Why, why in words, and the dead letter.
    pub fn parts(&self) -> (Option<Reason>, Option<&str>, Option<DeadLetterId>) {
        match self {
            Self::Delivered | Self::Cancelled | Self::Expired => (None, None, None),
            Self::Failed { reason, text } => (Some(*reason), Some(text), None),
            Self::Buried { dead_letter, reason, text } => (Some(*reason), Some(text), Some(*dead_letter)),
        }
    }

    /// The state that it leads to.
    pub const fn state(&self) -> State {
        match self {
            Self::Delivered => State::Succeeded,
            Self::Cancelled => State::Cancelled,
            Self::Expired => State::Expired,
            Self::Failed { .. } => State::Failed,
            Self::Buried { .. } => State::DeadLetter,
        }
    }
}

/// What an act changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It leaves the queue.
    End {
        ending: Ending,
        /// With the last attempt that was made.
        progress: Progress,
    },
    /// The node that holds it ends it after its attempt, unless that succeeds.
    MarkCancel,
    /// The next attempt is due then.
    MakeDue(Timestamp),
    /// A new generation is due at once.
    Reopen { progress: Progress, letter: Option<Resolution> },
    /// It ended in another way, at the same time.
    Amend { state: State, reason: Option<Reason>, text: Option<String>, letter: Option<Resolution> },
}

/// A dead letter gets another status. Pending means that it is not resolved any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolution {
    pub id: DeadLetterId,
    pub status: DeadLetterStatus,
    /// When it was soft-deleted; none if it is shown in lists.
    pub deleted_at: Option<Timestamp>,
}

impl Effect {
    /// The state that it leads to.
    pub const fn state(&self, from: State) -> State {
        match self {
            Self::End { ending, .. } => ending.state(),
            Self::MarkCancel | Self::MakeDue(_) => from,
            Self::Reopen { .. } => State::Pending,
            Self::Amend { state, .. } => *state,
        }
    }
}

/// Why an act is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The state does not allow it.
    State,
    /// It expired then, so a new generation would end before its first attempt.
    Expired(Timestamp),
}

/// Decides what the act changes.
pub fn effect(standing: &Standing, act: &Act, now: Timestamp) -> Result<Effect, Refused> {
    let state = standing.state;
    let waits = matches!(state, State::Pending | State::RetryScheduled);
    let end = |ending| {
        let attempt = standing.progress.attempt.saturating_sub(1);
        Ok(Effect::End { ending, progress: Progress { attempt, ..standing.progress } })
    };
    match act {
        Act::Cancel if waits => end(Ending::Cancelled),
        Act::Expire if waits => end(Ending::Expired),
        Act::Bury { dead_letter, reason, text } if waits => {
            end(Ending::Buried { dead_letter: *dead_letter, reason: *reason, text: text.clone() })
        }
        Act::RequestCancel if matches!(state, State::Processing | State::Retrying) => Ok(Effect::MarkCancel),
        Act::RetryNow if state == State::RetryScheduled => {
            Ok(Effect::MakeDue(standing.due.map_or(now, |due| due.min(now))))
        }
        Act::Requeue if state == State::DeadLetter => {
            reopen(standing, 0, standing.resolve(DeadLetterStatus::Requeued), now)
        }
        Act::Retry if matches!(state, State::DeadLetter | State::Failed) => {
            let pending = standing.letter().is_some_and(|(_, status)| status == DeadLetterStatus::Pending);
            let letter = standing.resolve(DeadLetterStatus::Requeued).filter(|_| pending);
            reopen(standing, standing.progress.attempt, letter, now)
        }
        Act::Discard if state == State::DeadLetter => Ok(Effect::Amend {
            state: State::Failed,
            reason: Some(Reason::Discarded),
            text: Some(Reason::Discarded.words().to_owned()),
            letter: standing.resolve(DeadLetterStatus::Cancelled),
        }),
        Act::Delete if state == State::DeadLetter => Ok(Effect::Amend {
            state: State::Failed,
            reason: Some(Reason::Discarded),
            text: Some("it was pending for longer than retention.purge_pending_after".to_owned()),
            letter: standing
                .resolve(DeadLetterStatus::Pending)
                .map(|letter| Resolution { deleted_at: Some(now), ..letter }),
        }),
        Act::Replace { by } if state == State::DeadLetter => Ok(Effect::Amend {
            state: State::Failed,
            reason: Some(Reason::Replaced),
            text: Some(replaced_text(*by)),
            letter: standing.resolve(DeadLetterStatus::Cancelled),
        }),
        Act::Restore => restore(standing),
        Act::Cancel
        | Act::RequestCancel
        | Act::RetryNow
        | Act::Expire
        | Act::Bury { .. }
        | Act::Requeue
        | Act::Retry
        | Act::Discard
        | Act::Replace { .. }
        | Act::Delete => Err(Refused::State),
    }
}

/// What `restore` does to a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restoration {
    /// Its notification takes the act `Restore`, and it is pending again.
    Revive,
    /// It is shown in lists again, resolved as it was. Its notification stays as it is.
    Show,
}

/// Decides what `restore` does. A soft-deleted one comes back as it was, so one that was discarded before it was deleted
/// is restored twice until it is pending.
pub const fn restoration(status: DeadLetterStatus, deleted: bool) -> Restoration {
    match status {
        DeadLetterStatus::Pending => Restoration::Revive,
        DeadLetterStatus::Requeued | DeadLetterStatus::Cancelled if deleted => Restoration::Show,
        DeadLetterStatus::Requeued | DeadLetterStatus::Cancelled => Restoration::Revive,
    }
}

/// The text of a replaced end. It names the edited copy, and `replaced_by` reads the name back.
fn replaced_text(by: NotificationId) -> String {
    format!("{REPLACED_BY}{by}")
}

const REPLACED_BY: &str = "replaced by ";

/// The edited copy that was sent in place of a notification which ended for this reason, with this text.
pub fn replaced_by(reason: Option<Reason>, text: Option<&str>) -> Option<NotificationId> {
    text.filter(|_| reason == Some(Reason::Replaced))?.strip_prefix(REPLACED_BY)?.parse().ok()
}

/// A new generation whose attempts are counted from `base`.
fn reopen(
    standing: &Standing,
    base: u32,
    letter: Option<Resolution>,
    now: Timestamp,
) -> Result<Effect, Refused> {
    if let Some(expires_at) = standing.expires_at.filter(|at| is_past(Some(*at), now)) {
        return Err(Refused::Expired(expires_at));
    }
    let generation = standing.progress.generation.saturating_add(1);
    let progress = Progress { generation, attempt: base.saturating_add(1), base };
    Ok(Effect::Reopen { progress, letter })
}

/// Only what was discarded, or soft-deleted while it was pending, can be restored, with the reason that it had.
fn restore(standing: &Standing) -> Result<Effect, Refused> {
    let was_discarded = standing.state == State::Failed && standing.reason == Some(Reason::Discarded);
    let letter = standing.dead_letter.as_ref().filter(|letter| match letter.status {
        DeadLetterStatus::Pending => letter.deleted,
        DeadLetterStatus::Cancelled => !letter.deleted,
        DeadLetterStatus::Requeued => false,
    });
    match letter {
        Some(letter) if was_discarded => Ok(Effect::Amend {
            state: State::DeadLetter,
            reason: letter.reason,
            text: Some(letter.text.clone()),
            letter: standing.resolve(DeadLetterStatus::Pending),
        }),
        Some(_) | None => Err(Refused::State),
    }
}

#[cfg(test)]
mod tests;
