//! `posthaste audit`: who did what.

use clap::Args;

use super::Outcome;
use super::listing::{self, Column, Paging, Query, field, short};
use super::reach::Reach;

const EXAMPLES: &str = "\
Examples:
  posthaste audit
  posthaste audit --all --output json";

/// Show who did what, the latest first
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 6] = [
    ("AT", |row| field(row, "at")),
    ("ACTOR", |row| field(row, "actor")),
    ("ACT", |row| field(row, "act")),
    ("SUBJECT", |row| short(row, "subject")),
    ("COUNT", |row| field(row, "count")),
    ("OUTCOME", |row| short(row, "outcome")),
];

/// Prints the list.
pub(crate) async fn run(args: AuditArgs, reach: &Reach) -> anyhow::Result<Outcome> {
    listing::print(&reach.open()?, "/v1/audit", &Query::default(), &args.paging, &COLUMNS).await
}
