//! `posthaste keys`: API keys.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::Exit;
use super::listing::{self, Column, field, short};
use super::output::{Output, harmless, json as print_json, line, note};
use super::reach::{ServerArgs, Session};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste keys list
  posthaste keys create --name shop --tenant acme
  posthaste keys revoke key_01jrq3v9zk8n2m4p6r8t0w2y4a

Only an admin key may create and revoke keys.";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste keys list
  posthaste keys list --output json";
const CREATE_EXAMPLES: &str = "\
Examples:
  posthaste keys create --name shop --tenant acme
  export POSTHASTE_KEY=$(posthaste keys create --name operators --admin)

The key is shown only once; the server stores its hash.";
const REVOKE_EXAMPLES: &str = "\
Examples:
  posthaste keys revoke key_01jrq3v9zk8n2m4p6r8t0w2y4a";

/// List, create and revoke API keys
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    act: KeysCommand,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// List them, without the keys themselves
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Create one and print it
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// What it is for
        #[arg(long)]
        name: String,
        #[command(flatten)]
        owner: KeyOwner,
    },
    /// Revoke one at once
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke {
        /// The key's id, not the key
        id: String,
    },
}

/// The scope of a key. It must be explicit, so that an admin key is never created by mistake.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct KeyOwner {
    /// Bind the key to this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Allow everything, for every tenant
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

pub(crate) async fn run(args: KeysArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        KeysCommand::List => listing::print_whole(&session, "/v1/keys", &COLUMNS).await,
        KeysCommand::Create { name, owner } => create(&session, &name, owner.tenant.as_deref()).await,
        KeysCommand::Revoke { id } => revoke(&session, &id).await,
    }
}

async fn create(session: &Session, name: &str, tenant: Option<&str>) -> anyhow::Result<Exit> {
    let body = match tenant {
        Some(tenant) => json!({"name": name, "tenant": tenant}),
        None => json!({"name": name, "admin": true}),
    };
    let answer = session.post("/v1/keys", body.to_string()).await?;
    session.print(&answer, |made| {
        // Only the key is on stdout, for scripts.
        line(&harmless(&field(made, "key")))?;
        note(&format!("created {}; the key is not shown again", harmless(&field(made, "id"))));
        Ok(())
    })?;
    Ok(Exit::Done)
}

async fn revoke(session: &Session, id: &str) -> anyhow::Result<Exit> {
    session.call(Method::DELETE, &format!("/v1/keys/{}", encode(id)), &[], None).await?;
    match session.output {
        Output::Table => line(&format!("{} is revoked", harmless(id)))?,
        Output::Json => print_json(json!({"id": id, "revoked": true}).to_string().as_bytes())?,
    }
    Ok(Exit::Done)
}
