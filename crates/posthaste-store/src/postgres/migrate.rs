//! The schema, step by step, and the table that says which steps a database has taken.
//!
//! Each step is one transaction under a lock that all processes share, so any number of nodes may start at once: one takes
//! the step, the others wait and then see that it was taken. Nothing of it depends on the session, so it may go through a
//! pooler.
//!
//! Rules for a step: it only adds what older processes do not stumble over (expand); what they still use is removed by a
//! later release, when none of them runs any more (contract). A step that was released is never changed: its checksum is
//! compared.

use deadpool_postgres::Object;
use tokio_postgres::types::Type;

use super::connect::{self, ConnectError, PostgresOptions};

/// A step of the schema.
struct Migration {
    version: i32,
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
];

/// The lock that whoever changes the schema holds: "posthast" in ASCII.
const LOCK: i64 = 0x706f_7374_6861_7374;

/// A step and whether the database has taken it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 1.
    pub version: i32,
    /// The name of its file.
    pub name: String,
    /// Whether it was taken.
    pub applied: bool,
}

/// Every known step and whether the database has taken it. Refuses what was not made by these steps.
pub async fn status(url: &str, options: &PostgresOptions) -> Result<Vec<Step>, ConnectError> {
    let (_, client) = connect::reach(url, options).await?;
    steps(&client).await
}

/// Takes the steps that the database has not taken, and answers with those.
pub async fn up(url: &str, options: &PostgresOptions) -> Result<Vec<Step>, ConnectError> {
    let (_, client) = connect::reach(url, options).await?;
    take_all(&client).await
}

/// Refuses a database that has not taken every step.
pub(super) async fn complete(client: &Object) -> Result<(), ConnectError> {
    let missing = steps(client).await?.into_iter().find(|step| !step.applied);
    missing.map_or(Ok(()), |step| Err(ConnectError::Behind { step: step.name }))
}

async fn steps(client: &Object) -> Result<Vec<Step>, ConnectError> {
    let applied = applied(client).await?;
    let step = |step: &Migration| Step {
        version: step.version,
        name: step.name.to_owned(),
        applied: applied.contains(&step.version),
    };
    Ok(MIGRATIONS.iter().map(step).collect())
}

/// Takes the steps that the database has not taken.
pub(super) async fn take_all(client: &Object) -> Result<Vec<Step>, ConnectError> {
    let mut taken = vec![];
    for migration in MIGRATIONS {
        if take(client, migration).await? {
            let name = migration.name.to_owned();
            taken.push(Step { version: migration.version, name, applied: true });
        }
    }
    Ok(taken)
}

/// Takes one step, unless it was taken. A step waits for the others as long as it takes, and may be long itself.
async fn take(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    let begin = format!(
        "begin isolation level read committed read write;
         set local lock_timeout = 0;
         set local statement_timeout = 0;
         select pg_advisory_xact_lock({LOCK})"
    );
    client.batch_execute(&begin).await?;
    let done = step(client, migration).await;
    // What failed has left nothing behind.
    client.batch_execute(if done.is_ok() { "commit" } else { "rollback" }).await?;
    done
}

async fn step(client: &Object, migration: &Migration) -> Result<bool, ConnectError> {
    if applied(client).await?.contains(&migration.version) {
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
    let bound: &[super::tx::Bound<'_>] =
        &[(&migration.version, Type::INT4), (&migration.name, Type::TEXT), (&migration.sql, Type::TEXT)];
    client.query_typed(insert, bound).await?;
    Ok(true)
}

/// The steps that the database has taken, if it is one of ours and no newer than this program.
async fn applied(client: &Object) -> Result<Vec<i32>, ConnectError> {
    let look = "
        select to_regclass('schema_migration') is not null, coalesce((
            select string_agg(name, ', ' order by name)
            from unnest($1::text[]) as name
            where to_regclass(quote_ident(name)) is not null), '')";
    let names: &[&str] = &["attempt", "counter", "ended", "event", "flow", "node", "notification", "queue"];
    let rows = client.query_typed(look, &[(&names, Type::TEXT_ARRAY)]).await?;
    let (versioned, tables): (bool, String) = match rows.first() {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (false, String::new()),
    };
    if !versioned {
        return if tables.is_empty() { Ok(vec![]) } else { Err(ConnectError::Foreign { tables }) };
    }
    let known: Vec<&str> = MIGRATIONS.iter().map(|migration| migration.sql).collect();
    let rows = client
        .query_typed(
            "select m.version, m.name, coalesce(m.checksum = encode(sha256(convert_to(u.sql, 'UTF8')), 'hex'), false)
             from schema_migration m
             left join unnest($1::text[]) with ordinality as u (sql, version) on u.version = m.version
             order by m.version",
            &[(&known, Type::TEXT_ARRAY)],
        )
        .await?;
    let mut versions = vec![];
    for (index, row) in rows.iter().enumerate() {
        let (version, name): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        let same: bool = row.try_get(2)?;
        let newest = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
        let last = rows.last().map_or(Ok(version), |row| row.try_get(0))?;
        if last > newest {
            return Err(ConnectError::Newer { found: last, known: newest });
        }
        if usize::try_from(version).ok() != Some(index + 1) || !same {
            return Err(ConnectError::HalfMigrated { step: name });
        }
        versions.push(version);
    }
    if versions.is_empty() && !tables.is_empty() {
        return Err(ConnectError::HalfMigrated { step: tables });
    }
    Ok(versions)
}
