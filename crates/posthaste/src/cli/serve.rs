//! `posthaste serve`: the server.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use tokio::runtime::Runtime;

use super::failure::without_passwords;
use super::settings::store_url;
use super::{Exit, WrongUse};
use crate::config::{Config, Sources, secret_text};
use crate::keys::MIN_ADMIN_KEY;
use crate::listen::ListenAddr;
use crate::shutdown::Signals;
use crate::wiring::{FirstKey, Server, StopError};
use crate::{open_files, telemetry};

/// The variable with the admin key.
pub(crate) const ADMIN_KEY: &str = "POSTHASTE_ADMIN_KEY";

const EXAMPLES: &str = "\
Examples:
  posthaste serve
  posthaste serve --config /etc/posthaste/posthaste.toml
  posthaste serve --store /var/lib/posthaste/posthaste.db --listen 0.0.0.0:7780
  posthaste serve --store postgres://posthaste@db.example.com/posthaste
  posthaste serve --set engine.concurrency=512 --set breaker.break_duration=1m

Settings: flags, then POSTHASTE__SECTION__KEY, then posthaste.toml, then the defaults.
The first key: POSTHASTE_ADMIN_KEY (32 ASCII characters or more, or file:PATH) is an admin key as long as the server runs with it.
Without it, and with no admin key in the store, one is made and written to posthaste-admin.key beside the SQLite file, else in
the working directory. It is printed to a terminal only.
Exit codes: 0 stopped by a signal, 1 failed, 2 wrong use";

/// Run the server
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// The file with the settings [default: posthaste.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the API listens (server.listen)
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<ListenAddr>,
    /// The store: an SQLite file, or a URL (store.url)
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) store: Option<String>,
    /// Any other setting, by its name; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Runs until a signal.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<Exit> {
    let mut flags = vec![];
    flags.extend(args.listen.map(|listen| ("server.listen".to_owned(), listen.to_string())));
    flags.extend(args.store.map(|store| ("store.url".to_owned(), store_url(&store))));
    let config = Config::load(sources(args.config, flags, &args.set)?)?;
    start_logging(&config);
    let admin = admin_key()?;
    block_on(async {
        let mut signals = Signals::listen()?;
        let server = Server::start(&config, admin.as_deref()).await?;
        log_start(&server, &config);
        if let Some(key) = &server.new_key {
            show(key);
        }
        tracing::info!(address = %server.address, "ready");
        serve(server, &mut signals).await
    })
}

/// Logs what runs here, without a password.
pub(crate) fn log_start(server: &Server, config: &Config) {
    let (store, url) = (config.store.url.kind(), &config.store.url);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), store, url = %url, node = %server.node, "started");
}

/// Runs a command on the runtime of a server.
pub(crate) fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(command);
    // A DNS lookup may still block a thread.
    runtime.shutdown_background();
    outcome
}

/// Serves until a signal, or until a part of the server has failed.
pub(crate) async fn serve(mut server: Server, signals: &mut Signals) -> anyhow::Result<Exit> {
    tokio::select! {
        signal = signals.next() => stop(server, signals, signal).await,
        part = server.broken() => Ok(broken(part)),
    }
}

/// The heartbeat has stopped, so that other nodes take over. A supervisor restarts a process that failed.
fn broken(part: &str) -> Exit {
    tracing::error!(
        part,
        "a part of this node failed: the process ends with exit code 1 and must be restarted"
    );
    Exit::Failed
}

/// Stops cleanly; a second signal stops at once.
async fn stop(server: Server, signals: &mut Signals, signal: &str) -> anyhow::Result<Exit> {
    tracing::info!(signal, "stopping: no new notifications are taken, running attempts end");
    tokio::select! {
        left = server.stop() => match left {
            Ok(0) => {
                tracing::info!("stopped");
                Ok(Exit::Done)
            }
            Ok(left) => {
                tracing::warn!(left, "stopped with running attempts: they are repeated after the next start");
                Ok(Exit::Done)
            }
            Err(StopError::Broken(part)) => Ok(broken(part)),
            Err(error) => Err(error.into()),
        },
        signal = signals.next() => {
            tracing::warn!(signal, "stopped at once: running attempts are repeated after the next start");
            Ok(Exit::Failed)
        }
    }
}

/// One core is left to the writer thread.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.saturating_sub(1).max(1);
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// Starts logging, and logs what the configuration has to say.
pub(crate) fn start_logging(config: &Config) {
    telemetry::start(&config.log);
    let files = open_files::warning(config.server.connections, config.engine.concurrency);
    for warning in config.warnings.iter().chain(&files) {
        tracing::warn!("{warning}");
    }
    for notice in &config.notices {
        tracing::info!("{notice}");
    }
}

/// The admin key of the environment, in place or where that says. Empty means none.
pub(crate) fn admin_key() -> anyhow::Result<Option<String>> {
    let Some(given) = std::env::var_os(ADMIN_KEY).filter(|key| !key.is_empty()) else { return Ok(None) };
    let key = given.to_str().with_context(|| {
        format!("{ADMIN_KEY} is not text: give {MIN_ADMIN_KEY} or more ASCII characters, as `openssl rand -hex 32` makes")
    })?;
    secret_text(key).map(Some).map_err(|reason| anyhow::anyhow!("{ADMIN_KEY} {reason}"))
}

/// Says where the new key stands. The key itself is shown to a person alone: what goes into a file or a pipe is kept by others.
fn show(key: &FirstKey) {
    let file = key.file.display();
    tracing::info!(%file, "there was no admin key: one was made and written to a file");
    // Whoever closed stdout finds the file in the log.
    if let Err(error) = print(key) {
        tracing::warn!(%error, "where the first admin key is cannot be printed");
    }
}

fn print(key: &FirstKey) -> std::io::Result<()> {
    let (mut out, file) = (stdout().lock(), key.file.display());
    if out.is_terminal() {
        writeln!(out, "admin key, shown this once: {}", key.secret)?;
    }
    writeln!(
        out,
        "The first admin key is in {file}. Commands use it after: export POSTHASTE_KEY=file:{file}"
    )?;
    out.flush()
}

/// The sources of a command's settings: its flags, the environment, and the file.
pub(crate) fn sources(
    file: Option<PathBuf>,
    mut flags: Vec<(String, String)>,
    set: &[String],
) -> anyhow::Result<Sources> {
    for set in set {
        let (name, value) = set.split_once('=').ok_or_else(|| {
            WrongUse(format!(
                "--set {}: give it as section.key=value, such as engine.concurrency=512",
                without_passwords(set)
            ))
        })?;
        flags.push((name.to_owned(), value.to_owned()));
    }
    let variables = std::env::vars_os().collect();
    Ok(Sources { file, directory: std::env::current_dir()?, variables, flags, own: vec![] })
}
