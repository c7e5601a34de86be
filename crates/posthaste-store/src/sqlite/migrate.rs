//! Migrations. The number of applied steps is stored in `user_version`. Each step is applied in one
//! transaction together with that number.

use std::path::Path;

use rusqlite::Connection;

use super::lock::Lock;
use super::open::{self, OpenError, Options};
use crate::schema::{Schema, Step, TABLES};

/// All known steps in order: name and text of each file.
pub(super) const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_first", include_str!("../../migrations/sqlite/0001_first.sql")),
    ("0002_node_times", include_str!("../../migrations/sqlite/0002_node_times.sql")),
    ("0003_room_to_grow", include_str!("../../migrations/sqlite/0003_room_to_grow.sql")),
    ("0004_fill_tenants", include_str!("../../migrations/sqlite/0004_fill_tenants.sql")),
    ("0005_lists", include_str!("../../migrations/sqlite/0005_lists.sql")),
    ("0006_blocks", include_str!("../../migrations/sqlite/0006_blocks.sql")),
    ("0007_key_use", include_str!("../../migrations/sqlite/0007_key_use.sql")),
    ("0008_jobs", include_str!("../../migrations/sqlite/0008_jobs.sql")),
    ("0009_retention", include_str!("../../migrations/sqlite/0009_retention.sql")),
    ("0010_series", include_str!("../../migrations/sqlite/0010_series.sql")),
    ("0011_failure_groups", include_str!("../../migrations/sqlite/0011_failure_groups.sql")),
    ("0012_operations", include_str!("../../migrations/sqlite/0012_operations.sql")),
    ("0013_shown_again", include_str!("../../migrations/sqlite/0013_shown_again.sql")),
    ("0014_destination_hours", include_str!("../../migrations/sqlite/0014_destination_hours.sql")),
    ("0015_destinations", include_str!("../../migrations/sqlite/0015_destinations.sql")),
    ("0016_inbound", include_str!("../../migrations/sqlite/0016_inbound.sql")),
];

/// The application id in the header of the file: "post".
const APPLICATION: i64 = 0x706f_7374;

/// Returns all steps and whether the file has applied them. Changes nothing, and may run while another
/// process uses the file. A missing file has applied none.
pub fn status(path: impl AsRef<Path>) -> Result<Schema<OpenError>, OpenError> {
    let path = &open::canonical(path.as_ref())?;
    let empty = path.metadata().map_or(true, |about| about.len() == 0);
    if empty {
        return Ok(Schema { steps: steps(0), refused: refused(0, path) });
    }
    let conn = open::read_only_without_log(path)?;
    match ours_or_empty(&conn, path) {
        Ok(()) => {
            let applied = applied(&conn, path)?;
            Ok(Schema { steps: steps(applied), refused: refused(applied, path) })
        }
        Err(refused @ OpenError::Foreign { .. }) => Ok(Schema { steps: steps(0), refused: Some(refused) }),
        Err(refused @ OpenError::HalfMigrated { .. }) => {
            Ok(Schema { steps: steps(applied(&conn, path)?), refused: Some(refused) })
        }
        Err(other) => Err(other),
    }
}

/// Applies the missing steps and returns them. No other process may use the file meanwhile.
pub fn up(path: impl AsRef<Path>, options: &Options) -> Result<Vec<Step>, OpenError> {
    let path = &open::canonical(path.as_ref())?;
    if status(path)?.refused.is_none() {
        return Ok(vec![]);
    }
    let lock = Lock::take(path)?;
    let done = up_locked(path, options);
    lock.give_up();
    done
}

fn up_locked(path: &Path, options: &Options) -> Result<Vec<Step>, OpenError> {
    let before = status(path)?;
    match before.refused {
        None => return Ok(vec![]),
        Some(OpenError::Behind { .. }) => {}
        Some(refused) => return Err(refused),
    }
    drop(open::writer(path, &Options { migrate: true, ..options.clone() })?);
    let mut steps = status(path)?.steps;
    steps.retain(|step| before.steps.iter().any(|was| was.version == step.version && !was.applied));
    Ok(steps)
}

/// Refuses a file with tables of another program, or with other tables than its steps have created, before
/// anything is changed.
pub(super) fn ours_or_empty(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    // In one transaction: another process may be applying a step.
    let moment = conn.unchecked_transaction().map_err(sqlite)?;
    let application: i64 =
        moment.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sqlite)?;
    let mut names = moment.prepare("select name from sqlite_schema").map_err(sqlite)?;
    let names = names.query_map([], |row| row.get(0)).map_err(sqlite)?;
    let names = names.collect::<Result<Vec<String>, _>>().map_err(sqlite)?;
    if !names.is_empty() && application != APPLICATION {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    let half = |what: String| Err(OpenError::HalfMigrated { path: path.to_owned(), what });
    let missing: Vec<&str> =
        TABLES.iter().copied().filter(|name| !names.iter().any(|found| found == name)).collect();
    match applied(&moment, path)? {
        0 if missing.len() < TABLES.len() => half("no step was applied, but there are tables".to_owned()),
        // A newer version may have removed some.
        steps if steps <= MIGRATIONS.len() && steps > 0 && !missing.is_empty() => {
            half(format!("its steps were applied, but these tables are missing: {}", missing.join(", ")))
        }
        _ => Ok(()),
    }
}

/// Refuses a file that is missing or lacks a step.
pub(super) fn complete(path: &Path) -> Result<(), OpenError> {
    status(path)?.refused.map_or(Ok(()), Err)
}

/// Applies the missing steps, each in one transaction.
pub(super) fn apply_missing(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let found = applied(conn, path)?;
    if found > MIGRATIONS.len() {
        return refused(found, path).map_or(Ok(()), Err);
    }
    for (index, (_, step)) in MIGRATIONS.iter().enumerate().skip(found) {
        let done = index + 1;
        let batch = format!(
            "begin immediate;\n{step}\npragma application_id = {APPLICATION};\npragma user_version = {done};\ncommit;"
        );
        conn.execute_batch(&batch).map_err(sqlite)?;
    }
    Ok(())
}

/// The number of applied steps.
pub(super) fn applied(conn: &Connection, path: &Path) -> Result<usize, OpenError> {
    let version = conn.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    let version = version.map_err(|source| OpenError::sqlite(path, source))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// All known steps, and a last one without a name if a newer version has applied more.
fn steps(applied: usize) -> Vec<Step> {
    let step = |(version, name): (u32, &str)| Step {
        version,
        name: name.to_owned(),
        applied: usize::try_from(version).is_ok_and(|version| version <= applied),
        applied_at: None,
    };
    let known = MIGRATIONS.iter().map(|(name, _)| *name);
    let mut steps: Vec<Step> = (1..).zip(known).map(step).collect();
    if applied > MIGRATIONS.len() {
        steps.push(step((u32::try_from(applied).unwrap_or(u32::MAX), "")));
    }
    steps
}

/// Returns why this program cannot run on a file with `applied` applied steps.
fn refused(applied: usize, path: &Path) -> Option<OpenError> {
    let (path, known) = (path.to_owned(), MIGRATIONS.len());
    if applied > known {
        return Some(OpenError::Newer { path, found: applied, known });
    }
    let (step, _) = MIGRATIONS.get(applied)?;
    Some(OpenError::Behind { path, step: (*step).to_owned() })
}
