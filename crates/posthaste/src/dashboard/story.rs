//! The life of one notification, newest first: attempts with their quick tries, waits between them, and what people did.

use std::time::Duration;

use posthaste_core::time::Timestamp;

use super::drawing::ratio;
use super::show::{self, Markup, length};
use crate::http::views::attempt::{AttemptView, OutcomeView};
use crate::http::views::notification::EventView;
use crate::http::views::plan::{PlanView, PlannedView, Then};

/// One line of the story.
pub(super) enum Step {
    /// Planned.
    Next {
        at: Timestamp,
        number: u32,
        most: u32,
    },
    /// Planned for after the next one, if that fails.
    Later {
        earliest: Timestamp,
        latest: Option<Timestamp>,
        words: String,
    },
    /// How it ends if every attempt fails.
    Then(&'static str),
    /// The wait between two attempts.
    Wait(String),
    Attempt(Box<Made>),
    Event {
        at: Timestamp,
        words: String,
    },
}

/// An attempt that was made.
pub(super) struct Made {
    pub(super) number: u32,
    pub(super) generation: u32,
    pub(super) at: Timestamp,
    pub(super) good: bool,
    /// What the other side said.
    pub(super) said: String,
    pub(super) took: String,
    pub(super) tries: Vec<Try>,
    pub(super) response: Option<posthaste_core::attempt::Response>,
    /// Whether it is the last one, which is shown open.
    pub(super) open: bool,
}

/// One try inside of an attempt, drawn on the time of the attempt.
pub(super) struct Try {
    pub(super) name: String,
    pub(super) said: String,
    pub(super) took: String,
    pub(super) bar: Markup,
}

/// The next attempt, and how many there may be.
pub(super) struct Planned {
    pub(super) at: Timestamp,
    pub(super) number: u32,
    pub(super) most: u32,
}

/// The story of attempts and events, newest first.
pub(super) fn steps(
    attempts: &[AttemptView],
    events: &[EventView],
    next: Option<Planned>,
    plan: Option<&PlanView>,
) -> Vec<Step> {
    let mut steps = vec![];
    for (place, attempt) in attempts.iter().enumerate() {
        if let Some(before) = place.checked_sub(1).and_then(|before| attempts.get(before)) {
            let waited = attempt.started_at.since(before.ended_at);
            if waited >= Duration::from_millis(1) && attempt.generation == before.generation {
                steps.push((before.ended_at, Step::Wait(format!("waited {}", length(&waited)))));
            }
        }
        let open = place + 1 == attempts.len();
        steps.push((attempt.started_at, Step::Attempt(Box::new(made(attempt, open)))));
    }
    for event in events {
        let words = match &event.actor {
            Some(actor) => format!("{} by {actor}", event_words(&event.event)),
            None => event_words(&event.event).to_owned(),
        };
        steps.push((event.at, Step::Event { at: event.at, words }));
    }
    steps.sort_by_key(|(at, _)| *at);
    steps
        .extend(next.map(|next| (next.at, Step::Next { at: next.at, number: next.number, most: next.most })));
    steps.into_iter().map(|(_, step)| step).chain(plan.map(later).unwrap_or_default()).rev().collect()
}

/// The most planned attempts that are listed one by one.
const MOST_LISTED: usize = 5;

/// What follows after the next attempt.
fn later(plan: &PlanView) -> Vec<Step> {
    let step = |planned: &PlannedView, words: String| Step::Later {
        earliest: planned.earliest,
        latest: Some(planned.latest).filter(|latest| *latest != planned.earliest),
        words,
    };
    let (listed, rest) = plan.attempts.split_at(plan.attempts.len().min(MOST_LISTED));
    let mut steps: Vec<Step> =
        listed.iter().map(|planned| step(planned, format!("Attempt {}", planned.number))).collect();
    match rest {
        [] => {}
        [only] => steps.push(step(only, format!("Attempt {}", only.number))),
        [first, .., last] => {
            steps.push(step(last, format!("Attempts {} to {}, this one", first.number, last.number)));
        }
    }
    steps.push(Step::Then(match plan.then {
        Then::DeadLetter => "then dead letter, which waits for a person",
        Then::Failed => "then it has failed for good; its policy keeps no dead letters",
        Then::Expired => "then it has expired",
    }));
    steps
}

fn event_words(event: &str) -> &str {
    match event {
        "interrupted" => "Interrupted: its node stopped, no attempt was spent",
        "cancel" => "Cancel asked for",
        "retry" => "Retried",
        "retry-now" => "Made due at once",
        "requeue" => "Requeued",
        "discard" => "Discarded",
        "restore" => "Restored",
        other => other,
    }
}

fn said(status: Option<u16>, error: Option<&str>, otherwise: &str) -> String {
    match (status, error) {
        (Some(code), Some(error)) if !error.contains(&code.to_string()) => format!("{code} {error}"),
        (_, Some(error)) => error.to_owned(),
        (Some(code), None) => code.to_string(),
        (None, None) => otherwise.to_owned(),
    }
}

fn made(attempt: &AttemptView, open: bool) -> Made {
    let good = matches!(attempt.outcome, OutcomeView::Delivered);
    let failure = attempt.failure_type.map_or("failed", |failure| failure.name());
    Made {
        number: attempt.number,
        generation: attempt.generation,
        at: attempt.started_at,
        good,
        said: said(attempt.status_code, attempt.error.as_deref(), if good { "delivered" } else { failure }),
        took: show::millis(&attempt.duration_ms),
        tries: if attempt.quick_tries.is_empty() { vec![] } else { tries(attempt, good) },
        response: attempt.response.clone(),
        open,
    }
}

fn tries(attempt: &AttemptView, good: bool) -> Vec<Try> {
    let (start, end) = (attempt.started_at, attempt.ended_at);
    let whole = end.as_micros() - start.as_micros();
    let bar = |from: Timestamp, until: Timestamp, class: &str| {
        let (x, right) = (
            ratio(from.as_micros() - start.as_micros(), whole) * 100.0,
            ratio(until.as_micros() - start.as_micros(), whole) * 100.0,
        );
        Markup(format!(
            "<svg class=\"sc\" height=\"10\" aria-hidden=\"true\"><line class=\"gr\" x1=\"0\" x2=\"100%\" y1=\"5\" y2=\"5\"/>\
             <rect class=\"{class}\" x=\"{x:.2}%\" width=\"{:.2}%\" y=\"1\" height=\"8\" rx=\"1\"/></svg>",
            (right - x).max(0.5)
        ))
    };
    let mut ended = start;
    let mut all = vec![];
    for (place, one) in attempt.quick_tries.iter().enumerate() {
        let until = one.started_at.later(Duration::from_millis(one.duration_ms));
        all.push(Try {
            name: name(place, one.started_at.since(ended)),
            said: said(one.status_code, Some(&one.error), one.failure_type.name()),
            took: show::millis(&one.duration_ms),
            bar: bar(one.started_at, until, "f"),
        });
        ended = until;
    }
    let place = attempt.quick_tries.len();
    let (name, took) = match attempt.last_try_at {
        Some(began) => (name(place, began.since(ended)), length(&end.since(began))),
        // An older version made the attempt.
        None => {
            let took = format!("ended after {}", show::millis(&attempt.duration_ms));
            (format!("Quick try {place}, the last"), took)
        }
    };
    all.push(Try {
        name,
        said: said(attempt.status_code, attempt.error.as_deref(), if good { "delivered" } else { "failed" }),
        took,
        bar: bar(attempt.last_try_at.unwrap_or(end), end, if good { "g" } else { "f" }),
    });
    all
}

fn name(place: usize, waited: Duration) -> String {
    if place == 0 { "Try 1".to_owned() } else { format!("Quick try {place}, after {}", length(&waited)) }
}

#[cfg(test)]
mod tests {
    use posthaste_core::attempt::{Attempt, Outcome, QuickTry};
    use posthaste_core::failure::FailureType;

    use super::*;

    #[test]
    fn the_last_try_is_drawn_where_it_began_if_that_is_known() {
        let quick = QuickTry {
            started_at: Timestamp::EPOCH,
            duration_ms: 40,
            failure_type: FailureType::Temporary,
            status_code: Some(503),
            error: "answered 503".to_owned(),
        };
        let mut attempt = Attempt {
            generation: 1,
            number: 1,
            started_at: Timestamp::EPOCH,
            duration: Duration::from_millis(200),
            outcome: Outcome::Delivered,
            status_code: Some(200),
            error: None,
            quick_tries: vec![quick],
            last_try_at: Some(Timestamp::from_millis(140)),
            provider: None,
            message_id: None,
            response: None,
        };
        let last = |attempt: &Attempt| made(&AttemptView::whole(attempt), true).tries.pop().unwrap();
        let known = last(&attempt);
        assert_eq!((known.name.as_str(), known.took.as_str()), ("Quick try 1, after 100 ms", "60 ms"));
        assert!(known.bar.0.contains("class=\"g\" x=\"70.00%\" width=\"30.00%\""), "{}", known.bar.0);
        attempt.last_try_at = None;
        let unknown = last(&attempt);
        assert_eq!(
            (unknown.name.as_str(), unknown.took.as_str()),
            ("Quick try 1, the last", "ended after 200 ms")
        );
        assert!(unknown.bar.0.contains("x=\"100.00%\""), "{}", unknown.bar.0);
    }
}
