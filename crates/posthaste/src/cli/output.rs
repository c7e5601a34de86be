//! Output: tables, JSON and remarks, without raw control characters.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use posthaste_core::duration;
use serde_json::Value;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs: the response of the server.
    Json,
}

/// Prints a remark on stderr.
pub(crate) fn note(text: &str) {
    // Printing fails only if the terminal is gone.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints JSON on stderr, in one line.
pub(crate) fn note_json(value: &Value) {
    note(&harmless_json(&value.to_string()));
}

pub(crate) fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Prints JSON of the server unchanged, except for characters that a terminal would act on.
pub(crate) fn json(body: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(body);
    line(&harmless_json(text.trim_end()))
}

/// Escapes all characters that a terminal would act on.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_active) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_active(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// In JSON such characters occur only in strings, where they can be written as numbers. Line breaks between
/// values stay.
fn harmless_json(text: &str) -> Cow<'_, str> {
    let escaped = |character: char| is_active(character) && !matches!(character, '\n' | '\r' | '\t');
    if !text.chars().any(escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if escaped(character) {
            write!(shown, "\\u{:04x}", u32::from(character)).expect("writing to a String does not fail");
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that change the direction of text or break the line.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A number of seconds as people read it. Below an hour it has tenths of a second at most.
pub(crate) fn seconds_in_words(seconds: f64) -> String {
    let tenths = (seconds.max(0.0) * 10.0).round() / 10.0;
    Duration::try_from_secs_f64(tenths).map_or_else(|_| format!("{seconds} s"), duration::words)
}

/// At most `most` characters; `…` marks a cut.
pub(crate) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let kept = text.char_indices().nth(most - 1).map_or(text.len(), |(at, _)| at);
            Cow::Owned(format!("{}…", &text[..kept]))
        }
    }
}

/// Aligned columns with titles.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|title| (*title).to_owned()).collect()] }
    }

    pub(crate) fn untitled() -> Self {
        Self { rows: Vec::new() }
    }

    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| harmless(cell.as_ref()).into_owned()).collect());
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        io::stdout().lock().write_all(self.render().as_bytes())
    }

    pub(super) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:width$}  ").expect("writing to a String does not fail");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_spaces() {
        let mut table = Table::new(&["ID", "TO"]);
        table.row(["ntf_1", "http://a"]);
        table.row(["ü", ""]);
        assert_eq!(table.render(), "ID     TO\nntf_1  http://a\nü\n");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_shown_instead() {
        let mut table = Table::new(&["TO"]);
        table.row(["\u{1b}[2J\r\nx\u{7f}\u{9b}31m\u{202e}\u{2028}é"]);
        assert_eq!(table.render(), "TO\n\\u{1b}[2J\\r\\nx\\u{7f}\\u{9b}31m\\u{202e}\\u{2028}é\n");
    }

    #[test]
    fn json_stays_the_same_value_when_it_is_made_harmless() {
        let text = "{\n  \"a\": \"x\u{9b}2J\u{7f}\u{202e}é\"\n}";
        let shown = harmless_json(text);
        assert!(!shown.chars().any(|character| is_active(character) && character != '\n'), "{shown:?}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&shown), read(text));
    }

    #[test]
    fn seconds_are_shown_as_people_read_them() {
        for (seconds, text) in [(0.0, "0s"), (0.04, "0s"), (1.26, "1.3s"), (99.0, "1m 39s"), (-1.0, "0s")] {
            assert_eq!(seconds_in_words(seconds), text);
        }
        assert_eq!(seconds_in_words(f64::INFINITY), "inf s");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
