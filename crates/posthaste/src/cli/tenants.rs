//! `posthaste tenants`: the tenants that have sent something or have a key.

use clap::Args;

use super::Exit;
use super::listing::{self, Column, Paging, Query, field};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste tenants
  posthaste tenants --output json

Needs a key for all tenants.";

/// List the tenants that have sent something or have a key
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TenantsArgs {
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 2] = [("NAME", |row| field(row, "name")), ("KEYS", |row| field(row, "keys"))];

pub(crate) async fn run(args: TenantsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    listing::print(&reach.open()?, "/v1/tenants", &Query::default(), &args.paging, &COLUMNS).await
}
