//! `posthaste tail`: changes as they happen.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use posthaste_core::state::State;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::Exit;
use super::filter::NotificationFilter;
use super::listing::{Query, field};
use super::output::{Output, harmless, json, line, note};
use super::reach::{CommandError, ServerArgs, Session};
use crate::client::{EventStream, ServerEvent};
use crate::shutdown::Signals;

const EXAMPLES: &str = "\
Examples:
  posthaste tail
  posthaste tail --state deadLetter,failed --channel webhook
  posthaste tail --events operation
  posthaste tail --events stats
  posthaste tail --tenant acme --output json";

/// The first pause before the server is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A server sends something each second. One that is silent for this long is not there any more.
const SILENCE: Duration = Duration::from_secs(15);
/// As wide as the longest name of a state.
const STATE_WIDTH: usize = 14;

/// Show changes of notifications and operations as they happen, until Ctrl-C
///
/// Single changes are those that the connected node makes; at most 200 a second are shown. Operations and counters are
/// those of all nodes. Filters choose notifications; only --tenant holds for operations too.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TailArgs {
    /// What to show: `notification` for single changes, `operation` for retry operations, `stats` for the counters each second
    #[arg(long, value_delimiter = ',', default_value = "notification,operation", value_parser = PossibleValuesParser::new(["notification", "operation", "stats"]))]
    events: Vec<String>,
    #[command(flatten)]
    filter: NotificationFilter,
}

pub(crate) async fn run(args: TailArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let mut query = Query::default();
    query.set_several("events", &args.events);
    args.filter.add_to(&mut query);
    let (path, mut signals) = (query.after("/v1/stream"), Signals::listen()?);
    tokio::select! {
        ended = follow(&session, &path) => ended,
        _ = signals.next() => Ok(Exit::Done),
    }
}

/// Shows events for as long as the server can be reached, and waits for it once it was.
async fn follow(session: &Session, path: &str) -> anyhow::Result<Exit> {
    let style = Style::of_stdout(session.output);
    let (mut last_id, mut was_open, mut pause) = (None, false, FIRST_PAUSE);
    loop {
        match session.events(path, last_id.as_deref()).await {
            Ok(mut events) => {
                if was_open {
                    note("connected again");
                }
                was_open = true;
                if show_all(&mut events, style).await? {
                    pause = FIRST_PAUSE;
                }
                last_id = events.last_id().map(str::to_owned).or(last_id);
                note("the stream has ended; connecting again");
            }
            Err(error) if was_open && is_temporary(&error) => {}
            Err(error) => return Err(error.into()),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the server may serve later.
fn is_temporary(error: &CommandError) -> bool {
    error.status.is_none_or(|status| status.is_server_error() || status.as_u16() == 429)
}

/// Shows what comes until the stream ends or breaks. Returns whether anything came.
async fn show_all(events: &mut EventStream<'_>, style: Style) -> anyhow::Result<bool> {
    let mut came = false;
    // However the stream ends, it is opened again.
    while let Ok(Ok(Some(event))) = timeout(SILENCE, events.next()).await {
        came = true;
        show(&event, style)?;
    }
    Ok(came)
}

fn show(event: &ServerEvent, style: Style) -> anyhow::Result<()> {
    if event.name.is_empty() {
        return Ok(());
    }
    if style == Style::Json {
        return Ok(json(json_line(event)?.as_bytes())?);
    }
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    match event.name.as_str() {
        "notification" => line(&change(&data, style))?,
        "operation" => line(&operation(&data, style))?,
        "stats" => line(&counters(&data))?,
        "missed" => {
            let since = Some(field(&data, "since")).filter(|since| !since.is_empty());
            let since = since.map_or_else(|| "the break".to_owned(), |since| harmless(&since).into_owned());
            note(&format!(
                "missed: changes since {since} are not shown; `posthaste notifications list` has them"
            ));
        }
        // An event of a later version.
        _ => {}
    }
    Ok(())
}

/// An event as one line, with its data as the server sent it.
fn json_line(event: &ServerEvent) -> serde_json::Result<String> {
    let data: Box<RawValue> = serde_json::from_str(&event.data)?;
    let (name, id) = (&event.name, event.id.as_ref().filter(|_| event.name != "stats"));
    let (name, id) = (serde_json::to_string(name)?, serde_json::to_string(&id)?);
    Ok(format!("{{\"event\":{name},\"id\":{id},\"data\":{data}}}"))
}

/// A change in one line: when, which state, which notification, and what led to it.
fn change(data: &Value, style: Style) -> String {
    let text = |name: &str| Some(field(data, name)).filter(|text| !text.is_empty());
    let parts = [
        text("notificationId"),
        text("tenant"),
        text("channel"),
        text("destination"),
        text("attempt").map(|number| format!("attempt {number}")),
        text("failureType"),
        text("statusCode").map(|code| format!("HTTP {code}")),
        text("reasonCode"),
        text("deadLetterId"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let state = format!("{:STATE_WIDTH$}", field(data, "state"));
    let state = style.state(data["stateCode"].as_u64(), harmless(&state).into_owned());
    format!("{}  {state}  {}", harmless(&field(data, "at")), harmless(&parts.join("  ")))
}

/// An operation in one line: when, which state, which operation, and how far it is.
fn operation(data: &Value, style: Style) -> String {
    let text = |name: &str| Some(field(data, name)).filter(|text| !text.is_empty());
    let count = |name: &str, words: &str| Some(format!("{words} {}", field(data, name)));
    let parts = [
        text("id"),
        text("tenant"),
        text("action"),
        count("forwarded", "forwarded"),
        count("skipped", "skipped"),
        count("remaining", "remaining"),
        text("pausedBy").map(|who| format!("paused by {who}")),
        text("stoppedBy").map(|who| format!("stopped by {who}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let state = harmless(&format!("{:STATE_WIDTH$}", field(data, "state"))).into_owned();
    let state = style.operation(data["state"].as_str(), state);
    format!("{}  {state}  {}", harmless(&field(data, "at")), harmless(&parts.join("  ")))
}

fn counters(data: &Value) -> String {
    let rate =
        data["successRate24h"].as_f64().map_or("-".to_owned(), |rate| format!("{:.2} %", rate * 100.0));
    let figure = |name: &str| field(data, name);
    let text = format!(
        "queued {}  sending {}  in retry {}  in dead letter {}  delivered in 24 h {rate}",
        figure("queued"),
        figure("sending"),
        figure("inRetry"),
        figure("inDeadLetter"),
    );
    harmless(&text).into_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Coloured,
    Json,
}

impl Style {
    fn of_stdout(output: Output) -> Self {
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match output {
            Output::Json => Self::Json,
            Output::Table if io::stdout().is_terminal() && !wants_none => Self::Coloured,
            Output::Table => Self::Plain,
        }
    }

    fn state(self, code: Option<u64>, name: String) -> String {
        let state =
            code.and_then(|code| u8::try_from(code).ok()).and_then(|code| State::from_code(code).ok());
        let colour = match state {
            Some(State::Succeeded) => "32",
            Some(State::Failed | State::DeadLetter) => "31",
            Some(State::RetryScheduled | State::Retrying) => "33",
            Some(State::Cancelled | State::Expired) => "35",
            Some(State::Pending | State::Processing) | None => return name,
        };
        self.colour(colour, name)
    }

    fn operation(self, state: Option<&str>, name: String) -> String {
        match state {
            Some("completed") => self.colour("32", name),
            Some("failed") => self.colour("31", name),
            Some("paused") => self.colour("33", name),
            Some("cancelled") => self.colour("35", name),
            Some(_) | None => name,
        }
    }

    fn colour(self, colour: &str, name: String) -> String {
        if self == Self::Coloured { format!("\u{1b}[{colour}m{name}\u{1b}[0m") } else { name }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dead() -> Value {
        json!({"at": "2026-04-15T10:45:30.123Z", "notificationId": "ntf_1", "tenant": "acme", "channel": "webhook",
            "destination": "https://a:443", "state": "deadLetter", "stateCode": State::DeadLetter.code(), "attempt": 3,
            "failureType": "permanent", "statusCode": 400, "reasonCode": "PERMANENT_FAILURE", "deadLetterId": "dl_\u{1b}"})
    }

    #[test]
    fn a_change_is_one_line_with_what_led_to_it() {
        let shown = change(&dead(), Style::Plain);
        assert_eq!(
            shown,
            "2026-04-15T10:45:30.123Z  deadLetter      ntf_1  acme  webhook  https://a:443  attempt 3  permanent  HTTP 400  \
             PERMANENT_FAILURE  dl_\\u{1b}"
        );
        let coloured = change(&dead(), Style::Coloured);
        assert_eq!(coloured.replace("\u{1b}[31m", "").replace("\u{1b}[0m", ""), shown);
        assert_ne!(coloured, shown);
    }

    #[test]
    fn an_operation_is_one_line_with_how_far_it_is() {
        let paused = json!({"at": "2026-04-15T10:45:30.123Z", "id": "op_1", "tenant": null, "action": "requeue", "state": "paused",
            "total": 9, "forwarded": 5, "skipped": 1, "remaining": 3, "pausedBy": "ada\u{1b}", "stoppedBy": null});
        let shown = operation(&paused, Style::Plain);
        assert_eq!(
            shown,
            "2026-04-15T10:45:30.123Z  paused          op_1  requeue  forwarded 5  skipped 1  remaining 3  paused by ada\\u{1b}"
        );
        assert_eq!(
            operation(&paused, Style::Coloured).replace("\u{1b}[33m", "").replace("\u{1b}[0m", ""),
            shown
        );
    }

    #[test]
    fn for_programs_an_event_is_one_line_of_json_with_the_data_as_it_came() {
        let event = |name: &str, id: Option<&str>, data: &str| ServerEvent {
            name: name.to_owned(),
            id: id.map(str::to_owned),
            data: data.to_owned(),
        };
        for (event, wanted) in [
            (
                event("missed", Some("1.7"), r#"{"since":null}"#),
                r#"{"event":"missed","id":"1.7","data":{"since":null}}"#,
            ),
            (event("stats", Some("1.7"), r#"{"a":1}"#), r#"{"event":"stats","id":null,"data":{"a":1}}"#),
        ] {
            assert_eq!(json_line(&event).unwrap(), wanted);
        }
    }
}
