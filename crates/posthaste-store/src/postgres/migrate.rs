//! Migrations, and the table of applied steps.
//!
//! Each step is one transaction under a lock that all processes share, so any number of nodes may start at
//! once: one applies the step, the others wait, log that, and then see that it was applied. It does not
//! depend on the session, so it may run through a pooler.
//!
//! Rules for a step: it only adds what does not disturb older processes (expand). What they still use is
//! removed by a later release, when none of them runs any more (contract). A released step is never changed:
//! its checksum is compared.

use std::time::Duration;

use deadpool_postgres::Object;
use posthaste_core::time::Timestamp;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connect::{self, PostgresOptions};
use super::refusal::{ConnectError, chain};
use crate::schema::{Schema, Step, TABLES};

struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../../migrations/postgres/", $name, ".sql")),
        }
    };
}

/// In order.
const MIGRATIONS: &[Migration] = &[
    migration!(1, "0001_first"),
    migration!(2, "0002_node_times"),
    migration!(3, "0003_room_to_grow"),
    migration!(4, "0004_fill_tenants"),
    migration!(5, "0005_lists"),
    migration!(6, "0006_blocks"),
    migration!(7, "0007_key_use"),
    migration!(8, "0008_jobs"),
    migration!(9, "0009_retention"),
    migration!(10, "0010_series"),
    migration!(11, "0011_failure_groups"),
    migration!(12, "0012_operations"),
    migration!(13, "0013_shown_again"),
    migration!(14, "0014_destination_hours"),
    migration!(15, "0015_destinations"),
    migration!(16, "0016_inbound"),
];

/// The advisory lock for schema changes: "posthast" in ASCII.
const LOCK: i64 = 0x706f_7374_6861_7374;

/// Timeout for a table that another transaction has locked.
const TABLE_TIMEOUT: &str = "2s";
/// Time without a statement after which the server ends the transaction of a step, and with it the lock.
const IDLE_TIMEOUT: &str = "10s";
/// Interval of the checks whether another node's step has ended, and the number of checks between two log
/// lines.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const CHECKS_PER_LOG_LINE: u64 = 20;
/// Pause before a step that could not lock its tables is tried again, and the maximum number of tries.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_TRIES: usize = 20;

/// Returns all steps and whether the database has applied them. Changes nothing.
pub async fn status(url: &str, options: &PostgresOptions) -> Result<Schema<ConnectError>, ConnectError> {
    let (connected, client) = connect::connect(url, options).await?;
    connect::check(&client, &connected.tried).await?;
    read(&client).await
}

/// Applies the missing steps and returns them.
pub async fn up(url: &str, options: &PostgresOptions) -> Result<Vec<Step>, ConnectError> {
    let (connected, client) = connect::connect(url, options).await?;
    connect::check(&client, &connected.tried).await?;
    apply_missing(&client).await
}

/// Refuses a database that lacks a step.
pub(super) async fn complete(client: &Object) -> Result<(), ConnectError> {
    read(client).await?.refused.map_or(Ok(()), Err)
}

/// Applies the missing steps.
pub(super) async fn apply_missing(client: &Object) -> Result<Vec<Step>, ConnectError> {
    // At most starts all steps are applied, and nothing needs the lock.
    if read(client).await?.refused.is_none() {
        return Ok(vec![]);
    }
    let mut taken = vec![];
    for migration in MIGRATIONS {
        if apply(client, migration).await? {
            taken.push(migration.version);
        }
    }
    let mut steps = read(client).await?.steps;
    steps.retain(|step| taken.contains(&step.version));
    Ok(steps)
}

/// Applies a step, unless it was applied. Tries again while other transactions use the tables.
async fn apply(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    for _ in 0..MAX_TRIES {
        match apply_once(client, migration).await {
            Err(ConnectError::Server(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                return Err(ConnectError::NotAllowed {
                    step: migration.name.to_owned(),
                    what: chain(&error),
                });
            }
            Err(ConnectError::Server(error)) if are_tables_in_use(&error) => {
                tracing::warn!(step = migration.name, "the tables are in use, so the step is tried again");
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
    Err(ConnectError::Occupied { step: migration.name.to_owned() })
}

/// Whether other transactions use the tables: a lock timeout or a deadlock.
fn are_tables_in_use(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::T_R_DEADLOCK_DETECTED)
}

async fn apply_once(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    begin(client).await?;
    let done = step(client, migration).await;
    // A failed step leaves no changes behind.
    client.batch_execute(if done.is_ok() { "commit" } else { "rollback" }).await?;
    done
}

/// Begins the transaction of a step. It waits for other steps without a limit, and the step itself may take
/// long. It waits only briefly for a table, because other transactions on that table queue behind it.
async fn begin(client: &Object) -> Result<(), ConnectError> {
    let begin = format!(
        "begin isolation level read committed read write;
         set local statement_timeout = 0;
         set local lock_timeout = '{TABLE_TIMEOUT}';
         set local idle_in_transaction_session_timeout = '{IDLE_TIMEOUT}'"
    );
    let lock = format!("select pg_try_advisory_xact_lock({LOCK})");
    for tries in 0_u64.. {
        client.batch_execute(&begin).await?;
        let rows = client.query_typed(&lock, &[]).await?;
        if rows.first().map_or(Ok(false), |row| row.try_get(0))? {
            break;
        }
        client.batch_execute("rollback").await?;
        if tries % CHECKS_PER_LOG_LINE == 0 {
            tracing::info!("another node is changing the schema; this node waits");
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    Ok(())
}

async fn step(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    let found = read(client).await?;
    match found.refused {
        None | Some(ConnectError::Behind { .. }) => {}
        Some(refused) => return Err(refused),
    }
    if found.steps.iter().any(|step| step.applied && step.version == migration.version) {
        return Ok(false);
    }
    client
        .batch_execute(
            "create table if not exists schema_migration (
                 version integer primary key,
                 name text not null,
                 checksum text not null,
                 applied_at timestamptz not null default clock_timestamp()
             )",
        )
        .await?;
    client.batch_execute(migration.sql).await?;
    let insert = "
        insert into schema_migration (version, name, checksum)
        values ($1, $2, encode(sha256(convert_to($3, 'UTF8')), 'hex'))";
    let version = i32::try_from(migration.version).unwrap_or(i32::MAX);
    let bound: &[super::tx::Bound<'_>] =
        &[(&version, Type::INT4), (&migration.name, Type::TEXT), (&migration.sql, Type::TEXT)];
    client.query_typed(insert, bound).await?;
    Ok(true)
}

/// The schema that was found in a database.
struct FoundSchema {
    /// Whether the table of steps exists.
    versioned: bool,
    /// Existing tables with names of Posthaste.
    tables: String,
    /// Applied steps, and whether each is identical to the known one.
    taken: Vec<(Step, bool)>,
    /// Missing tables.
    missing: String,
}

pub(super) async fn read(client: &Object) -> Result<Schema<ConnectError>, ConnectError> {
    let found = find(client).await?;
    let refused = found.refused();
    let mut steps: Vec<Step> = found.taken.into_iter().map(|(step, _)| step).collect();
    for known in MIGRATIONS {
        if !steps.iter().any(|step| step.version == known.version) {
            let name = known.name.to_owned();
            steps.push(Step { version: known.version, name, applied: false, applied_at: None });
        }
    }
    steps.sort_by_key(|step| step.version);
    Ok(Schema { steps, refused })
}

async fn find(client: &Object) -> Result<FoundSchema, ConnectError> {
    // The table of steps is checked last, so that a step that ends in between is not mistaken for tables of
    // another program.
    let look = "
        select coalesce((
            select string_agg(name, ', ' order by name)
            from unnest($1::text[]) as name
            where to_regclass(quote_ident(name)) is not null), ''), to_regclass('schema_migration') is not null";
    let rows = client.query_typed(look, &[(&TABLES, Type::TEXT_ARRAY)]).await?;
    let (tables, versioned): (String, bool) = match rows.first() {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (String::new(), false),
    };
    let mut found = FoundSchema { versioned, tables, taken: vec![], missing: String::new() };
    if !versioned {
        return Ok(found);
    }
    let known: Vec<&str> = MIGRATIONS.iter().map(|migration| migration.sql).collect();
    let rows = client
        .query_typed(
            "select m.version, m.name, coalesce(m.checksum = encode(sha256(convert_to(u.sql, 'UTF8')), 'hex'), false),
                 (extract(epoch from m.applied_at) * 1000000)::bigint
             from schema_migration m
             left join unnest($1::text[]) with ordinality as u (sql, version) on u.version = m.version
             order by m.version",
            &[(&known, Type::TEXT_ARRAY)],
        )
        .await?;
    for row in &rows {
        let (version, name): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        let applied_at = Some(Timestamp::from_micros(row.try_get(3)?));
        let version = u32::try_from(version).unwrap_or(0);
        found.taken.push((Step { version, name, applied: true, applied_at }, row.try_get(2)?));
    }
    // After the table of steps, so that the tables of an applied step exist; and by the current catalog,
    // which `to_regclass` may not use.
    let look = "
        select coalesce(string_agg(name, ', ' order by name), '')
        from unnest($1::text[]) as name
        where not exists (select from pg_class where relname = name and pg_table_is_visible(oid))";
    let rows = client.query_typed(look, &[(&TABLES, Type::TEXT_ARRAY)]).await?;
    found.missing = rows.first().map_or_else(|| Ok(String::new()), |row| row.try_get(0))?;
    Ok(found)
}

impl FoundSchema {
    /// Why this program cannot run on the database; `None` if it can.
    fn refused(&self) -> Option<ConnectError> {
        let tables = self.tables.clone();
        if !self.versioned && !tables.is_empty() {
            return Some(ConnectError::Foreign { tables });
        }
        let (newest, last) = (MIGRATIONS.last(), self.taken.last());
        let (known, found) =
            (newest.map_or(0, |step| step.version), last.map_or(0, |(step, _)| step.version));
        if found > known {
            return Some(ConnectError::Newer { found, known });
        }
        for (due, (step, same)) in (1..).zip(&self.taken) {
            if step.version != due || !same {
                let what = format!("{} differs from the step that this Posthaste knows", step.name);
                return Some(ConnectError::HalfMigrated { what });
            }
        }
        if self.taken.is_empty() && !tables.is_empty() {
            let what = format!("no step was applied, but there are the tables {tables}");
            return Some(ConnectError::HalfMigrated { what });
        }
        if !self.taken.is_empty() && !self.missing.is_empty() {
            let what = format!("its steps were applied, but these tables are missing: {}", self.missing);
            return Some(ConnectError::HalfMigrated { what });
        }
        let missing = MIGRATIONS.get(self.taken.len())?;
        Some(ConnectError::Behind { step: missing.name.to_owned() })
    }
}
