//! `posthaste policy`: retry policies.

mod import;
mod simulate;

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use posthaste_core::channel::Channel;
use posthaste_core::policy::{BadScope, Scope};
use serde_json::{Value, json};

use super::listing::{self, Column, Query, duration_field, field};
use super::output::{Output, Table, harmless, json as print_json, line};
use super::reach::{ServerArgs, Session};
use super::{Exit, input};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste policy show
  posthaste policy show channel:webhook
  posthaste policy set tenant:acme @policy.json
  posthaste policy preview '{\"preset\": \"story\"}'
  posthaste policy import appsettings.json
  posthaste policy simulate --rate 50 --script '503 for 20m, ok for 1h'

Scopes, from narrow to wide: template:NAME, tenant:NAME, channel:NAME, global. template:NAME is a template of your
tenant, to a key for all tenants the template of every tenant; template:TENANT/NAME is the template of one tenant.";
const SHOW_EXAMPLES: &str = "\
Examples:
  posthaste policy show                                all policies
  posthaste policy show channel:webhook
  posthaste policy show tenant:acme --channel email";
const SET_EXAMPLES: &str = "\
Examples:
  posthaste policy set channel:webhook @policy.json
  posthaste policy set global '{\"preset\": \"notify\"}'
  echo '{\"preset\": \"story\", \"maxAttempts\": 4}' | posthaste policy set tenant:acme -

It replaces the policy of the scope. Scheduled retries keep their times.";
const REMOVE_EXAMPLES: &str = "\
Examples:
  posthaste policy remove tenant:acme";
const PREVIEW_EXAMPLES: &str = "\
Examples:
  posthaste policy preview '{\"preset\": \"story\", \"maxAttempts\": 4}'
  posthaste policy preview @policy.json
  posthaste policy preview - < policy.json
  posthaste policy preview --scope tenant:acme '{\"maxAttempts\": 4}'

The times count from the first attempt. An attempt that maxAge forbids is not shown.";

/// Show, set, preview, simulate and import retry policies
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    act: PolicyCommand,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// Show the policy of a scope and the resulting policy; without a scope list all policies
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// global, channel:NAME, tenant:NAME, template:NAME or template:TENANT/NAME
        #[arg(value_parser = scope)]
        scope: Option<String>,
        /// Show the resulting policy of all scopes for this channel
        #[arg(long, value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)), requires = "scope")]
        channel: Option<String>,
    },
    /// Set the policy of a scope
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// global, channel:NAME, tenant:NAME, template:NAME or template:TENANT/NAME
        #[arg(value_parser = scope)]
        scope: String,
        /// The policy; @FILE reads a file, - reads stdin
        #[arg(value_name = "JSON|@FILE|-")]
        policy: String,
    },
    /// Remove the policy of a scope; the wider scopes apply again
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove {
        /// global, channel:NAME, tenant:NAME, template:NAME or template:TENANT/NAME
        #[arg(value_parser = scope)]
        scope: String,
    },
    /// Show the times of a policy's attempts
    #[command(after_help = PREVIEW_EXAMPLES)]
    Preview {
        /// The policy; @FILE reads a file, - reads stdin
        #[arg(value_name = "JSON|@FILE|-")]
        policy: String,
        /// Apply it to the policies of this channel and your tenant, instead of the defaults
        #[arg(long, value_parser = PossibleValuesParser::new(Channel::ALL.map(Channel::name)))]
        channel: Option<String>,
        /// Apply it in place of what this scope says
        #[arg(long, value_parser = scope)]
        scope: Option<String>,
    },
    /// Convert the configuration of another system
    Import(import::ImportArgs),
    Simulate(Box<simulate::SimulateArgs>),
}

const COLUMNS: [Column; 2] = [("SCOPE", |row| field(row, "scope")), ("POLICY", |row| field(row, "policy"))];

pub(crate) async fn run(args: PolicyArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    match args.act {
        PolicyCommand::Import(args) => import::run(args, reach).await,
        PolicyCommand::Simulate(args) => simulate::run(*args, reach).await,
        PolicyCommand::Show { scope: None, .. } => {
            listing::print_whole(&reach.open()?, "/v1/policies", &COLUMNS).await
        }
        PolicyCommand::Show { scope: Some(scope), channel } => {
            let session = reach.open()?;
            let answer = session.get(&for_channel(channel).after(&path(&scope))).await?;
            session.print(&answer, with_sources)?;
            Ok(Exit::Done)
        }
        PolicyCommand::Set { scope, policy } => {
            let policy = input::json("the policy", &policy)?;
            let session = reach.open()?;
            let answer = session.call(Method::PUT, &path(&scope), &[], Some(policy.get().to_owned())).await?;
            session.print(&answer, pretty)?;
            Ok(Exit::Done)
        }
        PolicyCommand::Remove { scope } => {
            let session = reach.open()?;
            session.call(Method::DELETE, &path(&scope), &[], None).await?;
            match session.output {
                Output::Table => line(&harmless(&format!("the policy of {scope} is removed")))?,
                Output::Json => print_json(json!({"scope": scope, "removed": true}).to_string().as_bytes())?,
            }
            Ok(Exit::Done)
        }
        PolicyCommand::Preview { policy, channel, scope } => {
            let mut query = for_channel(channel);
            query.set("scope", scope);
            preview(&policy, &query, &reach.open()?).await
        }
    }
}

/// A scope as it was written: the server knows whose template `template:x` is.
fn scope(given: &str) -> Result<String, BadScope> {
    given.parse::<Scope>().map(|_| given.to_owned())
}

fn path(scope: &str) -> String {
    format!("/v1/policies/{}", encode(scope))
}

fn for_channel(channel: Option<String>) -> Query {
    let mut query = Query::default();
    query.set("channel", channel);
    query
}

/// A policy is printed as JSON, since a table would not be clearer.
fn pretty(policy: &Value) -> io::Result<()> {
    print_json(format!("{policy:#}").as_bytes())
}

/// What results at a scope, field by field, and where each comes from.
fn with_sources(shown: &Value) -> io::Result<()> {
    let own = if shown["policy"].is_null() { "nothing".to_owned() } else { shown["policy"].to_string() };
    let (scope, channel) = (field(shown, "scope"), field(shown, "channel"));
    line(&harmless(&format!("{scope} says {own}. Over {channel} this results:")))?;
    let mut table = Table::new(&["FIELD", "VALUE", "FROM"]);
    for (name, source) in shown["sources"].as_object().into_iter().flatten() {
        let value = name.split('.').try_fold(&shown["effective"], |value, part| value.get(part));
        let Some(value) = value else { continue };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.row([name.as_str(), &value, source.as_str().unwrap_or_default()]);
    }
    table.print()
}

async fn preview(given: &str, query: &Query, session: &Session) -> anyhow::Result<Exit> {
    let policy = input::json("the policy", given)?;
    let answer = session.post(&query.after("/v1/policies/preview"), policy.get().to_owned()).await?;
    session.print(&answer, |preview| {
        let mut table = Table::new(&["ATTEMPT", "EARLIEST", "LATEST"]);
        for attempt in preview["attempts"].as_array().into_iter().flatten() {
            table.row([
                field(attempt, "number"),
                duration_field(attempt, "earliest"),
                duration_field(attempt, "latest"),
            ]);
        }
        table.print()?;
        line(&harmless(&format!("from the first attempt to the last: {}", duration_field(preview, "window"))))
    })?;
    Ok(Exit::Done)
}
