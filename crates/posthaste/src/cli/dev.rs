//! `posthaste dev`: everything on an embedded store, to try it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use posthaste_wire::sink::{Sink, SinkOptions};

use super::Outcome;
use super::serve::{self, ADMIN_KEY};
use crate::clock::SystemClock;
use crate::config::{Config, Sources};
use crate::shutdown::Signals;
use crate::wiring::Server;
use crate::{keys, telemetry};

/// What the first notification is sent with, so that its retries are seen at once.
const POLICY: &str =
    r#"{"strategy":"fixed","initialDelay":"2s","maxAttempts":3,"jitter":"none","quick":{"tries":0}}"#;

const EXAMPLES: &str = "\
Examples:
  posthaste dev
  posthaste dev --listen 127.0.0.1:8080 --sink 127.0.0.1:8090
  posthaste dev --store /tmp/try.db

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
    /// The SQLite file; it is kept, so that what was sent is still there the next time
    #[arg(long, value_name = "PATH", default_value = "posthaste-dev.db")]
    pub(crate) store: PathBuf,
}

/// Runs until it is asked to stop.
pub(crate) fn run(args: DevArgs) -> anyhow::Result<Outcome> {
    let flags = [
        ("server.listen", args.listen.to_string()),
        ("store.url", format!("sqlite://{}", args.store.display())),
        ("security.allow_subnets", "127.0.0.0/8,::1/128".to_owned()),
        ("log.level", "warn".to_owned()),
    ];
    let config = Config::load(Sources {
        flags: flags.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Sources::default()
    })?;
    telemetry::start(&config.log);
    let key = std::env::var(ADMIN_KEY).ok().filter(|key| !key.is_empty()).unwrap_or_else(keys::fresh);
    serve::runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let options = SinkOptions::new(Arc::new(SystemClock));
        let sink = Sink::start(args.sink, options).await.with_context(|| {
            format!("the sink cannot listen on {}: `--sink` names another address", args.sink)
        })?;
        let server = Server::start(&config, Some(&key)).await?;
        greet(&server, &sink, &key, &args.store)?;
        let signal = signals.first().await;
        let outcome = serve::stop(server, &mut signals, signal).await;
        sink.stop().await;
        outcome
    })
}

/// What a newcomer needs on one screen: the addresses, the key, and a line to paste.
fn greet(server: &Server, sink: &Sink, key: &str, store: &Path) -> std::io::Result<()> {
    let (api, target) = (format!("http://{}", server.address), sink.url("/sequence/503,503,200"));
    let program = std::env::args().next().unwrap_or_else(|| "posthaste".to_owned());
    let mut out = std::io::stdout().lock();
    writeln!(out, "Posthaste {} is ready. Ctrl-C stops it.\n", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  API    {api}   (what it can do: {api}/openapi.json)")?;
    writeln!(
        out,
        "  sink   {}   (a receiver that fails as told; what arrived: {})",
        sink.url(""),
        sink.url("/arrivals")
    )?;
    writeln!(out, "  store  {}", store.display())?;
    writeln!(out, "  key    {key}\n")?;
    writeln!(out, "A notification that fails twice and then arrives; paste this into another terminal:\n")?;
    writeln!(
        out,
        "curl -s {api}/v1/notifications -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n  \
         -d '{{\"channel\":\"webhook\",\"to\":\"{target}\",\"body\":{{\"hello\":\"world\"}},\n       \"policy\":{POLICY}}}'\n",
    )?;
    writeln!(out, "Then see the three attempts, with the id that it answered:\n")?;
    writeln!(out, "curl -s {api}/v1/notifications/ID -H 'Authorization: Bearer {key}'\n")?;
    writeln!(out, "Or both in one:\n")?;
    writeln!(
        out,
        "export POSTHASTE_URL={api} POSTHASTE_KEY={key}\n{program} send --to {target} --json '{{\"hello\":\"world\"}}' --watch \\\n  \
         --policy '{POLICY}'\n",
    )?;
    out.flush()
}
