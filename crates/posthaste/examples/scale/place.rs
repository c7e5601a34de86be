//! The store of a scenario: an empty one with its schema, gone at the end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use posthaste::bench::database::SETTINGS;
use posthaste_store::postgres::own::OwnServer;
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::server::processor_time;

/// The database on a PostgreSQL server of its own.
const DATABASE: &str = "posthaste";

/// Which store.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

impl fmt::Display for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        })
    }
}

/// Where one store is, with the directory for whatever runs on it.
pub(crate) struct Place {
    directory: TempDir,
    /// None where the store is a SQLite file.
    database: Option<OwnServer>,
}

impl Place {
    /// A store with the schema that this binary makes.
    pub(crate) async fn new(store: Store, binary: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(block_in_place(|| -> anyhow::Result<OwnServer> {
                // In a directory that everybody may pass through: the server runs as another user where this is root.
                let server = OwnServer::start(&std::env::temp_dir(), SETTINGS)?;
                server.sql("postgres", &format!("create database {DATABASE}"))?;
                Ok(server)
            })?),
        };
        let place = Self { directory, database };
        let mut migrate = Command::new(binary);
        migrate.args(["migrate", "up", "--store", &place.url()]).current_dir(place.directory());
        let output = block_in_place(|| migrate.output()).context("the server cannot be run")?;
        if !output.status.success() {
            bail!("no schema was made: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(place)
    }

    /// A directory that is gone with the store.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The SQLite file, if it is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.database.is_none().then(|| self.directory.path().join("posthaste.db"))
    }

    /// What a server is told.
    pub(crate) fn url(&self) -> String {
        match &self.database {
            None => format!("sqlite://{}", self.directory.path().join("posthaste.db").display()),
            Some(server) => server.url(DATABASE),
        }
    }

    /// Runs statements in the database; in a file they are run by whoever opened it, which only one process can.
    pub(crate) fn sql(&self, sql: &str) -> anyhow::Result<String> {
        let server = self.database.as_ref().context("this needs --store postgres")?;
        Ok(block_in_place(|| server.sql(DATABASE, sql))?)
    }

    /// A number from the database.
    pub(crate) fn number(&self, sql: &str) -> anyhow::Result<u64> {
        let text = self.sql(sql)?;
        text.trim().parse().with_context(|| format!("PostgreSQL returned {text} for: {sql}"))
    }

    /// The size of the file, or of all tables and indexes, in bytes.
    pub(crate) fn size(&self) -> anyhow::Result<u64> {
        match self.file() {
            Some(file) => Ok(std::fs::metadata(file)?.len()),
            None => self.number(
                "select coalesce(sum(pg_total_relation_size(relid)), 0)::bigint from pg_stat_user_tables",
            ),
        }
    }

    /// How much was written to the log of PostgreSQL, in bytes; zero for a file.
    pub(crate) fn wal(&self) -> anyhow::Result<u64> {
        if self.database.is_none() {
            return Ok(0);
        }
        self.number("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")
    }

    /// The processor time that PostgreSQL took in all its processes; zero for a file.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        let Some(server) = &self.database else { return Ok(Duration::ZERO) };
        let file = server.directory().join("data/postmaster.pid");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let first = text.lines().next().unwrap_or_default().trim();
        let mut all = processor_time(first)?;
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"))?;
        for child in children.split_whitespace() {
            // One that has just ended is counted with its parent.
            all += processor_time(child).unwrap_or_default();
        }
        Ok(all)
    }
}
