//! Throughput and failures over time on the overview, from `GET /v1/stats/series`.

use std::time::Duration;

use axum::extract::State;
use posthaste_core::time::{Timestamp, micros};

use super::chart::{Axis, Segment, most, panel, segments, take_range};
use super::show::{Markup, count, counted};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::problem::{Problem, Result};
use crate::http::query::{Query, short};
use crate::http::series::{self, PointView, SeriesView};

/// A part of time that can be looked at.
struct Range {
    name: &'static str,
    shown: &'static str,
    /// The distance between two points, as the API takes it and in words.
    step: &'static str,
    each: &'static str,
    within: &'static str,
    /// In seconds: the distance between labels, and the length of a row of the table.
    label: u64,
    row: u64,
}

const RANGES: [Range; 3] = [
    Range { name: "1h", shown: "1 h", step: "1m", each: "minute", within: "a minute", label: 600, row: 600 },
    Range {
        name: "24h",
        shown: "24 h",
        step: "5m",
        each: "5 minutes",
        within: "5 minutes",
        label: 10_800,
        row: 3_600,
    },
    Range {
        name: "7d",
        shown: "7 d",
        step: "1h",
        each: "hour",
        within: "an hour",
        label: 86_400,
        row: 86_400,
    },
];

/// The chart with all that stands around it.
pub(super) struct Throughput {
    pub(super) segments: Vec<Segment>,
    pub(super) each: &'static str,
    pub(super) drawing: Markup,
    /// Where the script gets the same figures.
    pub(super) source: String,
    pub(super) said: String,
    pub(super) rows: Vec<Row>,
}

/// The figures of a part of time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) retried: u64,
    pub(super) dead_lettered: u64,
    pub(super) failed: u64,
    /// Expired or cancelled.
    pub(super) ended_otherwise: u64,
}

/// What a page asks for: the range of its chart, and the rest of its query.
pub(super) struct Asked {
    range: &'static Range,
    pub(super) rest: String,
}

impl Asked {
    pub(super) fn read(query: &str) -> Result<Self> {
        let (range, rest) = take_range(query);
        let Some(range) = range else { return Ok(Self { range: &RANGES[1], rest }) };
        let found = RANGES.iter().find(|known| known.name == range);
        let range = found.ok_or_else(|| {
            Problem::parameter("range", format!("range must be 1h, 24h or 7d, not `{}`", short(&range)))
        })?;
        Ok(Self { range, rest })
    }
}

/// The figures of what was asked for.
pub(super) async fn throughput(api: &Shared, visitor: &Visitor, asked: &Asked) -> Result<Throughput> {
    let Asked { range, rest } = asked;
    let and = if rest.is_empty() { "" } else { "&" };
    let query = format!("since={}&step={}{and}{rest}", range.name, range.step);
    let parsed = Query::parse("/v1/stats/series", &query)?;
    let caller = Authenticated(visitor.caller.clone());
    let series = series::series(State(api.clone()), caller, parsed).await?.0;
    let names = RANGES.each_ref().map(|range| (range.name, range.shown));
    Ok(Throughput {
        segments: segments("/", rest, &names, range.name),
        each: range.each,
        drawing: drawn(&series, range),
        source: format!("/v1/stats/series?{query}"),
        said: said(&series.data, range.within),
        rows: rows(&series.data, Duration::from_secs(range.row), series.step.length()),
    })
}

/// What was given up: dead letters, and what failed without one.
fn lost(point: &PointView) -> u64 {
    point.dead_lettered + point.failed
}

fn drawn(series: &SeriesView, range: &Range) -> Markup {
    let times: Vec<Timestamp> = series.data.iter().map(|point| point.at).collect();
    let delivered: Vec<u64> = series.data.iter().map(|point| point.delivered).collect();
    let lost: Vec<u64> = series.data.iter().map(lost).collect();
    let axis = Axis { times: &times, every: Duration::from_secs(range.label) };
    Markup(format!(
        "<svg class=\"sc\" height=\"244\" role=\"img\" aria-label=\"{}\">{}{}{}{}{}</svg>",
        said(&series.data, range.within),
        axis.grid(8, 224),
        axis.area(&delivered, 8, 138),
        panel("delivered", &delivered, 8, 138),
        axis.bars(&lost, "f", 150, 224),
        panel("given up", &lost, 150, 224),
    ))
}

/// The chart in a sentence.
fn said(points: &[PointView], within: &str) -> String {
    let delivered: Vec<u64> = points.iter().map(|point| point.delivered).collect();
    let lost: Vec<u64> = points.iter().map(lost).collect();
    let first = format!(
        "{} delivered, at most {} in {within}",
        count(&delivered.iter().sum()),
        count(&most(&delivered))
    );
    match lost.iter().sum() {
        0 => format!("{first}; nothing was given up."),
        sum => {
            let worst = most(&lost);
            let at = points.iter().find(|point| self::lost(point) == worst).map(|point| point.at.to_string());
            let at = at.as_deref().map_or("", |at| &at[..16]).replace('T', " ");
            format!("{first}; {} given up, most from {at} UTC on.", counted(sum, "was", "were"))
        }
    }
}

/// The figures in rows of equal length.
fn rows(points: &[PointView], length: Duration, step: Duration) -> Vec<Row> {
    let whole =
        |at: Timestamp| Timestamp::from_micros(at.as_micros().div_euclid(micros(length)) * micros(length));
    let mut rows: Vec<Row> = vec![];
    for point in points {
        if rows.last().is_none_or(|row| whole(row.since) != whole(point.at)) {
            let nothing = Row {
                since: point.at,
                until: point.at,
                accepted: 0,
                delivered: 0,
                retried: 0,
                dead_lettered: 0,
                failed: 0,
                ended_otherwise: 0,
            };
            rows.push(nothing);
        }
        let Some(row) = rows.last_mut() else { continue };
        row.until = point.at.later(step);
        row.accepted += point.accepted;
        row.delivered += point.delivered;
        row.retried += point.retried;
        row.dead_lettered += point.dead_lettered;
        row.failed += point.failed;
        row.ended_otherwise += point.expired + point.cancelled;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(minutes: &[u32]) -> Vec<PointView> {
        let point = |minute: &u32| PointView {
            at: Timestamp::from_millis(i64::from(*minute) * 60_000),
            accepted: 1,
            delivered: u64::from(*minute),
            first_try: 0,
            retried: 2,
            dead_lettered: u64::from(*minute == 12),
            failed: 2 * u64::from(*minute == 12),
            expired: 1,
            cancelled: 1,
            p50_ms: None,
            p95_ms: None,
            p99_ms: None,
        };
        minutes.iter().map(point).collect()
    }

    #[test]
    fn rows_are_whole_parts_of_time_but_for_the_first_and_the_last() {
        let minutes: Vec<u32> = (8..22).collect();
        let found = rows(&points(&minutes), Duration::from_secs(600), Duration::from_secs(60));
        let spans: Vec<(i64, i64, u64)> = found
            .iter()
            .map(|row| (row.since.as_millis() / 60_000, row.until.as_millis() / 60_000, row.delivered))
            .collect();
        assert_eq!(spans, [(8, 10, 17), (10, 20, 145), (20, 22, 41)]);
        let second = &found[1];
        assert_eq!((second.accepted, second.retried, second.ended_otherwise), (10, 20, 20));
        assert_eq!((second.dead_lettered, second.failed), (1, 2));
        assert_eq!(rows(&[], Duration::from_secs(600), Duration::from_secs(60)), []);
    }

    #[test]
    fn the_sentence_says_how_much_and_when_it_was_worst() {
        assert_eq!(
            said(&points(&[11, 12, 13]), "a minute"),
            "36 delivered, at most 13 in a minute; 3 were given up, most from 1970-01-01 00:12 UTC on."
        );
        assert_eq!(said(&[], "an hour"), "0 delivered, at most 0 in an hour; nothing was given up.");
    }
}
