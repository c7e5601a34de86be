//! `posthaste keys`: who may call.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::Outcome;
use super::listing::{self, Column, field, short};
use super::output::{Output, harmless, json as print_json, line, note};
use super::reach::{Reach, Session};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste keys list
  posthaste keys create --name shop --tenant acme
  posthaste keys revoke key_01jrq3v9zk8n2m4p6r8t0w2y4a

Only an admin key may make and revoke them.";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste keys list
  posthaste keys list --output json";
const CREATE_EXAMPLES: &str = "\
Examples:
  posthaste keys create --name shop --tenant acme
  export POSTHASTE_KEY=$(posthaste keys create --name operators --admin)

The key is shown this once; only its hash is kept.";
const REVOKE_EXAMPLES: &str = "\
Examples:
  posthaste keys revoke key_01jrq3v9zk8n2m4p6r8t0w2y4a";

/// List, create and revoke API keys
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    act: Act,
}

#[derive(Subcommand)]
enum Act {
    /// List them, without the keys themselves
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Make one and print it
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// What it is for
        #[arg(long)]
        name: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Take one back at once
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke {
        /// The key's id, not the key
        id: String,
    },
}

/// Whose notifications a key may touch. One must be said: a key that may do everything is not made by omission.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Whose {
    /// The tenant that it is bound to
    #[arg(long)]
    tenant: Option<String>,
    /// It may do everything, for every tenant
    #[arg(long)]
    admin: bool,
}

const COLUMNS: [Column; 6] = [
    ("ID", |row| field(row, "id")),
    ("NAME", |row| short(row, "name")),
    ("TENANT", |row| if row["tenant"].is_null() { "(admin)".to_owned() } else { field(row, "tenant") }),
    ("START", |row| field(row, "start")),
    ("CREATED", |row| field(row, "createdAt")),
    ("BY", |row| short(row, "createdBy")),
];

/// Does what the subcommand says.
pub(crate) async fn run(args: KeysArgs, reach: &Reach) -> anyhow::Result<Outcome> {
    let session = reach.open()?;
    match args.act {
        Act::List => listing::print_whole(&session, "/v1/keys", &COLUMNS).await,
        Act::Create { name, whose } => create(&session, &name, whose.tenant.as_deref()).await,
        Act::Revoke { id } => revoke(&session, &id).await,
    }
}

async fn create(session: &Session, name: &str, tenant: Option<&str>) -> anyhow::Result<Outcome> {
    let body = match tenant {
        Some(tenant) => json!({"name": name, "tenant": tenant}),
        None => json!({"name": name, "admin": true}),
    };
    let answer = session.post("/v1/keys", body.to_string()).await?;
    session.print(&answer, |made| {
        // The key alone is on stdout, so that a script can take it.
        line(&harmless(&field(made, "key")))?;
        note(&format!("made {}; the key is not shown again", harmless(&field(made, "id"))));
        Ok(())
    })?;
    Ok(Outcome::Done)
}

async fn revoke(session: &Session, id: &str) -> anyhow::Result<Outcome> {
    session.call(Method::DELETE, &format!("/v1/keys/{}", encode(id)), &[], None).await?;
    match session.output {
        Output::Table => line(&format!("{} is revoked", harmless(id)))?,
        Output::Json => print_json(json!({"id": id, "revoked": true}).to_string().as_bytes())?,
    }
    Ok(Outcome::Done)
}
