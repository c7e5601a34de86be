//! The nine states of a notification, and all transitions between them.

use std::fmt;

use serde::Serialize;

/// Names and codes are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum State {
    /// Waits for the first attempt of a generation.
    Pending = 0,
    /// The first attempt of a generation is running.
    Processing = 1,
    Succeeded = 2,
    /// Waits for a retry.
    RetryScheduled = 3,
    /// A retry is running.
    Retrying = 4,
    /// Ended without a dead letter.
    Failed = 5,
    /// Ended, kept for a user to act on.
    DeadLetter = 6,
    Cancelled = 7,
    /// `expiresAt` has passed.
    Expired = 8,
}

/// What can happen to a notification. Each event is one transition, or one per lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A node leased it.
    Claim,
    /// Given back unsent, or its lease was reclaimed.
    Release,
    Deliver,
    /// An attempt failed, and there will be another.
    ScheduleRetry,
    /// Becomes a dead letter.
    Bury,
    /// Ends without a dead letter.
    Fail,
    Cancel,
    Expire,
    /// A dead letter starts a new generation; attempts count from 1.
    Requeue,
    /// A new generation starts; attempts keep counting.
    Retry,
    /// A dead letter is given up.
    Discard,
    /// A dead letter is replaced by an edited notification.
    Replace,
    /// A discarded notification becomes a dead letter again.
    Restore,
    /// A hard bounce arrived after the delivery.
    Bounce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("state: a notification that is {from} cannot {event}")]
pub struct NoArrow {
    pub from: State,
    pub event: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stateCode: {code} is not between 0 and 8")]
pub struct UnknownState {
    pub code: u8,
}

impl State {
    /// In the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Processing,
        Self::Succeeded,
        Self::RetryScheduled,
        Self::Retrying,
        Self::Failed,
        Self::DeadLetter,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The only transitions that exist.
    pub const fn next(self, event: Event) -> Result<Self, NoArrow> {
        use State::{
            Cancelled, DeadLetter, Expired, Failed, Pending, Processing, RetryScheduled, Retrying, Succeeded,
        };
        match (self, event) {
            (Pending, Event::Claim) => Ok(Processing),
            (RetryScheduled, Event::Claim) => Ok(Retrying),
            (Processing, Event::Release) => Ok(Pending),
            (Retrying, Event::Release) => Ok(RetryScheduled),
            (Processing | Retrying, Event::Deliver) => Ok(Succeeded),
            (Processing | Retrying, Event::ScheduleRetry) => Ok(RetryScheduled),
            (Processing | Retrying, Event::Fail) => Ok(Failed),
            (Pending | Processing | RetryScheduled | Retrying, Event::Bury) => Ok(DeadLetter),
            (Pending | Processing | RetryScheduled | Retrying, Event::Cancel) => Ok(Cancelled),
            (Pending | Processing | RetryScheduled | Retrying, Event::Expire) => Ok(Expired),
            (DeadLetter, Event::Requeue) | (DeadLetter | Failed, Event::Retry) => Ok(Pending),
            (DeadLetter, Event::Discard | Event::Replace) => Ok(Failed),
            (Failed, Event::Restore) | (Succeeded, Event::Bounce) => Ok(DeadLetter),
            (from, event) => Err(NoArrow { from, event }),
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Result<Self, UnknownState> {
        Self::ALL.get(usize::from(code)).copied().ok_or(UnknownState { code })
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::RetryScheduled => "retryScheduled",
            Self::Retrying => "retrying",
            Self::Failed => "failed",
            Self::DeadLetter => "deadLetter",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// The status of S3, which has fewer values.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Pending => "queued",
            Self::Processing => "sending",
            Self::Succeeded => "delivered",
            Self::RetryScheduled | Self::Retrying => "retrying",
            Self::Failed | Self::DeadLetter => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// The text for people (S1), with the current or next attempt and the maximum.
    pub fn words(self, attempt: u32, of: u32) -> String {
        match self {
            Self::Pending => "Queued".to_owned(),
            Self::Processing => "Sending".to_owned(),
            Self::Succeeded => "Delivered".to_owned(),
            Self::RetryScheduled | Self::Retrying => format!("Retrying (attempt {attempt} of {of})"),
            Self::Failed => "Permanently Failed".to_owned(),
            Self::DeadLetter => "Failed (moved to dead letter queue)".to_owned(),
            Self::Cancelled => "Cancelled".to_owned(),
            Self::Expired => "Expired".to_owned(),
        }
    }

    /// Whether only an act of a user can change it.
    pub const fn is_end(self) -> bool {
        match self {
            Self::Pending | Self::Processing | Self::RetryScheduled | Self::Retrying => false,
            Self::Succeeded | Self::Failed | Self::DeadLetter | Self::Cancelled | Self::Expired => true,
        }
    }

    pub const fn is_leased(self) -> bool {
        matches!(self, Self::Processing | Self::Retrying)
    }

    /// The state of a queued notification. It is not stored, but derived from lane and lease.
    pub const fn live(lane: Lane, leased: Leased) -> Self {
        match (lane, leased) {
            (Lane::Main, Leased::No) => Self::Pending,
            (Lane::Main, Leased::Yes) => Self::Processing,
            (Lane::Retry, Leased::No) => Self::RetryScheduled,
            (Lane::Retry, Leased::Yes) => Self::Retrying,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Claim => "be claimed",
            Self::Release => "be released",
            Self::Deliver => "be delivered",
            Self::ScheduleRetry => "be scheduled for a retry",
            Self::Bury => "become a dead letter",
            Self::Fail => "fail",
            Self::Cancel => "be cancelled",
            Self::Expire => "expire",
            Self::Requeue => "be requeued",
            Self::Retry => "be retried",
            Self::Discard => "be discarded",
            Self::Replace => "be replaced",
            Self::Restore => "be restored",
            Self::Bounce => "bounce",
        })
    }
}

/// First attempts and retries have separate lanes, so that retries never starve new notifications (S2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Lane {
    Main = 0,
    Retry = 1,
}

impl Lane {
    pub const ALL: [Self; 2] = [Self::Main, Self::Retry];

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Main),
            1 => Some(Self::Retry),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leased {
    No,
    Yes,
}

#[cfg(test)]
mod tests {
    use super::State::*;
    use super::*;

    const EVENTS: [Event; 14] = [
        Event::Claim,
        Event::Release,
        Event::Deliver,
        Event::ScheduleRetry,
        Event::Bury,
        Event::Fail,
        Event::Cancel,
        Event::Expire,
        Event::Requeue,
        Event::Retry,
        Event::Discard,
        Event::Replace,
        Event::Restore,
        Event::Bounce,
    ];

    /// Section 2 of the specification, written down a second time.
    const ARROWS: [(State, &[State]); 9] = [
        (Pending, &[Processing, Cancelled, Expired, DeadLetter]),
        (Processing, &[Succeeded, RetryScheduled, DeadLetter, Failed, Expired, Cancelled, Pending]),
        (Succeeded, &[DeadLetter]),
        (RetryScheduled, &[Retrying, Cancelled, Expired, DeadLetter]),
        (Retrying, &[Succeeded, RetryScheduled, DeadLetter, Failed, Expired, Cancelled]),
        (Failed, &[Pending, DeadLetter]),
        (DeadLetter, &[Pending, Failed]),
        (Cancelled, &[]),
        (Expired, &[]),
    ];

    #[test]
    fn the_arrows_are_those_of_the_specification_and_no_other() {
        for (from, wanted) in ARROWS {
            let mut reached: Vec<State> = EVENTS.iter().filter_map(|event| from.next(*event).ok()).collect();
            reached.sort();
            reached.dedup();
            let mut wanted = wanted.to_vec();
            wanted.sort();
            assert_eq!(reached, wanted, "out of {from}");
        }
    }

    #[test]
    fn an_end_is_left_only_by_the_named_acts() {
        let acts =
            [Event::Requeue, Event::Retry, Event::Discard, Event::Replace, Event::Restore, Event::Bounce];
        for from in State::ALL.into_iter().filter(|state| state.is_end()) {
            for event in EVENTS.into_iter().filter(|event| !acts.contains(event)) {
                assert_eq!(from.next(event), Err(NoArrow { from, event }));
            }
        }
    }

    #[test]
    fn a_change_without_an_arrow_says_what_was_refused() {
        let error = Succeeded.next(Event::Cancel).unwrap_err();
        assert_eq!(error.to_string(), "state: a notification that is succeeded cannot be cancelled");
    }

    #[test]
    fn numbers_are_those_of_the_contract() {
        for (code, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(state.code()), code);
            assert_eq!(State::from_code(state.code()), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        assert_eq!(State::from_code(9).unwrap_err().to_string(), "stateCode: 9 is not between 0 and 8");
    }

    #[test]
    fn people_read_the_words_of_the_story() {
        assert_eq!(RetryScheduled.words(2, 3), "Retrying (attempt 2 of 3)");
        assert_eq!(DeadLetter.words(3, 3), "Failed (moved to dead letter queue)");
        assert_eq!(Failed.words(3, 3), "Permanently Failed");
        assert_eq!(Succeeded.words(2, 3), "Delivered");
    }

    #[test]
    fn a_claim_and_a_release_undo_each_other_in_the_derived_state() {
        for lane in Lane::ALL {
            let (waits, held) = (State::live(lane, Leased::No), State::live(lane, Leased::Yes));
            assert_eq!(waits.next(Event::Claim), Ok(held));
            assert_eq!(held.next(Event::Release), Ok(waits));
        }
    }
}
