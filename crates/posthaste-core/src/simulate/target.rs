//! The simulated destination as the node sees it: its breaker, its pause, its limits, and what may be sent to it.

use std::time::Duration;

use super::Scenario;
use super::outcome::{BreakerSummary, Happening, MAX_EVENTS};
use crate::breaker::{Breaker, BreakerSettings, Health, Tally};
use crate::destination::{Destination, DestinationEvent, EventKind, SendLimits, Sighting};
use crate::flow::{Capacity, Gate};
use crate::lease::NodeId;
use crate::rate::Share;
use crate::slots::Entry;
use crate::state::Lane;
use crate::time::Timestamp;

/// The only node.
const NODE: NodeId = NodeId(1);
/// How much longer than its try a probe may be under way before it counts as lost.
const MARGIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Target {
    known: Destination,
    settings: BreakerSettings,
    limits: SendLimits,
    /// The most at once, of what is simulated.
    most: u32,
    stands_for: f64,
    entry: Entry,
    /// When what it is held to changes by time alone.
    changes_at: Option<Timestamp>,
    /// Since when nothing but probes is sent.
    shut_since: Option<Timestamp>,
    summary: BreakerSummary,
}

impl Target {
    pub(super) fn new(scenario: &Scenario, stands_for: u64) -> Self {
        Self {
            known: Destination::default(),
            settings: scenario.breaker,
            limits: scenario.limits,
            most: shared(most_at_once(scenario), stands_for),
            stands_for: stands_for as f64,
            entry: Entry::default(),
            changes_at: Some(Timestamp::EPOCH),
            shut_since: None,
            summary: BreakerSummary::default(),
        }
    }

    /// What time alone changes.
    pub(super) fn pass(&mut self, now: Timestamp) {
        if self.changes_at.is_some_and(|at| at <= now) {
            self.bind(now);
        }
    }

    pub(super) fn room(&self, lane: Lane, now: Timestamp) -> u32 {
        self.entry.limits_at(now).room_in(lane, now)
    }

    /// When there may be room by time alone, if there is none.
    pub(super) fn reopens_at(&self, lane: Lane, now: Timestamp) -> Option<Timestamp> {
        self.entry.reopens_at(lane, now).into_iter().chain(self.changes_at).min()
    }

    /// One is sent. Returns whether it is the probe.
    pub(super) fn take(&mut self, lane: Lane, timeout: Duration, now: Timestamp) -> bool {
        self.entry.take(lane, now);
        if self.known.gate(now) != Gate::Probe {
            return false;
        }
        let lasts = timeout.saturating_add(MARGIN);
        let Some((breaker, event)) = self.known.breaker.probe(NODE, lasts, now) else { return false };
        self.known.breaker = breaker;
        self.note(&DestinationEvent::of_breaker(event, now));
        self.bind(now);
        true
    }

    /// One more quick try is sent.
    pub(super) fn take_again(&mut self, lane: Lane, now: Timestamp) {
        self.entry.take(lane, now);
    }

    pub(super) fn give_back(&mut self) {
        self.entry.give_back(1);
    }

    /// Whether a quick try may be waited for.
    pub(super) fn is_well(&self, now: Timestamp) -> bool {
        self.known.gate(now) == Gate::Closed
    }

    pub(super) fn is_paused(&self, now: Timestamp) -> bool {
        self.known.paused(now).is_some()
    }

    /// Whether nothing but a probe may be sent.
    pub(super) fn is_shut(&self, now: Timestamp) -> bool {
        self.known.is_shut(now)
    }

    /// What a try or an attempt said, as the engine counts it.
    pub(super) fn seen(
        &mut self,
        health: Health,
        began_at: Timestamp,
        pause: Option<Timestamp>,
        is_probe: bool,
        now: Timestamp,
    ) {
        let mut sighting = Sighting { pause, ..Sighting::default() };
        if is_probe {
            sighting.probe = Some((NODE, health));
        } else if self.counts(health, began_at) {
            let mut tally = Tally::default();
            tally.add(health, now);
            sighting.tally = tally;
        }
        if sighting.is_empty() {
            return;
        }
        let (known, events) = self.known.seen(&sighting, &self.settings, now);
        let is_new = known.breaker != self.known.breaker || known.paused_until != self.known.paused_until;
        self.known = known;
        for event in &events {
            self.note(event);
        }
        if is_new {
            self.bind(now);
        }
    }

    /// Whether it changes the count of failures. What was under way while it was open says nothing about it since.
    fn counts(&self, health: Health, began_at: Timestamp) -> bool {
        match (health, &self.known.breaker) {
            (Health::Answered | Health::Unknown, _)
            | (Health::Up | Health::Down, Breaker::Open { .. } | Breaker::HalfOpen { .. }) => false,
            (Health::Up, breaker) => breaker.failures().is_some(),
            (Health::Down, Breaker::Ramping { closed_at, .. }) => began_at >= *closed_at,
            (Health::Down, Breaker::Closed { .. }) => true,
        }
    }

    fn bind(&mut self, now: Timestamp) {
        let mut bounds = self.known.bounds(self.limits, Share::WHOLE, now);
        bounds.rate = bounds.rate.map(|per_second| per_second / self.stands_for);
        bounds.limits.concurrency = Some(self.most);
        if let Gate::Ramp(at_once) = bounds.limits.gate {
            bounds.limits.gate = Gate::Ramp(shared(at_once, self.stands_for as u64));
        }
        self.entry.bind(bounds, now);
        self.changes_at = self.known.changes_at(Share::WHOLE, now);
        let is_open = matches!(self.known.breaker, Breaker::Open { .. } | Breaker::HalfOpen { .. });
        match (is_open, self.shut_since) {
            (true, None) => self.shut_since = Some(now),
            (false, Some(since)) => {
                self.summary.open_for = self.summary.open_for.saturating_add(now.since(since));
                self.shut_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    fn note(&mut self, event: &DestinationEvent) {
        match event.event {
            EventKind::Opened => self.summary.opened += 1,
            EventKind::Probed => self.summary.probes += 1,
            EventKind::Closed
            | EventKind::Blocked
            | EventKind::Unblocked
            | EventKind::Reset
            | EventKind::Limited
            | EventKind::Paused => {}
        }
        if self.summary.events.len() < MAX_EVENTS {
            self.summary.events.push(Happening {
                at: event.at.since(Timestamp::EPOCH),
                event: event.event.name(),
                until: event.until.map(|until| until.since(Timestamp::EPOCH)),
            });
        }
    }

    pub(super) fn finish(mut self, now: Timestamp) -> BreakerSummary {
        if let Some(since) = self.shut_since {
            self.summary.open_for = self.summary.open_for.saturating_add(now.since(since));
        }
        self.summary
    }
}

/// The most that go to the destination at once: one destination has at most half of a node.
fn most_at_once(scenario: &Scenario) -> u32 {
    let of_node = Capacity { total: scenario.concurrency }.per_flow();
    scenario.limits.concurrency.map_or(of_node, |most| most.min(of_node))
}

/// A number of notifications in simulated ones, at least one.
fn shared(number: u32, stands_for: u64) -> u32 {
    u32::try_from(u64::from(number) / stands_for.max(1)).unwrap_or(u32::MAX).max(u32::from(number > 0))
}

/// How many times longer a send takes, where one simulated notification stands for more than may go at once.
pub(super) fn stretch(scenario: &Scenario, stands_for: u64) -> f64 {
    (stands_for as f64 / f64::from(most_at_once(scenario).max(1))).max(1.0)
}
