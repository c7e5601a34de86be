//! Opens, migrates and inspects the store of the configuration, SQLite or PostgreSQL.

use std::path::Path;
use std::sync::Arc;

use posthaste_engine::store::{Durability, DurabilityLevel as Level, Store};
use posthaste_store::postgres;
use posthaste_store::postgres::inspect::Inspection;
use posthaste_store::postgres::{ConnectError, PostgresOptions, PostgresStore};
use posthaste_store::schema::{Schema, Step};
use posthaste_store::sqlite::backup::Copied;
use posthaste_store::sqlite::vacuum::Rewritten;
use posthaste_store::sqlite::{self, Options, SqliteStore, Synchronous};

use super::StartError;
use crate::config::{self, StoreUrl};

/// Opens the store, and returns whether acknowledged notifications survive a crash.
pub(super) async fn open(config: &config::StoreSettings) -> Result<(Arc<dyn Store>, Durability), StartError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(file) => {
            let store = SqliteStore::open(file, sqlite_options(config))?;
            let is_full = config.synchronous == config::Synchronous::Full;
            (Arc::new(store), Durability::new(if is_full { Level::Full } else { Level::Unsafe }))
        }
        StoreUrl::Postgres(url) => {
            let store = PostgresStore::connect(url.reveal(), postgres_options(config)).await?;
            let durability = store.durability().clone();
            (Arc::new(store), durability)
        }
    })
}

/// The migrations of the store's schema, and why this program cannot run on it, if it cannot. Changes
/// nothing.
pub async fn schema(config: &config::StoreSettings) -> Result<Schema<StartError>, StartError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(file) => converted(sqlite::migrate::status(file)?),
        StoreUrl::Postgres(url) => {
            converted(postgres::migrate::status(url.reveal(), &postgres_options(config)).await?)
        }
    })
}

fn converted<E: Into<StartError>>(schema: Schema<E>) -> Schema<StartError> {
    Schema { steps: schema.steps, refused: schema.refused.map(Into::into) }
}

/// Applies the missing migrations, and returns them.
pub async fn migrate(config: &config::StoreSettings) -> Result<Vec<Step>, StartError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(file) => sqlite::migrate::up(file, &sqlite_options(config))?,
        StoreUrl::Postgres(url) => postgres::migrate::up(url.reveal(), &postgres_options(config)).await?,
    })
}

/// Copies an SQLite file that may be in use.
pub fn backup(file: &Path, to: &Path) -> Result<Copied, StartError> {
    Ok(sqlite::backup::backup(file, to)?)
}

/// Rewrites an SQLite file that no process uses, without its free pages.
pub fn vacuum(file: &Path) -> Result<Rewritten, StartError> {
    Ok(sqlite::vacuum::vacuum(file)?)
}

/// Inspects the PostgreSQL server of a store.
pub async fn inspect(
    config: &config::StoreSettings,
    url: &config::Secret,
) -> Result<Inspection, ConnectError> {
    Inspection::start(url.reveal(), postgres_options(config)).await
}

fn sqlite_options(config: &config::StoreSettings) -> Options {
    #[cfg(feature = "planted")]
    let defaults = super::planted::in_file(Options::default());
    #[cfg(not(feature = "planted"))]
    let defaults = Options::default();
    Options {
        synchronous: match config.synchronous {
            config::Synchronous::Full => Synchronous::Full,
            config::Synchronous::Normal => Synchronous::Normal,
            config::Synchronous::Off => Synchronous::Off,
        },
        migrate: config.migrate,
        unsafe_durability: config.unsafe_durability,
        ..defaults
    }
}

fn postgres_options(config: &config::StoreSettings) -> PostgresOptions {
    PostgresOptions {
        connections: config.connections as usize,
        connect_timeout: config.connect_timeout,
        statement_timeout: config.statement_timeout,
        lock_timeout: config.lock_timeout,
        prepared: config.prepared,
        root_certificates: config.root_certificates.clone(),
        migrate: config.migrate,
        unsafe_durability: config.unsafe_durability,
        ..PostgresOptions::default()
    }
}
