//! `posthaste keys`: API keys.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::Method;
use posthaste_core::role::Role;
use serde_json::{Value, json};

use super::Exit;
use super::listing::{self, Column, field, short};
use super::output::{Output, harmless, json as print_json, line, note};
use super::reach::{ServerArgs, Session};
use crate::client::encode;

const EXAMPLES: &str = "\
Examples:
  posthaste keys list
  posthaste keys create --name shop --tenant acme --role sender
  posthaste keys rotate key_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste keys revoke key_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste keys rotate-master

Only a key with the role admin may create, rotate and revoke keys; one of a tenant only those of its tenant.";
const LIST_EXAMPLES: &str = "\
Examples:
  posthaste keys list
  posthaste keys list --output json";
const CREATE_EXAMPLES: &str = "\
Examples:
  posthaste keys create --name shop --tenant acme
  posthaste keys create --name shop --tenant acme --role sender --expires 90d
  posthaste keys create --name board --all-tenants --role reader
  export POSTHASTE_KEY=$(posthaste keys create --name operators --admin)

Roles: sender sends and looks at single notifications; reader reads; operator reads, retries, requeues, discards and cancels;
admin may do everything. A tenant's key without a role may do what sender and operator may, and put its tenant's policy.
The key is shown only once; the server stores its hash.";
const ROTATE_EXAMPLES: &str = "\
Examples:
  posthaste keys rotate key_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste keys rotate key_01jrq3v9zk8n2m4p6r8t0w2y4a --overlap 0      if the old key is no longer secret

The new key is shown only once. The old one stays valid for the overlap.";
const REVOKE_EXAMPLES: &str = "\
Examples:
  posthaste keys revoke key_01jrq3v9zk8n2m4p6r8t0w2y4a";

const ROTATE_MASTER_EXAMPLES: &str = "\
Examples:
  posthaste keys rotate-master

A store in one SQLite file: the server makes the new key itself, in the file beside the store. Copy that file anew, and keep the
old copy: backups from before need it.
Several nodes, or a key in the settings:
  1. put the new key first in POSTHASTE_MASTER_KEY or security.master_key of every node, the old one after it, separated by a
     comma, and restart the nodes one after the other
  2. posthaste keys rotate-master
  3. run it once more; when it says that nothing is to do, remove the old key from the settings, and keep it for as long as
     there are backups from before
The nodes go on running meanwhile, and notifications are not touched. If it was interrupted, run it again.";

/// List, create, rotate and revoke API keys
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
        /// What it may do
        #[arg(long, value_parser = PossibleValuesParser::new(Role::NAMED.map(Role::name)))]
        role: Option<String>,
        /// Refuse it from then on: a time, or how long from now
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
    },
    /// Replace one by a new key, with time to change over
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate {
        /// The key's id, not the key
        id: String,
        /// How long the old key stays valid; 24h if not given
        #[arg(long, value_name = "DURATION")]
        overlap: Option<String>,
    },
    /// Change the master key, under which the secrets in the store are sealed
    #[command(after_help = ROTATE_MASTER_EXAMPLES)]
    RotateMaster,
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
    /// Bind the key to this tenant; '*' for all tenants
    #[arg(long)]
    tenant: Option<String>,
    /// For all tenants, with the role reader, operator or admin
    #[arg(long, requires = "role")]
    all_tenants: bool,
    /// Allow everything, for every tenant
    #[arg(long)]
    admin: bool,
}

const COLUMNS: [Column; 10] = [
    ("ID", |row| field(row, "id")),
    ("NAME", |row| short(row, "name")),
    ("TENANT", |row| if row["tenant"].is_null() { "(all)".to_owned() } else { field(row, "tenant") }),
    ("ROLE", |row| if row["role"].is_null() { "-".to_owned() } else { field(row, "role") }),
    ("START", |row| field(row, "start")),
    ("EXPIRES", |row| field(row, "expiresAt")),
    ("LAST USED", |row| field(row, "lastUsedAt")),
    ("OLD UNTIL", |row| field(&row["previous"], "expiresAt")),
    ("CREATED", |row| field(row, "createdAt")),
    ("BY", |row| short(row, "createdBy")),
];

pub(crate) async fn run(args: KeysArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let session = reach.open()?;
    match args.act {
        KeysCommand::List => listing::print_whole(&session, "/v1/keys", &COLUMNS).await,
        KeysCommand::Create { name, owner, role, expires } => {
            let mut body = json!({"name": name});
            let tenant = if owner.all_tenants { Some("*".to_owned()) } else { owner.tenant };
            match tenant {
                Some(tenant) => body["tenant"] = json!(tenant),
                None => body["admin"] = json!(true),
            }
            if let Some(role) = role {
                body["role"] = json!(role);
            }
            if let Some(expires) = expires {
                body["expiresAt"] = json!(expires);
            }
            create(&session, body).await
        }
        KeysCommand::Rotate { id, overlap } => rotate(&session, &id, overlap.as_deref()).await,
        KeysCommand::RotateMaster => rotate_master(&session).await,
        KeysCommand::Revoke { id } => revoke(&session, &id).await,
    }
}

async fn create(session: &Session, body: Value) -> anyhow::Result<Exit> {
    let answer = session.post("/v1/keys", body.to_string()).await?;
    session.print(&answer, |made| {
        // Only the key is on stdout, for scripts.
        line(&harmless(&field(made, "key")))?;
        note(&format!("created {}; the key is not shown again", harmless(&field(made, "id"))));
        Ok(())
    })?;
    Ok(Exit::Done)
}

async fn rotate(session: &Session, id: &str, overlap: Option<&str>) -> anyhow::Result<Exit> {
    let body = overlap.map_or_else(|| json!({}), |overlap| json!({"overlap": overlap}));
    let answer = session.post(&format!("/v1/keys/{}/rotate", encode(id)), body.to_string()).await?;
    session.print(&answer, |made| {
        line(&harmless(&field(made, "key")))?;
        let old = match made["previous"]["expiresAt"].as_str() {
            Some(until) => format!("the old key is valid until {}", harmless(until)),
            None => "the old key is refused from now on".to_owned(),
        };
        note(&format!("rotated {}; the new key is not shown again; {old}", harmless(id)));
        Ok(())
    })?;
    Ok(Exit::Done)
}

async fn rotate_master(session: &Session) -> anyhow::Result<Exit> {
    let answer = session.post("/v1/master-key/rotate", "{}".to_owned()).await?;
    session.print(&answer, |made| {
        let text = |name: &str| harmless(&field(made, name)).into_owned();
        let (to, from, count) = (text("to"), text("from"), text("dataKeys"));
        if made["changed"] == false {
            return line(&format!("nothing to do: the master key {to} is in force, and every data key is wrapped under it"));
        }
        line(&format!("the master key {to} is in force; {count} data keys were wrapped again; only backups from before need {from}"))
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
