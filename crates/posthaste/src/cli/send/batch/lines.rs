//! The lines of a batch file, gathered into batches that the server takes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use anyhow::Context as _;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::input;

/// The most notifications in a batch of the API.
const MAX_COUNT: usize = 500;
/// The most bytes of all notifications in a batch, a little less than the 16 MiB of a request.
const MAX_BYTES: usize = 15 * 1024 * 1024;
/// The most bytes of a line. The server takes notifications of 256 KiB.
const MAX_LINE: usize = 1024 * 1024;

/// One notification as JSON, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u64,
    text: String,
}

/// What is sent at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<Line>,
    /// Line numbers and problems of what was not JSON.
    pub(super) unreadable: Vec<(u64, Value)>,
}

impl Batch {
    pub(super) fn request(&self) -> String {
        let items: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
        format!("{{\"notifications\":[{}]}}", items.join(","))
    }

    /// The numbers of the first and the last line.
    pub(super) fn range(&self) -> (u64, u64) {
        let number = |line: Option<&Line>| line.map_or(0, |line| line.number);
        (number(self.lines.first()), number(self.lines.last()))
    }
}

/// Reads a file line by line. No more than one batch is in memory.
pub(super) struct Lines<R> {
    input: R,
    name: String,
    number: u64,
    read: u64,
    size: Option<u64>,
    /// A line that did not fit into the last batch.
    kept: Option<Line>,
}

impl Lines<Box<dyn BufRead>> {
    /// Opens a file, or stdin if the path is `-`.
    pub(super) fn open(path: &str) -> anyhow::Result<Self> {
        if path == "-" {
            input::take_stdin()?;
            return Ok(Self::new(Box::new(io::stdin().lock()), "stdin", None));
        }
        let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
        let size = file.metadata().ok().map(|data| data.len()).filter(|size| *size > 0);
        Ok(Self::new(Box::new(BufReader::new(file)), path, size))
    }
}

impl<R: BufRead> Lines<R> {
    fn new(input: R, name: &str, size: Option<u64>) -> Self {
        Self { input, name: name.to_owned(), number: 0, read: 0, size, kept: None }
    }

    /// How much of the file was read; none if its size is not known.
    pub(super) fn percent(&self) -> Option<u64> {
        self.size.map(|size| (self.read.saturating_mul(100) / size).min(100))
    }

    /// The next lines that fit into one request; none at the end of the file. Empty lines are left out.
    pub(super) fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while batch.lines.len() + batch.unreadable.len() < MAX_COUNT {
            let line = match self.kept.take() {
                Some(line) => line,
                None => match self.next_line()? {
                    None => break,
                    Some(Ok(line)) => line,
                    Some(Err(unreadable)) => {
                        batch.unreadable.push(unreadable);
                        continue;
                    }
                },
            };
            if bytes > 0 && bytes + line.text.len() > MAX_BYTES {
                self.kept = Some(line);
                break;
            }
            // The comma counts as well.
            bytes += line.text.len() + 1;
            batch.lines.push(line);
        }
        let is_end = batch.lines.is_empty() && batch.unreadable.is_empty();
        Ok((!is_end).then_some(batch))
    }

    fn next_line(&mut self) -> anyhow::Result<Option<Result<Line, (u64, Value)>>> {
        loop {
            let mut bytes = Vec::new();
            let mut limited = self.input.by_ref().take(MAX_LINE as u64 + 1);
            let name = &self.name;
            let cannot = || format!("cannot read {name}");
            let mut read = limited.read_until(b'\n', &mut bytes).with_context(cannot)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let is_too_long = read > MAX_LINE;
            if is_too_long && bytes.last() != Some(&b'\n') {
                read += self.input.skip_until(b'\n').with_context(cannot)?;
            }
            self.read += read as u64;
            let number = self.number;
            if is_too_long {
                let detail = format!("the line is longer than {} KiB", MAX_LINE / 1024);
                return Ok(Some(Err((number, json!({"code": "PAYLOAD_TOO_LARGE", "detail": detail})))));
            }
            match checked(&bytes) {
                Ok(None) => {}
                Ok(Some(text)) => return Ok(Some(Ok(Line { number, text }))),
                Err(detail) => {
                    return Ok(Some(Err((number, json!({"code": "BAD_JSON", "detail": detail})))));
                }
            }
        }
    }
}

/// The JSON of a line as it was written; none if the line is empty.
fn checked(bytes: &[u8]) -> Result<Option<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the line is not UTF-8".to_owned())?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str::<&RawValue>(text).map_err(|error| format!("the line is not JSON: {error}"))?;
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(text: &[u8]) -> Vec<Batch> {
        let mut lines = Lines::new(text, "a file", Some(text.len() as u64).filter(|size| *size > 0));
        let all = std::iter::from_fn(|| lines.next_batch().unwrap()).collect();
        assert_eq!(lines.percent(), (!text.is_empty()).then_some(100));
        all
    }

    #[test]
    fn lines_keep_their_numbers_and_their_text() {
        let all = batches(b"{\"a\": 1.00}\r\n\n  \n{\"b\":2}\n{broken\n\xff\n3");
        assert_eq!(all.len(), 1);
        let lines: Vec<(u64, &str)> = all[0].lines.iter().map(|line| (line.number, &*line.text)).collect();
        assert_eq!(lines, [(1, "{\"a\": 1.00}"), (4, "{\"b\":2}"), (7, "3")]);
        let codes: Vec<(u64, &str)> = all[0]
            .unreadable
            .iter()
            .map(|(line, problem)| (*line, problem["code"].as_str().unwrap()))
            .collect();
        assert_eq!(codes, [(5, "BAD_JSON"), (6, "BAD_JSON")]);
        assert_eq!(all[0].request(), r#"{"notifications":[{"a": 1.00},{"b":2},3]}"#);
        assert_eq!(all[0].range(), (1, 7));
    }

    #[test]
    fn a_batch_has_at_most_500_lines() {
        for (count, wanted) in
            [(0, &[][..]), (1, &[1]), (500, &[500]), (501, &[500, 1]), (1_000, &[500, 500])]
        {
            let sizes: Vec<usize> =
                batches("1\n".repeat(count).as_bytes()).iter().map(|one| one.lines.len()).collect();
            assert_eq!(sizes, wanted, "{count}");
        }
    }

    #[test]
    fn a_batch_fits_into_a_request() {
        let line = format!("\"{}\"\n", "x".repeat(MAX_LINE - 3));
        let all = batches(line.repeat(40).as_bytes());
        assert!(all.iter().all(|batch| batch.request().len() <= 16 * 1024 * 1024));
        assert_eq!(all.iter().map(|batch| batch.lines.len()).sum::<usize>(), 40);
        let numbers: Vec<u64> = all.iter().flat_map(|batch| &batch.lines).map(|line| line.number).collect();
        assert_eq!(numbers, (1..=40).collect::<Vec<u64>>());
    }

    #[test]
    fn a_line_that_is_too_long_is_rejected_and_the_next_one_is_read() {
        for length in [MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE] {
            let all = batches(format!("\"{}\"\n{{}}\n", "x".repeat(length)).as_bytes());
            assert_eq!((all[0].unreadable.len(), all[0].unreadable[0].0), (1, 1), "{length}");
            assert_eq!(all[0].lines, [Line { number: 2, text: "{}".to_owned() }], "{length}");
        }
    }
}
