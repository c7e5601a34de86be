//! The short history of a destination, for a page to draw.

use std::time::Duration;

use crate::time::Timestamp;

/// How many events of a destination are kept.
pub const MAX_EVENTS: usize = 100;
/// For how long they are kept.
pub const EVENTS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// What happened. The codes are stored, the names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    Opened = 1,
    /// A probe was sent.
    Probed = 2,
    Closed = 3,
    Blocked = 4,
    Unblocked = 5,
    Reset = 6,
    Limited = 7,
    /// It asked for silence.
    Paused = 8,
}

impl EventKind {
    pub const ALL: [Self; 8] = [
        Self::Opened,
        Self::Probed,
        Self::Closed,
        Self::Blocked,
        Self::Unblocked,
        Self::Reset,
        Self::Limited,
        Self::Paused,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Probed => "probed",
            Self::Closed => "closed",
            Self::Blocked => "blocked",
            Self::Unblocked => "unblocked",
            Self::Reset => "reset",
            Self::Limited => "limited",
            Self::Paused => "paused",
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationEvent {
    pub at: Timestamp,
    pub event: EventKind,
    /// Who did it; none if it happened by itself.
    pub by: Option<String>,
    /// Until when it opened or paused.
    pub until: Option<Timestamp>,
}
