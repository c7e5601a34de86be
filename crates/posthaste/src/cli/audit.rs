//! `posthaste audit`: who did what.

use clap::Args;

use super::Exit;
use super::filter::{TenantFilter, past};
use super::listing::{self, Column, Paging, Query, field, short};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste audit
  posthaste audit --tenant acme --limit 10
  posthaste audit --actor ada --action requeue,discard --since 1d
  posthaste audit --target ntf_01jrq3v9zk8n2m4p6r8t0w2y4a
  posthaste audit --all --output json";

/// Show who did what, the latest first
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    tenant: TenantFilter,
    /// Done with this key: its name or its id
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// With this action, or one of these, such as requeue
    #[arg(long, value_delimiter = ',')]
    action: Vec<String>,
    /// Done to this: an id, a scope or a name
    #[arg(long)]
    target: Option<String>,
    /// Since then: a time, a date, or how long ago
    #[arg(long, value_name = "TIME", value_parser = past)]
    since: Option<String>,
    /// Until then: a time, a date, or how long ago
    #[arg(long, value_name = "TIME", value_parser = past)]
    until: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 7] = [
    ("AT", |row| field(row, "at")),
    ("ACTOR", |row| field(row, "actor")),
    ("FROM", |row| field(row, "address")),
    ("ACTION", |row| field(row, "action")),
    ("TARGET", |row| short(row, "target")),
    ("COUNT", |row| field(row, "count")),
    ("OUTCOME", |row| short(row, "outcome")),
];

pub(crate) async fn run(args: AuditArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let mut query = Query::default();
    args.tenant.add_to(&mut query);
    query.set("actor", args.actor.as_ref());
    query.set_several("action", &args.action);
    query.set("target", args.target.as_ref());
    query.set("since", args.since.as_ref());
    query.set("until", args.until.as_ref());
    listing::print(&reach.open()?, "/v1/audit", &query, &args.paging, &COLUMNS).await
}
