//! A real PostgreSQL, with databases and schemas for tests.
//!
//! Nothing is skipped: where PostgreSQL is not installed, every test that needs it fails and says what to
//! install.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthaste_store::postgres::own::OwnServer;
use posthaste_store::postgres::{PostgresOptions, PostgresStore, Time};

/// A database with the schema, which the others are copied from.
const TEMPLATE: &str = "posthaste_template";

/// The database in which most tests have a schema each.
const SHARED: &str = "posthaste_shared";

/// A server.
pub(crate) struct Server {
    own: OwnServer,
    databases: AtomicUsize,
}

impl Server {
    /// The one that tests share, with the template of their databases.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A new server.
    pub(crate) fn start() -> Self {
        let own = OwnServer::start(&std::env::temp_dir(), "shared_buffers = 64MB").unwrap();
        let server = Self { own, databases: AtomicUsize::new(0) };
        server.sql("postgres", &format!("create database {TEMPLATE}"));
        server.sql(TEMPLATE, &schema());
        server.sql("postgres", &format!("create database {SHARED} template template0"));
        server
    }

    /// Tells the server to `restart`, `stop` or `start`, without giving it time to end what is under way.
    pub(crate) fn order(&mut self, order: &str) {
        self.own.order(order).unwrap();
    }

    /// Runs a statement beside any store and answers with its rows, a line each.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        self.own.sql(database, sql).unwrap()
    }

    /// A new database with the schema.
    pub(crate) fn database(&self) -> String {
        self.copy_of(TEMPLATE)
    }

    /// A new database without anything.
    pub(crate) fn empty_database(&self) -> String {
        self.copy_of("template0")
    }

    fn copy_of(&self, template: &str) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("create database {name} template {template}"));
        name
    }

    /// The URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        self.own.url(database)
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.own.port()
    }

    /// The URL of a new schema in the database that most tests share, with everything in it. This writes a
    /// hundredth of what a new database does.
    pub(crate) fn schema(&self) -> String {
        let name = format!("s{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(SHARED, &format!("create schema {name}; set search_path = {name}; {}", schema()));
        format!("{}?options=-csearch_path%3D{name}", self.url(SHARED))
    }

    /// A store in a new schema.
    pub(crate) async fn store(&self, options: PostgresOptions) -> PostgresStore {
        PostgresStore::connect(&self.schema(), options).await.unwrap()
    }
}

/// Options for tests that bring their own time, with few connections each and the patience that a busy
/// machine needs.
pub(crate) fn callers_time() -> PostgresOptions {
    let patience = Duration::from_secs(60);
    PostgresOptions {
        time: Time::Caller,
        connections: 4,
        migrate: false,
        connect_timeout: patience,
        statement_timeout: patience,
        lock_timeout: patience,
        idle_timeout: patience,
        ..PostgresOptions::default()
    }
}

/// The schema as the runner leaves it.
fn schema() -> String {
    let mut all = "create table schema_migration (version integer primary key, name text not null, checksum text not null,
             applied_at timestamptz not null default clock_timestamp())"
        .to_owned();
    let steps = [
        ("0001_first", include_str!("../../../migrations/postgres/0001_first.sql")),
        ("0002_node_times", include_str!("../../../migrations/postgres/0002_node_times.sql")),
        ("0003_room_to_grow", include_str!("../../../migrations/postgres/0003_room_to_grow.sql")),
        ("0004_fill_tenants", include_str!("../../../migrations/postgres/0004_fill_tenants.sql")),
        ("0005_lists", include_str!("../../../migrations/postgres/0005_lists.sql")),
        ("0006_blocks", include_str!("../../../migrations/postgres/0006_blocks.sql")),
        ("0007_key_use", include_str!("../../../migrations/postgres/0007_key_use.sql")),
        ("0008_jobs", include_str!("../../../migrations/postgres/0008_jobs.sql")),
        ("0009_retention", include_str!("../../../migrations/postgres/0009_retention.sql")),
        ("0010_series", include_str!("../../../migrations/postgres/0010_series.sql")),
        ("0011_failure_groups", include_str!("../../../migrations/postgres/0011_failure_groups.sql")),
        ("0012_operations", include_str!("../../../migrations/postgres/0012_operations.sql")),
        ("0013_shown_again", include_str!("../../../migrations/postgres/0013_shown_again.sql")),
        ("0014_destination_hours", include_str!("../../../migrations/postgres/0014_destination_hours.sql")),
        ("0015_destinations", include_str!("../../../migrations/postgres/0015_destinations.sql")),
        ("0016_inbound", include_str!("../../../migrations/postgres/0016_inbound.sql")),
    ];
    for (index, (name, step)) in steps.into_iter().enumerate() {
        let (version, quoted) = (index + 1, step.replace('\'', "''"));
        all.push_str(&format!(
            ";{step};
             insert into schema_migration (version, name, checksum)
             values ({version}, '{name}', encode(sha256(convert_to('{quoted}', 'UTF8')), 'hex'))"
        ));
    }
    all
}
