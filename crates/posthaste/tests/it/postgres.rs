//! The program on a real PostgreSQL that the tests start themselves.
//!
//! Nothing is skipped: where PostgreSQL is not installed, these tests fail and say what to install.

mod doctor;
mod restart;
mod schema;
mod wrong;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste_store::postgres::own::OwnServer;

/// The server that most of these tests share.
fn shared() -> &'static OwnServer {
    static SHARED: OnceLock<OwnServer> = OnceLock::new();
    SHARED.get_or_init(|| OwnServer::start(&std::env::temp_dir(), "shared_buffers = 64MB").unwrap())
}

/// A new database on the shared server, without anything.
fn database() -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("d{}", MADE.fetch_add(1, Ordering::Relaxed));
    shared().sql("postgres", &format!("create database {name}")).unwrap();
    name
}
