//! `posthaste backup`: a copy of the SQLite file while the server runs.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::Outcome;
use super::output::{Output, json as print_json, line};
use super::settings::StoreArgs;
use crate::config::StoreUrl;
use crate::wiring::store;

const EXAMPLES: &str = "\
Examples:
  posthaste backup --to /backup/posthaste-monday.db
  posthaste backup --config /etc/posthaste/posthaste.toml --to /backup/posthaste-monday.db --output json

The copy holds everything that was acknowledged before it began. The server goes on meanwhile. To restore: stop the server,
put the copy in the place of its file, remove the file's -wal and -shm, start.
A store in PostgreSQL is copied by its own programs: pg_dump, or pg_basebackup and an archive of the log.
Exit codes: 0 the copy is on disk and in order, 1 there is none, 2 wrong use";

/// Copy the SQLite file of the store, which may be in use
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackupArgs {
    /// The file to make; it is never overwritten
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

/// Makes the copy.
pub(crate) fn run(args: BackupArgs, output: Output) -> anyhow::Result<Outcome> {
    let config = args.store.load()?.store;
    let file = match &config.url {
        StoreUrl::Sqlite(file) => file,
        StoreUrl::Postgres(_) => bail!(
            "the store is PostgreSQL ({url}), which has programs of its own for that: \
             `pg_dump --format=custom --file={to} {url}` for a copy of this moment, or pg_basebackup and an archive of the \
             log (archive_command) to come back to any moment",
            url = config.url,
            to = args.to.display(),
        ),
    };
    let began = Instant::now();
    let copied = store::backup(file, &args.to)?;
    let seconds = began.elapsed().as_secs_f64();
    match output {
        Output::Json => {
            let shown = json!({
                "store": config.url.to_string(), "file": args.to.display().to_string(), "bytes": copied.bytes,
                "waiting": copied.waiting, "schema": copied.schema, "seconds": seconds,
            });
            print_json(shown.to_string().as_bytes())?;
        }
        Output::Table => line(&format!(
            "{}: {} bytes, {} notifications that have not ended, schema {}, in {seconds:.2} s; read whole and in order",
            args.to.display(),
            copied.bytes,
            copied.waiting,
            copied.schema,
        ))?,
    }
    Ok(Outcome::Done)
}
