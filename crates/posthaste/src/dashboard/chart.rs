//! Figures over time, drawn on the server. Places on the time axis are in percent; what lies between them is stretched.

use std::fmt::Write as _;
use std::time::Duration;

use posthaste_core::time::{Timestamp, micros};
use url::form_urlencoded;

use super::show::count;

/// A link that shows another part of time.
pub(super) struct Segment {
    pub(super) name: &'static str,
    pub(super) href: String,
    pub(super) current: bool,
}

/// The segments of a page: those of `names`, each with the rest of the query.
pub(super) fn segments(
    path: &str,
    rest: &str,
    names: &[(&'static str, &'static str)],
    current: &str,
) -> Vec<Segment> {
    let segment = |(name, shown): &(&'static str, &'static str)| {
        let and = if rest.is_empty() { "" } else { "&" };
        Segment { name: shown, href: format!("{path}?range={name}{and}{rest}"), current: *name == current }
    };
    names.iter().map(segment).collect()
}

/// Takes the range of a chart from the query of a page. The rest of the query is for the API, which does not know it.
pub(super) fn take_range(query: &str) -> (Option<String>, String) {
    let (range, rest): (Vec<_>, Vec<_>) =
        form_urlencoded::parse(query.as_bytes()).partition(|(name, _)| name == "range");
    if range.is_empty() {
        return (None, query.to_owned());
    }
    let rest = form_urlencoded::Serializer::new(String::new()).extend_pairs(rest).finish();
    (range.into_iter().next().map(|(_, value)| value.into_owned()), rest)
}

/// The part of time that is drawn: the starts of its steps.
pub(super) struct Axis<'a> {
    pub(super) times: &'a [Timestamp],
    /// The distance between two labels.
    pub(super) every: Duration,
}

const A_DAY: Duration = Duration::from_secs(86_400);

impl Axis<'_> {
    /// Where a step begins, in percent.
    fn place(&self, step: usize) -> f64 {
        share(step, self.times.len()) * 100.0
    }

    /// Grid lines from `top` to `bottom` and labels below them, in UTC.
    pub(super) fn grid(&self, top: u32, bottom: u32) -> String {
        let mut svg = String::new();
        let labelled =
            self.times.iter().enumerate().filter(|(_, at)| at.as_micros() % micros(self.every) == 0);
        for (number, (step, at)) in labelled.enumerate() {
            let x = self.place(step);
            let text = at.to_string();
            let label = if self.every < A_DAY { &text[11..16] } else { &text[5..10] };
            let hidden = if number % 2 == 1 { " hide-s" } else { "" };
            let anchor = if x < 3.0 {
                ""
            } else if x > 97.0 {
                "e"
            } else {
                "m"
            };
            let _ = write!(
                svg,
                "<line class=\"gr\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{top}\" y2=\"{bottom}\"/><text class=\"{anchor}{hidden}\" x=\"{x:.2}%\" y=\"{}\">{label}</text>",
                bottom + 14
            );
        }
        svg
    }

    /// One bar a step, the highest as high as there is room.
    pub(super) fn bars(&self, values: &[u64], class: &str, top: u32, bottom: u32) -> String {
        let most = most(values);
        let (width, room) = (share(1, self.times.len()) * 75.0, f64::from(bottom - top));
        let mut svg = String::new();
        for (step, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
            // What is there can be seen, however little it is.
            let height = (ratio(*value, most) * room).max(1.0);
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{:.2}%\" width=\"{width:.2}%\" y=\"{:.1}\" height=\"{height:.1}\"/>",
                self.place(step),
                f64::from(bottom) - height
            );
        }
        svg
    }

    /// A line through the middle of each step, filled down to the bottom.
    pub(super) fn area(&self, values: &[u64], top: u32, bottom: u32) -> String {
        let most = most(values);
        let mut line = String::new();
        for (step, value) in values.iter().enumerate() {
            let command = if step == 0 { 'M' } else { 'L' };
            let _ = write!(line, "{command}{step}.5,{:.1} ", 100.0 - ratio(*value, most) * 100.0);
        }
        let end = values.len().saturating_sub(1);
        format!(
            "<svg x=\"0\" y=\"{top}\" width=\"100%\" height=\"{}\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\"><path class=\"ar\" d=\"{line}L{end}.5,100 L0.5,100 Z\"/><path class=\"ln\" d=\"{line}\"/></svg>",
            bottom - top,
            values.len().max(1)
        )
    }
}

/// The line at the bottom of a panel, its name, and what its top stands for.
pub(super) fn panel(name: &str, values: &[u64], top: u32, bottom: u32) -> String {
    format!(
        "<line class=\"ax\" x1=\"0\" x2=\"100%\" y1=\"{bottom}\" y2=\"{bottom}\"/><text x=\"2\" y=\"{}\">{}</text><text x=\"2\" y=\"{}\">{name}</text>",
        top + 10,
        count(&most(values)),
        bottom - 4
    )
}

pub(super) fn most(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a place in a drawing needs no more than 52 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "a chart has at most 1,500 steps")]
fn share(step: usize, steps: usize) -> f64 {
    step as f64 / steps.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(count: i64) -> Vec<Timestamp> {
        (0..count).map(|hour| Timestamp::from_millis(hour * 3_600_000)).collect()
    }

    #[test]
    fn bars_and_lines_are_where_their_steps_are() {
        let times = hours(4);
        let axis = Axis { times: &times, every: Duration::from_secs(7_200) };
        let bars = axis.bars(&[0, 5, 0, 10], "f", 10, 110);
        assert_eq!(bars.matches("<rect").count(), 2);
        assert!(bars.contains("x=\"25.00%\" width=\"18.75%\" y=\"60.0\" height=\"50.0\""), "{bars}");
        assert!(bars.contains("x=\"75.00%\" width=\"18.75%\" y=\"10.0\" height=\"100.0\""), "{bars}");
        let area = axis.area(&[0, 5, 0, 10], 8, 108);
        assert!(
            area.contains("viewBox=\"0 0 4 100\"")
                && area.contains("M0.5,100.0 L1.5,50.0 L2.5,100.0 L3.5,0.0"),
            "{area}"
        );
        let grid = axis.grid(8, 108);
        assert!(grid.contains(">00:00<") && grid.contains(">02:00<") && !grid.contains(">01:00<"), "{grid}");
        let days = Axis { times: &times, every: A_DAY }.grid(8, 108);
        assert!(days.contains(">01-01<"), "{days}");
    }

    #[test]
    fn nothing_at_all_breaks_no_drawing() {
        let times = hours(3);
        for (times, values) in
            [(&times[..0], vec![]), (&times, vec![0, 0, 0]), (&times, vec![u64::MAX, 0, 1])]
        {
            let axis = Axis { times, every: A_DAY };
            let svg =
                axis.bars(&values, "f", 0, 10) + &axis.area(&values, 0, 10) + &panel("x", &values, 0, 10);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn the_range_is_taken_and_the_rest_is_kept() {
        let taken = |query: &str| take_range(query);
        assert_eq!(taken("a=1&range=7d&b=%26"), (Some("7d".to_owned()), "a=1&b=%26".to_owned()));
        assert_eq!(taken("a=x+y"), (None, "a=x+y".to_owned()));
        assert_eq!(taken(""), (None, String::new()));
    }
}
