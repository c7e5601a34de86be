//! `posthaste dev`: everything on an embedded store, to try it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::Outcome;

const EXAMPLES: &str = "\
Examples:
  posthaste dev
  posthaste dev --listen 127.0.0.1:8080 --sink 127.0.0.1:8090
  posthaste dev --store ./try.db                       keep what was sent for the next time

Exit codes: 0 stopped when asked to, 1 failed, 2 wrong use";

/// Run everything on this machine, with a receiver that fails as told and a printed key
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevArgs {
    /// Where the API listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7780")]
    pub(crate) listen: SocketAddr,
    /// Where the receiver that fails as told listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7790")]
    pub(crate) sink: SocketAddr,
    /// The SQLite file; without it one that is gone at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
}

/// Runs until it is asked to stop.
pub(crate) fn run(args: DevArgs) -> anyhow::Result<Outcome> {
    let DevArgs { listen: _, sink: _, store: _ } = args;
    anyhow::bail!("`posthaste dev` is not built yet")
}
