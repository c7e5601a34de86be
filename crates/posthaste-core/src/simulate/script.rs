//! What a simulated destination answers, and when: `ok for 10m, 503 for 20m, 10% timeouts and 5% 500 for 1h`.
//!
//! Phases are parted by commas, semicolons or lines. A phase is one answer or several with their shares, and how long it lasts;
//! the last one may leave that out. After the last one all is well.

use std::fmt;
use std::time::Duration;

use crate::duration;
use crate::reply::{Fault, Reply, RetryAfter};

/// The most bytes of a script.
pub(super) const MAX_LENGTH: usize = 4_096;
/// The most phases of a script.
pub(super) const MAX_PHASES: usize = 100;
/// The most answers of one phase.
const MAX_ANSWERS: usize = 10;

/// One phase after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub(super) phases: Vec<Phase>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phase {
    /// The share of each answer in millionths. What is missing to a million is answered well.
    pub(super) answers: Vec<(u32, Said)>,
    /// None: until the end.
    pub(super) lasts: Option<Duration>,
    /// As it was written.
    pub(super) text: String,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) reply: Reply,
    /// How long it takes, if the script says so.
    pub(super) takes: Option<Duration>,
}

pub(super) const WHOLE: u32 = 1_000_000;

/// A mistake, with the column of the word that it is about. The first one is 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {reason}")]
pub struct BadScript {
    pub column: usize,
    pub reason: String,
}

impl Script {
    pub fn parse(text: &str) -> Result<Self, BadScript> {
        if text.len() > MAX_LENGTH {
            return Err(bad(1, format!("the script is longer than {MAX_LENGTH} bytes")));
        }
        let mut phases: Vec<Phase> = vec![];
        for part in parts(text) {
            let words = words(text, part);
            let Some(first) = words.first() else { continue };
            if phases.len() == MAX_PHASES {
                return Err(bad(first.column, format!("there are more than {MAX_PHASES} phases")));
            }
            if let Some(Phase { lasts: None, .. }) = phases.last() {
                return Err(bad(first.column, "only the last phase may be without `for` and a duration"));
            }
            phases.push(Reader { words: &words, at: 0, end: column(text, part.1) }.phase(text)?);
        }
        if phases.is_empty() {
            return Err(bad(1, "the script is empty; a phase such as `503 for 20m` was expected"));
        }
        Ok(Self { phases })
    }

    /// Whether it ends with a time in which all is well, and says how long that lasts.
    pub(super) fn ends_well(&self) -> bool {
        let is_well = |(_, said): &(u32, Said)| matches!(said.reply.status_code(), Some(200..=299));
        self.phases.last().is_some_and(|phase| phase.lasts.is_some() && phase.answers.iter().all(is_well))
    }

    /// How long its phases last, but for one without an end.
    pub fn length(&self) -> Duration {
        let lasts = self.phases.iter().filter_map(|phase| phase.lasts);
        lasts.fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.phases.iter().map(|phase| phase.text.as_str()).collect();
        out.write_str(&texts.join(", "))
    }
}

/// A word and the column where it begins.
#[derive(Debug, Clone, Copy)]
struct Word<'t> {
    text: &'t str,
    column: usize,
    /// Where it ends, in bytes.
    end: usize,
}

fn bad(column: usize, reason: impl Into<String>) -> BadScript {
    BadScript { column, reason: reason.into() }
}

fn column(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}

/// Where phases begin and end, in bytes.
fn parts(text: &str) -> Vec<(usize, usize)> {
    let mut parts = vec![];
    let mut begins = 0;
    for (at, _) in text.match_indices([',', ';', '\n']) {
        parts.push((begins, at));
        begins = at + 1;
    }
    parts.push((begins, text.len()));
    parts
}

fn words(text: &str, (from, to): (usize, usize)) -> Vec<Word<'_>> {
    let mut rest = from;
    let mut words = vec![];
    for word in text[from..to].split_whitespace() {
        let begins = rest + text[rest..to].find(word).unwrap_or(0);
        rest = begins + word.len();
        words.push(Word { text: word, column: column(text, begins), end: rest });
    }
    words
}

/// Reads the words of one phase.
struct Reader<'w, 't> {
    words: &'w [Word<'t>],
    at: usize,
    /// The column behind the phase.
    end: usize,
}

impl<'t> Reader<'_, 't> {
    fn phase(mut self, text: &str) -> Result<Phase, BadScript> {
        let begins = self.words.first().map_or(0, |word| word.end - word.text.len());
        let mut answers = vec![self.answer()?];
        while self.takes_word("and") {
            if answers.len() == MAX_ANSWERS {
                return Err(bad(self.column(), format!("a phase has at most {MAX_ANSWERS} answers")));
            }
            answers.push(self.answer()?);
        }
        let lasts = if self.takes_word("for") { Some(self.duration("for")?) } else { None };
        if let Some(word) = self.word() {
            return Err(bad(
                word.column,
                format!(
                    "`{}` is not expected here: `and`, `with Retry-After`, `in`, `for` or a comma can follow",
                    short(word.text)
                ),
            ));
        }
        let ends = self.words.last().map_or(0, |word| word.end);
        Ok(Phase { answers: shares(answers)?, lasts, text: text[begins..ends].to_owned() })
    }

    /// `[PERCENT%] ANSWER [with Retry-After DURATION] [in DURATION]`.
    fn answer(&mut self) -> Result<Given, BadScript> {
        let column = self.column();
        let share = self.share()?;
        let Some(word) = self.word() else {
            return Err(bad(self.end, format!("an answer is missing: {ANSWERS}")));
        };
        self.at += 1;
        let mut reply = reply(word.text)
            .ok_or_else(|| bad(word.column, format!("`{}` is no answer: {ANSWERS}", short(word.text))))?;
        if let Some(with) = self.word().filter(|word| word.text.eq_ignore_ascii_case("with")) {
            self.at += 1;
            if !self.takes_word("retry-after") {
                return Err(bad(self.column(), "`Retry-After` was expected after `with`"));
            }
            let wait = self.duration("Retry-After")?;
            let Some(status) = reply.status_code().filter(|status| !(200..300).contains(status)) else {
                return Err(bad(with.column, "only a status that is no success can have a Retry-After"));
            };
            reply = Reply::http_after(status, Some(RetryAfter::In(wait)));
        }
        let takes = if self.takes_word("in") { Some(self.duration("in")?) } else { None };
        Ok(Given { share, column, said: Said { reply, takes } })
    }

    /// `10%` or `10 %`.
    fn share(&mut self) -> Result<Option<u32>, BadScript> {
        let Some(word) = self.word() else { return Ok(None) };
        let is_parted = self.words.get(self.at + 1).is_some_and(|next| next.text == "%");
        let Some(number) = word.text.strip_suffix('%').or_else(|| is_parted.then_some(word.text)) else {
            return Ok(None);
        };
        let percent = number.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
        let percent = percent.ok_or_else(|| {
            bad(word.column, format!("`{}%` must be more than 0 % and at most 100 %", short(number)))
        })?;
        self.at += if is_parted { 2 } else { 1 };
        Ok(Some(((percent * 10_000.0).round() as u32).max(1)))
    }

    fn duration(&mut self, after: &str) -> Result<Duration, BadScript> {
        let Some(word) = self.word() else {
            return Err(bad(self.end, format!("a duration such as 20m was expected after `{after}`")));
        };
        self.at += 1;
        let read = duration::parse(word.text).map_err(|error| bad(word.column, error.to_string()))?;
        // Only silence may be over at once.
        if read.is_zero() && after != "Retry-After" {
            return Err(bad(word.column, format!("`{}` must be more than 0", short(word.text))));
        }
        Ok(read)
    }

    fn takes_word(&mut self, text: &str) -> bool {
        let is_next = self.word().is_some_and(|word| word.text.eq_ignore_ascii_case(text));
        self.at += usize::from(is_next);
        is_next
    }

    fn word(&self) -> Option<Word<'t>> {
        self.words.get(self.at).copied()
    }

    fn column(&self) -> usize {
        self.word().map_or(self.end, |word| word.column)
    }
}

/// An answer as it was read.
struct Given {
    share: Option<u32>,
    column: usize,
    said: Said,
}

/// Of several answers each needs a share, and together they are at most the whole.
fn shares(given: Vec<Given>) -> Result<Vec<(u32, Said)>, BadScript> {
    let is_alone = given.len() == 1;
    let mut sum = 0;
    let mut answers = vec![];
    for Given { share, column, said } in given {
        let share = match share {
            Some(share) => share,
            None if is_alone => WHOLE,
            None => return Err(bad(column, "of several answers each needs a share, such as `10% timeouts`")),
        };
        sum += share;
        if sum > WHOLE {
            return Err(bad(column, "the shares of this phase add up to more than 100 %"));
        }
        answers.push((share, said));
    }
    Ok(answers)
}

const ANSWERS: &str = "`ok`, a status from 200 to 599, `timeout`, `refused`, `reset`, `unreachable`, `dns` or `tls` was expected";

fn reply(word: &str) -> Option<Reply> {
    let fault = |fault, text: &str| Some(Reply::fault(fault, text));
    match word.to_ascii_lowercase().as_str() {
        "ok" => Some(Reply::http(200)),
        "timeout" | "timeouts" => fault(Fault::Timeout, "no answer in time"),
        "refused" => fault(Fault::Refused, "connection refused"),
        "reset" | "resets" => fault(Fault::Reset, "connection reset"),
        "unreachable" => fault(Fault::NoRoute, "no route to the address"),
        "dns" => fault(Fault::Dns, "the name cannot be resolved"),
        "tls" => fault(Fault::Tls, "the TLS handshake failed"),
        status => {
            let is_short = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
            let status = status.parse().ok().filter(|status| is_short && (200..600).contains(status))?;
            Some(Reply::http(status))
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mins(minutes: u64) -> Option<Duration> {
        Some(Duration::from_secs(60 * minutes))
    }

    fn parse(text: &str) -> Vec<Phase> {
        Script::parse(text).unwrap().phases
    }

    #[test]
    fn the_scripts_of_the_documentation_are_read() {
        let one = &parse("503 for 20m")[0];
        assert_eq!((one.lasts, one.answers[0].0), (mins(20), WHOLE));
        assert_eq!(one.answers[0].1.reply, Reply::http(503));
        let one = &parse("429 with Retry-After 60 for 5m")[0];
        let asked = Some(RetryAfter::In(Duration::from_secs(60)));
        assert_eq!((one.answers[0].1.reply.retry_after(), one.lasts), (asked, mins(5)));
        let one = &parse("10% timeouts")[0];
        assert_eq!((one.answers[0].0, one.lasts, one.text.as_str()), (100_000, None, "10% timeouts"));
        let all = parse("ok for 10m,\n 2.5 % 503 and 1% refused in 3s for 20m ; OK IN 2s FOR 1h;");
        assert_eq!(all.len(), 3);
        assert_eq!((all[1].answers[0].0, all[1].answers[1].0), (25_000, 10_000));
        assert_eq!(all[1].answers[1].1.takes, Some(Duration::from_secs(3)));
        assert_eq!(all[2].answers[0].1.takes, Some(Duration::from_secs(2)));
        assert_eq!(Script::parse("ok for 10m; 503").unwrap().length(), Duration::from_secs(600));
    }

    #[test]
    fn a_script_is_shown_as_it_was_written() {
        let text = "ok for 10m, 429 with retry-after 1m for 5m, 10% timeouts and 2% 500";
        assert_eq!(Script::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn a_mistake_is_told_with_its_column() {
        let table = [
            ("", 1, "the script is empty; a phase such as `503 for 20m` was expected"),
            (" , ;", 1, "the script is empty; a phase such as `503 for 20m` was expected"),
            ("50x for 20m", 1, "`50x` is no answer: "),
            ("ok for 1m, 600 for 1m", 12, "`600` is no answer: "),
            ("ok for 1m,  199", 13, "`199` is no answer: "),
            ("503 20m", 5, "`20m` is not expected here: "),
            ("503 for", 8, "a duration such as 20m was expected after `for`"),
            ("503 for , ok", 9, "a duration such as 20m was expected after `for`"),
            ("503 for soon", 9, "`soon` is not a duration such as"),
            ("503 for -5m", 9, "`-5m` is negative"),
            ("503 for 0s", 9, "`0s` must be more than 0"),
            ("503, ok for 1m", 6, "only the last phase may be without `for` and a duration"),
            ("10%", 4, "an answer is missing: "),
            ("0% 503", 1, "`0%` must be more than 0 % and at most 100 %"),
            ("101% 503", 1, "`101%` must be more than 0 % and at most 100 %"),
            ("NaN% 503", 1, "`NaN%` must be more than 0 % and at most 100 %"),
            ("60% 503 and 50% timeouts", 13, "the shares of this phase add up to more than 100 %"),
            ("60% 503 and timeouts", 13, "of several answers each needs a share, such as `10% timeouts`"),
            ("429 with 60", 10, "`Retry-After` was expected after `with`"),
            ("429 with Retry-After", 21, "a duration such as 20m was expected after `Retry-After`"),
            ("timeout with Retry-After 60", 9, "only a status that is no success can have a Retry-After"),
            ("ok with Retry-After 60", 4, "only a status that is no success can have a Retry-After"),
            ("äöü for 1m", 1, "`äöü` is no answer: "),
            ("ok for 1m; ü", 12, "`ü` is no answer: "),
        ];
        for (text, column, reason) in table {
            let error = Script::parse(text).unwrap_err();
            assert_eq!(error.column, column, "{text}: {error}");
            assert!(error.reason.starts_with(reason), "{text}: {error}");
        }
        let many = "ok for 1s,".repeat(MAX_PHASES + 1);
        assert!(Script::parse(&many).unwrap_err().reason.contains("more than 100 phases"));
        assert!(Script::parse(&" ".repeat(5_000)).unwrap_err().reason.contains("4096 bytes"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "([0-9]{1,3}|ok|%|for|and|in|with|retry-after|é|[ ,;\n]){0,30}") {
            let _ = Script::parse(&text);
        }
    }
}
