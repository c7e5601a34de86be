//! Figures over time: what happened in a minute or an hour, and how long deliveries took.

mod busiest;
mod times;

pub use self::busiest::{Addressed, Busiest, Place};
pub use self::times::{Percentiles, Times};

use std::time::Duration;

use serde::Serialize;

use crate::reason::Reason;
use crate::time::{Timestamp, micros};

/// The length of the periods that are kept. The codes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Span {
    Minute = 0,
    Hour = 1,
}

impl Span {
    pub const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Minute),
            1 => Some(Self::Hour),
            _ => None,
        }
    }

    pub const fn length(self) -> Duration {
        match self {
            Self::Minute => Duration::from_secs(60),
            Self::Hour => Duration::from_secs(3_600),
        }
    }

    /// The start of the period that a time is in.
    pub fn start(self, at: Timestamp) -> Timestamp {
        floor(at, self.length())
    }
}

fn floor(at: Timestamp, step: Duration) -> Timestamp {
    let step = micros(step).max(1);
    Timestamp::from_micros(at.as_micros().div_euclid(step).saturating_mul(step))
}

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    Accepted,
    Delivered {
        /// Whether no try had failed before.
        first_try: bool,
        /// From its acceptance, or from `notBefore` if that is later.
        took: Duration,
    },
    /// An attempt failed, and another one is scheduled.
    Retried,
    /// It became a dead letter.
    DeadLettered(Reason),
    /// It ended without a dead letter.
    Failed(Reason),
    Expired,
    Cancelled,
}

/// What happened in a period. It only grows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    pub accepted: u64,
    pub delivered: u64,
    /// Delivered by their very first try.
    pub first_try: u64,
    /// Retries that were scheduled.
    pub retried: u64,
    pub dead_lettered: u64,
    pub failed: u64,
    pub expired: u64,
    pub cancelled: u64,
    /// Why notifications died or failed, in the order of `Reason::ALL`.
    pub reasons: [u64; Reason::ALL.len()],
    /// How long deliveries took.
    pub times: Times,
}

/// Where the codes of reasons and of times begin. Smaller codes are those of the counts, in the order of the fields.
const REASONS: u16 = 32;
const TIMES: u16 = 128;

impl Figures {
    pub fn add(&mut self, happened: Happened) {
        match happened {
            Happened::Accepted => self.accepted += 1,
            Happened::Delivered { first_try, took } => {
                self.delivered += 1;
                self.first_try += u64::from(first_try);
                self.times.add(took);
            }
            Happened::Retried => self.retried += 1,
            Happened::DeadLettered(reason) => {
                self.dead_lettered += 1;
                self.reasons[place(reason)] += 1;
            }
            Happened::Failed(reason) => {
                self.failed += 1;
                self.reasons[place(reason)] += 1;
            }
            Happened::Expired => self.expired += 1,
            Happened::Cancelled => self.cancelled += 1,
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (own, more) in self.counts_mut().into_iter().zip(other.counts()) {
            *own = own.saturating_add(more);
        }
        for (own, more) in self.reasons.iter_mut().zip(other.reasons) {
            *own = own.saturating_add(more);
        }
        self.times.merge(&other.times);
    }

    /// How many ended, in whatever way.
    pub const fn ended(&self) -> u64 {
        self.delivered + self.dead_lettered + self.failed + self.expired + self.cancelled
    }

    /// How often something was added.
    pub const fn happened(&self) -> u64 {
        self.accepted + self.retried + self.ended()
    }

    /// The share of those that were delivered by their very first try among all that ended; `None` if none did.
    pub fn first_try_rate(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let rate = |ended: u64| self.first_try as f64 / ended as f64;
        Some(self.ended()).filter(|ended| *ended > 0).map(rate)
    }

    /// Why notifications died or failed, the most frequent reason first.
    pub fn top_reasons(&self) -> Vec<(Reason, u64)> {
        let mut found: Vec<(Reason, u64)> =
            Reason::ALL.into_iter().zip(self.reasons).filter(|(_, count)| *count > 0).collect();
        found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        found
    }

    /// Grows with everything that is added: of two figures of one period, the later one has more.
    pub fn weight(&self) -> u64 {
        self.counts().into_iter().fold(0, u64::saturating_add)
    }

    /// The stored form: a code and a number of everything that is not zero, by code.
    pub fn to_pairs(&self) -> Vec<(u16, u64)> {
        let numbered = |first: u16, counts: &[u64]| -> Vec<(u16, u64)> {
            (first..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect()
        };
        let mut pairs = numbered(0, &self.counts());
        pairs.extend(numbered(REASONS, &self.reasons));
        pairs.extend(self.times.counts().map(|(bucket, count)| (TIMES + bucket, count)));
        pairs
    }

    /// Reads the stored form. Codes of a newer version are passed over.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u16, u64)>) -> Self {
        let mut figures = Self::default();
        for (code, count) in pairs {
            if code >= TIMES {
                figures.times.add_to(code - TIMES, count);
            } else if let Some(reason) = code.checked_sub(REASONS) {
                figures.reasons.get_mut(usize::from(reason)).into_iter().for_each(|own| *own = count);
            } else {
                figures.counts_mut().into_iter().skip(usize::from(code)).take(1).for_each(|own| *own = count);
            }
        }
        figures
    }

    const fn counts(&self) -> [u64; 8] {
        [
            self.accepted,
            self.delivered,
            self.first_try,
            self.retried,
            self.dead_lettered,
            self.failed,
            self.expired,
            self.cancelled,
        ]
    }

    fn counts_mut(&mut self) -> [&mut u64; 8] {
        [
            &mut self.accepted,
            &mut self.delivered,
            &mut self.first_try,
            &mut self.retried,
            &mut self.dead_lettered,
            &mut self.failed,
            &mut self.expired,
            &mut self.cancelled,
        ]
    }
}

fn place(reason: Reason) -> usize {
    Reason::ALL.into_iter().position(|other| other == reason).expect("ALL has every reason")
}

/// The distance between two points of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Step {
    #[serde(rename = "1m")]
    Minute,
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    #[serde(rename = "1h")]
    Hour,
}

impl Step {
    pub const ALL: [Self; 3] = [Self::Minute, Self::FiveMinutes, Self::Hour];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Minute => "1m",
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    pub const fn length(self) -> Duration {
        match self {
            Self::Minute => Duration::from_secs(60),
            Self::FiveMinutes => Duration::from_secs(300),
            Self::Hour => Duration::from_secs(3_600),
        }
    }

    /// The longest periods that it can be made of.
    pub const fn span(self) -> Span {
        match self {
            Self::Minute | Self::FiveMinutes => Span::Minute,
            Self::Hour => Span::Hour,
        }
    }
}

/// The points of a series: whole steps from the one that `since` is in to the one before `until`, or the one that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Points {
    first: Timestamp,
    length: Duration,
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPoints {
    #[error("since must be before until")]
    Backwards,
    #[error("{0} points are asked for, and at most {most} are answered: choose a longer step or a shorter time", most = Points::MOST)]
    TooMany(u64),
}

impl Points {
    /// The most points of one answer.
    pub const MOST: usize = 1_500;

    pub fn new(since: Timestamp, until: Timestamp, length: Duration) -> Result<Self, BadPoints> {
        if since >= until {
            return Err(BadPoints::Backwards);
        }
        let first = floor(since, length);
        let whole = until.as_micros().saturating_sub(first.as_micros()).unsigned_abs();
        let count = whole.div_ceil(micros(length).max(1).unsigned_abs());
        match usize::try_from(count) {
            Ok(count) if count <= Self::MOST => Ok(Self { first, length, count }),
            _ => Err(BadPoints::TooMany(count)),
        }
    }

    pub const fn first(&self) -> Timestamp {
        self.first
    }

    pub const fn length(&self) -> Duration {
        self.length
    }

    pub const fn count(&self) -> usize {
        self.count
    }

    /// The end of the last point.
    pub fn end(&self) -> Timestamp {
        self.at(self.count)
    }

    /// The start of a point.
    pub fn at(&self, place: usize) -> Timestamp {
        let steps = i64::try_from(place).unwrap_or(i64::MAX);
        Timestamp::from_micros(
            self.first.as_micros().saturating_add(micros(self.length).saturating_mul(steps)),
        )
    }

    /// The point that a time is in.
    pub fn place(&self, at: Timestamp) -> Option<usize> {
        let into = at.as_micros().checked_sub(self.first.as_micros())?;
        let place = usize::try_from(into.div_euclid(micros(self.length).max(1))).ok()?;
        (place < self.count).then_some(place)
    }

    /// The figures of each point, from those of shorter periods. A point in which nothing happened has none.
    pub fn gather<'f>(&self, periods: impl IntoIterator<Item = (Timestamp, &'f Figures)>) -> Vec<Figures> {
        let mut points = vec![Figures::default(); self.count];
        for (at, figures) in periods {
            if let Some(place) = self.place(at) {
                points[place].merge(figures);
            }
        }
        points
    }
}

#[cfg(test)]
mod tests;
