//! When a destination was open, blocked, paused or failing: its history as a strip, to scale, with a sentence that says the same.

use std::time::Duration;

use posthaste_core::destination::MAX_EVENTS;
use posthaste_core::duration;
use posthaste_core::time::{Timestamp, micros};

use super::drawing::ratio;
use super::show::{Markup, escape};
use crate::http::views::DestinationView;
use crate::http::views::destination::DestinationEventView;

/// The most rectangles of one kind in a strip: a page has many strips.
const MOST_DRAWN: usize = 24;
/// The most parts of time of one kind that the sentence names.
const MOST_NAMED: usize = 3;

/// What kept it from its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Open,
    Failing,
    Paused,
    Blocked,
}

impl Why {
    /// A later one is drawn over an earlier one.
    const ALL: [Self; 4] = [Self::Failing, Self::Paused, Self::Open, Self::Blocked];

    const fn class(self) -> &'static str {
        match self {
            Self::Open => "f",
            Self::Failing | Self::Paused => "q",
            Self::Blocked => "p",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Failing => "failing",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
        }
    }
}

/// A part of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    why: Why,
    from: Timestamp,
    until: Timestamp,
}

/// What is known of a part of time that ends now.
pub(super) struct Downtime {
    since: Timestamp,
    now: Timestamp,
    /// What was before is not kept any more.
    known_from: Timestamp,
    spans: Vec<Span>,
}

impl Downtime {
    /// By the events since then, the newest first, and by how the destination stands now.
    pub(super) fn of(
        one: &DestinationView,
        newest_first: &[DestinationEventView],
        since: Timestamp,
        now: Timestamp,
    ) -> Self {
        let oldest = newest_first.last().filter(|_| newest_first.len() >= MAX_EVENTS);
        let known_from = oldest.map_or(since, |event| event.at.max(since));
        let mut told = Told::before(newest_first, known_from);
        for event in newest_first.iter().rev() {
            told.add(event);
        }
        let mut spans = told.ended(one, now);
        for span in &mut spans {
            (span.from, span.until) = (span.from.max(since), span.until.min(now));
        }
        spans.retain(|span| span.until > span.from || (span.until == span.from && span.from > since));
        // An outage that goes on is known from its beginning.
        let first = spans.iter().map(|span| span.from).min().unwrap_or(known_from);
        Self { since, now, known_from: known_from.min(first), spans }
    }

    /// Only the times in which nothing was sent, up to the end of what waited.
    pub(super) fn shut_before(mut self, end: Timestamp) -> Self {
        self.spans.retain(|span| span.why != Why::Failing && span.from < end);
        for span in &mut self.spans {
            span.until = span.until.min(end);
        }
        self.spans.sort_by_key(|span| span.from);
        self
    }

    /// From when to when, in milliseconds.
    pub(super) fn parts(&self) -> Vec<(i64, i64)> {
        self.spans.iter().map(|span| (span.from.as_millis(), span.until.as_millis())).collect()
    }

    pub(super) fn is_well(&self) -> bool {
        self.spans.is_empty()
    }

    /// When it was open, blocked, paused or failing, in words; times are UTC.
    pub(super) fn said(&self) -> String {
        let mut parts = vec![];
        for why in [Why::Open, Why::Blocked, Why::Paused, Why::Failing] {
            let spans: Vec<&Span> = self.spans.iter().filter(|span| span.why == why).collect();
            let mut named: Vec<String> = spans.iter().take(MOST_NAMED).map(|span| self.named(span)).collect();
            if let more @ 1.. = spans.len().saturating_sub(MOST_NAMED) {
                named.push(format!("{more} times more"));
            }
            if let Some(last) = named.pop() {
                let before = named.join(", ");
                let and = if before.is_empty() { "" } else { " and " };
                parts.push(format!("{} {before}{and}{last}", why.word()));
            }
        }
        let mut said = if self.is_well() {
            "never open, blocked or paused".to_owned()
        } else {
            format!("{} (UTC)", parts.join("; "))
        };
        if self.known_from > self.since {
            said.push_str(&format!(
                "; before {} UTC not known, the last {MAX_EVENTS} events are kept",
                self.clock(self.known_from)
            ));
        }
        said
    }

    fn named(&self, span: &Span) -> String {
        let from = self.clock(span.from);
        match (span.from > self.since, span.until < self.now) {
            (true, true) if span.until.since(span.from) < Duration::from_secs(60) => {
                format!("for {} at {from}", duration::words(whole(span.until.since(span.from))))
            }
            (true, true) => format!("{from} to {}", self.clock(span.until)),
            (true, false) => format!("since {from}"),
            (false, true) => format!("until {}", self.clock(span.until)),
            (false, false) => "all the time".to_owned(),
        }
    }

    /// With the day, if it is another one.
    fn clock(&self, at: Timestamp) -> String {
        let (text, now) = (at.to_string(), self.now.to_string());
        if text[..10] == now[..10] { text[11..16].to_owned() } else { text[..16].replace('T', " ") }
    }

    /// A strip of that height, with `said` as its text.
    pub(super) fn drawn(&self, height: u32, said: &str, after: &str) -> Markup {
        let label = escape(said);
        let mut svg = format!(
            "<svg class=\"sc\" height=\"{height}\" role=\"img\" aria-label=\"{label}\"><title>{label}</title>"
        );
        let known = self.place(self.known_from);
        if known > 0.0 {
            svg.push_str(&format!("<rect class=\"z\" width=\"{known:.2}%\" height=\"12\" rx=\"2\"/>"));
        }
        svg.push_str(&format!(
            "<rect class=\"g\" x=\"{known:.2}%\" width=\"{:.2}%\" height=\"12\" rx=\"2\" opacity=\".3\"/>",
            100.0 - known
        ));
        for why in Why::ALL {
            for (from, until) in self.merged(why) {
                // What is there is seen, however short it was.
                let width = (self.place(until) - self.place(from)).max(0.2);
                svg.push_str(&format!(
                    "<rect class=\"{}\" x=\"{:.2}%\" width=\"{width:.2}%\" height=\"12\" rx=\"1\"/>",
                    why.class(),
                    self.place(from).min(99.8)
                ));
            }
        }
        svg.push_str(after);
        svg.push_str("</svg>");
        Markup(svg)
    }

    fn place(&self, at: Timestamp) -> f64 {
        ratio(micros(at.since(self.since)), micros(self.now.since(self.since))) * 100.0
    }

    /// The parts of time of one kind. What lies closer together than can be seen, or than there is room for, is one.
    fn merged(&self, why: Why) -> Vec<(Timestamp, Timestamp)> {
        let mut gap = self.now.since(self.since) / 400;
        loop {
            let mut merged: Vec<(Timestamp, Timestamp)> = vec![];
            for span in self.spans.iter().filter(|span| span.why == why) {
                match merged.last_mut() {
                    Some((_, until)) if span.from <= until.later(gap) => *until = span.until.max(*until),
                    _ => merged.push((span.from, span.until)),
                }
            }
            if merged.len() <= MOST_DRAWN || gap.is_zero() {
                return merged;
            }
            gap = gap.saturating_mul(2);
        }
    }
}

/// What events tell, the oldest first.
struct Told {
    spans: Vec<Span>,
    open: Option<Open>,
    blocked: Option<Timestamp>,
}

/// An open breaker.
#[derive(Clone, Copy)]
struct Open {
    from: Timestamp,
    /// When its present break is over.
    until: Option<Timestamp>,
    is_probed: bool,
}

impl Told {
    /// What was before the first event: a probe is only sent while it is open.
    fn before(newest_first: &[DestinationEventView], from: Timestamp) -> Self {
        let first = |kinds: &[&str]| {
            let mut oldest_first = newest_first.iter().rev().map(|event| event.event);
            oldest_first.find(|event| kinds.contains(event))
        };
        let was_open = matches!(first(&["opened", "probed", "closed"]), Some("probed" | "closed"));
        let was_blocked = first(&["blocked", "unblocked"]) == Some("unblocked");
        Self {
            spans: vec![],
            open: was_open.then_some(Open { from, until: None, is_probed: false }),
            blocked: was_blocked.then_some(from),
        }
    }

    fn add(&mut self, event: &DestinationEventView) {
        match event.event {
            "opened" => {
                // Without a probe before it this is another outage: the one before was forgotten in silence.
                if let Some(open) = self.open.filter(|open| !open.is_probed) {
                    self.close(open.until.unwrap_or(event.at).min(event.at));
                }
                let from = self.open.map_or(event.at, |open| open.from);
                self.open = Some(Open { from, until: event.until, is_probed: false });
            }
            "probed" => self.open = self.open.map(|open| Open { is_probed: true, ..open }),
            "closed" => self.close(event.at),
            "reset" => {
                self.close(event.at);
                if let Some(pause) = self.pause() {
                    pause.until = pause.until.min(event.at);
                }
            }
            "blocked" => self.blocked = self.blocked.or(Some(event.at)),
            "unblocked" => {
                let blocked = self.blocked.take();
                self.spans.extend(blocked.map(|from| Span { why: Why::Blocked, from, until: event.at }));
            }
            "paused" => {
                let until = event.until.unwrap_or(event.at);
                match self.pause().filter(|pause| pause.until >= event.at) {
                    Some(pause) => pause.until = pause.until.max(until),
                    None => self.spans.push(Span { why: Why::Paused, from: event.at, until }),
                }
            }
            _ => {}
        }
    }

    /// The last one.
    fn pause(&mut self) -> Option<&mut Span> {
        self.spans.iter_mut().rev().find(|span| span.why == Why::Paused)
    }

    fn close(&mut self, until: Timestamp) {
        let open = self.open.take();
        self.spans.extend(open.map(|open| Span { why: Why::Open, from: open.from, until }));
    }

    /// The spans with what goes on now.
    fn ended(mut self, one: &DestinationView, now: Timestamp) -> Vec<Span> {
        let is_blocked = one.blocked_by.is_some();
        let is_open = one.state != "closed" && !is_blocked;
        let since = one.blocked_at;
        if is_open {
            let from = [since, self.open.map(|open| open.from)].into_iter().flatten().min().unwrap_or(now);
            self.open = None;
            self.spans.push(Span { why: Why::Open, from, until: now });
        } else if let Some(open) = self.open {
            // What is behind a block is not shown, and what was forgotten leaves no event.
            self.close(open.until.unwrap_or(now).min(now));
        }
        if is_blocked {
            let from = since.or(self.blocked).unwrap_or(now);
            self.spans.push(Span { why: Why::Blocked, from, until: now });
        }
        if one.state == "closed" && one.failures > 0 {
            let first = one.first_failure_at;
            self.spans.extend(first.map(|from| Span { why: Why::Failing, from, until: now }));
        }
        self.spans
    }
}

/// In whole seconds, at least one.
fn whole(length: Duration) -> Duration {
    Duration::from_secs(length.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use posthaste_core::destination::DestinationId;

    use super::*;

    /// 2026-11-17, so many minutes after 00:00.
    fn at(minutes: i64) -> Timestamp {
        "2026-11-17T00:00:00Z".parse::<Timestamp>().unwrap().later(Duration::ZERO).plus(minutes)
    }

    trait Plus {
        fn plus(self, minutes: i64) -> Self;
    }

    impl Plus for Timestamp {
        fn plus(self, minutes: i64) -> Self {
            Self::from_micros(self.as_micros() + minutes * 60_000_000)
        }
    }

    fn event(event: &'static str, minute: i64) -> DestinationEventView {
        DestinationEventView { at: at(minute), event, by: None, until: Some(at(minute + 1)) }
    }

    fn well() -> DestinationView {
        DestinationView {
            id: DestinationId::from_bytes([1; 16]),
            kind: "webhook",
            name: "https://a:443".to_owned(),
            tenant: None,
            rate: None,
            concurrency: None,
            paused_until: None,
            state: "closed",
            label: "",
            failures: 0,
            first_failure_at: None,
            last_failure_at: None,
            blocked_at: None,
            blocked_until: None,
            blocked_by: None,
            block_reason: None,
            ramping: false,
            last_status_code: None,
            last_error: None,
            parked: 0,
        }
    }

    fn open_since(minute: i64) -> DestinationView {
        DestinationView { state: "open", blocked_at: Some(at(minute)), ..well() }
    }

    fn blocked_since(minute: i64) -> DestinationView {
        DestinationView { blocked_by: Some("ada".to_owned()), ..open_since(minute) }
    }

    /// Minutes 0 to 100, with the oldest event first.
    fn known(one: &DestinationView, events: &[(&'static str, i64)]) -> Downtime {
        let newest_first: Vec<_> = events.iter().rev().map(|(kind, at)| event(kind, *at)).collect();
        Downtime::of(one, &newest_first, at(0), at(100))
    }

    fn spans(one: &DestinationView, events: &[(&'static str, i64)]) -> Vec<(&'static str, i64, i64)> {
        let minute = |time: Timestamp| (time.as_micros() - at(0).as_micros()) / 60_000_000;
        let spans = known(one, events).spans;
        spans.iter().map(|span| (span.why.word(), minute(span.from), minute(span.until))).collect()
    }

    #[test]
    fn the_history_says_when_it_was_open_blocked_and_paused() {
        let outage = [("opened", 10), ("probed", 11), ("opened", 12), ("probed", 14), ("closed", 15)];
        assert_eq!(spans(&well(), &outage), [("open", 10, 15)]);
        assert_eq!(spans(&well(), &[("probed", 5), ("closed", 6)]), [("open", 0, 6)]);
        assert_eq!(spans(&well(), &[("limited", 2), ("unblocked", 30)]), [("blocked", 0, 30)]);
        assert_eq!(spans(&well(), &[("blocked", 20), ("unblocked", 30)]), [("blocked", 20, 30)]);
        assert_eq!(spans(&well(), &[("paused", 50), ("limited", 60)]), [("paused", 50, 51)]);
        assert_eq!(spans(&well(), &[("paused", 50), ("paused", 51)]), [("paused", 50, 52)]);
        assert_eq!(spans(&well(), &[("opened", -30), ("reset", -20)]), []);
        assert_eq!(spans(&well(), &[]), []);
    }

    #[test]
    fn what_was_forgotten_in_silence_ends_with_its_break() {
        let twice = [("opened", 10), ("opened", 50), ("probed", 51), ("closed", 52)];
        assert_eq!(spans(&well(), &twice), [("open", 10, 11), ("open", 50, 52)]);
        assert_eq!(spans(&well(), &[("opened", 90)]), [("open", 90, 91)]);
    }

    #[test]
    fn what_goes_on_is_known_from_how_it_stands() {
        assert_eq!(spans(&open_since(90), &[("opened", 90)]), [("open", 90, 100)]);
        // Its events are older than the time that is shown, or were never so many.
        assert_eq!(spans(&open_since(-90), &[]), [("open", 0, 100)]);
        assert_eq!(spans(&open_since(20), &[("probed", 60), ("opened", 61)]), [("open", 0, 100)]);
        assert_eq!(spans(&blocked_since(-90), &[]), [("blocked", 0, 100)]);
        let both = [("opened", 10), ("blocked", 40)];
        assert_eq!(spans(&blocked_since(40), &both), [("open", 10, 11), ("blocked", 40, 100)]);
        let failing = DestinationView { failures: 4, first_failure_at: Some(at(97)), ..well() };
        assert_eq!(spans(&failing, &[]), [("failing", 97, 100)]);
    }

    #[test]
    fn what_is_not_kept_is_not_called_well() {
        let mut events = vec![("paused", 60); MAX_EVENTS];
        let cut = known(&well(), &events);
        assert_eq!(
            cut.said(),
            "paused 01:00 to 01:01 (UTC); before 01:00 UTC not known, the last 100 events are kept"
        );
        let svg = cut.drawn(12, "x", "").0;
        assert!(
            svg.contains("<rect class=\"z\" width=\"60.00%\"") && svg.contains("class=\"g\" x=\"60.00%\""),
            "{svg}"
        );
        // An outage that goes on is known from its beginning.
        let open = known(&open_since(30), &events);
        assert_eq!(open.known_from, at(30));
        events.pop();
        assert_eq!(known(&well(), &events).known_from, at(0));
    }

    #[test]
    fn the_sentence_says_what_is_drawn() {
        assert_eq!(known(&well(), &[]).said(), "never open, blocked or paused");
        let outage =
            [("opened", 10), ("probed", 11), ("closed", 12), ("opened", 50), ("probed", 51), ("closed", 55)];
        assert_eq!(known(&well(), &outage).said(), "open 00:10 to 00:12 and 00:50 to 00:55 (UTC)");
        assert_eq!(known(&open_since(90), &[]).said(), "open since 01:30 (UTC)");
        assert_eq!(known(&blocked_since(-9), &[]).said(), "blocked all the time (UTC)");
        let many: Vec<_> = (1..20).flat_map(|n| [("blocked", 5 * n), ("unblocked", 5 * n + 1)]).collect();
        let said = known(&well(), &many).said();
        assert_eq!(said, "blocked 00:05 to 00:06, 00:10 to 00:11, 00:15 to 00:16 and 16 times more (UTC)");
        let yesterday = Downtime::of(&well(), &[event("paused", -5)], at(-60), at(100));
        assert_eq!(yesterday.said(), "paused 2026-11-16 23:55 to 2026-11-16 23:56 (UTC)");
    }

    #[test]
    fn what_waited_was_kept_only_while_nothing_was_sent_and_until_it_ended() {
        let failing = DestinationView { failures: 4, first_failure_at: Some(at(97)), ..well() };
        let events = [
            ("opened", 10),
            ("probed", 11),
            ("closed", 20),
            ("blocked", 40),
            ("unblocked", 70),
            ("paused", 90),
        ];
        let shut = known(&failing, &events).shut_before(at(50));
        let minutes =
            |(from, until): (i64, i64)| [from, until].map(|at_ms| (at_ms - at(0).as_millis()) / 60_000);
        assert_eq!(shut.parts().into_iter().map(minutes).collect::<Vec<_>>(), [[10, 20], [40, 50]]);
        assert!(known(&failing, &[]).shut_before(at(50)).is_well());
    }

    #[test]
    fn a_strip_is_short_however_much_happened() {
        let events: Vec<_> = (1..49).flat_map(|n| [("blocked", 2 * n), ("unblocked", 2 * n + 1)]).collect();
        let svg = known(&well(), &events).drawn(12, "a < b", "").0;
        assert!(svg.matches("<rect").count() <= MOST_DRAWN + 1, "{svg}");
        assert!(svg.contains("aria-label=\"a &lt; b\"") && !svg.contains("NaN"), "{svg}");
        let nothing = Downtime::of(&well(), &[], at(5), at(5)).drawn(12, "", "").0;
        assert!(!nothing.contains("NaN"), "{nothing}");
    }
}
