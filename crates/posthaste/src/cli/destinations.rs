//! `posthaste destinations`: what can be down as a whole, its breaker, blocks and limits.

use std::io;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use http::Method;
use posthaste_core::destination::DestinationId;
use serde_json::{Value, json};

use super::listing::{self, Column, Paging, Query, field, short};
use super::output::{Table, harmless, line};
use super::reach::{ServerArgs, Session};
use super::{Exit, WrongUse, detail};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste destinations list
  posthaste destinations show https://hooks.example.com
  posthaste destinations block https://hooks.example.com --reason 'they asked us to'
  posthaste destinations unblock https://hooks.example.com

A destination is given by its id (dst_..), by a URL or by the name of a provider. If a key for all tenants gives a URL that several
tenants send to, it has to name one with --tenant.";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste destinations list
  posthaste destinations list --known --tenant acme
  posthaste destinations list --name https://hooks.example.com/orders
  posthaste destinations list --history 12h --output json";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste destinations show dst_2tthczw8vgnv4tjy43e8xn4edg
  posthaste destinations show https://hooks.example.com --tenant acme";
const LIMIT_EXAMPLES: &str = "\
Examples:
  posthaste destinations limit https://hooks.example.com --rate 50 --concurrency 20
  posthaste destinations limit mail --rate 0.5
  posthaste destinations limit https://hooks.example.com --clear

Limits hold over all nodes together, and replace those that were set before: what is not given follows the configuration.";
const BLOCK_EXAMPLES: &str = "\
Examples:
  posthaste destinations block https://hooks.example.com --reason 'they asked us to'
  posthaste destinations block mail";
const UNBLOCK_EXAMPLES: &str = "\
Examples:
  posthaste destinations unblock https://hooks.example.com";
const RESET_EXAMPLES: &str = "\
Examples:
  posthaste destinations reset https://hooks.example.com";

/// Show what is down, blocked or limited, and act on it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DestinationsArgs {
    #[command(subcommand)]
    act: DestinationsCommand,
}

#[derive(Subcommand)]
enum DestinationsCommand {
    /// List those that are unhealthy, blocked, paused or limited
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Also those that are well
        #[arg(long)]
        known: bool,
        /// Of this name: a URL, the id of a subscription or the name of a provider
        #[arg(long, value_name = "URL|NAME")]
        name: Option<String>,
        /// Of this tenant; the default is all tenants of the key
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Also what happened to each since then: a time, a date or how long ago
        #[arg(long, value_name = "TIME")]
        history: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its history
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Set how much is sent to one
    #[command(after_help = LIMIT_EXAMPLES)]
    Limit {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        limits: LimitFlags,
    },
    /// Send nothing to one until it is unblocked
    #[command(after_help = BLOCK_EXAMPLES)]
    Block {
        #[command(flatten)]
        which: Which,
        /// Why, for people
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Lift a block
    #[command(after_help = UNBLOCK_EXAMPLES)]
    Unblock {
        #[command(flatten)]
        which: Which,
    },
    /// Close the breaker and end a pause, at full speed
    #[command(after_help = RESET_EXAMPLES)]
    Reset {
        #[command(flatten)]
        which: Which,
    },
}

/// Which destination.
#[derive(Args)]
struct Which {
    /// Its id, a URL or the name of a provider
    #[arg(value_name = "DESTINATION")]
    destination: String,
    /// Whose it is, where several tenants send to one URL
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
struct LimitFlags {
    /// The most notifications a second
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// The most notifications at a time
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,
    /// Follow the configuration again
    #[arg(long, conflicts_with_all = ["rate", "concurrency"])]
    clear: bool,
}

/// A destination that was found.
struct Found {
    id: String,
    /// The name and the tenant, if it was found by its name: nothing may be known of its id yet.
    named: Value,
}

impl Found {
    /// A body that also names the destination.
    fn body(self, mut body: Value) -> (String, String) {
        for name in ["name", "tenant"] {
            if let Some(value) = self.named.get(name).filter(|value| !value.is_null()) {
                body[name] = value.clone();
            }
        }
        (self.id, body.to_string())
    }
}

impl Which {
    async fn find(&self, session: &Session) -> anyhow::Result<Found> {
        let given = &self.destination;
        if given.parse::<DestinationId>().is_ok() {
            return Ok(Found { id: given.clone(), named: Value::Null });
        }
        let mut query = Query::default();
        query.set("name", Some(given));
        query.set("tenant", self.tenant.as_ref());
        let page = session.get(&query.after("/v1/destinations")).await?;
        let page: Value = session.value(&page)?;
        let rows = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        match rows {
            [one] => Ok(Found { id: field(one, "id"), named: one.clone() }),
            [] if !given.contains("://") => Err(anyhow!(
                "there is no destination `{}`: this key sees no provider or subscription of that name. A provider is named \
                 without --tenant, and a URL begins with https:// or http://",
                harmless(given)
            )),
            [] if self.tenant.is_some() => Err(anyhow!("there is no destination `{}`", harmless(given))),
            [] => Err(anyhow!(
                "there is no destination `{}`: if nothing was sent to it yet, name the tenant with --tenant",
                harmless(given)
            )),
            several => {
                let tenants: Vec<String> = several.iter().map(|row| field(row, "tenant")).collect();
                let text = format!(
                    "several tenants send to `{}`: {}; name one with --tenant",
                    harmless(given),
                    harmless(&tenants.join(", "))
                );
                Err(WrongUse(text).into())
            }
        }
    }
}

const COLUMNS: [Column; 9] = [
    ("ID", |row| field(row, "id")),
    ("TENANT", |row| field(row, "tenant")),
    ("NAME", |row| short(row, "name")),
    ("STATE", |row| state(row)),
    ("UNTIL", until),
    ("PARKED", |row| field(row, "parked")),
    ("FAILURES", |row| field(row, "failures")),
    ("LAST ERROR", |row| short(row, "lastError")),
    ("LIMITS", limits),
];

/// How it stands, in words.
fn state(row: &Value) -> String {
    let by = field(row, "blockedBy");
    if !by.is_empty() {
        return format!("blocked by {by}");
    }
    match (field(row, "state").as_str(), field(row, "label").as_str()) {
        ("halfOpen", _) => "half open".to_owned(),
        ("closed", _) if row["pausedUntil"].is_string() => "paused".to_owned(),
        ("closed", _) if row["ramping"] == true => "ramping up".to_owned(),
        ("closed", "MONITORING") => "failing".to_owned(),
        (state, _) => state.to_owned(),
    }
}

fn until(row: &Value) -> String {
    let breaker = field(row, "blockedUntil");
    // A block does not lapse.
    let is_blocked = row["blockedBy"].is_string();
    if breaker.is_empty() && !is_blocked { field(row, "pausedUntil") } else { breaker }
}

fn limits(row: &Value) -> String {
    let rate = row["rate"].as_f64().map(|rate| format!("{rate}/s"));
    let concurrency = row["concurrency"].as_u64().map(|most| format!("{most} at a time"));
    rate.into_iter().chain(concurrency).collect::<Vec<_>>().join(", ")
}

fn last_event(row: &Value) -> String {
    row["history"]
        .get(0)
        .map(|event| format!("{} {}", field(event, "event"), field(event, "at")))
        .unwrap_or_default()
}

pub(crate) async fn run(args: DestinationsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        DestinationsCommand::List { known, name, tenant, history, paging } => {
            let mut columns = COLUMNS.to_vec();
            if history.is_some() {
                columns.push(("LAST EVENT", last_event));
            }
            let mut query = Query::default();
            query.set("history", history);
            query.set("all", known.then_some("true"));
            query.set("name", name);
            query.set("tenant", tenant);
            listing::print(&session, "/v1/destinations", &query, &paging, &columns).await
        }
        DestinationsCommand::Show { which } => {
            let found = which.find(&session).await?;
            let answer = session.get(&format!("/v1/destinations/{}", encode(&found.id))).await?;
            session.print(&answer, show)?;
            Ok(Exit::Done)
        }
        DestinationsCommand::Limit { which, limits } => {
            let found = which.find(&session).await?;
            let LimitFlags { rate, concurrency, clear: _ } = limits;
            let (id, body) = found.body(json!({"rate": rate, "concurrency": concurrency}));
            let path = format!("/v1/destinations/{}", encode(&id));
            let answer = session.call(Method::PUT, &path, &[], Some(body)).await?;
            session.print(&answer, told)?;
            Ok(Exit::Done)
        }
        DestinationsCommand::Block { which, reason } => {
            let (id, body) = which.find(&session).await?.body(json!({"reason": reason}));
            act(&session, &id, "block", Some(body)).await
        }
        DestinationsCommand::Unblock { which } => {
            act(&session, &which.find(&session).await?.id, "unblock", None).await
        }
        DestinationsCommand::Reset { which } => {
            act(&session, &which.find(&session).await?.id, "reset", None).await
        }
    }
}

async fn act(session: &Session, id: &str, act: &str, body: Option<String>) -> anyhow::Result<Exit> {
    let path = format!("/v1/destinations/{}/{act}", encode(id));
    let answer = session.call(Method::POST, &path, &[], body).await?;
    session.print(&answer, told)?;
    Ok(Exit::Done)
}

/// What an act left behind, in a line.
fn told(row: &Value) -> io::Result<()> {
    let limits = limits(row);
    let limits = if limits.is_empty() { "no limits".to_owned() } else { limits };
    let text = format!("{} {}: {}, {limits}", field(row, "id"), field(row, "name"), state(row));
    line(&harmless(&text))
}

fn show(row: &Value) -> io::Result<()> {
    detail::fields(row).print()?;
    let Some(history) = row["history"].as_array().filter(|history| !history.is_empty()) else {
        return Ok(());
    };
    line("\nHistory")?;
    let mut table = Table::untitled();
    for event in history {
        let words = |mark: &str, name: &str| match field(event, name) {
            empty if empty.is_empty() => empty,
            value => format!("{mark} {value}"),
        };
        table.row([
            format!("  {}", field(event, "at")),
            field(event, "event"),
            words("by", "by"),
            words("until", "until"),
        ]);
    }
    table.print()
}
