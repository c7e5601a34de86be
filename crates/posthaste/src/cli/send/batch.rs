//! `posthaste send --batch`: many notifications from a file with one per line, sent in batches.
//!
//! Each line is checked to be JSON before it is sent, so that one bad line does not spoil its batch. The server
//! accepts and rejects each notification on its own; a batch that it refuses as a whole ends the command.

mod lines;

use std::io::{self, IsTerminal, Write};

use http::Method;
use serde_json::{Value, json};

use self::lines::{Batch, Line, Lines};
use super::idempotency;
use crate::cli::Exit;
use crate::cli::output::{Output, harmless, json as print_json, line, note, note_json};
use crate::cli::reach::{CommandError, Session};
use crate::client::ApiProblem;

pub(super) async fn run(session: &Session, file: &str, key: Option<&str>) -> anyhow::Result<Exit> {
    let mut lines = Lines::open(file)?;
    let mut report = Report::new(session.output);
    let mut number = 0;
    while let Some(batch) = lines.next_batch()? {
        for (line, problem) in &batch.unreadable {
            report.rejected(*line, problem)?;
        }
        if batch.lines.is_empty() {
            continue;
        }
        number += 1;
        let sent = send(session, &batch, key.map(|key| format!("{key}-{number}"))).await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Err(report.broken_off(&batch, file, key, error)),
        };
        report.answered(&batch.lines, &answer)?;
        report.show_progress(lines.percent());
    }
    report.end()
}

/// Sends a batch. The answer says which were accepted and which were rejected.
async fn send(session: &Session, batch: &Batch, key: Option<String>) -> anyhow::Result<Value> {
    let headers = key.as_deref().map(idempotency).transpose()?;
    let path = "/v1/notifications/batch";
    let answer = session.try_call(Method::POST, path, headers.as_slice(), Some(batch.request())).await?;
    match answer.clone().ok() {
        Ok(answer) => session.value(&answer),
        Err(problem) => rejections(&problem).ok_or_else(|| session.refused(&problem).into()),
    }
}

/// The list of rejected notifications, if the problem is that none was accepted.
fn rejections(problem: &ApiProblem) -> Option<Value> {
    let rejected = problem.document.as_ref()?.get("rejected").filter(|list| list.is_array())?;
    Some(json!({"accepted": [], "rejected": rejected}))
}

/// What was accepted and rejected so far.
struct Report {
    output: Output,
    accepted: u64,
    /// Of those that were accepted.
    deferred: u64,
    rejected: u64,
    has_terminal: bool,
}

impl Report {
    fn new(output: Output) -> Self {
        Self { output, accepted: 0, deferred: 0, rejected: 0, has_terminal: io::stderr().is_terminal() }
    }

    fn answered(&mut self, lines: &[Line], answer: &Value) -> anyhow::Result<()> {
        let line_of = |row: &Value| {
            let index = row["index"].as_u64().and_then(|index| usize::try_from(index).ok());
            index.and_then(|index| lines.get(index)).map_or(0, |line| line.number)
        };
        for row in answer["accepted"].as_array().into_iter().flatten() {
            self.accepted += 1;
            self.deferred += u64::from(row["deferredUntil"].is_string());
            if self.output == Output::Json {
                let mut told = json!({"line": line_of(row), "notificationId": row["notificationId"]});
                if row["deferredUntil"].is_string() {
                    told["deferredUntil"] = row["deferredUntil"].clone();
                }
                print_json(told.to_string().as_bytes())?;
            }
        }
        for row in answer["rejected"].as_array().into_iter().flatten() {
            let problem = within_line(&row["problem"], &row["index"]);
            self.rejected(line_of(row), &problem)?;
        }
        Ok(())
    }

    /// Prints why a line was rejected: for people on stderr, for programs among the results.
    fn rejected(&mut self, number: u64, problem: &Value) -> io::Result<()> {
        self.rejected += 1;
        if self.output == Output::Json {
            return print_json(json!({"line": number, "problem": problem}).to_string().as_bytes());
        }
        self.clear_progress();
        let text = |name: &str| problem[name].as_str().unwrap_or_default();
        let at = if text("pointer").is_empty() { String::new() } else { format!(" at {}", text("pointer")) };
        note(&harmless(&format!("line {number}: {} ({}){at}", text("detail"), text("code"))));
        Ok(())
    }

    fn show_progress(&self, percent: Option<u64>) {
        if !self.has_terminal {
            return;
        }
        let percent = percent.map_or_else(String::new, |percent| format!(", {percent} %"));
        // The line is written over by the next one.
        let text = format!("\r\x1b[K{} accepted, {} rejected{percent}", self.accepted, self.rejected);
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    fn clear_progress(&self) {
        if self.has_terminal {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }

    fn summary(&self) -> String {
        let of = self.accepted + self.rejected;
        let deferred = match self.deferred {
            0 => String::new(),
            count => format!(", {count} of them over the rate limit and sent later"),
        };
        format!("accepted {} of {of} notifications{deferred}, rejected {}", self.accepted, self.rejected)
    }

    fn end(self) -> anyhow::Result<Exit> {
        self.clear_progress();
        match self.output {
            Output::Table => line(&self.summary())?,
            Output::Json => note_json(&json!({"accepted": self.accepted, "rejected": self.rejected})),
        }
        Ok(if self.rejected == 0 { Exit::Done } else { Exit::Failed })
    }

    /// Reports what was done before a batch failed, and how to go on.
    fn broken_off(
        &self,
        batch: &Batch,
        file: &str,
        key: Option<&str>,
        error: anyhow::Error,
    ) -> anyhow::Error {
        self.clear_progress();
        let (first, last) = batch.range();
        let is_unknown = error.downcast_ref::<CommandError>().is_some_and(|error| {
            let code = error.json()["code"].as_str().map(str::to_owned);
            may_be_accepted(error.status.map(|status| status.as_u16()), code.as_deref())
        });
        if self.output == Output::Json {
            let mut told = json!({"accepted": self.accepted, "rejected": self.rejected, "nextLine": first});
            if is_unknown {
                told["unknownLines"] = json!([first, last]);
            }
            note_json(&told);
            return error;
        }
        let advice = advice((first, last), is_unknown, file, key.is_some());
        note(&harmless(&format!("{}; {advice}", self.summary())));
        error
    }
}

/// Whether the notifications of a batch that failed may have been stored. These answers say that nothing was: a refusal of the
/// request, and a server that had no room for it or was stopping.
fn may_be_accepted(status: Option<u16>, code: Option<&str>) -> bool {
    match status {
        Some(400..=499) => false,
        Some(503) => !matches!(code, Some("STOPPING" | "OVERLOADED")),
        _ => true,
    }
}

/// How to go on after the batch with these lines, and which lines may arrive twice.
fn advice((first, last): (u64, u64), is_unknown: bool, file: &str, has_key: bool) -> String {
    let standing = if is_unknown { "may have been accepted" } else { "were not accepted" };
    let mut text = format!("lines {first} to {last} {standing}. ");
    if has_key {
        // The batches are numbered from the first line on, so what is left of the file would get the keys of other batches.
        text += "To go on, run the same command again within 24 hours, with the same lines and the same --idempotency-key: \
                 what was accepted is not sent again";
        return text;
    }
    text += &match file {
        "-" => format!("To go on, send the lines from {first} on"),
        file => format!("To go on: tail -n +{first} {file} | posthaste send --batch -"),
    };
    if is_unknown {
        text += &format!(" (lines {first} to {last} may then arrive twice)");
    }
    text
}

/// A problem of one notification in a batch, with a pointer into the line instead of the request.
fn within_line(problem: &Value, index: &Value) -> Value {
    let mut problem = problem.clone();
    let prefix = format!("/notifications/{index}");
    if let Some(inner) = problem["pointer"].as_str().and_then(|pointer| pointer.strip_prefix(&prefix)) {
        problem["pointer"] = json!(inner);
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_into_the_line() {
        let problem = json!({"detail": "x", "pointer": "/notifications/17/to"});
        assert_eq!(within_line(&problem, &json!(17))["pointer"], "/to");
        assert_eq!(within_line(&problem, &json!(2)), problem);
        assert_eq!(within_line(&json!({"detail": "x"}), &json!(1)), json!({"detail": "x"}));
    }

    #[test]
    fn only_an_answer_that_says_so_means_that_nothing_was_stored() {
        for (status, code) in
            [(401, "UNAUTHORIZED"), (409, "IDEMPOTENCY_CONFLICT"), (503, "STOPPING"), (503, "OVERLOADED")]
        {
            assert!(!may_be_accepted(Some(status), Some(code)), "{code}");
        }
        for (status, code) in [
            (None, None),
            (Some(503), Some("STORE_UNAVAILABLE")),
            (Some(503), None),
            (Some(500), Some("INTERNAL")),
            (Some(502), None),
            (Some(200), Some("UNEXPECTED_ANSWER")),
        ] {
            assert!(may_be_accepted(status, code), "{status:?} {code:?}");
        }
    }

    #[test]
    fn the_advice_tells_what_may_arrive_twice() {
        for is_unknown in [true, false] {
            let text = advice((501, 1000), is_unknown, "orders.jsonl", true);
            assert!(text.contains("the same command again") && !text.contains("tail"), "{text}");
            assert!(!text.contains("twice"), "{text}");
        }
        let text = advice((501, 1000), true, "orders.jsonl", false);
        assert!(
            text.starts_with(
                "lines 501 to 1000 may have been accepted. To go on: tail -n +501 orders.jsonl |"
            )
        );
        assert!(text.ends_with("(lines 501 to 1000 may then arrive twice)"), "{text}");
        let text = advice((501, 1000), false, "-", false);
        assert_eq!(text, "lines 501 to 1000 were not accepted. To go on, send the lines from 501 on");
    }

    #[test]
    fn a_batch_of_which_nothing_was_accepted_says_why_for_each() {
        let mut problem = ApiProblem {
            status: 422,
            code: None,
            title: None,
            detail: None,
            pointer: None,
            parameter: None,
            notification_id: None,
            document: Some(json!({"rejected": [{"index": 0, "problem": {}}]})),
        };
        assert_eq!(rejections(&problem).unwrap()["rejected"][0]["index"], 0);
        problem.document = Some(json!({"detail": "no"}));
        assert_eq!(rejections(&problem), None);
    }
}
