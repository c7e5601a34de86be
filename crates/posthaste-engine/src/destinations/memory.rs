//! What this node knows of destinations: the rows of the store, what it saw itself and has not written yet, and what it holds
//! them to. Only what is unhealthy, blocked, paused or limited has an entry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use posthaste_core::breaker::{Breaker, BreakerSettings, Health};
use posthaste_core::destination::{
    Destination, DestinationChange, DestinationEvent, DestinationKey, DestinationPut, SendLimits, Sighting,
    StoredDestination,
};
use posthaste_core::flow::Gate;
use posthaste_core::lease::NodeId;
use posthaste_core::rate::Share;
use posthaste_core::slots::{Bounds, Gated};
use posthaste_core::time::Timestamp;

/// The most destinations of which failures are counted. Beyond it, failures of further ones do not count.
const MOST: usize = 100_000;

#[derive(Debug)]
pub(super) struct Memory {
    settings: BreakerSettings,
    pub(super) share: Share,
    known: BTreeMap<Gated, Known>,
    places: BTreeMap<DestinationKey, Gated>,
    /// Rows that were read while the numbers of their flows are asked for.
    unplaced: BTreeMap<DestinationKey, StoredDestination>,
    /// When something changes by time alone, each place once.
    times: BTreeSet<(Timestamp, Gated)>,
    /// What was seen and is to be written.
    dirty: BTreeSet<Gated>,
    /// What is held to something else than the slots know of.
    changed: BTreeSet<Gated>,
    /// Whether what is dirty cannot wait.
    pub(super) urgent: bool,
    /// All changes up to this version were read.
    pub(super) version: i64,
    /// The version that another told of.
    pub(super) newest: i64,
}

#[derive(Debug)]
struct Known {
    key: DestinationKey,
    /// The version of the row as it was last read or written.
    version: i64,
    /// The version that a change has to expect.
    expected: i64,
    value: Destination,
    /// The limits of the configuration.
    file: SendLimits,
    seen: Sighting,
    /// What is just being written.
    writing: Option<Sighting>,
    probe: Probe,
    /// It would open by what was seen here: nothing is sent until that is written.
    is_opening: bool,
    looks_at: Option<Timestamp>,
}

/// The probe of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    /// The store is asked whether it may be sent, or it is under way.
    Begun,
}

/// What is seen of a try or an attempt.
pub(crate) struct Seen {
    pub(crate) health: Health,
    pub(crate) began_at: Timestamp,
    pub(crate) at: Timestamp,
    pub(crate) error: Option<(Option<u16>, String)>,
    pub(crate) pause: Option<Timestamp>,
}

/// Whether a try may be made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum May {
    Send,
    /// As the probe, once the store has said so.
    Probe,
    Not,
}

impl Known {
    fn new(key: DestinationKey, file: SendLimits) -> Self {
        Self {
            key,
            version: 0,
            expected: 0,
            value: Destination::default(),
            file,
            seen: Sighting::default(),
            writing: None,
            probe: Probe::None,
            is_opening: false,
            looks_at: None,
        }
    }

    fn limits(&self) -> SendLimits {
        self.value.limits.or(self.file)
    }

    /// What was seen and is not known to be written.
    fn unwritten(&self) -> Sighting {
        self.writing.clone().map_or_else(|| self.seen.clone(), |writing| self.seen.clone().after(writing))
    }

    fn paused(&self, now: Timestamp) -> Option<Timestamp> {
        let writing = self.writing.as_ref().and_then(|writing| writing.pause);
        self.value.paused_until.max(self.seen.pause).max(writing).filter(|until| *until > now)
    }

    fn gate(&self, share: Share, now: Timestamp) -> Gate {
        if self.is_opening { Gate::Open } else { self.value.gate_for(share, now) }
    }

    fn bounds(&self, share: Share, now: Timestamp) -> Bounds {
        let mut bounds = self.value.bounds(self.limits(), share, now);
        bounds.limits.gate = self.gate(share, now);
        bounds.limits.paused_until = self.paused(now);
        bounds
    }

    fn is_empty(&self) -> bool {
        self.expected == 0
            && self.file == SendLimits::default()
            && self.seen.is_empty()
            && self.writing.is_none()
            && self.probe == Probe::None
    }
}

impl Memory {
    pub(super) fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            share: Share::WHOLE,
            known: BTreeMap::new(),
            places: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            times: BTreeSet::new(),
            dirty: BTreeSet::new(),
            changed: BTreeSet::new(),
            urgent: false,
            version: 0,
            newest: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Each destination that something is kept of, as it was last read or written.
    pub(super) fn values(&self) -> impl Iterator<Item = (&DestinationKey, &Destination)> {
        self.known.values().filter(|known| known.expected != 0).map(|known| (&known.key, &known.value))
    }

    pub(super) fn place(&self, key: &DestinationKey) -> Option<Gated> {
        self.places.get(key).copied()
    }

    pub(super) fn has_shared(&self) -> bool {
        self.known.last_key_value().is_some_and(|(place, _)| matches!(place, Gated::Key(_)))
    }

    pub(super) fn knows(&self, place: Gated) -> bool {
        self.known.contains_key(&place)
    }

    /// Notes what the configuration says of a destination.
    pub(super) fn meet(&mut self, place: Gated, key: DestinationKey, file: SendLimits) {
        self.entry(place, key, file);
        self.changed.insert(place);
    }

    fn entry(&mut self, place: Gated, key: DestinationKey, file: SendLimits) -> &mut Known {
        self.places.insert(key.clone(), place);
        self.known.entry(place).or_insert_with(|| Known::new(key, file))
    }

    /// Notes rows whose places are asked for: until then a send finds them by its own flow.
    pub(super) fn place_later(&mut self, rows: impl Iterator<Item = StoredDestination>) {
        self.unplaced.extend(rows.map(|row| (row.key.clone(), row)));
    }

    pub(super) fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// The row of a destination whose place was not known.
    pub(super) fn take_unplaced(&mut self, key: &DestinationKey) -> Option<StoredDestination> {
        self.unplaced.remove(key)
    }

    /// Takes a row as it is in the store, unless a later one is known.
    pub(super) fn learn(
        &mut self,
        place: Gated,
        row: StoredDestination,
        file: SendLimits,
        node: NodeId,
        now: Timestamp,
    ) {
        if row.value.is_none() && !self.known.contains_key(&place) {
            return;
        }
        let settings = self.settings;
        let known = self.entry(place, row.key.clone(), file);
        if row.version <= known.version {
            return;
        }
        (known.version, known.expected) = (row.version, row.expected());
        known.value = row.value.unwrap_or_default();
        known.is_opening = known.value.opens_by(known.unwritten().tally, &settings, now);
        // The probe was asked for with an error as the answer, and may be sent all the same: nobody does.
        if let Breaker::HalfOpen { node: prober, .. } = known.value.breaker
            && prober == node.0
            && known.probe == Probe::None
            && known.unwritten().probe.is_none()
        {
            known.seen.probe = Some((node, Health::Unknown));
            self.dirty.insert(place);
            self.urgent = true;
        }
        self.changed.insert(place);
    }

    /// Forgets the rows that are known and not among these, which are all there are.
    pub(super) fn keep_only(&mut self, all: &BTreeSet<DestinationKey>) {
        for (place, known) in &mut self.known {
            if !all.contains(&known.key) && known.expected != 0 {
                (known.version, known.expected, known.value) = (0, 0, Destination::default());
                self.changed.insert(*place);
            }
        }
    }

    /// Whether a try may be made now, in a slot for which everything was asked or not.
    pub(super) fn may_send(&self, place: Gated, slot_is_bounded: bool, now: Timestamp) -> May {
        let Some(known) = self.known.get(&place) else { return May::Send };
        if known.paused(now).is_some() {
            return May::Not;
        }
        match known.gate(self.share, now) {
            Gate::Closed if known.limits() == SendLimits::default() || slot_is_bounded => May::Send,
            Gate::Ramp(_) if slot_is_bounded => May::Send,
            Gate::Probe if known.probe == Probe::None => May::Probe,
            Gate::Closed | Gate::Ramp(_) | Gate::Open | Gate::Probe => May::Not,
        }
    }

    /// Whether nothing is wrong, but that it may have asked for silence.
    pub(super) fn is_well(&self, place: Gated, now: Timestamp) -> bool {
        self.known.get(&place).is_none_or(|known| known.gate(self.share, now) == Gate::Closed)
    }

    /// Whether it asked for silence.
    pub(super) fn is_paused(&self, place: Gated, now: Timestamp) -> bool {
        self.known.get(&place).is_some_and(|known| known.paused(now).is_some())
    }

    /// What it lets pass, over all nodes.
    pub(super) fn gate(&self, place: Gated, now: Timestamp) -> Gate {
        self.known.get(&place).map_or(Gate::Closed, |known| known.gate(Share::WHOLE, now))
    }

    /// Whether nothing but a probe may be sent now.
    pub(super) fn is_shut(&self, place: Gated, now: Timestamp) -> bool {
        self.known
            .get(&place)
            .is_some_and(|known| known.gate(self.share, now).is_shut() || known.paused(now).is_some())
    }

    /// Notes what was seen. `key` is asked for where nothing is known yet.
    pub(super) fn note(
        &mut self,
        place: Gated,
        seen: Seen,
        key: impl FnOnce() -> Option<(DestinationKey, SendLimits)>,
    ) {
        let matters_if_unknown = seen.health == Health::Down || seen.pause.is_some();
        if !self.known.contains_key(&place) {
            if !matters_if_unknown || self.known.len() >= MOST {
                return;
            }
            let Some((key, file)) = key() else { return };
            self.entry(place, key, file);
        }
        let settings = self.settings;
        let Some(known) = self.known.get_mut(&place) else { return };
        let counts_before = known.unwritten().tally.failures.is_some();
        let counts = match (seen.health, &known.value.breaker) {
            (Health::Answered | Health::Unknown, _)
            | (Health::Up | Health::Down, Breaker::Open { .. } | Breaker::HalfOpen { .. }) => false,
            (Health::Up, breaker) => breaker.failures().is_some() || counts_before,
            // What was under way before it closed says nothing about it since.
            (Health::Down, Breaker::Ramping { closed_at, .. }) => seen.began_at >= *closed_at,
            (Health::Down, Breaker::Closed { .. }) => true,
        };
        if counts {
            known.seen.tally.add(seen.health, seen.at);
            self.dirty.insert(place);
        }
        if let Some(until) = seen.pause.filter(|until| *until > seen.at) {
            known.seen.pause = known.seen.pause.max(Some(until));
            self.dirty.insert(place);
            self.urgent = true;
        }
        if seen.health == Health::Down || seen.pause.is_some() {
            known.seen.error = seen.error;
        }
        let is_opening = known.value.opens_by(known.unwritten().tally, &settings, seen.at);
        if is_opening != known.is_opening || seen.pause.is_some() {
            known.is_opening = is_opening;
            self.changed.insert(place);
            self.urgent |= is_opening;
        }
    }

    /// Asks for the probe: what the store has to agree to.
    pub(super) fn begin_probe(
        &mut self,
        place: Gated,
        node: NodeId,
        lasts: Duration,
        now: Timestamp,
    ) -> Option<DestinationChange> {
        let share = self.share;
        let known = self.known.get_mut(&place)?;
        if known.probe != Probe::None || known.gate(share, now) != Gate::Probe {
            return None;
        }
        let (breaker, event) = known.value.breaker.probe(node, lasts, now)?;
        known.probe = Probe::Begun;
        Some(DestinationChange {
            key: known.key.clone(),
            expected: known.expected,
            value: Some(Destination { breaker, ..known.value.clone() }),
            events: vec![DestinationEvent::of_breaker(event, now)],
        })
    }

    /// The probe is not sent: the store did not agree, or did not say.
    pub(super) fn no_probe(&mut self, place: Gated) {
        if let Some(known) = self.known.get_mut(&place) {
            known.probe = Probe::None;
            self.changed.insert(place);
        }
    }

    /// The probe came back.
    pub(super) fn probed(&mut self, place: Gated, node: NodeId, health: Health) {
        if let Some(known) = self.known.get_mut(&place) {
            known.probe = Probe::None;
            known.seen.probe = Some((node, health));
            self.dirty.insert(place);
            self.changed.insert(place);
            self.urgent = true;
        }
    }

    /// What is to be written, some of it.
    pub(super) fn changes(&mut self, most: usize, now: Timestamp) -> Vec<(Gated, DestinationChange)> {
        let mut changes = vec![];
        while changes.len() < most
            && let Some(place) = self.dirty.pop_first()
        {
            let Some(known) = self.known.get_mut(&place) else { continue };
            let (value, events) = known.value.seen(&known.seen, &self.settings, now);
            let is_over = value.is_over(&self.settings, now);
            if (value == known.value && !is_over) || (is_over && known.expected == 0) {
                known.seen = Sighting::default();
                known.is_opening = false;
                self.changed.insert(place);
                continue;
            }
            known.writing = Some(std::mem::take(&mut known.seen));
            let value = (!is_over).then_some(value);
            let (key, expected) = (known.key.clone(), known.expected);
            changes.push((place, DestinationChange { key, expected, value, events }));
        }
        if self.dirty.is_empty() {
            self.urgent = false;
        }
        changes
    }

    /// What the store said to a change; true if it was made.
    pub(super) fn written(
        &mut self,
        place: Gated,
        change: &DestinationChange,
        put: DestinationPut,
        node: NodeId,
        now: Timestamp,
    ) -> bool {
        let Some(known) = self.known.get_mut(&place) else { return false };
        let row = match put {
            DestinationPut::Made(version) => {
                let (key, value) = (change.key.clone(), change.value.clone());
                StoredDestination { key, version, value, changed: now }
            }
            DestinationPut::Conflict(found) => *found,
        };
        if row.version == 0 {
            // What is known was removed so long ago that nothing is left of it.
            (known.version, known.expected, known.value) = (0, 0, Destination::default());
        }
        // A repeat may meet itself.
        let made = row.value == change.value;
        let writing = known.writing.take().unwrap_or_default();
        if !made {
            known.seen = std::mem::take(&mut known.seen).after(writing);
            self.dirty.insert(place);
            self.urgent = true;
        }
        let file = known.file;
        self.learn(place, row, file, node, now);
        if let Some(known) = self.known.get_mut(&place) {
            known.is_opening = known.value.opens_by(known.unwritten().tally, &self.settings, now);
            if !known.seen.is_empty() {
                self.dirty.insert(place);
            }
        }
        self.changed.insert(place);
        made
    }

    /// The store did not say: all of it is written again.
    pub(super) fn not_written(&mut self, places: impl Iterator<Item = Gated>) {
        for place in places {
            if let Some(known) = self.known.get_mut(&place) {
                let writing = known.writing.take().unwrap_or_default();
                known.seen = std::mem::take(&mut known.seen).after(writing);
                self.dirty.insert(place);
                self.urgent = true;
            }
        }
    }

    /// The node has another place among those that live.
    pub(super) fn set_share(&mut self, share: Share) {
        if share != self.share {
            self.share = share;
            self.changed.extend(self.known.keys().copied());
        }
    }

    /// Notes what changed by time alone.
    pub(super) fn time_passed(&mut self, now: Timestamp) {
        while let Some((at, place)) = self.times.first().copied().filter(|(at, _)| *at <= now) {
            self.times.remove(&(at, place));
            let Some(known) = self.known.get_mut(&place) else { continue };
            known.looks_at = None;
            self.changed.insert(place);
        }
    }

    /// What destinations are held to, where that changed since the last time it was asked.
    pub(super) fn bounds(&mut self, now: Timestamp) -> Vec<(Gated, Bounds)> {
        let (share, settings) = (self.share, self.settings);
        let mut all = vec![];
        for place in std::mem::take(&mut self.changed) {
            let Some(known) = self.known.get_mut(&place) else { continue };
            let over = known.value.over_at(&settings).filter(|at| *at > now && known.expected != 0);
            let looks_at = known.value.changes_at(share, now).into_iter().chain(over).min();
            if known.expected != 0 && share.is_first() && known.value.is_over(&settings, now) {
                self.dirty.insert(place);
            }
            if let Some(at) = std::mem::replace(&mut known.looks_at, looks_at) {
                self.times.remove(&(at, place));
            }
            self.times.extend(looks_at.map(|at| (at, place)));
            all.push((place, known.bounds(share, now)));
            if known.is_empty() {
                self.dirty.remove(&place);
                if let Some(known) = self.known.remove(&place) {
                    self.places.remove(&known.key);
                }
            }
        }
        all
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// When something changes next by time alone.
    pub(super) fn next_time(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }
}
