//! Why a server cannot be used, and what helps.

use std::io;

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::SqlState;

use super::durability;

/// Why the server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// What was given is no URL.
    #[error(
        "`{given}` is not the URL of a PostgreSQL database ({what}): write postgres://user:password@host:5432/database"
    )]
    BadUrl {
        /// What was given, without its password.
        given: String,
        /// What is wrong with it.
        what: String,
    },
    /// Nobody answers.
    #[error(
        "PostgreSQL cannot be reached at {tried}: {what}. Start it, or correct the host and port of the URL"
    )]
    Unreachable {
        /// Where it was looked for.
        tried: String,
        /// What happened.
        what: String,
    },
    /// The server does not let this user in.
    #[error(
        "PostgreSQL at {tried} does not let the user in: {what}. Correct user and password in the URL, or allow the user \
         in pg_hba.conf"
    )]
    NotLetIn {
        /// Where, and who.
        tried: String,
        /// What it says.
        what: String,
    },
    /// Somebody else answers.
    #[error(
        "what answers at {tried} does not speak as PostgreSQL does: {what}. Correct the host and port of the URL"
    )]
    NotPostgres {
        /// Where.
        tried: String,
        /// What happened.
        what: String,
    },
    /// The server and this program do not come to speak TLS.
    #[error(
        "PostgreSQL at {tried} cannot be spoken to with TLS: {what}. Turn it on there (ssl = on), name the authority of its \
         certificate in store.root_certificates, or write another sslmode in the URL"
    )]
    NoTls {
        /// Where.
        tried: String,
        /// What happened.
        what: String,
    },
    /// There is no such database.
    #[error(
        "PostgreSQL at {tried} has no database `{database}`: make it with `createdb {database}`, or correct the URL"
    )]
    NoDatabase {
        /// Where.
        tried: String,
        /// Which one.
        database: String,
    },
    /// The server does not take writes.
    #[error(
        "PostgreSQL at {tried} only reads: it is a standby, or default_transaction_read_only is on. Name the server that takes \
         writes, or several hosts in the URL (postgres://a,b/database), of which that one is used"
    )]
    OnlyReads {
        /// Where.
        tried: String,
    },
    /// A pooler that keeps no sessions stands in between.
    #[error(
        "what answers at {tried} is a pooler that keeps no sessions: {what}. Set store.prepared = false, or name the server itself"
    )]
    Pooler {
        /// Where.
        tried: String,
        /// What it says.
        what: String,
    },
    /// The server has no connection to spare.
    #[error(
        "PostgreSQL at {tried} has no connection left: raise its max_connections, or let each node use fewer (store.connections)"
    )]
    Full {
        /// Where.
        tried: String,
    },
    /// The server is older than what is used of it.
    #[error("PostgreSQL at {tried} has version {found}, and Posthaste needs 13 or later: upgrade the server")]
    TooOld {
        /// Where.
        tried: String,
        /// Its version.
        found: String,
    },
    /// The database cannot hold every text.
    #[error(
        "the database at {tried} is encoded as {found}, which cannot hold every text: make one with `createdb -T template0 \
         -E UTF8`"
    )]
    NotUtf8 {
        /// Where.
        tried: String,
        /// Its encoding.
        found: String,
    },
    /// The server would acknowledge what a crash can take back.
    #[error(
        "PostgreSQL runs with {setting}={value}, which loses acknowledged notifications in a crash: set {setting} = on and \
         reload it, or set store.unsafe_durability = true to accept that"
    )]
    NotDurable {
        /// The setting.
        setting: &'static str,
        /// What it is.
        value: String,
    },
    /// A newer Posthaste has written the schema.
    #[error(
        "the database has schema {found} and this Posthaste knows {known}: run the newer Posthaste again, or restore a \
         backup from before the upgrade (`posthaste migrate status` shows the steps)"
    )]
    Newer {
        /// The schema of the database.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// The database has not taken every step.
    #[error("the database lacks step {step} of the schema: run `posthaste migrate up`")]
    Behind {
        /// The first step that is missing.
        step: String,
    },
    /// The user may not change the schema.
    #[error(
        "step {step} of the schema could not be taken, because the user may not do that: {what}. Make the user the owner \
         (`alter database .. owner to ..`), or run `posthaste migrate up` as the owner"
    )]
    NotAllowed {
        /// The step.
        step: String,
        /// What the server says.
        what: String,
    },
    /// Somebody uses the tables that a step has to change.
    #[error(
        "step {step} of the schema could not be taken, because somebody uses its tables for long: wait until that has ended (a \
         pg_dump, an open transaction; pg_stat_activity tells) and run `posthaste migrate up`"
    )]
    Occupied {
        /// The step.
        step: String,
    },
    /// The schema is not what its list of steps says.
    #[error(
        "the schema is half migrated: {what}. Restore a backup; only where nothing in it is needed, run `posthaste migrate up` on an \
         empty database"
    )]
    HalfMigrated {
        /// What does not fit.
        what: String,
    },
    /// Another program has written the database.
    #[error(
        "the database holds tables of another program ({tables}), or has lost its list of steps (schema_migration): give \
         Posthaste a database of its own and run `posthaste migrate up`, or restore a backup"
    )]
    Foreign {
        /// The tables whose names are ours.
        tables: String,
    },
    /// TLS cannot be set up.
    #[error("TLS to PostgreSQL cannot be set up: {what}")]
    Tls {
        /// What is wrong.
        what: String,
    },
    /// The server refused something else.
    #[error("PostgreSQL cannot be used as a store: {}", chain(.0))]
    Server(#[from] tokio_postgres::Error),
}

/// An error with everything beneath it, in one line.
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

/// What it means that no connection came about.
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

/// What it means that the server did not even refuse. The client has no codes for that, only words.
fn unanswered(error: &tokio_postgres::Error, tried: String, what: String) -> ConnectError {
    let beneath = std::error::Error::source(error).and_then(|beneath| beneath.downcast_ref::<io::Error>());
    // What the system says of a connection has kinds of its own.
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
