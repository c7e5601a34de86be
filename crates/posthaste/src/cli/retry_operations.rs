//! `posthaste retry-operations`: one act on many notifications.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use posthaste_core::operation::Action;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::listing::{self, Column, Paging, Query, field, short};
use super::output::{Output, Table, harmless, json as print_json, line, note};
use super::reach::{ServerArgs, Session};
use super::send::idempotency;
use super::{Exit, WrongUse, detail};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste retry-operations start --filter 'reasonCode=MAX_ATTEMPTS_EXCEEDED&since=1d' --rate 500 --canary 100 --watch
  posthaste retry-operations list
  posthaste retry-operations cancel op_01jrq3v9zk8n2m4p6r8t0w2y4a";
const START_EXAMPLES: &str = "\
Examples:
  posthaste retry-operations start --all --dry-run
  posthaste retry-operations start --filter 'destination=https://hooks.example.com&since=12h' --rate 500 --canary 100 --watch
  posthaste retry-operations start --id dl_01jrq3v9zk8n2m4p6r8t0w2y4a,dl_01jrq3v9zk8n2m4p6r8t0w2y4b --action discard

Exit codes: 0 started (with --watch: completed), 1 failed, 2 wrong use";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste retry-operations list --unfinished";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste retry-operations show op_01jrq3v9zk8n2m4p6r8t0w2y4a --watch";
const PAUSE_EXAMPLES: &str = "\
Examples:
  posthaste retry-operations pause op_01jrq3v9zk8n2m4p6r8t0w2y4a";
const RESUME_EXAMPLES: &str = "\
Examples:
  posthaste retry-operations resume op_01jrq3v9zk8n2m4p6r8t0w2y4a";
const CANCEL_EXAMPLES: &str = "\
Examples:
  posthaste retry-operations cancel op_01jrq3v9zk8n2m4p6r8t0w2y4a";

const PATH: &str = "/v1/retry-operations";
/// Polling interval of a watch.
const INTERVAL: Duration = Duration::from_millis(500);

/// Requeue, discard, restore, hurry or cancel many at once
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RetryOperationsArgs {
    #[command(subcommand)]
    act: RetryOperationsCommand,
}

#[derive(Subcommand)]
enum RetryOperationsCommand {
    /// Start one
    #[command(after_help = START_EXAMPLES)]
    Start(Box<StartArgs>),
    /// List them, the newest first
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Only those that are not finished
        #[arg(long)]
        unfinished: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its events
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// The operation
        id: String,
        /// Print its progress until it is finished
        #[arg(long)]
        watch: bool,
    },
    /// Stop one until it is resumed
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause {
        /// The operation
        id: String,
    },
    /// Let a paused one go on
    #[command(after_help = RESUME_EXAMPLES)]
    Resume {
        /// The operation
        id: String,
    },
    /// Stop one for good; what is not forwarded is skipped
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel {
        /// The operation
        id: String,
    },
}

#[derive(Args)]
struct StartArgs {
    /// What is done to each
    #[arg(long, default_value = "requeue", value_parser = PossibleValuesParser::new(Action::ALL.map(Action::name)))]
    action: String,
    /// Act on what these parameters of the list match, such as `reasonCode=MAX_ATTEMPTS_EXCEEDED&since=1d`
    #[arg(long, value_name = "QUERY")]
    filter: Option<String>,
    /// Act on these dead letters or notifications
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    id: Vec<String>,
    /// Act on all that the action can act on
    #[arg(long)]
    all: bool,
    /// The most items a second
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Send so many first, and look at their first attempts before the rest is sent
    #[arg(long, value_name = "N")]
    canary: Option<u32>,
    /// Stop if more than this share of the canary fails
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    max_failure_percent: u32,
    /// Only count what it would act on
    #[arg(long)]
    dry_run: bool,
    /// Start it only once, even if this is repeated: the same key gives the same operation
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print its progress until it is finished
    #[arg(long)]
    watch: bool,
}

impl StartArgs {
    fn body(&self) -> Result<Value, WrongUse> {
        let mut body = Map::from_iter([("action".to_owned(), json!(self.action))]);
        if let Some(filter) = &self.filter {
            body.insert("filter".to_owned(), filter_of(filter)?);
        }
        if !self.id.is_empty() {
            body.insert("ids".to_owned(), json!(self.id));
        }
        if self.all {
            body.insert("all".to_owned(), json!(true));
        }
        if body.len() != 2 {
            return Err(WrongUse("give one of --filter, --id and --all".to_owned()));
        }
        if let Some(rate) = self.rate {
            body.insert("rate".to_owned(), json!(rate));
        }
        if let Some(size) = self.canary {
            let canary = json!({"size": size, "maxFailurePercent": self.max_failure_percent});
            body.insert("canary".to_owned(), canary);
        }
        body.insert("dryRun".to_owned(), json!(self.dry_run));
        Ok(Value::Object(body))
    }
}

/// The parameters of a query as an object.
fn filter_of(query: &str) -> Result<Value, WrongUse> {
    let mut filter = Map::new();
    for (name, value) in form_urlencoded::parse(query.trim_start_matches('?').as_bytes()) {
        if filter.insert(name.clone().into_owned(), json!(value)).is_some() {
            return Err(WrongUse(format!("`{name}` is given twice: several values are separated by commas")));
        }
    }
    Ok(Value::Object(filter))
}

const COLUMNS: [Column; 9] = [
    ("ID", |row| field(row, "id")),
    ("STATE", |row| field(row, "state")),
    ("ACTION", |row| field(row, "action")),
    ("TOTAL", |row| field(row, "total")),
    ("FORWARDED", |row| field(row, "forwarded")),
    ("SKIPPED", |row| field(row, "skipped")),
    ("STARTED", |row| field(row, "startedAt")),
    ("FINISHED", |row| field(row, "finishedAt")),
    ("STARTED BY", |row| short(row, "startedBy")),
];

pub(crate) async fn run(args: RetryOperationsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        RetryOperationsCommand::Start(args) => start(&session, &args).await,
        RetryOperationsCommand::List { unfinished, paging } => {
            let mut query = Query::default();
            query.set("unfinished", unfinished.then_some(true));
            listing::print(&session, PATH, &query, &paging, &COLUMNS).await
        }
        RetryOperationsCommand::Show { id, watch: true } => watch(&session, &id, Success::Completed).await,
        RetryOperationsCommand::Show { id, watch: false } => {
            detail::print(&session, "retry-operations", &id).await
        }
        RetryOperationsCommand::Pause { id } => change(&session, &id, "pause").await,
        RetryOperationsCommand::Resume { id } => change(&session, &id, "resume").await,
        RetryOperationsCommand::Cancel { id } => change(&session, &id, "cancel").await,
    }
}

async fn start(session: &Session, args: &StartArgs) -> anyhow::Result<Exit> {
    let headers = args.idempotency_key.as_deref().map(idempotency).transpose()?;
    let body = args.body()?.to_string();
    let answer = session.try_call(Method::POST, PATH, headers.as_slice(), Some(body)).await?;
    let answer = answer.ok().map_err(|problem| session.refused(&problem))?;
    let shown = session.value(&answer)?;
    if args.dry_run {
        match session.output {
            Output::Table => show_preview(&shown)?,
            Output::Json => print_json(&answer.body)?,
        }
        return Ok(Exit::Done);
    }
    let id = field(&shown, "id");
    match session.output {
        Output::Table => line(&harmless(&id))?,
        Output::Json if !args.watch => print_json(&answer.body)?,
        Output::Json => {}
    }
    if args.watch { watch(session, &id, Success::Completed).await } else { Ok(Exit::Done) }
}

/// Starts an operation on what a list's query matches, and watches it.
pub(crate) async fn on_filter(session: &Session, action: Action, query: &Query) -> anyhow::Result<Exit> {
    let body = json!({"action": action.name(), "filter": filter_of(&query.after(""))?});
    started(session, &body, Success::Completed).await
}

/// Starts an operation on several ids, and watches it. It has failed if any of them was skipped.
pub(crate) async fn on_ids(session: &Session, action: Action, ids: &[String]) -> anyhow::Result<Exit> {
    started(session, &json!({"action": action.name(), "ids": ids}), Success::NothingSkipped).await
}

async fn started(session: &Session, body: &Value, success: Success) -> anyhow::Result<Exit> {
    let answer = session.post(PATH, body.to_string()).await?;
    let id = field(&session.value(&answer)?, "id");
    if session.output == Output::Table {
        line(&harmless(&id))?;
    }
    watch(session, &id, success).await
}

/// When a command that watches an operation has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Success {
    Completed,
    NothingSkipped,
}

impl Success {
    fn exit(self, shown: &Value) -> Exit {
        let is_done = match self {
            Self::Completed => shown["state"] == "completed",
            Self::NothingSkipped => shown["state"] == "completed" && shown["skipped"] == 0,
        };
        if is_done { Exit::Done } else { Exit::Failed }
    }
}

fn preview(shown: &Value) -> String {
    let about = if shown["exact"] == true { "" } else { "more than " };
    let (total, expired) = (field(shown, "total"), field(shown, "expired"));
    format!("{about}{total} would be acted on, {expired} of them have expired")
}

/// What would be acted on, and its largest failure groups.
fn show_preview(shown: &Value) -> std::io::Result<()> {
    line(&preview(shown))?;
    let groups = shown["groups"].as_array().filter(|groups| !groups.is_empty());
    let Some(groups) = groups else { return Ok(()) };
    line("")?;
    let mut table = Table::new(&["COUNT", "FAILURE GROUP", "TITLE"]);
    for group in groups {
        table.row([field(group, "count"), field(group, "id"), short(group, "title")]);
    }
    table.print()
}

async fn change(session: &Session, id: &str, act: &str) -> anyhow::Result<Exit> {
    let answer = session.act(&format!("{PATH}/{}/{act}", encode(id))).await?;
    match session.output {
        Output::Table => line(&progress(&session.value(&answer)?))?,
        Output::Json => print_json(&answer.body)?,
    }
    Ok(Exit::Done)
}

/// Prints the progress until the operation is finished. Fails if it did not complete.
async fn watch(session: &Session, id: &str, success: Success) -> anyhow::Result<Exit> {
    tokio::select! {
        ended = follow(session, id, success) => ended,
        stopped = tokio::signal::ctrl_c() => {
            stopped?;
            let id = harmless(id);
            note(&format!("stopped watching; {id} goes on: posthaste retry-operations show {id}"));
            Ok(Exit::Failed)
        }
    }
}

async fn follow(session: &Session, id: &str, success: Success) -> anyhow::Result<Exit> {
    let mut last = String::new();
    loop {
        let answer = session.get(&format!("{PATH}/{}", encode(id))).await?;
        let shown = session.value(&answer)?;
        let text = progress(&shown);
        if text != last {
            match session.output {
                Output::Table => line(&text)?,
                Output::Json => print_json(&answer.body)?,
            }
            last = text;
        }
        if shown["finishedAt"].is_string() {
            return Ok(success.exit(&shown));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// One line: the state, a bar of its stage, and what was skipped.
fn progress(shown: &Value) -> String {
    let number = |name: &str| shown[name].as_u64().unwrap_or(0);
    let (total, over) = (number("total"), number("forwarded") + number("skipped"));
    let state = field(shown, "state");
    let mut text = if matches!(state.as_str(), "waiting" | "preparing") {
        format!("{state} {total} marked")
    } else {
        format!("{state} {} {over}/{total}, {} staged", bar(over, total), number("staged"))
    };
    if number("skipped") > 0 {
        let reasons = shown["skippedReasons"].as_object();
        let reasons = reasons.into_iter().flatten().map(|(why, count)| format!("{count} {why}"));
        text.push_str(&format!(", skipped {}", reasons.collect::<Vec<_>>().join(", ")));
    }
    for (name, word) in [("pausedBy", "paused by"), ("stoppedBy", "stopped by")] {
        if shown[name].is_string() {
            text.push_str(&format!(", {word} {}", field(shown, name)));
        }
    }
    harmless(&text).into_owned()
}

fn bar(done: u64, total: u64) -> String {
    const WIDTH: u64 = 20;
    let filled = done.saturating_mul(WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH);
    let [filled, rest] = [filled, WIDTH - filled].map(|count| usize::try_from(count).unwrap_or(0));
    format!("[{}{}]", "#".repeat(filled), ".".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_with_what_was_skipped() {
        let shown = json!({"state": "forwarding", "total": 10, "forwarded": 4, "staged": 9, "skipped": 1,
            "skippedReasons": {"EXPIRED": 1}});
        let bar = "[##########..........]";
        assert_eq!(progress(&shown), format!("forwarding {bar} 5/10, 9 staged, skipped 1 EXPIRED"));
        assert_eq!(progress(&json!({"state": "preparing", "total": 3})), "preparing 3 marked");
        assert_eq!(bar_of_nothing(), "[####################]");
    }

    fn bar_of_nothing() -> String {
        super::bar(0, 0)
    }

    #[test]
    fn of_ids_nothing_may_be_skipped() {
        let ended = |state, skipped| json!({"state": state, "skipped": skipped});
        for (shown, completed, nothing_skipped) in [
            (ended("completed", 0), Exit::Done, Exit::Done),
            (ended("completed", 2), Exit::Done, Exit::Failed),
            (ended("cancelled", 0), Exit::Failed, Exit::Failed),
        ] {
            assert_eq!(Success::Completed.exit(&shown), completed, "{shown}");
            assert_eq!(Success::NothingSkipped.exit(&shown), nothing_skipped, "{shown}");
        }
    }

    #[test]
    fn a_filter_is_a_query() {
        let filter = filter_of("?reasonCode=A,B&q=a%20b").unwrap();
        assert_eq!(filter, json!({"reasonCode": "A,B", "q": "a b"}));
        assert!(filter_of("channel=sms&channel=email").unwrap_err().0.contains("`channel` is given twice"));
    }
}
