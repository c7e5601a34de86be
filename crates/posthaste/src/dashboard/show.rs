//! How values are written on a page: times, counts, durations, JSON.

use std::fmt;
use std::time::Duration;

use askama::filters::HtmlSafe;
use posthaste_core::duration;
use posthaste_core::time::Timestamp;

/// HTML that was made here: every text in it went through `escape`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Markup(pub(super) String);

impl fmt::Display for Markup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

/// A text inside of an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time in UTC, which the script turns into local time. On another day than `now` it names the day.
pub(super) fn time(at: Timestamp, now: Timestamp) -> Markup {
    let text = at.to_string();
    let (day, clock) = (&text[..10], &text[11..19]);
    let shown = if now.to_string().starts_with(day) { clock.to_owned() } else { dated(&text) };
    Markup(format!("<time datetime=\"{text}\" title=\"{day} {clock} UTC\">{shown}</time>"))
}

/// `16 Nov 23:54:02`, with the year if it is not the current one in the mind of the reader.
fn dated(text: &str) -> String {
    let month = text[5..7].parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let day = text[8..10].trim_start_matches('0');
    format!("{day} {} {}", month.unwrap_or(&""), &text[11..19])
}

/// How far away a time is; only the script can keep it right, so without script nothing is shown.
pub(super) fn distance(at: &Timestamp) -> Markup {
    Markup(format!("<span class=\"fnt\" data-distance=\"{at}\"></span>"))
}

/// A count with separators.
pub(super) fn count(number: &u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `1 thing`, `2 things`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(&number), if number == 1 { one } else { many })
}

/// A number of seconds as a duration.
pub(super) fn seconds(seconds: &f64) -> String {
    length(&Duration::try_from_secs_f64(*seconds).unwrap_or_default())
}

/// A duration for people: `1.42 s` below a minute, else as everywhere.
pub(super) fn length(length: &Duration) -> String {
    let millis = length.as_millis();
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{:.2} s", length.as_secs_f64()),
        _ => duration::words(Duration::from_secs(length.as_secs())),
    }
}

/// A number of milliseconds as a duration.
pub(super) fn millis(millis: &u64) -> String {
    length(&Duration::from_millis(*millis))
}

/// A rate from 0 to 1 in percent.
pub(super) fn percent(rate: &f64) -> String {
    let rate = *rate;
    // Only a rate of 1 is shown as 100 %.
    let percent = if rate < 1.0 { (rate * 1_000.0).floor() / 10.0 } else { 100.0 };
    format!("{percent:.1} %")
}

/// JSON in lines, with its parts marked. Numbers keep every digit.
pub(super) fn json(text: &str) -> Markup {
    let mut out = Pretty { out: String::with_capacity(text.len() * 2), depth: 0 };
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        match bytes[at] {
            b'"' => {
                at = end_of_string(bytes, at);
                let is_name = text[at..].trim_start().starts_with(':');
                out.part(if is_name { "k" } else { "s" }, &text[from..at]);
            }
            b'{' | b'[' => {
                at += 1;
                out.out.push(char::from(bytes[from]));
                let rest = text[at..].trim_start();
                if rest.starts_with(['}', ']']) {
                    out.out.push(if bytes[from] == b'{' { '}' } else { ']' });
                    at = bytes.len() - rest.len() + 1;
                } else {
                    out.depth += 1;
                    out.line();
                }
            }
            b'}' | b']' => {
                at += 1;
                out.depth = out.depth.saturating_sub(1);
                out.line();
                out.out.push(char::from(bytes[from]));
            }
            b',' => {
                at += 1;
                out.out.push(',');
                out.line();
            }
            b':' => {
                at += 1;
                out.out.push_str(": ");
            }
            byte if byte.is_ascii_whitespace() => at += 1,
            _ => {
                let ends = |byte: &u8| b",:{}[]\"".contains(byte) || byte.is_ascii_whitespace();
                at = bytes[from..].iter().position(ends).map_or(bytes.len(), |length| from + length);
                out.part("n", &text[from..at]);
            }
        }
    }
    Markup(out.out)
}

struct Pretty {
    out: String,
    depth: usize,
}

impl Pretty {
    fn part(&mut self, class: &str, text: &str) {
        self.out.push_str(&format!("<span class=\"{class}\">{}</span>", escape(text)));
    }

    fn line(&mut self) {
        self.out.push('\n');
        // Deep nesting does not push the text out of sight, nor the page out of its bounds.
        self.out.push_str(&"  ".repeat(self.depth.min(32)));
    }
}

fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_rates_are_read_at_a_glance() {
        for (number, shown) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(&number), shown);
        }
        assert_eq!(
            (percent(&1.0), percent(&0.99999), percent(&0.914), percent(&0.0)),
            ("100.0 %".into(), "99.9 %".into(), "91.4 %".into(), "0.0 %".into())
        );
        assert_eq!(
            (counted(1, "retry", "retries"), counted(2, "retry", "retries")),
            ("1 retry".into(), "2 retries".into())
        );
    }

    #[test]
    fn a_time_names_its_day_where_it_is_another() {
        let at = Timestamp::from_millis(1_794_883_570_000);
        let text = at.to_string();
        assert!(time(at, at).0.contains(&format!(">{}</time>", &text[11..19])));
        let other = time(at, at.later(Duration::from_secs(3 * 86_400)));
        assert!(other.0.contains(" Nov ") && other.0.contains(&format!("datetime=\"{text}\"")), "{other}");
    }

    #[test]
    fn json_keeps_its_values_and_escapes_them() {
        let shown = json(r#"{"a":[1.000000000000000000001,{}, []],"<b>":"</pre>\"x"}"#).0;
        assert_eq!(
            shown,
            "{\n  <span class=\"k\">&quot;a&quot;</span>: [\n    <span class=\"n\">1.000000000000000000001</span>,\n    {},\n    []\n  ],\n  \
             <span class=\"k\">&quot;&lt;b&gt;&quot;</span>: <span class=\"s\">&quot;&lt;/pre&gt;\\&quot;x&quot;</span>\n}"
        );
        // What is not JSON does not break the page.
        for odd in ["", "\"", "\"\\", "}}}", "{", "[", "nul", "ü\"ü"] {
            assert!(!json(odd).0.contains("<b>"));
        }
    }
}
