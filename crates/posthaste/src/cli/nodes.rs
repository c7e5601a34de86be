//! `posthaste nodes`: the nodes and the leases they hold.

use clap::Args;
use serde_json::Value;

use super::Exit;
use super::listing::{self, Column, field, short};
use super::reach::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  posthaste nodes
  posthaste nodes --output json

A dead node is shown until its leases are reclaimed, at most 15 s. LEVEL says which features a node knows; a feature that
needs a higher level starts once every live node has it.";

/// Show which nodes are alive and how many notifications each holds
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NodesArgs {}

const COLUMNS: [Column; 7] = [
    ("NODE", |row| field(row, "id")),
    ("NAME", |row| short(row, "name")),
    ("STATE", state),
    ("LEVEL", |row| field(row, "level")),
    ("HOLDS", |row| field(row, "held")),
    ("JOINED", |row| field(row, "joinedAt")),
    ("LAST HEARTBEAT", |row| field(row, "lastHeartbeatAt")),
];

fn state(row: &Value) -> String {
    let words = match (row["alive"] == true, row["thisNode"] == true) {
        (true, true) => "alive, answers this",
        (true, false) => "alive",
        (false, _) => "dead",
    };
    words.to_owned()
}

pub(crate) async fn run(_: NodesArgs, reach: &ServerArgs) -> anyhow::Result<Exit> {
    listing::print_whole(&reach.open()?, "/v1/nodes", &COLUMNS).await
}
