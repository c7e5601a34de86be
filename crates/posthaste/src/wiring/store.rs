//! The store that the configuration names, whichever kind it is: opened, brought up to date, looked at.

use std::path::Path;
use std::sync::Arc;

use posthaste_engine::store::{Durability, DurabilityLevel as Level, Store};
use posthaste_store::postgres;
use posthaste_store::postgres::inspect::Inspection;
use posthaste_store::postgres::{ConnectError, PostgresOptions, PostgresStore};
use posthaste_store::schema::{Schema, Step};
use posthaste_store::sqlite::backup::Copied;
use posthaste_store::sqlite::{self, Options, SqliteStore, Synchronous};

use super::StartError;
use crate::config::{self, StoreUrl};

/// Opens the store, and says whether what it acknowledges survives a crash.
pub(super) async fn open(config: &config::Store) -> Result<(Arc<dyn Store>, Durability), StartError> {
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

/// The steps of the store's schema, and why this program cannot run on it, if it cannot. Changes nothing.
pub async fn schema(config: &config::Store) -> Result<Schema<StartError>, StartError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(file) => told(sqlite::migrate::status(file)?),
        StoreUrl::Postgres(url) => {
            told(postgres::migrate::status(url.reveal(), &postgres_options(config)).await?)
        }
    })
}

fn told<E: Into<StartError>>(schema: Schema<E>) -> Schema<StartError> {
    Schema { steps: schema.steps, refused: schema.refused.map(Into::into) }
}

/// Takes the steps of the schema that the store lacks, and answers with those.
pub async fn migrate(config: &config::Store) -> Result<Vec<Step>, StartError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(file) => sqlite::migrate::up(file, &sqlite_options(config))?,
        StoreUrl::Postgres(url) => postgres::migrate::up(url.reveal(), &postgres_options(config)).await?,
    })
}

/// Copies an SQLite file that may be in use.
pub fn backup(file: &Path, to: &Path) -> Result<Copied, StartError> {
    Ok(sqlite::backup::backup(file, to)?)
}

/// A look at the server of a store in PostgreSQL.
pub async fn inspect(config: &config::Store, url: &config::Secret) -> Result<Inspection, ConnectError> {
    Inspection::start(url.reveal(), postgres_options(config)).await
}

fn sqlite_options(config: &config::Store) -> Options {
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

fn postgres_options(config: &config::Store) -> PostgresOptions {
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
