//! `posthaste settings`: the configuration of the server, and where each value came from.

use clap::Args;
use serde_json::Value;

use super::Exit;
use super::listing::{self, Column, field, short};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste settings
  posthaste settings --output json

Needs a key for all tenants. It shows the node that answers; each node has its own configuration. Secrets are shown as ***.";

/// Show every setting of the server and where its value came from
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SettingsArgs {}

const COLUMNS: [Column; 4] = [
    ("KEY", |row| field(row, "key")),
    ("VALUE", value),
    ("FROM", source),
    ("PLACE", |row| short(row, "place")),
];

fn value(row: &Value) -> String {
    row["value"].as_str().map_or_else(|| row["value"].to_string(), str::to_owned)
}

fn source(row: &Value) -> String {
    match row["source"].as_str() {
        Some("builtIn") => "built-in".to_owned(),
        _ => field(row, "source"),
    }
}

pub(crate) async fn run(_: SettingsArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    listing::print_whole(&reach.open()?, "/v1/settings", &COLUMNS).await
}
