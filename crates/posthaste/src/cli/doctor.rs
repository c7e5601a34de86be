//! `posthaste doctor`: finds problems and says what to do about them.

mod store;

use std::time::Duration;

use clap::Args;
use http::header::DATE;
use posthaste_core::duration;
use posthaste_core::reply::RetryAfter;
use posthaste_core::retry_after;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;
use serde_json::{Value, json};

use super::output::{Output, Table, json as print_json, seconds_in_words};
use super::reach::{ServerArgs, Session};
use super::settings::StoreArgs;
use super::{Exit, is_wrong_use};
use crate::client::ClientResponse;
use crate::clock::SystemClock;

/// Allowed difference of the clocks. The server sends its time in whole seconds.
const CLOCKS_APART: Duration = Duration::from_secs(5);
/// How long a notification may be overdue without a warning.
const OVERDUE_SECONDS: f64 = 60.0;

const EXAMPLES: &str = "\
Examples:
  posthaste doctor
  posthaste doctor --url https://queue.example.com --key phk_.. --output json
  posthaste doctor --config /etc/posthaste/posthaste.toml

It checks the store of the settings that `serve` would use; an SQLite file only if it exists.
Exit codes: 0 no check failed, 1 a check failed, 2 wrong use";

/// Check the server, the connection to it, and the store
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    store: StoreArgs,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Ok,
    Warn,
    Fail,
}

impl Mark {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check with its result and advice.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    mark: Mark,
    text: String,
}

impl Finding {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, mark: Mark::Ok, text: text.into() }
    }

    fn warn(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, mark: Mark::Warn, text: text.into() }
    }

    fn fail(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, mark: Mark::Fail, text: text.into() }
    }
}

pub(crate) async fn run(args: DoctorArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    let mut findings = look(&session).await;
    findings.extend(match args.store.load() {
        Ok(config) => store::check(&config.store).await,
        Err(error) if is_wrong_use(&error) => return Err(error),
        Err(error) => vec![Finding::fail("settings", error.to_string())],
    });
    match session.output {
        Output::Table => {
            let mut table = Table::untitled();
            for finding in &findings {
                let mut lines = finding.text.lines();
                table.row([finding.mark.word(), finding.check, lines.next().unwrap_or_default()]);
                lines.for_each(|more| table.row(["", "", more.trim()]));
            }
            table.print()?;
        }
        Output::Json => {
            let shown = |found: &Finding| json!({"check": found.check, "result": found.mark.word(), "text": found.text});
            let shown: Vec<Value> = findings.iter().map(shown).collect();
            print_json(json!({"checks": shown}).to_string().as_bytes())?;
        }
    }
    let failed = findings.iter().any(|finding| finding.mark == Mark::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

async fn look(session: &Session) -> Vec<Finding> {
    let health = match session.client.get("/healthz").await {
        Ok(health) => health,
        Err(_) => {
            let why = session.get("/healthz").await.err().map(|error| error.to_string());
            return vec![Finding::fail(
                "server",
                why.unwrap_or_else(|| "the first request got no answer".to_owned()),
            )];
        }
    };
    let mut found = vec![Finding::ok("server", format!("{} answers", session.client.url()))];
    found.push(healthy(&health));
    found.push(ready(session).await);
    found.push(durability(&health));
    found.push(version(&health));
    found.push(clocks(&health, SystemClock.now()));
    found.extend(keyed(session).await);
    found
}

fn healthy(health: &ClientResponse) -> Finding {
    match health.status.as_u16() {
        200 => Finding::ok("health", "the program is well"),
        status => Finding::fail("health", format!("/healthz says {status}: see the log of the server")),
    }
}

async fn ready(session: &Session) -> Finding {
    match session.client.get("/readyz").await {
        Ok(answer) if answer.status.is_success() => Finding::ok("ready", "it takes notifications"),
        Ok(answer) => {
            let told =
                answer.json::<Value>().ok().and_then(|body| body["reason"].as_str().map(str::to_owned));
            let why = told.unwrap_or_else(|| format!("/readyz says {}", answer.status.as_u16()));
            Finding::fail("ready", format!("it takes no notifications: {why}"))
        }
        Err(error) => Finding::fail("ready", format!("it takes no notifications: {error}")),
    }
}

fn durability(health: &ClientResponse) -> Finding {
    let told = health.json::<Value>().ok().and_then(|body| body["durability"].as_str().map(str::to_owned));
    match told.as_deref() {
        Some("full") => Finding::ok("durability", "what is acknowledged is on disk"),
        Some("refused") => {
            let text = "the database could lose what it acknowledges, so it is not used: set its fsync and full_page_writes \
                        to on";
            Finding::fail("durability", text)
        }
        Some(_) => {
            let text = "a power cut loses acknowledged notifications: set store.unsafe_durability = false";
            Finding::fail("durability", text)
        }
        None => {
            Finding::warn("durability", "the server does not say whether what it acknowledges is on disk")
        }
    }
}

fn version(health: &ClientResponse) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let told = health.json::<Value>().ok().and_then(|body| body["version"].as_str().map(str::to_owned));
    match told {
        Some(theirs) if theirs == ours => Finding::ok("version", format!("both are {ours}")),
        Some(theirs) => {
            let text = format!(
                "the server is {theirs}, this program {ours}: use the same, or some commands may fail"
            );
            Finding::warn("version", text)
        }
        None => {
            Finding::warn("version", format!("the server does not say its version; this program is {ours}"))
        }
    }
}

fn clocks(health: &ClientResponse, now: Timestamp) -> Finding {
    let date = health.headers.get(DATE).and_then(|date| date.to_str().ok()).and_then(retry_after::parse);
    let Some(RetryAfter::At(theirs)) = date else {
        return Finding::warn("clock", "the server does not say what time it is");
    };
    let apart = now.since(theirs).max(theirs.since(now));
    if apart <= CLOCKS_APART {
        return Finding::ok("clock", "both clocks show the same time");
    }
    let way = if theirs > now { "ahead of" } else { "behind" };
    let apart = duration::words(Duration::from_secs(apart.as_secs()));
    let text = format!("the server's clock is {apart} {way} this one: check NTP on both machines");
    Finding::warn("clock", text)
}

/// The checks that need a key.
async fn keyed(session: &Session) -> Vec<Finding> {
    let mut found = Vec::new();
    let stats = match session.get("/v1/stats").await {
        Ok(stats) => stats,
        Err(error) => {
            found.push(Finding::fail("key", error.to_string()));
            return found;
        }
    };
    if session.has_key && session.client.is_exposed() {
        let text = "it is accepted, but sent over plain HTTP to another machine: use https://";
        found.push(Finding::warn("key", text));
    } else {
        found.push(Finding::ok("key", "it is accepted"));
    }
    match stats.json::<Value>() {
        Ok(stats) => found.push(overdue(&stats)),
        Err(error) => found.push(Finding::fail("queue", format!("/v1/stats is not JSON: {error}"))),
    }
    found
}

fn overdue(stats: &Value) -> Finding {
    match stats["oldestDueSeconds"].as_f64() {
        Some(seconds) if seconds > OVERDUE_SECONDS => {
            let text = format!(
                "something has been due for {}: a destination may be blocked or slow, or the server overloaded\n\
                 look at `posthaste stats` and `posthaste notifications list --state retryScheduled`",
                seconds_in_words(seconds),
            );
            Finding::warn("queue", text)
        }
        _ => Finding::ok("queue", "nothing is overdue by more than a minute"),
    }
}
