//! Errors of a server that cannot be used, with advice.

use std::io;

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::SqlState;

use super::durability;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "`{given}` is not the URL of a PostgreSQL database ({what}): write postgres://user:password@host:5432/database"
    )]
    BadUrl {
        /// Without the password.
        given: String,
        what: String,
    },
    #[error(
        "PostgreSQL cannot be reached at {tried}: {what}. Start it, or correct the host and port of the URL"
    )]
    Unreachable {
        /// The address, without the password.
        tried: String,
        what: String,
    },
    #[error(
        "PostgreSQL at {tried} refuses the user: {what}. Correct user and password in the URL, or allow the user \
         in pg_hba.conf"
    )]
    NotLetIn { tried: String, what: String },
    /// The answer is not that of a PostgreSQL server.
    #[error("the server at {tried} is not PostgreSQL: {what}. Correct the host and port of the URL")]
    NotPostgres { tried: String, what: String },
    /// The TLS handshake fails.
    #[error(
        "TLS to PostgreSQL at {tried} fails: {what}. Turn it on there (ssl = on), name the authority of its \
         certificate in store.root_certificates, or write another sslmode in the URL"
    )]
    NoTls { tried: String, what: String },
    #[error(
        "PostgreSQL at {tried} has no database `{database}`: create it with `createdb {database}`, or correct the URL"
    )]
    NoDatabase { tried: String, database: String },
    /// The server is read-only.
    #[error(
        "PostgreSQL at {tried} is read-only: it is a standby, or default_transaction_read_only is on. Name the server that takes \
         writes, or several hosts in the URL (postgres://a,b/database), of which that one is used"
    )]
    OnlyReads { tried: String },
    /// A transaction pooler is in use.
    #[error(
        "{tried} is a pooler that keeps no sessions: {what}. Set store.prepared = false, or name the server itself"
    )]
    Pooler { tried: String, what: String },
    /// The server has no free connections.
    #[error(
        "PostgreSQL at {tried} has no connection left: raise its max_connections, or let each node use fewer (store.connections)"
    )]
    Full { tried: String },
    #[error("PostgreSQL at {tried} has version {found}, and Posthaste needs 13 or later: upgrade the server")]
    TooOld { tried: String, found: String },
    /// The encoding of the database is not UTF-8.
    #[error(
        "the database at {tried} has the encoding {found}, which cannot store every text: create one with `createdb -T template0 \
         -E UTF8`"
    )]
    NotUtf8 { tried: String, found: String },
    /// A crash could lose acknowledged notifications.
    #[error(
        "PostgreSQL runs with {setting}={value}, which loses acknowledged notifications in a crash: set {setting} = on and \
         reload it, or set store.unsafe_durability = true to accept that"
    )]
    NotDurable { setting: &'static str, value: String },
    #[error(
        "the database has schema {found} and this Posthaste knows {known}: run the newer Posthaste again, or restore a \
         backup from before the upgrade (`posthaste migrate status` shows the steps)"
    )]
    Newer { found: u32, known: u32 },
    #[error("the database lacks step {step} of the schema: run `posthaste migrate up`")]
    Behind { step: String },
    #[error(
        "step {step} of the schema could not be applied, because the user lacks the permission: {what}. Make the user the owner \
         (`alter database .. owner to ..`), or run `posthaste migrate up` as the owner"
    )]
    NotAllowed { step: String, what: String },
    /// Other transactions use the tables that a step has to change.
    #[error(
        "step {step} of the schema could not be applied, because its tables are in use: wait until the other transactions have ended (a \
         pg_dump, an open transaction; see pg_stat_activity) and run `posthaste migrate up`"
    )]
    Occupied { step: String },
    /// The tables do not match the applied steps.
    #[error(
        "the schema is half migrated: {what}. Restore a backup; only where nothing in it is needed, run `posthaste migrate up` on an \
         empty database"
    )]
    HalfMigrated { what: String },
    #[error(
        "the database holds tables of another program ({tables}), or has lost its list of steps (schema_migration): give \
         Posthaste a database of its own and run `posthaste migrate up`, or restore a backup"
    )]
    Foreign {
        /// Existing tables with names of Posthaste.
        tables: String,
    },
    #[error("TLS to PostgreSQL cannot be set up: {what}")]
    Tls { what: String },
    /// Any other error.
    #[error("PostgreSQL cannot be used as a store: {}", chain(.0))]
    Server(#[from] tokio_postgres::Error),
}

/// An error with all its sources, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut beneath = error.source();
    while let Some(error) = beneath {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        beneath = error.source();
    }
    text
}

pub(super) fn refused(error: &PoolError, tried: String, database: String) -> ConnectError {
    let what = match error {
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Wait) => "no answer in time".to_owned(),
        PoolError::Backend(error) => chain(error),
        other => chain(other),
    };
    let PoolError::Backend(error) = error else { return ConnectError::Unreachable { tried, what } };
    if what.contains("unsupported startup parameter") {
        return ConnectError::Pooler { tried, what };
    }
    if let Some(refusal) = durability::refusal(error) {
        return refusal;
    }
    let Some(code) = error.code() else { return unanswered(error, tried, what) };
    match *code {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            ConnectError::NotLetIn { tried, what }
        }
        SqlState::INVALID_CATALOG_NAME => ConnectError::NoDatabase { tried, database },
        SqlState::TOO_MANY_CONNECTIONS => ConnectError::Full { tried },
        _ => ConnectError::Unreachable { tried, what },
    }
}

/// For a connection that failed without an answer of the server. The client has no codes for that, only
/// texts.
fn unanswered(error: &tokio_postgres::Error, tried: String, what: String) -> ConnectError {
    let beneath = std::error::Error::source(error).and_then(|beneath| beneath.downcast_ref::<io::Error>());
    // Errors of the operating system have their own kinds.
    let nonsense = beneath.is_some_and(|beneath| {
        use io::ErrorKind::{InvalidData, InvalidInput, Other};
        what.starts_with("error communicating")
            && matches!(beneath.kind(), InvalidData | InvalidInput | Other)
    });
    let only_reads = beneath.is_some_and(|beneath| {
        beneath.kind() == io::ErrorKind::PermissionDenied && what.contains("does not allow writes")
    });
    if only_reads {
        ConnectError::OnlyReads { tried }
    } else if what.contains("password missing") {
        ConnectError::NotLetIn { tried, what: "it asks for a password".to_owned() }
    } else if what.contains("authentication") {
        ConnectError::NotLetIn { tried, what }
    } else if what.contains("TLS handshake") {
        ConnectError::NoTls { tried, what }
    } else if nonsense || what.contains("unexpected message") {
        ConnectError::NotPostgres { tried, what }
    } else {
        ConnectError::Unreachable { tried, what }
    }
}
