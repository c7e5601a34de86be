//! Watches a notification until it ends, with the texts of S1.

use std::time::Duration;

use posthaste_core::duration;
use posthaste_core::state::State;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Exit;
use super::listing::field;
use super::output::{Output, harmless, json, line, note};
use super::reach::{CommandError, Session};
use crate::client::encode;

/// Polling interval after a change.
const MIN_INTERVAL: Duration = Duration::from_millis(300);
/// Maximum polling interval.
const MAX_INTERVAL: Duration = Duration::from_secs(3);
/// How long the server may be unreachable before the watch ends.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// Prints every change. Fails if the notification is not delivered.
pub(crate) async fn watch(session: &Session, id: &str) -> anyhow::Result<Exit> {
    tokio::select! {
        ended = follow(session, id) => ended,
        stopped = tokio::signal::ctrl_c() => {
            stopped?;
            let id = harmless(id);
            note(&format!("stopped watching; {id} goes on: posthaste notifications show {id}"));
            Ok(Exit::Failed)
        }
    }
}

async fn follow(session: &Session, id: &str) -> anyhow::Result<Exit> {
    let path = format!("/v1/notifications/{}", encode(id));
    let mut seen = WatchState::default();
    let mut pause = MIN_INTERVAL;
    // Only a server that has responded before is waited for.
    let mut answered: Option<Instant> = None;
    loop {
        let answer = match session.get(&path).await {
            Ok(answer) => answer,
            Err(error) if is_temporary(&error) && answered.is_some_and(|at| at.elapsed() < GIVE_UP_AFTER) => {
                seen.trouble(&error);
                sleep(pause).await;
                pause = longer(pause);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        answered = Some(Instant::now());
        let notification = session.value(&answer)?;
        let changes = seen.changes(&notification);
        pause = if changes.is_empty() { longer(pause) } else { MIN_INTERVAL };
        match session.output {
            Output::Json if !changes.is_empty() => json(&answer.body)?,
            Output::Json => {}
            Output::Table => changes.iter().try_for_each(|text| line(text))?,
        }
        if let Some(state) = state(&notification).filter(|state| state.is_end()) {
            let delivered = state == State::Succeeded;
            return Ok(if delivered { Exit::Done } else { Exit::Failed });
        }
        sleep(pause).await;
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(MAX_INTERVAL)
}

/// Whether the error may be temporary.
fn is_temporary(error: &CommandError) -> bool {
    error.status.is_none_or(|status| status.is_server_error())
}

/// What has been printed already.
#[derive(Default)]
struct WatchState {
    line: String,
    attempts: usize,
    trouble: Option<String>,
}

impl WatchState {
    /// The changes since the last call, in the order in which they happened.
    fn changes(&mut self, notification: &Value) -> Vec<String> {
        self.trouble = None;
        let mut changes = Vec::new();
        let attempts = notification["attempts"].as_array().map_or(&[][..], Vec::as_slice);
        for made in attempts.get(self.attempts..).unwrap_or_default() {
            changes.extend(attempt(made).into_iter().map(|text| format!("  {text}")));
        }
        self.attempts = attempts.len();
        let line = status_line(notification);
        if line != self.line {
            changes.push(line.clone());
            self.line = line;
        }
        changes
    }

    /// Prints each error once.
    fn trouble(&mut self, error: &CommandError) {
        let text = error.to_string();
        if self.trouble.as_ref() != Some(&text) {
            note(&format!("still watching: {text}"));
            self.trouble = Some(text);
        }
    }
}

fn state(notification: &Value) -> Option<State> {
    let code = notification["stateCode"].as_u64().and_then(|code| u8::try_from(code).ok())?;
    State::from_code(code).ok()
}

/// The text for the state of a notification.
pub(crate) fn words(notification: &Value) -> String {
    let number = |name: &str| notification[name].as_u64().and_then(|number| u32::try_from(number).ok());
    match (state(notification), number("attempt"), number("maxAttempts")) {
        (Some(state), Some(attempt), Some(of)) => state.words(attempt, of),
        // The server has a text for states that this program does not know.
        _ => field(notification, "words"),
    }
}

/// The state with the time of the next attempt, or the reason of the end.
fn status_line(notification: &Value) -> String {
    let more = match state(notification) {
        Some(State::RetryScheduled | State::Pending) => {
            let next = field(notification, "nextAttemptAt");
            let soon = next.is_empty() || next <= field(notification, "createdAt");
            if soon { String::new() } else { format!(", next at {next}") }
        }
        Some(State::Failed | State::DeadLetter | State::Cancelled | State::Expired) => {
            let (code, reason) = (field(notification, "reasonCode"), field(notification, "reason"));
            let reason = reason.trim();
            match (code.is_empty(), reason.is_empty()) {
                (true, true) => String::new(),
                (true, false) => format!(": {reason}"),
                (false, true) => format!(": {code}"),
                (false, false) => format!(": {reason} ({code})"),
            }
        }
        Some(State::Processing | State::Retrying | State::Succeeded) | None => String::new(),
    };
    harmless(&format!("{}{more}", words(notification))).into_owned()
}

/// An attempt in one line, then its tries where there were several, each with its time. The result of the last one is
/// that of the attempt.
pub(crate) fn attempt(attempt: &Value) -> Vec<String> {
    let started = field(attempt, "startedAt");
    let first = format!("attempt {} at {started}: {}", field(attempt, "number"), result(attempt));
    let tries = attempt["quickTries"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = vec![first];
    for (quick, number) in tries.iter().zip(1..) {
        lines.push(format!("  its try {number} at {}: {}", field(quick, "startedAt"), result(quick)));
    }
    let (began, ended) = (field(attempt, "lastTryAt"), field(attempt, "endedAt"));
    if !tries.is_empty() {
        // It is not known of attempts that an older version made.
        let at = if began.is_empty() { String::new() } else { format!(" at {began}") };
        lines.push(format!("  its try {}, the last{at}, ended at {ended}", tries.len() + 1));
    }
    lines.iter().map(|text| harmless(text).into_owned()).collect()
}

/// The start of the answer to a failed attempt, in lines; none if there was nothing in it.
pub(crate) fn response(attempt: &Value) -> Vec<String> {
    let response = &attempt["response"];
    let Some(excerpt) = response["excerpt"].as_str() else { return vec![] };
    let named = response["contentType"].as_str().map_or_else(String::new, |kind| format!(" ({kind})"));
    let lines = excerpt.lines().map(|line| format!("    {line}"));
    let lines = std::iter::once(format!("  its response{named}:")).chain(lines);
    lines.map(|text| harmless(&text).into_owned()).collect()
}

/// The result of an attempt or of a quick try.
fn result(made: &Value) -> String {
    let text = |name: &str| Some(field(made, name).trim().to_owned()).filter(|text| !text.is_empty());
    let took = made["durationMs"].as_u64().map(|millis| match millis {
        0 => "under 1ms".to_owned(),
        millis => duration::words(Duration::from_millis(millis)),
    });
    let status = text("statusCode").map(|code| format!("HTTP {code}"));
    let provider = text("provider").map(|name| format!("by {name}"));
    let message = text("messageId").map(|id| format!("message id {id}"));
    let parts = [text("outcome"), provider, text("failureType"), status, took, message, text("error")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn notification(state: State, attempt: u32, attempts: Value) -> Value {
        json!({"stateCode": state.code(), "attempt": attempt, "maxAttempts": 3, "attempts": attempts,
            "createdAt": "2026-04-15T10:45:30.000Z", "nextAttemptAt": "2026-04-15T10:46:30.000Z",
            "reason": "503 \u{1b}", "reasonCode": "MAX_ATTEMPTS_EXCEEDED"})
    }

    #[test]
    fn each_change_is_told_once_in_the_words_of_the_story() {
        let mut seen = WatchState::default();
        let quick = json!([{"startedAt": "2026-04-15T10:45:30.100Z", "failureType": "temporary", "statusCode": 502,
            "durationMs": 1}]);
        let made = json!([{"number": 1, "startedAt": "2026-04-15T10:45:30.100Z", "endedAt": "2026-04-15T10:45:30.112Z",
            "lastTryAt": "2026-04-15T10:45:30.107Z", "outcome": "failed", "failureType": "temporary", "statusCode": 503, "durationMs": 12, "error": null, "quickTries": quick}]);
        assert_eq!(seen.changes(&notification(State::Processing, 1, json!([]))), ["Sending"]);
        let retrying = notification(State::RetryScheduled, 2, made.clone());
        assert_eq!(
            seen.changes(&retrying),
            [
                "  attempt 1 at 2026-04-15T10:45:30.100Z: failed, temporary, HTTP 503, 12ms",
                "    its try 1 at 2026-04-15T10:45:30.100Z: temporary, HTTP 502, 1ms",
                "    its try 2, the last at 2026-04-15T10:45:30.107Z, ended at 2026-04-15T10:45:30.112Z",
                "Retrying (attempt 2 of 3), next at 2026-04-15T10:46:30.000Z",
            ]
        );
        assert_eq!(seen.changes(&retrying), [""; 0]);
        assert_eq!(result(&json!({"statusCode": 200, "durationMs": 0})), "HTTP 200, under 1ms");
        assert_eq!(
            seen.changes(&notification(State::DeadLetter, 3, made)),
            ["Failed (moved to dead letter queue): 503 \\u{1b} (MAX_ATTEMPTS_EXCEEDED)"]
        );
    }

    #[test]
    fn the_response_is_shown_line_by_line_and_harms_no_terminal() {
        let made = json!({"response": {"contentType": "text/html", "excerpt": "<p>\n\u{1b}[2J</p>"}});
        assert_eq!(response(&made), ["  its response (text/html):", "    <p>", "    \\u{1b}[2J</p>"]);
        assert_eq!(response(&json!({"response": null})), [""; 0]);
        let sent = json!({"outcome": "delivered", "provider": "texts", "messageId": "m-1", "durationMs": 2});
        assert_eq!(result(&sent), "delivered, by texts, 2ms, message id m-1");
    }

    #[test]
    fn a_state_that_is_not_known_here_has_its_words_from_the_server() {
        assert_eq!(
            words(&json!({"stateCode": 9, "attempt": 1, "maxAttempts": 3, "words": "Resting"})),
            "Resting"
        );
    }
}
