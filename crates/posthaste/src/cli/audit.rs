//! `posthaste audit`: who did what.

use clap::Args;

use super::Exit;
use super::filter::TenantFilter;
use super::listing::{self, Column, Paging, Query, field, short};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste audit
  posthaste audit --tenant acme --limit 10
  posthaste audit --all --output json";

/// Show who did what, the latest first
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    tenant: TenantFilter,
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 6] = [
    ("AT", |row| field(row, "at")),
    ("ACTOR", |row| field(row, "actor")),
    ("ACTION", |row| field(row, "action")),
    ("TARGET", |row| short(row, "target")),
    ("COUNT", |row| field(row, "count")),
    ("OUTCOME", |row| short(row, "outcome")),
];

pub(crate) async fn run(args: AuditArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    let mut query = Query::default();
    args.tenant.add_to(&mut query);
    listing::print(&reach.open()?, "/v1/audit", &query, &args.paging, &COLUMNS).await
}
