//! `posthaste serve`: the server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::Outcome;

const EXAMPLES: &str = "\
Examples:
  posthaste serve
  posthaste serve --config /etc/posthaste/posthaste.toml
  posthaste serve --store sqlite:///var/lib/posthaste/posthaste.db --listen 0.0.0.0:7780
  posthaste serve --set engine.concurrency=512 --set breaker.break_duration=1m

Settings: flags over POSTHASTE__SECTION__KEY over posthaste.toml over what is built in.
Exit codes: 0 stopped when asked to, 1 failed, 2 wrong use";

/// Run the server
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// The file with the settings [default: posthaste.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the API listens (server.listen)
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where notifications are kept (store.url)
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Any other setting, by its name; may be given many times
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Runs until it is asked to stop.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<Outcome> {
    let ServeArgs { config: _, listen: _, store: _, set: _ } = args;
    anyhow::bail!("`posthaste serve` is not built yet")
}
