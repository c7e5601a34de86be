//! What one node saw of a destination and has not written down yet, and what becomes of the destination by it.

use super::{Destination, DestinationEvent, SendLimits};
use crate::breaker::{Breaker, BreakerSettings, Health, Tally};
use crate::lease::NodeId;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sighting {
    pub tally: Tally,
    /// What the last failed attempt said: status and words.
    pub error: Option<(Option<u16>, String)>,
    /// A 429 asked for silence until then.
    pub pause: Option<Timestamp>,
    /// What came of the probe that the node sent.
    pub probe: Option<(NodeId, Health)>,
}

impl Sighting {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What was seen before, and then this.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        Self {
            tally: self.tally.after(earlier.tally),
            error: self.error.or(earlier.error),
            pause: self.pause.max(earlier.pause),
            probe: self.probe.or(earlier.probe),
        }
    }
}

impl Destination {
    /// What becomes of it by what was seen, and what is added to its history.
    pub fn seen(
        &self,
        sighting: &Sighting,
        settings: &BreakerSettings,
        now: Timestamp,
    ) -> (Self, Vec<DestinationEvent>) {
        let (mut next, mut events) = (self.clone(), vec![]);
        let probed =
            sighting.probe.and_then(|(node, health)| self.breaker.probed(node, health, settings, now));
        if let Some((breaker, event)) = probed {
            next.breaker = breaker;
            events.extend(event.map(|event| DestinationEvent::of_breaker(event, now)));
        }
        let (breaker, event) = next.breaker.tallied(sighting.tally, settings, now);
        next.breaker = breaker;
        events.extend(event.map(|event| DestinationEvent::of_breaker(event, now)));
        if let Some((paused, event)) = sighting.pause.and_then(|until| next.pause(until, now)) {
            next = paused;
            events.push(event);
        }
        // What attempts say that were under way when it opened is not worth a write.
        if next != *self
            && let Some((status, words)) = &sighting.error
        {
            next = next.with_error(*status, Some(words));
        }
        (next, events)
    }

    /// Whether it would open by what was seen.
    pub fn opens_by(&self, tally: Tally, settings: &BreakerSettings, now: Timestamp) -> bool {
        matches!(self.breaker.tallied(tally, settings, now), (Breaker::Open { .. }, Some(_)))
    }

    /// From when on nothing of it has to be kept, if nobody does anything.
    pub fn over_at(&self, settings: &BreakerSettings) -> Option<Timestamp> {
        let is_set = self.block.is_some() || self.limits != SendLimits::default();
        let over = self.paused_until.max(Some(self.breaker.forgotten_at(settings)));
        over.filter(|_| !is_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::Failures;
    use crate::destination::EventKind;

    const SETTINGS: fn() -> BreakerSettings = BreakerSettings::default;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    fn failed(count: u32, now: Timestamp) -> Sighting {
        let failures = Some(Failures { count, first_at: now, last_at: now });
        let error = Some((Some(503), "answered 503".to_owned()));
        Sighting { tally: Tally { succeeded: false, failures }, error, ..Sighting::default() }
    }

    #[test]
    fn failures_add_up_open_it_and_leave_their_last_words() {
        let (one, events) = Destination::default().seen(&failed(9, at(0)), &SETTINGS(), at(0));
        assert_eq!((events.len(), one.last_status_code), (0, Some(503)));
        let (two, events) = one.seen(&failed(1, at(1)), &SETTINGS(), at(1));
        assert!(one.opens_by(failed(1, at(1)).tally, &SETTINGS(), at(1)));
        assert_eq!(events.iter().map(|event| event.event).collect::<Vec<_>>(), [EventKind::Opened]);
        let (three, events) = two.seen(&failed(5, at(2)), &SETTINGS(), at(2));
        assert_eq!((three, events), (two, vec![]), "what was under way changes nothing any more");
    }

    #[test]
    fn what_comes_of_a_probe_counts_once() {
        let (open, _) = Destination::default().seen(&failed(10, at(0)), &SETTINGS(), at(0));
        let node = NodeId(3);
        let (breaker, _) = open.breaker.probe(node, std::time::Duration::from_secs(20), at(10)).unwrap();
        let probing = Destination { breaker, ..open };
        let up = Sighting { probe: Some((node, Health::Up)), ..Sighting::default() };
        let (ramping, events) = probing.seen(&up, &SETTINGS(), at(11));
        assert_eq!(events[0].event, EventKind::Closed);
        assert_eq!(ramping.seen(&up, &SETTINGS(), at(12)), (ramping.clone(), vec![]));
        let other = Sighting { probe: Some((NodeId(4), Health::Up)), ..Sighting::default() };
        assert_eq!(probing.seen(&other, &SETTINGS(), at(11)).0, probing);
    }

    #[test]
    fn two_sightings_are_one_and_a_success_between_them_counts() {
        let up = Sighting { tally: Tally { succeeded: true, failures: None }, ..Sighting::default() };
        let both = failed(2, at(1)).after(up.clone()).after(failed(9, at(0)));
        assert_eq!(both.tally.failures.map(|failures| failures.count), Some(2));
        assert!(both.tally.succeeded);
        let sum = failed(2, at(1)).after(failed(9, at(0)));
        assert_eq!(sum.tally.failures.map(|failures| failures.count), Some(11));
        assert_eq!(up.clone().after(failed(9, at(0))).tally, up.tally);
    }

    #[test]
    fn it_is_over_when_everything_of_it_is() {
        let (one, _) = Destination::default().seen(&failed(1, at(0)), &SETTINGS(), at(0));
        assert_eq!(one.over_at(&SETTINGS()), Some(at(600)));
        let paused = Sighting { pause: Some(at(900)), ..Sighting::default() };
        let (paused, events) = one.seen(&paused, &SETTINGS(), at(1));
        assert_eq!((paused.over_at(&SETTINGS()), events[0].event), (Some(at(900)), EventKind::Paused));
        assert!(!paused.is_over(&SETTINGS(), at(899)) && paused.is_over(&SETTINGS(), at(900)));
        let (blocked, _) = paused.blocked("ada", None, at(2)).unwrap();
        assert_eq!(blocked.over_at(&SETTINGS()), None);
    }
}
