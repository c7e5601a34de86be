//! The PostgreSQL server that is measured: a temporary one, or an empty database that was given.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use posthaste_store::postgres::own::OwnServer;
use posthaste_store::postgres::{Probe, without_password};

use super::child::processor_time;

/// Settings of a temporary server; all others are the defaults.
pub(super) const SETTINGS: [&str; 4] =
    ["shared_buffers = 512MB", "max_wal_size = 4GB", "synchronous_commit = on", "fsync = on"];

pub(super) enum Postgres {
    /// A temporary server with any number of databases.
    Own { server: OwnServer, probe: Probe, settings: Vec<String> },
    /// One database that was given.
    Given(String),
}

impl Postgres {
    /// Starts a temporary server with additional settings.
    pub(super) async fn own(more: &[&str]) -> anyhow::Result<Self> {
        let settings: Vec<String> = SETTINGS.iter().chain(more).map(|&line| line.to_owned()).collect();
        // The directory must be accessible to all users: if the bench runs as root, the server runs as
        // another user.
        let server = OwnServer::start(&std::env::temp_dir(), &settings.join("\n")).context(
            "PostgreSQL could not be started for the bench; `--store postgres://..` uses a running server",
        )?;
        let probe = Probe::connect(&server.url("postgres")).await?;
        Ok(Self::Own { server, probe, settings })
    }

    /// Refuses a database that is not empty.
    pub(super) async fn given(url: &str) -> anyhow::Result<Self> {
        let probe = Probe::connect(url).await?;
        let tables = probe.rows(TABLES).await?;
        if let Some(first) = tables.first() {
            bail!(
                "{} is not empty: it has {} tables, {} among them, and its waiting notifications would be delivered. Create an empty \
                 one with `createdb`, or use `--store postgres` for a temporary server",
                without_password(url),
                tables.len(),
                first[0]
            );
        }
        Ok(Self::Given(url.to_owned()))
    }

    /// A new database on a temporary server, otherwise the one that was given.
    pub(super) async fn database(&self, name: &str) -> anyhow::Result<Database> {
        let url = match self {
            Self::Own { server, probe, .. } => {
                probe.rows(&format!("create database {name}")).await?;
                server.url(name)
            }
            Self::Given(url) => url.clone(),
        };
        Ok(Database { probe: Probe::connect(&url).await?, url })
    }

    /// Drops a database of a temporary server.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        if let Self::Own { probe, .. } = self {
            probe.rows(&format!("drop database {name} with (force)")).await?;
        }
        Ok(())
    }

    /// Processor time of all processes of a temporary server. `None` for a given server, which may run
    /// elsewhere.
    pub(super) fn processor_time(&self) -> anyhow::Result<Option<Duration>> {
        let Self::Own { server, .. } = self else { return Ok(None) };
        let file = server.directory().join("data/postmaster.pid");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let first = text.lines().next().unwrap_or_default().trim();
        let first_time = processor_time(first)?;
        let mut all = first_time.own + first_time.ended;
        let children = PathBuf::from(format!("/proc/{first}/task/{first}/children"));
        let children = std::fs::read_to_string(&children)
            .with_context(|| format!("cannot read {}", children.display()))?;
        for child in children.split_whitespace() {
            // The time of a process that has just ended is part of its parent's the next time.
            all += processor_time(child).map_or(Duration::ZERO, |time| time.own);
        }
        Ok(Some(all))
    }

    /// Version and settings, for the report.
    pub(super) async fn described(&self) -> anyhow::Result<String> {
        let (probe, settings) = match self {
            Self::Own { probe, settings, .. } => (probe, settings.join(", ")),
            Self::Given(url) => (&Probe::connect(url).await?, given_settings(url).await?),
        };
        let rows = probe.rows("show server_version").await?;
        let version = rows.first().and_then(|row| row.first()).map_or("", String::as_str);
        Ok(format!("PostgreSQL {version}: {settings}"))
    }
}

/// The relevant settings of a given server.
async fn given_settings(url: &str) -> anyhow::Result<String> {
    let probe = Probe::connect(url).await?;
    let sql = "
        select name || ' = ' || current_setting(name)
        from pg_settings
        where name in ('shared_buffers', 'max_wal_size', 'synchronous_commit', 'fsync')
        order by name";
    let lines: Vec<String> = probe.rows(sql).await?.into_iter().flatten().collect();
    Ok(lines.join(", "))
}

/// All tables except those of PostgreSQL itself.
const TABLES: &str = "
    select c.relname
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'm', 'v', 'f')
    and n.nspname not in ('information_schema', 'pg_catalog')
    and n.nspname not like 'pg_toast%'
    order by 1";

pub(super) struct Database {
    pub(super) url: String,
    pub(super) probe: Probe,
}

impl Database {
    /// Size of its tables and indexes, in bytes.
    pub(super) async fn size(&self) -> anyhow::Result<u64> {
        self.number("select coalesce(sum(pg_total_relation_size(relid)), 0)::bigint from pg_stat_user_tables")
            .await
    }

    /// Position in the write-ahead log of the server, in bytes.
    pub(super) async fn wal(&self) -> anyhow::Result<u64> {
        self.number("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint").await
    }

    /// After a bulk insert: brings the database into the state of one that has been in use for a while.
    pub(super) async fn tidy(&self) -> anyhow::Result<()> {
        for sql in ["vacuum (analyze)", "checkpoint"] {
            self.probe.rows(sql).await?;
        }
        Ok(())
    }

    async fn number(&self, sql: &str) -> anyhow::Result<u64> {
        let rows = self.probe.rows(sql).await?;
        let first = rows.first().and_then(|row| row.first()).context("PostgreSQL returned no row")?;
        first.parse().with_context(|| format!("PostgreSQL returned {first} for: {sql}"))
    }
}
