//! What comes due on the page of the retry queue, from `GET /v1/retry-queue/load`.

use std::time::Duration;

use axum::extract::State;
use posthaste_core::series::Step;
use posthaste_core::time::Timestamp;

use super::chart::{Axis, Segment, most, panel, segments, take_range};
use super::show::{Markup, count, counted};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::problem::{Problem, Result};
use crate::http::query::{Query, short};
use crate::http::series::{self, LoadPoint, LoadView};

/// How far ahead can be looked.
struct Range {
    name: &'static str,
    shown: &'static str,
    step: Step,
    each: &'static str,
    /// The distance between labels, in seconds.
    label: u64,
    /// After how many steps the first two counts end. The third is that of all.
    counts: [usize; 2],
}

const RANGES: [Range; 3] = [
    Range { name: "1h", shown: "1 h", step: Step::Minute, each: "minute", label: 600, counts: [1, 10] },
    Range {
        name: "6h",
        shown: "6 h",
        step: Step::FiveMinutes,
        each: "5 minutes",
        label: 3_600,
        counts: [1, 12],
    },
    Range {
        name: "24h",
        shown: "24 h",
        step: Step::FiveMinutes,
        each: "5 minutes",
        label: 10_800,
        counts: [12, 72],
    },
];

/// The chart with its counts.
pub(super) struct Due {
    pub(super) segments: Vec<Segment>,
    pub(super) each: &'static str,
    pub(super) drawing: Markup,
    /// How many are due before a time.
    pub(super) counts: Vec<(Timestamp, u64)>,
    pub(super) said: String,
}

/// What a page asks for: how far ahead, and the rest of its query.
pub(super) struct Asked {
    range: &'static Range,
    pub(super) rest: String,
}

impl Asked {
    pub(super) fn read(query: &str) -> Result<Self> {
        let (range, rest) = take_range(query);
        let Some(range) = range else { return Ok(Self { range: &RANGES[0], rest }) };
        let found = RANGES.iter().find(|known| known.name == range);
        let range = found.ok_or_else(|| {
            Problem::parameter("range", format!("range must be 1h, 6h or 24h, not `{}`", short(&range)))
        })?;
        Ok(Self { range, rest })
    }
}

/// The retries to come of the tenants that the list shows; its other conditions do not count here.
pub(super) async fn due(api: &Shared, visitor: &Visitor, asked: &Asked, tenant: Option<&str>) -> Result<Due> {
    let Asked { range, rest } = asked;
    let mut query = format!("until={}&step={}", range.name, range.step.name());
    if let Some(tenant) = tenant {
        query.push_str("&tenant=");
        query.extend(url::form_urlencoded::byte_serialize(tenant.as_bytes()));
    }
    let parsed = Query::parse("/v1/retry-queue/load", &query)?;
    let caller = Authenticated(visitor.caller.clone());
    let load = series::load(State(api.clone()), caller, parsed).await?.0;
    let names = RANGES.each_ref().map(|range| (range.name, range.shown));
    Ok(Due {
        segments: segments("/retry-queue", rest, &names, range.name),
        each: range.each,
        drawing: drawn(&load, range),
        counts: counts(&load.data, range),
        said: said(&load, range.each),
    })
}

fn drawn(load: &LoadView, range: &Range) -> Markup {
    let times: Vec<Timestamp> = load.data.iter().map(|point| point.at).collect();
    let values: Vec<u64> = load.data.iter().map(|point| point.count).collect();
    let axis = Axis { times: &times, every: Duration::from_secs(range.label) };
    Markup(format!(
        "<svg class=\"sc\" height=\"118\" role=\"img\" aria-label=\"{}\">{}{}{}</svg>",
        said(load, range.each),
        axis.grid(8, 100),
        axis.bars(&values, "q", 14, 100),
        panel("due", &values, 4, 100),
    ))
}

/// How many are due before the end of the first steps, and of all.
fn counts(points: &[LoadPoint], range: &Range) -> Vec<(Timestamp, u64)> {
    let upto = |steps: usize| {
        let part = &points[..steps.min(points.len())];
        let end = part.last()?.at.later(range.step.length());
        Some((end, part.iter().map(|point| point.count).sum()))
    };
    [range.counts[0], range.counts[1], points.len()].into_iter().filter_map(upto).collect()
}

/// The chart in a sentence.
fn said(load: &LoadView, each: &str) -> String {
    let values: Vec<u64> = load.data.iter().map(|point| point.count).collect();
    let worst = load.data.iter().find(|point| point.count > 0 && point.count == most(&values));
    let Some(worst) = worst else { return "No retry is due in this time.".to_owned() };
    let said = format!(
        "{} due in this time; the most in one go are {}, in the {each} from {} UTC on.",
        counted(values.iter().sum(), "retry is", "retries are"),
        count(&worst.count),
        &worst.at.to_string()[11..16]
    );
    if load.complete {
        said
    } else {
        format!("{said} There are more than are counted here: at most 100,000 retries are looked at.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[u64]) -> Vec<LoadPoint> {
        let point = |(minute, count): (i64, &u64)| LoadPoint {
            at: Timestamp::from_millis(minute * 60_000),
            count: *count,
        };
        (0..).zip(values).map(point).collect()
    }

    #[test]
    fn the_counts_add_up_to_their_times() {
        let mut values = vec![1; 60];
        values[0] = 5;
        let found = counts(&points(&values), &RANGES[0]);
        let minutes: Vec<(i64, u64)> =
            found.iter().map(|(at, count)| (at.as_millis() / 60_000, *count)).collect();
        assert_eq!(minutes, [(1, 5), (10, 14), (60, 64)]);
        assert_eq!(counts(&[], &RANGES[0]), []);
    }

    #[test]
    fn the_sentence_names_the_peak_and_what_was_not_counted() {
        let said = |values: &[u64], complete| said(&LoadView { data: points(values), complete }, "minute");
        let peak =
            "8 retries are due in this time; the most in one go are 7, in the minute from 00:02 UTC on.";
        assert_eq!(said(&[1, 0, 7], true), peak);
        assert_eq!(
            said(&[1, 0, 7], false),
            format!("{peak} There are more than are counted here: at most 100,000 retries are looked at.")
        );
        assert_eq!(said(&[0, 0], true), "No retry is due in this time.");
    }
}
