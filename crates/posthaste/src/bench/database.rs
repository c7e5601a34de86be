//! The PostgreSQL server that is measured: a temporary one, or an empty database that was given.

use anyhow::{Context as _, bail};
use posthaste_store::postgres::own::OwnServer;
use posthaste_store::postgres::{Probe, without_password};

/// Settings of a temporary server, as lines of `postgresql.conf`; all others are the defaults.
pub const SETTINGS: &str = "shared_buffers = 512MB\nmax_wal_size = 4GB\nsynchronous_commit = on\nfsync = on";

pub(super) enum Postgres {
    /// A temporary server with any number of databases.
    Own(OwnServer),
    /// One database that was given.
    Given(String),
}

impl Postgres {
    pub(super) fn own() -> anyhow::Result<Self> {
        // The directory must be accessible to all users: if the bench runs as root, the server runs as
        // another user.
        let server = OwnServer::start(&std::env::temp_dir(), SETTINGS).context(
            "PostgreSQL could not be started for the bench; `--store postgres://..` uses a running server",
        )?;
        Ok(Self::Own(server))
    }

    /// Refuses a database that is not empty.
    pub(super) async fn given(url: &str) -> anyhow::Result<Self> {
        let tables = Probe::connect(url).await?.rows(TABLES).await?;
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

    /// The URL of a new database on a temporary server, otherwise of the one that was given.
    pub(super) async fn database(&self, name: &str) -> anyhow::Result<String> {
        match self {
            Self::Own(server) => {
                self.maintain(&format!("create database {name}")).await?;
                Ok(server.url(name))
            }
            Self::Given(url) => Ok(url.clone()),
        }
    }

    /// Drops a database of a temporary server.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Own(_) => self.maintain(&format!("drop database {name} with (force)")).await,
            Self::Given(_) => Ok(()),
        }
    }

    /// Brings a database into the state of one that has been in use for a while.
    pub(super) async fn tidy(url: &str) -> anyhow::Result<()> {
        let probe = Probe::connect(url).await?;
        for sql in ["vacuum (analyze)", "checkpoint"] {
            probe.rows(sql).await?;
        }
        Ok(())
    }

    /// Version and relevant settings, for the report.
    pub(super) async fn described(&self) -> anyhow::Result<String> {
        let rows = Probe::connect(&self.url()).await?.rows(DESCRIPTION).await?;
        Ok(format!("PostgreSQL {}", rows.into_iter().flatten().collect::<Vec<_>>().join(", ")))
    }

    async fn maintain(&self, sql: &str) -> anyhow::Result<()> {
        Probe::connect(&self.url()).await?.rows(sql).await?;
        Ok(())
    }

    fn url(&self) -> String {
        match self {
            Self::Own(server) => server.url("postgres"),
            Self::Given(url) => url.clone(),
        }
    }
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

/// The version, then a setting a row.
const DESCRIPTION: &str = "
    select case name when 'server_version' then current_setting(name) else name || ' = ' || current_setting(name) end
    from pg_settings
    where name in ('server_version', 'shared_buffers', 'max_wal_size', 'synchronous_commit', 'fsync')
    order by name <> 'server_version', name desc";
