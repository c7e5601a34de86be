//! `posthaste doctor`: finds problems and says what to do about them.

mod destinations;
mod groups;
mod jobs;
mod leaving;
mod limits;
mod master_key;
mod operations;
mod secret_files;
mod store;
mod tokens;

use std::time::Duration;

use clap::{Args, ValueEnum};
use http::StatusCode;
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
  posthaste doctor --probe readyz

It checks the store of the settings that `serve` would use (an SQLite file only if it exists), the proxy and
the client certificates of webhooks, the providers, the keys of access tokens, and who can read files with secrets.
Exit codes: 0 no check failed, 1 a check failed, 2 wrong use";

/// Check the server, the connection to it, and the store
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Ask only for this address, without a key and without the store: for the health check of a container
    #[arg(long, value_enum, value_name = "healthz|readyz", hide_possible_values = true, conflicts_with_all = ["config", "store", "set"])]
    probe: Option<Probe>,
    #[command(flatten)]
    store: StoreArgs,
}

/// What a supervisor asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Probe {
    Healthz,
    Readyz,
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
    let findings = if let Some(probe) = args.probe {
        vec![probed(&session, probe).await]
    } else {
        let mut findings = look(&session).await;
        findings.extend(match args.store.load() {
            Ok(config) => {
                let mut found = store::check(&config.store).await;
                found.extend(leaving::check(&config).await);
                found.extend(destinations::configured(&config));
                found.extend(secret_files::check(&config));
                found.extend(limits::check(&config));
                found.extend(tokens::check(&config).await);
                let is_known = findings.iter().any(|finding| finding.check == "master key");
                found.extend(master_key::configured(&config, is_known));
                found
            }
            Err(error) if is_wrong_use(&error) => return Err(error),
            Err(error) => vec![Finding::fail("settings", error.to_string())],
        });
        findings
    };
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

async fn probed(session: &Session, probe: Probe) -> Finding {
    match probe {
        Probe::Readyz => ready(session).await,
        Probe::Healthz => match session.client.get("/healthz").await {
            Ok(health) => healthy(&health),
            Err(error) => {
                Finding::fail("health", format!("{} does not answer: {error}", session.client.url()))
            }
        },
    }
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
    let ready = ready(session).await;
    let is_ready = ready.mark == Mark::Ok;
    found.push(ready);
    found.push(durability(&health));
    found.push(version(&health));
    found.push(clocks(&health, SystemClock.now()));
    found.extend(keyed(session, is_ready).await);
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
async fn keyed(session: &Session, is_ready: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let stats = match session.get("/v1/stats").await {
        Ok(stats) => stats,
        Err(error) => return vec![unread(error.status, error.to_string(), is_ready)],
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
    found.extend(operations::check(session, SystemClock.now()).await);
    found.extend(destinations::check(session, SystemClock.now()).await);
    // Only keys for all tenants see jobs.
    if let Ok(Ok(jobs)) = session.get("/v1/jobs").await.map(|answer| answer.json::<Value>()) {
        found.push(jobs::finding(&jobs, SystemClock.now()));
        found.extend(groups::check(session).await);
        found.extend(master_key::check(session).await);
    }
    found
}

/// Why there are no figures. While the server is not ready, a read may also be refused because others wait for the store:
/// that says nothing about the key.
fn unread(status: Option<StatusCode>, text: String, is_ready: bool) -> Finding {
    let is_about_key = matches!(status, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN));
    if is_ready || is_about_key {
        return Finding::fail("key", text);
    }
    Finding::warn(
        "key",
        "it cannot be checked until the server is ready, and neither can the queue and the jobs",
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_is_refused_in_an_outage_is_no_fault_of_the_key() {
        for (status, is_ready, mark) in [
            (429, false, Mark::Warn),
            (503, false, Mark::Warn),
            (401, false, Mark::Fail),
            (403, false, Mark::Fail),
            (429, true, Mark::Fail),
        ] {
            let status = StatusCode::from_u16(status).ok();
            let found = unread(status, "TOO_MANY_READS".to_owned(), is_ready);
            assert_eq!(found.mark, mark, "{status:?} {is_ready}");
            assert_eq!(found.text.contains("TOO_MANY_READS"), mark == Mark::Fail, "{}", found.text);
        }
    }
}
