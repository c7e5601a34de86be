//! `posthaste dev`: everything on an embedded store, to try it.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use posthaste_wire::sink::{Sink, SinkOptions};

use super::Exit;
use super::serve;
use super::settings::store_url;
use crate::clock::SystemClock;
use crate::config::{Config, Sources, StoreUrl};
use crate::keys;
use crate::listen::ListenAddr;
use crate::shutdown::Signals;
use crate::wiring::Server;

/// The policy of the example notification: its retries come quickly.
const POLICY: &str =
    r#"{"strategy":"fixed","initialDelay":"2s","maxAttempts":3,"jitter":"none","quick":{"tries":0}}"#;

const EXAMPLES: &str = "\
Examples:
  posthaste dev
  posthaste dev --listen localhost:8080 --sink localhost:8090
  posthaste dev --store /tmp/try.db
  posthaste dev --store postgres://posthaste@db.example.com/try

Settings: flags, then POSTHASTE__SECTION__KEY, then posthaste.toml, then the defaults. Loopback is always allowed.
Exit codes: 0 stopped by a signal, 1 failed, 2 wrong use";

/// Run everything on this machine, with a test receiver and a printed key
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevArgs {
    /// The file with the settings [default: posthaste.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the API listens [default: server.listen, 127.0.0.1:7780]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenAddr>,
    /// Where the test receiver listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7790")]
    pub(crate) sink: ListenAddr,
    /// The store: an SQLite file, or a URL; it is kept for the next start [default: store.url, posthaste-dev.db]
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) store: Option<String>,
    /// Any other setting, by its name; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// The defaults of `dev`.
const DEFAULTS: [(&str, &str); 5] = [
    ("store.url", "sqlite://posthaste-dev.db"),
    ("log.level", "warn"),
    // Prints text messages. Other providers of the channel come before it.
    ("providers.log.channel", "sms"),
    ("providers.log.kind", "log"),
    ("providers.log.priority", "1000"),
];
/// Always allowed, because the sink is there.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Runs until a signal.
pub(crate) fn run(args: DevArgs) -> anyhow::Result<Exit> {
    let mut flags = vec![];
    flags.extend(args.listen.map(|listen| ("server.listen".to_owned(), listen.to_string())));
    flags.extend(args.store.map(|store| ("store.url".to_owned(), store_url(&store))));
    let own = DEFAULTS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut config = Config::load(Sources { own, ..serve::sources(args.config, flags, &args.set)? })?;
    for subnet in LOOPBACK {
        config.security.allow_subnets.push(subnet.parse().expect("the subnet is well written"));
    }
    serve::start_logging(&config);
    let key = serve::admin_key()?.unwrap_or_else(keys::fresh);
    serve::block_on(async {
        let mut signals = Signals::listen()?;
        // What its page shows is bounded: 500 requests with 2 KiB of headers and 2 KiB of body each.
        let options = SinkOptions {
            keep: 500,
            excerpt: 2_048,
            headers: 2_048,
            ..SinkOptions::new(Arc::new(SystemClock))
        };
        let sink =
            args.sink.resolve().await.with_context(|| format!("the sink cannot listen on {}", args.sink))?;
        let sink = Sink::start(sink, options).await.with_context(|| {
            format!("the sink cannot listen on {}: is another Posthaste running? `--sink` and `--listen` name other addresses", args.sink)
        })?;
        let server = Server::start(&config, Some(&key)).await?;
        server.show_sink(sink.inbox());
        serve::log_start(&server, &config);
        greet(&server, &sink, &key, &config.store.url)?;
        let outcome = serve::serve(server, &mut signals).await;
        sink.stop().await;
        outcome
    })
}

/// Prints the addresses, the key, and commands to paste.
fn greet(server: &Server, sink: &Sink, key: &str, store: &StoreUrl) -> std::io::Result<()> {
    let (api, target) = (format!("http://{}", server.address), sink.url("/sequence/503,503,200"));
    let program = std::env::args_os().next().unwrap_or_else(|| "posthaste".into());
    let program = program.to_string_lossy();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "Posthaste {} is ready. Ctrl-C stops it, a second Ctrl-C at once.\n",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(out, "  pages  {api}{}   (logs in by itself, once)", server.login_once(key))?;
    writeln!(out, "  API    {api}   (described by {api}/openapi.json)")?;
    writeln!(
        out,
        "  sink   {}   (a test receiver; what arrived, and how to make it fail: {api}/sink)",
        sink.url("")
    )?;
    writeln!(out, "  store  {store}")?;
    writeln!(out, "  node   {}", server.node)?;
    writeln!(out, "  key    {key}   (a new one at each start, unless POSTHASTE_ADMIN_KEY is set)\n")?;
    writeln!(
        out,
        "A notification that fails twice and is then delivered; paste this into another terminal:\n"
    )?;
    writeln!(
        out,
        "curl -s {api}/v1/notifications -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n  \
         -d '{{\"channel\":\"webhook\",\"to\":\"{target}\",\"body\":{{\"hello\":\"world\"}},\n       \"policy\":{POLICY}}}'\n",
    )?;
    writeln!(out, "Then show the three attempts, with the id from the response:\n")?;
    writeln!(out, "curl -s {api}/v1/notifications/ID -H 'Authorization: Bearer {key}'\n")?;
    writeln!(out, "A text message, which is printed here:\n")?;
    writeln!(
        out,
        "curl -s {api}/v1/notifications -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n  \
         -d '{{\"channel\":\"sms\",\"to\":\"+15550100\",\"body\":\"hello\"}}'\n",
    )?;
    writeln!(out, "A webhook and its attempts in one command:\n")?;
    writeln!(
        out,
        "export POSTHASTE_URL={api} POSTHASTE_KEY={key}\n{program} send --to {target} --json '{{\"hello\":\"world\"}}' --watch \\\n  \
         --policy '{POLICY}'\n",
    )?;
    out.flush()
}
