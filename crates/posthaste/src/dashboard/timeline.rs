//! The timeline of one notification, to scale. What is too small to be seen is drawn a second time, with its zoom marked.

use posthaste_core::duration;
use std::fmt::Write as _;
use std::time::Duration;

use super::drawing::ratio;
use super::show::Markup;

/// One attempt on the timeline; times are in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: i64,
    pub(super) number: u32,
    pub(super) class: &'static str,
    /// Its earliest and its latest time, if it is planned.
    pub(super) range: Option<(i64, i64)>,
}

impl Mark {
    /// A planned attempt stands in the middle of its earliest and latest time.
    pub(super) const fn planned(number: u32, earliest: i64, latest: i64) -> Self {
        Self { at: earliest.midpoint(latest), number, class: "nx", range: Some((earliest, latest)) }
    }

    pub(super) fn latest(&self) -> i64 {
        self.range.map_or(self.at, |(_, latest)| latest)
    }
}

/// Attempts in this first part of the line are drawn again.
const SMALL: f64 = 0.12;
/// Labels that are nearer than this, in percent, are left out.
const NEAR: f64 = 3.5;
/// The distances of the scale, in milliseconds.
const STEPS: [i64; 18] = [
    100,
    500,
    1_000,
    5_000,
    15_000,
    60_000,
    300_000,
    900_000,
    1_800_000,
    3_600_000,
    10_800_000,
    21_600_000,
    43_200_000,
    86_400_000,
    172_800_000,
    604_800_000,
    2_592_000_000,
    31_536_000_000,
];

/// A part of time, drawn from left to right.
#[derive(Debug, Clone, Copy)]
struct Range {
    from: i64,
    until: i64,
}

impl Range {
    /// A place in percent; a little room is left at both ends.
    fn place(self, at: i64) -> f64 {
        1.0 + ratio(at - self.from, self.until - self.from) * 97.0
    }
}

/// Draws what was made and what is planned, from the acceptance to the end or the last planned attempt. `shut` are the times in
/// which nothing was sent to the destination.
pub(super) fn draw(
    from: i64,
    made: &[Mark],
    planned: &[Mark],
    shut: &[(i64, i64)],
    end: Option<i64>,
    now: i64,
) -> Markup {
    let last = made.last().map_or(from, |mark| mark.at);
    let until = end.or(planned.last().map(Mark::latest)).unwrap_or(now).max(last);
    let whole = Range { from, until: until.max(from.saturating_add(1_000)) };
    let now = end.is_none().then_some(now).filter(|now| *now <= whole.until);
    let label = match (made.len(), planned) {
        (0, []) => "No attempt was made yet.".to_owned(),
        (count, []) => format!("Attempts: {count} made."),
        (0, many) => format!("Attempts: {} planned.", many.len()),
        (count, [next]) => format!("Attempts: {count} made, number {} is planned.", next.number),
        (count, many) => format!("Attempts: {count} made, {} planned.", many.len()),
    };
    let all: Vec<Mark> = made.iter().chain(planned).copied().collect();
    let mut out = strip(whole, &all, shut, now, &label);
    let small: Vec<Mark> =
        all.iter().filter(|mark| ratio(mark.latest() - from, whole.until - from) < SMALL).copied().collect();
    if let [_, .., last] = small.as_slice() {
        let length = (last.latest() - from).max(100);
        let part = Range { from, until: from + length + length / 10 };
        let right = whole.place(part.until) * 10.0;
        let _ = write!(
            out,
            "<svg width=\"100%\" height=\"22\" viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\" class=\"sc\" aria-hidden=\"true\"><path class=\"cone\" d=\"M10 0 L{right:.0} 0 L1000 22 L0 22 Z\"/></svg>"
        );
        let label = format!("The first {}, enlarged.", words(part.until - part.from));
        out.push_str(&strip(part, &small, shut, None, &label));
    }
    Markup(out)
}

fn strip(range: Range, marks: &[Mark], shut: &[(i64, i64)], now: Option<i64>, label: &str) -> String {
    let mut svg = format!("<svg class=\"sc\" height=\"54\" role=\"img\" aria-label=\"{label}\">");
    svg.push_str(&scale(range));
    let right = range.place(marks.iter().map(Mark::latest).max().unwrap_or(range.until));
    let _ = write!(svg, "<line class=\"wt\" x1=\"1%\" x2=\"{right:.2}%\" y1=\"24\" y2=\"24\"/>");
    for (from, until) in shut.iter().filter(|(from, until)| *from < range.until && *until > range.from) {
        let (x, right) = (range.place(*from), range.place(*until));
        let _ = write!(
            svg,
            "<line class=\"pk\" x1=\"{x:.2}%\" x2=\"{:.2}%\" y1=\"24\" y2=\"24\"/>",
            right.max(x + 0.2)
        );
    }
    for (earliest, latest) in marks.iter().filter_map(|mark| mark.range) {
        let (x, right) = (range.place(earliest), range.place(latest));
        if right - x >= 0.1 {
            let _ = write!(
                svg,
                "<rect class=\"jt\" x=\"{x:.2}%\" width=\"{:.2}%\" y=\"17\" height=\"14\" rx=\"2\"/>",
                right - x
            );
        }
    }
    let mut labelled = f64::MIN;
    for mark in marks {
        let x = range.place(mark.at);
        let width = if mark.class == "nx" { 4 } else { 3 };
        let _ = write!(
            svg,
            "<rect class=\"{}\" x=\"{x:.2}%\" width=\"{width}\" y=\"14\" height=\"20\" rx=\"1\"/>",
            mark.class
        );
        if x - labelled >= NEAR {
            labelled = x;
            let _ = write!(svg, "<text class=\"m k\" x=\"{:.2}%\" y=\"9\">{}</text>", x + 0.15, mark.number);
        }
    }
    if let Some(now) = now {
        let x = range.place(now);
        let _ = write!(svg, "<line class=\"now\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"6\" y2=\"36\"/>");
    }
    svg.push_str("</svg>");
    svg
}

/// Lines at round distances from the start.
fn scale(range: Range) -> String {
    let mut svg = String::new();
    let length = range.until - range.from;
    let step = STEPS.into_iter().find(|step| length / step <= 8).unwrap_or(i64::MAX);
    for number in 0..=(length / step).min(8) {
        let x = range.place(range.from + number * step);
        let text = if number == 0 { "0".to_owned() } else { words(number * step) };
        let (anchor, hide) =
            (if number == 0 { "" } else { "m" }, if number % 2 == 1 { " hide-s" } else { "" });
        let _ = write!(
            svg,
            "<line class=\"gr\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"12\" y2=\"36\"/><text class=\"{anchor}{hide}\" x=\"{x:.2}%\" y=\"48\">{text}</text>"
        );
    }
    svg
}

fn words(millis: i64) -> String {
    duration::words(Duration::from_millis(millis.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: i64, number: u32) -> Mark {
        Mark { at, number, class: "f", range: None }
    }

    #[test]
    fn attempts_and_the_next_one_are_where_their_times_are() {
        let next = Mark::planned(3, 10_000, 10_000);
        let svg = draw(0, &[mark(0, 1), mark(5_000, 2)], &[next], &[], None, 6_000).0;
        for x in ["x=\"1.00%\"", "x=\"49.50%\"", "x=\"98.00%\"", "x1=\"59.20%\""] {
            assert!(svg.contains(x), "{x} {svg}");
        }
        assert_eq!((svg.matches("<svg").count(), svg.matches("\"jt\"").count()), (1, 0));
    }

    #[test]
    fn what_is_too_small_is_drawn_again() {
        let next = Mark::planned(3, 86_400_000, 86_400_000);
        let svg = draw(0, &[mark(0, 1), mark(5_000, 2)], &[next], &[], None, 6_000).0;
        assert_eq!(svg.matches("<svg").count(), 3, "{svg}");
        assert!(svg.contains("enlarged"));
    }

    #[test]
    fn a_planned_attempt_has_its_earliest_and_latest_time() {
        let planned = [Mark::planned(2, 40_000, 60_000), Mark::planned(3, 80_000, 100_000)];
        let svg = draw(0, &[mark(0, 1)], &planned, &[], None, 1_000).0;
        for rect in [
            "class=\"jt\" x=\"39.80%\" width=\"19.40%\"",
            "class=\"jt\" x=\"78.60%\" width=\"19.40%\"",
            "class=\"nx\" x=\"49.50%\"",
            "class=\"nx\" x=\"88.30%\"",
        ] {
            assert!(svg.contains(rect), "{rect} {svg}");
        }
        assert!(svg.contains("1 made, 2 planned"));
    }

    #[test]
    fn the_times_in_which_nothing_was_sent_are_hatched() {
        let shut = [(2_500, 5_000), (7_500, 90_000), (11_000, 12_000)];
        let svg = draw(0, &[mark(0, 1), mark(5_000, 2), mark(10_000, 3)], &[], &shut, Some(10_000), 0).0;
        for line in ["class=\"pk\" x1=\"25.25%\" x2=\"49.50%\"", "class=\"pk\" x1=\"73.75%\" x2=\"98.00%\""] {
            assert!(svg.contains(line), "{line} {svg}");
        }
        assert_eq!(svg.matches("class=\"pk\"").count(), 2, "{svg}");
    }

    #[test]
    fn odd_times_break_nothing() {
        let far = [Mark::planned(2, i64::MAX / 4, i64::MAX / 4)];
        for (made, planned, end, now) in [
            (vec![], &[][..], None, 0),
            (vec![mark(-5, 1)], &[], Some(-9), 0),
            (vec![mark(5, 1)], &[], None, i64::MAX / 4),
            (vec![mark(5, 1)], &far, None, 0),
        ] {
            let svg = draw(0, &made, planned, &[(-9, 3), (0, i64::MAX / 4)], end, now).0;
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
