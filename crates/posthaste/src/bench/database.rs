//! The PostgreSQL that is measured: a server of the bench's own, or an empty database of somebody's.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use posthaste_store::postgres::own::OwnServer;
use posthaste_store::postgres::{Probe, without_password};

use super::child::processor_time;

/// What a server of its own is set to; everything else is as PostgreSQL comes.
pub(super) const SETTINGS: [&str; 4] =
    ["shared_buffers = 512MB", "max_wal_size = 4GB", "synchronous_commit = on", "fsync = on"];

/// A server with databases to measure.
pub(super) enum Postgres {
    /// Made for the bench: any number of databases.
    Own { server: OwnServer, probe: Probe, settings: Vec<String> },
    /// This one database.
    Given(String),
}

impl Postgres {
    /// A server of its own, with these settings beside the usual ones.
    pub(super) async fn own(more: &[&str]) -> anyhow::Result<Self> {
        let settings: Vec<String> = SETTINGS.iter().chain(more).map(|&line| line.to_owned()).collect();
        // In a directory that everybody may pass through: the server runs as another user where the bench is root.
        let server = OwnServer::start(&std::env::temp_dir(), &settings.join("\n")).context(
            "no PostgreSQL could be started for the bench; `--store postgres://..` names one that runs",
        )?;
        let probe = Probe::connect(&server.url("postgres")).await?;
        Ok(Self::Own { server, probe, settings })
    }

    /// A database of somebody's, refused if there is anything in it.
    pub(super) async fn given(url: &str) -> anyhow::Result<Self> {
        let probe = Probe::connect(url).await?;
        let tables = probe.rows(TABLES).await?;
        if let Some(first) = tables.first() {
            bail!(
                "{} is not empty: it has {} tables, {} among them, and what waits in it would be delivered. Make an empty \
                 one with `createdb`, or let `--store postgres` start a server of its own",
                without_password(url),
                tables.len(),
                first[0]
            );
        }
        Ok(Self::Given(url.to_owned()))
    }

    /// A database for the bench: a new one under that name on a server of its own, else the one that was given.
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

    /// Throws a database away, if it is the bench's own.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        if let Self::Own { probe, .. } = self {
            probe.rows(&format!("drop database {name} with (force)")).await?;
        }
        Ok(())
    }

    /// The processor time that the server took, in all its processes; not told of one that may be elsewhere.
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
            // One that has just ended is counted with its parent the next time.
            all += processor_time(child).map_or(Duration::ZERO, |time| time.own);
        }
        Ok(Some(all))
    }

    /// What was measured, in words.
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

/// What a server that was given is set to, as far as it matters.
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

/// Every table that is not PostgreSQL's own.
const TABLES: &str = "
    select c.relname
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'm', 'v', 'f')
    and n.nspname not in ('information_schema', 'pg_catalog')
    and n.nspname not like 'pg_toast%'
    order by 1";

/// A database and a connection to it.
pub(super) struct Database {
    pub(super) url: String,
    pub(super) probe: Probe,
}

impl Database {
    /// How many bytes its tables take, with their indexes.
    pub(super) async fn size(&self) -> anyhow::Result<u64> {
        self.number("select coalesce(sum(pg_total_relation_size(relid)), 0)::bigint from pg_stat_user_tables")
            .await
    }

    /// How far the log of the whole server has come.
    pub(super) async fn wal(&self) -> anyhow::Result<u64> {
        self.number("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint").await
    }

    /// After much was written at once: the state that a database is in which has been used for a while.
    pub(super) async fn tidy(&self) -> anyhow::Result<()> {
        for sql in ["vacuum (analyze)", "checkpoint"] {
            self.probe.rows(sql).await?;
        }
        Ok(())
    }

    async fn number(&self, sql: &str) -> anyhow::Result<u64> {
        let rows = self.probe.rows(sql).await?;
        let first = rows.first().and_then(|row| row.first()).context("PostgreSQL did not answer")?;
        first.parse().with_context(|| format!("PostgreSQL answered {first} to: {sql}"))
    }
}
