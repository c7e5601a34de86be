//! The program on a real PostgreSQL that the tests start themselves.
//!
//! Nothing is skipped: where PostgreSQL is not installed, these tests fail and say what to install.

mod doctor;
mod restart;
pub(crate) mod schema;
mod wrong;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste_store::postgres::own::OwnServer;
use posthaste_store::postgres::{PostgresOptions, migrate};

/// The server that most tests share.
pub(crate) fn shared() -> &'static OwnServer {
    static SHARED: OnceLock<OwnServer> = OnceLock::new();
    SHARED.get_or_init(|| OwnServer::start(&std::env::temp_dir(), "shared_buffers = 64MB").unwrap())
}

/// A new database on the shared server, without anything.
pub(crate) fn database() -> String {
    made_of("template0")
}

/// A new database on the shared server, with the tables and nothing in them: a copy is made faster than the tables are.
pub(crate) fn database_with_tables() -> String {
    static FIRST: OnceLock<String> = OnceLock::new();
    let first = FIRST.get_or_init(|| {
        let name = database();
        let (url, options) = (shared().url(&name), PostgresOptions::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(migrate::up(&url, &options)).unwrap();
        name
    });
    made_of(first)
}

fn made_of(template: &str) -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("d{}", MADE.fetch_add(1, Ordering::Relaxed));
    shared().sql("postgres", &format!("create database {name} template {template}")).unwrap();
    name
}
