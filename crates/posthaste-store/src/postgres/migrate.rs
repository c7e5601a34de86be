//! The schema, step by step, and the table that says which steps a database has taken.
//!
//! Each step is one transaction under a lock that all processes share, so any number of nodes may start at once: one takes
//! the step, the others wait, say so, and then see that it was taken. Nothing of it depends on the session, so it may go
//! through a pooler.
//!
//! Rules for a step: it only adds what older processes do not stumble over (expand); what they still use is removed by a
//! later release, when none of them runs any more (contract). A step that was released is never changed: its checksum is
//! compared.

use std::time::Duration;

use deadpool_postgres::Object;
use posthaste_core::time::Timestamp;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connect::{self, PostgresOptions};
use super::refusal::{ConnectError, chain};
use crate::schema::{Schema, Step, TABLES};

/// A step of the schema.
struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

/// Every step that is known, in their order.
const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_first",
        sql: include_str!("../../migrations/postgres/0001_first.sql"),
    },
    Migration {
        version: 2,
        name: "0002_node_times",
        sql: include_str!("../../migrations/postgres/0002_node_times.sql"),
    },
    Migration {
        version: 3,
        name: "0003_room_to_grow",
        sql: include_str!("../../migrations/postgres/0003_room_to_grow.sql"),
    },
    Migration {
        version: 4,
        name: "0004_fill_tenants",
        sql: include_str!("../../migrations/postgres/0004_fill_tenants.sql"),
    },
    Migration {
        version: 5,
        name: "0005_lists",
        sql: include_str!("../../migrations/postgres/0005_lists.sql"),
    },
    Migration {
        version: 6,
        name: "0006_blocks",
        sql: include_str!("../../migrations/postgres/0006_blocks.sql"),
    },
];

/// The lock that whoever changes the schema holds: "posthast" in ASCII.
const LOCK: i64 = 0x706f_7374_6861_7374;

/// How long a step waits for a table that somebody is using.
const TABLE_WITHIN: &str = "2s";
/// How long whoever takes a step may say nothing before the server ends its transaction, and with it the lock.
const SILENT_WITHIN: &str = "10s";
/// How often it is tried whether another one's step has ended, and after how many tries that is told again.
const LOOK: Duration = Duration::from_millis(250);
const TOLD_EVERY: u64 = 20;
/// How long the others are let through before it is tried again, and how often that is done.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES: usize = 20;

/// Every step and whether the database has taken it, and whether this program can run on it. Changes nothing.
pub async fn status(url: &str, options: &PostgresOptions) -> Result<Schema<ConnectError>, ConnectError> {
    let (reached, client) = connect::reach(url, options).await?;
    connect::check(&client, &reached.tried).await?;
    read(&client).await
}

/// Takes the steps that the database has not taken, and answers with those.
pub async fn up(url: &str, options: &PostgresOptions) -> Result<Vec<Step>, ConnectError> {
    let (reached, client) = connect::reach(url, options).await?;
    connect::check(&client, &reached.tried).await?;
    take_all(&client).await
}

/// Refuses a database that has not taken every step.
pub(super) async fn complete(client: &Object) -> Result<(), ConnectError> {
    read(client).await?.refused.map_or(Ok(()), Err)
}

/// Takes the steps that the database has not taken.
pub(super) async fn take_all(client: &Object) -> Result<Vec<Step>, ConnectError> {
    // Most starts find every step taken, and wait for nobody.
    if read(client).await?.refused.is_none() {
        return Ok(vec![]);
    }
    let mut taken = vec![];
    for migration in MIGRATIONS {
        if take(client, migration).await? {
            taken.push(migration.version);
        }
    }
    let mut steps = read(client).await?.steps;
    steps.retain(|step| taken.contains(&step.version));
    Ok(steps)
}

/// Takes one step, unless it was taken. Where somebody uses the tables, it is tried again.
async fn take(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    for _ in 0..TRIES {
        match take_once(client, migration).await {
            Err(ConnectError::Server(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                return Err(ConnectError::NotAllowed {
                    step: migration.name.to_owned(),
                    what: chain(&error),
                });
            }
            Err(ConnectError::Server(error)) if is_occupied(&error) => {
                tracing::warn!(step = migration.name, "somebody uses the tables, so the step is tried again");
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
    Err(ConnectError::Occupied { step: migration.name.to_owned() })
}

/// Whether somebody uses the tables: the step waited too long, or each waited for the other.
fn is_occupied(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::T_R_DEADLOCK_DETECTED)
}

/// The same without another try.
async fn take_once(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    begin(client).await?;
    let done = step(client, migration).await;
    // What failed has left nothing behind.
    client.batch_execute(if done.is_ok() { "commit" } else { "rollback" }).await?;
    done
}

/// Begins the transaction of a step. It waits for those who take steps as long as it takes, and the step may be long itself,
/// but it waits only shortly for a table: whoever comes after it to that table waits behind it.
async fn begin(client: &Object) -> Result<(), ConnectError> {
    let begin = format!(
        "begin isolation level read committed read write;
         set local statement_timeout = 0;
         set local lock_timeout = '{TABLE_WITHIN}';
         set local idle_in_transaction_session_timeout = '{SILENT_WITHIN}'"
    );
    let lock = format!("select pg_try_advisory_xact_lock({LOCK})");
    for tries in 0_u64.. {
        client.batch_execute(&begin).await?;
        let rows = client.query_typed(&lock, &[]).await?;
        if rows.first().map_or(Ok(false), |row| row.try_get(0))? {
            break;
        }
        client.batch_execute("rollback").await?;
        if tries % TOLD_EVERY == 0 {
            tracing::info!("another node is changing the schema, and this one waits for it");
        }
        tokio::time::sleep(LOOK).await;
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

/// What the database says of itself.
struct Found {
    /// Whether it has a list of steps.
    versioned: bool,
    /// The tables whose names are ours.
    tables: String,
    /// The steps on the list, and whether each is what is known here.
    taken: Vec<(Step, bool)>,
    /// The tables of ours that are not there.
    missing: String,
}

/// The schema of the database.
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

async fn find(client: &Object) -> Result<Found, ConnectError> {
    // The list is looked for last, so that a step that ends in between is not taken for tables of somebody else.
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
    let mut found = Found { versioned, tables, taken: vec![], missing: String::new() };
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
    // After the list, so that what a step makes is there if the step is on the list; and as of this moment, which
    // `to_regclass` need not be.
    let look = "
        select coalesce(string_agg(name, ', ' order by name), '')
        from unnest($1::text[]) as name
        where not exists (select from pg_class where relname = name and pg_table_is_visible(oid))";
    let rows = client.query_typed(look, &[(&TABLES, Type::TEXT_ARRAY)]).await?;
    found.missing = rows.first().map_or_else(|| Ok(String::new()), |row| row.try_get(0))?;
    Ok(found)
}

impl Found {
    /// Why this program cannot run on it, if it cannot.
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
                let what = format!("{} is not as this Posthaste knows it", step.name);
                return Some(ConnectError::HalfMigrated { what });
            }
        }
        if self.taken.is_empty() && !tables.is_empty() {
            let what = format!("no step is on its list, and there are the tables {tables}");
            return Some(ConnectError::HalfMigrated { what });
        }
        if !self.taken.is_empty() && !self.missing.is_empty() {
            let what = format!("its steps are on the list, and these tables are missing: {}", self.missing);
            return Some(ConnectError::HalfMigrated { what });
        }
        let missing = MIGRATIONS.get(self.taken.len())?;
        Some(ConnectError::Behind { step: missing.name.to_owned() })
    }
}
