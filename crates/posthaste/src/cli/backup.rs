//! `posthaste backup`: a copy of the SQLite file while the server runs.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::Exit;
use super::output::{Output, json as print_json, line, note};
use super::settings::StoreArgs;
use crate::config::StoreUrl;
use crate::master_key;
use crate::wiring::store;

const EXAMPLES: &str = "\
Examples:
  posthaste backup --to /backup/posthaste-monday.db
  posthaste backup --config /etc/posthaste/posthaste.toml --to /backup/posthaste-monday.db --output json

The copy contains everything that was acknowledged before it started. The server keeps running. To restore: stop the
server, replace its file by the copy, remove the file's -wal and -shm, start.
The master key is not in the copy: without it the secrets in the copy cannot be read. Where the server keeps it in a file beside
the store, the command says which; copy that file once, and again after `posthaste keys rotate-master`, to another place. A copy of
the store opens with the key of its time, so keep the older copies of the key as long as those of the store.
For a store in PostgreSQL use pg_dump, or pg_basebackup and a log archive.
Exit codes: 0 the copy is on disk and was checked, 1 there is no copy, 2 wrong use";

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

pub(crate) fn run(args: BackupArgs, output: Output) -> anyhow::Result<Exit> {
    let config = args.store.load()?;
    let has_own_key = !config.security.master_keys.is_empty();
    let config = config.store;
    let file = match &config.url {
        StoreUrl::Sqlite(file) => file,
        StoreUrl::Postgres(_) => bail!(
            "the store is PostgreSQL ({url}), which has its own programs for backups: \
             `pg_dump --format=custom --file={to} {url}` for a copy of this moment, or pg_basebackup and a log \
             archive (archive_command) to restore any moment",
            url = config.url,
            to = args.to.display(),
        ),
    };
    let began = Instant::now();
    let copied = store::backup(file, &args.to)?;
    let seconds = began.elapsed().as_secs_f64();
    let key_file = master_key::beside(file);
    let is_there = key_file.exists();
    let key_file = Some(key_file.display().to_string()).filter(|_| !has_own_key);
    match output {
        Output::Json => {
            let shown = json!({
                "store": config.url.to_string(), "file": args.to.display().to_string(), "bytes": copied.bytes,
                "waiting": copied.waiting, "schema": copied.schema, "seconds": seconds,
                "keyFile": key_file.filter(|_| is_there),
            });
            print_json(shown.to_string().as_bytes())?;
        }
        Output::Table => {
            line(&format!(
                "{}: {} bytes, {} notifications that have not ended, schema {}, in {seconds:.2} s; read whole and in order",
                args.to.display(),
                copied.bytes,
                copied.waiting,
                copied.schema,
            ))?;
            if let Some(key_file) = key_file.as_ref().filter(|_| !is_there) {
                note(&format!(
                    "there is no {key_file}: if secrets in the copy are sealed, only the master key that was there opens them"
                ));
            } else if let Some(key_file) = key_file {
                note(&format!(
                    "the master key is not in the copy, and without it the secrets in the copy are lost: keep a copy of \
                     {key_file} in another place"
                ));
            } else if has_own_key {
                note(
                    "the master key of the settings is not in the copy, and without it the secrets in the copy are lost",
                );
            }
        }
    }
    Ok(Exit::Done)
}
