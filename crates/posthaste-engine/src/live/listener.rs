//! One that listens: what it was told last, what it wants to hear, and how much of it a second.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::filter::Filter;
use posthaste_core::lease::NodeId;
use posthaste_core::live::{Allowance, NotInRing};
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

use super::{Audience, Entry, Event, Topic};
use crate::engine::Shared;

/// The most single events of a second.
const MOST_A_SECOND: u32 = 200;
/// Minimum pause between two looks at the ring, so that a busy ring does not wake each listener for each change.
const PAUSE: Duration = Duration::from_millis(100);
/// How many entries are taken out of the ring under one lock.
const CHUNK: usize = 256;
/// Where the numbers of a ring begin: anywhere below this, so that the number of one ring says nothing in another.
const FIRST_BELOW: u64 = 1 << 48;

/// The place of an event among those of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    pub node: NodeId,
    pub number: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.node, self.number)
    }
}

/// A text that is no id of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id of an event is two numbers with a dot between them")]
pub struct BadEventId;

impl FromStr for EventId {
    type Err = BadEventId;

    fn from_str(text: &str) -> Result<Self, BadEventId> {
        let (node, number) = text.split_once('.').ok_or(BadEventId)?;
        let node = NodeId(node.parse().map_err(|_| BadEventId)?);
        Ok(Self { node, number: number.parse().map_err(|_| BadEventId)? })
    }
}

/// With what a listener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// What happens from now on.
    Now,
    /// What happened after this event.
    After(EventId),
    /// It has heard something before, and cannot say what.
    Unknown,
}

/// What a listener is told.
#[derive(Debug)]
pub enum Heard {
    Event(EventId, Arc<Event>),
    /// Something between `since` and now was not told. Without a time, that is anything since the listener was here last.
    Missed {
        last: EventId,
        since: Option<Timestamp>,
    },
}

/// One that listens. It holds nothing but its place in the ring, so one that does not read costs no memory.
pub struct Listener {
    shared: Arc<Shared>,
    audience: Arc<Audience>,
    topics: Vec<Topic>,
    /// Which notifications are wanted. Of operations, only its tenant counts.
    filter: Filter,
    /// The number of the next entry that it has not seen.
    next: u64,
    missed: Option<Since>,
    /// Everything before was seen.
    read_at: Timestamp,
    began: Instant,
    /// The last look at the ring.
    looked: Option<Instant>,
    allowance: Allowance,
}

/// Since when something is missed, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(Option<Timestamp>);

impl Since {
    /// The earlier of two. What is not known may be earlier than anything.
    fn earlier(self, other: Self) -> Self {
        Self(self.0.zip(other.0).map(|(one, other)| one.min(other)))
    }
}

impl Listener {
    /// The filter has been narrowed to what the caller can see.
    pub(crate) fn new(shared: Arc<Shared>, topics: Vec<Topic>, filter: Filter, start: Start) -> Self {
        let first = u64::try_from(shared.random() % u128::from(FIRST_BELOW)).unwrap_or(0) + 1;
        let audience = shared.live.join(filter.tenant.as_ref(), shared.node.id(), first);
        let head = audience.lock().next();
        let (next, missed) = match start {
            Start::Now => (head, None),
            Start::After(EventId { node, number })
                if node == audience.node && audience.read(number.saturating_add(1), 0).is_ok() =>
            {
                (number + 1, None)
            }
            Start::After(_) | Start::Unknown => (head, Some(Since(None))),
        };
        let read_at = shared.node.now();
        let (began, allowance) = (Instant::now(), Allowance::new(MOST_A_SECOND));
        Self { shared, audience, topics, filter, next, missed, read_at, began, looked: None, allowance }
    }

    /// The last event that it has passed.
    pub fn place(&self) -> EventId {
        self.id(self.next - 1)
    }

    /// Waits until there may be something to tell. May be dropped and called again.
    pub async fn wait(&self) {
        if let Some(looked) = self.looked {
            tokio::time::sleep_until(looked + PAUSE).await;
        }
        if self.missed.is_some() {
            if !self.allowance.is_left(self.began.elapsed()) {
                tokio::time::sleep_until(self.began + self.allowance.renewal()).await;
            }
            return;
        }
        self.audience.next.wait(|next| (next > self.next).then_some(())).await;
    }

    /// What has happened since the last call and is wanted: at most as many events as a second may have.
    pub fn take(&mut self) -> Vec<Heard> {
        let (mut heard, now) = (vec![], self.shared.node.now());
        loop {
            match self.audience.read(self.next, CHUNK) {
                Ok(entries) if entries.is_empty() => break,
                Ok(entries) => entries.into_iter().for_each(|entry| self.hear(entry, &mut heard)),
                Err(NotInRing { first }) => {
                    self.miss(Some(self.read_at));
                    self.next = first;
                }
            }
        }
        self.tell_missed(self.next, &mut heard);
        self.read_at = now;
        self.looked = Some(Instant::now());
        heard
    }

    fn hear(&mut self, entry: Entry, heard: &mut Vec<Heard>) {
        let number = self.next;
        self.next += 1;
        match entry {
            Entry::Gap(at) if self.topics.contains(&Topic::Notifications) => self.miss(Some(at)),
            Entry::Gap(_) => {}
            Entry::Event(event) if !self.wants(&event) => {}
            Entry::Event(event) => {
                self.tell_missed(number, heard);
                if self.allowance.take(self.began.elapsed()) {
                    heard.push(Heard::Event(self.id(number), event));
                } else {
                    self.miss(Some(event.at()));
                }
            }
        }
    }

    fn wants(&self, event: &Event) -> bool {
        if !self.topics.contains(&event.topic()) {
            return false;
        }
        match event {
            Event::Notification(change) => {
                self.filter.matches(&change.notification, change.state, change.reason, change.failure)
            }
            Event::Operation(_) => true,
        }
    }

    fn miss(&mut self, since: Option<Timestamp>) {
        let since = Since(since);
        self.missed = Some(self.missed.map_or(since, |before| before.earlier(since)));
    }

    /// Tells what was missed before `number`. If the second has had its events, more will be missed until it is over.
    fn tell_missed(&mut self, number: u64, heard: &mut Vec<Heard>) {
        if self.allowance.is_left(self.began.elapsed())
            && let Some(Since(since)) = self.missed.take()
        {
            self.shared.counts.missed();
            heard.push(Heard::Missed { last: self.id(number - 1), since });
        }
    }

    fn id(&self, number: u64) -> EventId {
        EventId { node: self.audience.node, number }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.audience.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_event_is_read_as_it_is_shown() {
        let id = EventId { node: NodeId(7), number: 12_345 };
        assert_eq!(id.to_string(), "7.12345");
        assert_eq!("7.12345".parse(), Ok(id));
        for bad in ["", "7", "7.", ".1", "7.1.2", "7.-1", "a.b", "7.99999999999999999999999"] {
            assert_eq!(bad.parse::<EventId>(), Err(BadEventId), "{bad}");
        }
    }

    #[test]
    fn what_is_missed_began_at_the_earliest_time_or_at_one_that_is_not_known() {
        let at = |millis| Since(Some(Timestamp::from_millis(millis)));
        assert_eq!(at(2).earlier(at(1)), at(1));
        assert_eq!(at(1).earlier(Since(None)), Since(None));
    }
}
