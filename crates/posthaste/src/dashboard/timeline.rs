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
}

/// Attempts that take up less of the line than this are drawn again.
const SMALL: f64 = 0.25;
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

/// Draws what was made and what is planned, from the acceptance to the end or the next attempt.
pub(super) fn draw(from: i64, made: &[Mark], next: Option<Mark>, end: Option<i64>, now: i64) -> Markup {
    let last = made.last().map_or(from, |mark| mark.at);
    let until = end.or(next.map(|next| next.at)).unwrap_or(now).max(last);
    let whole = Range { from, until: until.max(from + 1_000) };
    let now = end.is_none().then_some(now).filter(|now| *now <= whole.until);
    let label = match (made.len(), next) {
        (0, None) => "No attempt was made yet.".to_owned(),
        (count, None) => format!("Attempts: {count} made."),
        (count, Some(next)) => format!("Attempts: {count} made, number {} is planned.", next.number),
    };
    let mut out = strip(whole, made, next, now, &label);
    let part = Range { from, until: last.max(from + 100) };
    if made.len() > 1 && ratio(part.until - from, whole.until - from) < SMALL {
        let part = Range { until: part.until + (part.until - from) / 10, ..part };
        let right = whole.place(part.until) * 10.0;
        let _ = write!(
            out,
            "<svg width=\"100%\" height=\"22\" viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\" class=\"sc\" aria-hidden=\"true\"><path class=\"cone\" d=\"M10 0 L{right:.0} 0 L1000 22 L0 22 Z\"/></svg>"
        );
        let label = format!("The first {}, enlarged.", words(part.until - part.from));
        out.push_str(&strip(part, made, None, None, &label));
    }
    Markup(out)
}

fn strip(range: Range, made: &[Mark], next: Option<Mark>, now: Option<i64>, label: &str) -> String {
    let mut svg = format!("<svg class=\"sc\" height=\"54\" role=\"img\" aria-label=\"{label}\">");
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
    let right = range.place(next.map_or(range.until, |next| next.at));
    let _ = write!(svg, "<line class=\"wt\" x1=\"1%\" x2=\"{right:.2}%\" y1=\"24\" y2=\"24\"/>");
    let mut labelled = f64::MIN;
    for mark in made.iter().chain(&next) {
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

fn words(millis: i64) -> String {
    duration::words(Duration::from_millis(millis.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: i64, number: u32) -> Mark {
        Mark { at, number, class: "f" }
    }

    #[test]
    fn attempts_and_the_next_one_are_where_their_times_are() {
        let next = Mark { at: 10_000, number: 3, class: "nx" };
        let svg = draw(0, &[mark(0, 1), mark(5_000, 2)], Some(next), None, 6_000).0;
        for x in ["x=\"1.00%\"", "x=\"49.50%\"", "x=\"98.00%\"", "x1=\"59.20%\""] {
            assert!(svg.contains(x), "{x} {svg}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }

    #[test]
    fn what_is_too_small_is_drawn_again() {
        let next = Mark { at: 86_400_000, number: 3, class: "nx" };
        let svg = draw(0, &[mark(0, 1), mark(5_000, 2)], Some(next), None, 6_000).0;
        assert_eq!(svg.matches("<svg").count(), 3, "{svg}");
        assert!(svg.contains("enlarged"));
    }

    #[test]
    fn odd_times_break_nothing() {
        for (made, end, now) in
            [(vec![], None, 0), (vec![mark(-5, 1)], Some(-9), 0), (vec![mark(5, 1)], None, i64::MAX / 4)]
        {
            let svg = draw(0, &made, None, end, now).0;
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
