//! Drawings in SVG: positions are in percent, so that nothing is computed in the browser.

use super::show::{Markup, escape};

/// How many of how many attempts were made, one cell each. Beyond 20 the cells stand for parts of all.
pub(super) fn cells(made: u32, most: u32, ended_well: bool) -> Markup {
    let most = most.max(made).max(1);
    let cells = most.min(20);
    let filled = u32::try_from(u64::from(made) * u64::from(cells) / u64::from(most)).unwrap_or(cells);
    let label = format!("{made} of {most} attempts made");
    let mut svg = format!(
        "<svg class=\"trace\" role=\"img\" aria-label=\"{label}\"><title>{label}</title><line class=\"wt\" x1=\"0\" x2=\"100%\" y1=\"7\" y2=\"7\"/>"
    );
    for cell in 0..cells {
        let x = f64::from(cell) * 100.0 / f64::from(cells);
        let class = match (cell < filled, cell + 1 == filled && ended_well) {
            (true, true) => "g",
            (true, false) => "f",
            (false, _) => "nx",
        };
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.2}%\" y=\"1\" width=\"3\" height=\"12\" rx=\"1\"/>"
        ));
    }
    svg.push_str("</svg>");
    Markup(svg)
}

/// Attempts on a line, to scale: where each began between the first and the last, and whether it was a success.
pub(super) fn trace(attempts: &[(i64, bool)]) -> Markup {
    let label = match attempts {
        [] => "never sent".to_owned(),
        [_] => "1 attempt".to_owned(),
        all => format!("{} attempts, to scale", all.len()),
    };
    let label = escape(&label);
    let mut svg = format!(
        "<svg class=\"trace\" role=\"img\" aria-label=\"{label}\"><title>{label}</title><line class=\"wt\" x1=\"0\" x2=\"100%\" y1=\"7\" y2=\"7\"/>"
    );
    let first = attempts.first().map_or(0, |(at, _)| *at);
    let span = attempts.last().map_or(0, |(at, _)| at - first).max(1);
    // A tick is about 3 % wide and stays inside.
    for (at, good) in attempts.iter().take(50) {
        let x = ratio(at - first, span) * 97.0;
        let class = if *good { "g" } else { "f" };
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.2}%\" y=\"1\" width=\"3\" height=\"12\" rx=\"1\"/>"
        ));
    }
    svg.push_str("</svg>");
    Markup(svg)
}

/// How many there were in each hour, the last one at the right. The largest fills the height.
pub(super) fn hours(counts: &[u64]) -> Markup {
    let (most, all) = (counts.iter().copied().max().unwrap_or(0), counts.iter().sum::<u64>());
    let label = format!("{} in the last {} hours", super::show::count(&all), counts.len());
    let mut svg =
        format!("<svg class=\"sc\" height=\"34\" role=\"img\" aria-label=\"{label}\"><title>{label}</title>");
    let width = 100.0 / f64::from(u32::try_from(counts.len().max(1)).unwrap_or(u32::MAX));
    let mut x = 0.0;
    for number in counts {
        if *number > 0 {
            // What is there is seen, however small it is.
            let height = (share(*number, most) * 30.0).max(2.0);
            svg.push_str(&format!(
                "<rect class=\"f\" x=\"{x:.2}%\" width=\"{:.2}%\" y=\"{:.1}\" height=\"{height:.1}\"/>",
                width * 0.8,
                32.0 - height
            ));
        }
        x += width;
    }
    svg.push_str("<line class=\"wt\" x1=\"0\" x2=\"100%\" y1=\"33\" y2=\"33\"/></svg>");
    Markup(svg)
}

/// A bar whose parts, each with its class, are shares of a whole.
pub(super) fn bar(size: &str, label: &str, parts: &[(&str, f64)]) -> Markup {
    let label = escape(label);
    let mut svg =
        format!("<svg class=\"bar{size}\" role=\"img\" aria-label=\"{label}\"><title>{label}</title>");
    let mut x = 0.0;
    for (class, part) in parts.iter().filter(|(_, part)| *part > 0.0) {
        let width = part * 100.0;
        svg.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.2}%\" width=\"{width:.2}%\" height=\"100%\"/>"
        ));
        x += width;
    }
    svg.push_str("</svg>");
    Markup(svg)
}

/// A count as a part of all, from 0 to 1.
pub(super) fn share(part: u64, all: u64) -> f64 {
    ratio(i64::try_from(part).unwrap_or(i64::MAX), i64::try_from(all).unwrap_or(i64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "a place in a drawing needs no more than 52 bits")]
pub(super) fn ratio(part: i64, whole: i64) -> f64 {
    if whole <= 0 { 0.0 } else { (part as f64 / whole as f64).clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_cells_are_filled_as_attempts_were_made() {
        let filled = |made, most, good| {
            let svg = cells(made, most, good).0;
            (
                svg.matches("class=\"f\"").count(),
                svg.matches("class=\"g\"").count(),
                svg.matches("class=\"nx\"").count(),
            )
        };
        assert_eq!(filled(2, 5, false), (2, 0, 3));
        assert_eq!(filled(3, 3, true), (2, 1, 0));
        assert_eq!(filled(0, 5, false), (0, 0, 5));
        assert_eq!(filled(500, 1_000, false), (10, 0, 10));
        assert_eq!(filled(7, 5, false), (7, 0, 0));
    }

    #[test]
    fn attempts_are_drawn_to_scale() {
        let svg = trace(&[(0, false), (25, false), (100, true)]).0;
        assert!(
            svg.contains("x=\"0.00%\"") && svg.contains("x=\"24.25%\"") && svg.contains("x=\"97.00%\""),
            "{svg}"
        );
        assert!(trace(&[]).0.contains("never sent"));
        assert_eq!((ratio(5, 0), ratio(-1, 5), ratio(9, 5)), (0.0, 0.0, 1.0));
    }

    #[test]
    fn hours_that_had_any_are_seen_and_shares_add_up() {
        let svg = hours(&[0, 1, 1_000_000, 0]).0;
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("height=\"30.0\"") && svg.contains("height=\"2.0\""), "{svg}");
        assert!(svg.contains("1,000,001 in the last 4 hours"), "{svg}");
        assert_eq!(hours(&[]).0.matches("<rect").count(), 0);
        let svg = bar(" lg", "a < b", &[("g", 0.5), ("i", 0.0), ("p", 0.25)]).0;
        assert!(svg.contains("a &lt; b") && svg.contains("x=\"50.00%\" width=\"25.00%\""), "{svg}");
        assert_eq!((share(0, 0), share(1, 4), share(9, 3)), (0.0, 0.25, 1.0));
    }
}
