//! The schema, step by step. A file keeps the number of steps that it has taken, in `user_version`; each is taken whole or not
//! at all, together with that number.

use std::path::Path;

use rusqlite::Connection;

use super::lock::Lock;
use super::open::{self, OpenError, Options};
use crate::schema::{Schema, Step, TABLES};

/// Every step that is known, in their order: the name of its file and what is in it.
pub(super) const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_first", include_str!("../../migrations/sqlite/0001_first.sql")),
    ("0002_node_times", include_str!("../../migrations/sqlite/0002_node_times.sql")),
    ("0003_room_to_grow", include_str!("../../migrations/sqlite/0003_room_to_grow.sql")),
    ("0004_fill_tenants", include_str!("../../migrations/sqlite/0004_fill_tenants.sql")),
    ("0005_lists", include_str!("../../migrations/sqlite/0005_lists.sql")),
    ("0006_blocks", include_str!("../../migrations/sqlite/0006_blocks.sql")),
];

/// What SQLite calls the program that a file belongs to: "post".
const APPLICATION: i64 = 0x706f_7374;

/// Every step and whether the file has taken it, and whether this program can run on it. Changes nothing, and may be asked
/// while another process uses the file. A file that is not there has taken none.
pub fn status(path: impl AsRef<Path>) -> Result<Schema<OpenError>, OpenError> {
    let path = &open::only_name(path.as_ref())?;
    let empty = path.metadata().map_or(true, |about| about.len() == 0);
    if empty {
        return Ok(Schema { steps: steps(0), refused: refused(0, path) });
    }
    let conn = open::passer_by(path)?;
    match ours_or_empty(&conn, path) {
        Ok(()) => {
            let taken = taken(&conn, path)?;
            Ok(Schema { steps: steps(taken), refused: refused(taken, path) })
        }
        Err(refused @ OpenError::Foreign { .. }) => Ok(Schema { steps: steps(0), refused: Some(refused) }),
        Err(refused @ OpenError::HalfMigrated { .. }) => {
            Ok(Schema { steps: steps(taken(&conn, path)?), refused: Some(refused) })
        }
        Err(other) => Err(other),
    }
}

/// Takes the steps that the file has not taken, and answers with those. Nobody else may use the file meanwhile.
pub fn up(path: impl AsRef<Path>, options: &Options) -> Result<Vec<Step>, OpenError> {
    let path = &open::only_name(path.as_ref())?;
    if status(path)?.refused.is_none() {
        return Ok(vec![]);
    }
    let lock = Lock::take(path)?;
    let done = up_alone(path, options);
    lock.give_up();
    done
}

fn up_alone(path: &Path, options: &Options) -> Result<Vec<Step>, OpenError> {
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

/// Refuses a file with somebody else's tables, or with other tables than its steps have made, before anything in it is
/// changed.
pub(super) fn ours_or_empty(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    // All of it at one moment: another process may be taking a step.
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
    match taken(&moment, path)? {
        0 if missing.len() < TABLES.len() => half("it has taken no step, and has tables".to_owned()),
        // A newer program may have removed some.
        steps if steps <= MIGRATIONS.len() && steps > 0 && !missing.is_empty() => {
            half(format!("it has taken its steps, and these tables are missing: {}", missing.join(", ")))
        }
        _ => Ok(()),
    }
}

/// Refuses a file that has not taken every step, or is not there.
pub(super) fn complete(path: &Path) -> Result<(), OpenError> {
    status(path)?.refused.map_or(Ok(()), Err)
}

/// Takes the steps of the schema that the file has not taken, each whole or not at all.
pub(super) fn take_all(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let found = taken(conn, path)?;
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

/// How many steps the file has taken.
pub(super) fn taken(conn: &Connection, path: &Path) -> Result<usize, OpenError> {
    let version = conn.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    let version = version.map_err(|source| OpenError::sqlite(path, source))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Every step that is known, and one for what a newer program has made.
fn steps(taken: usize) -> Vec<Step> {
    let step = |(version, name): (u32, &str)| Step {
        version,
        name: name.to_owned(),
        applied: usize::try_from(version).is_ok_and(|version| version <= taken),
        applied_at: None,
    };
    let known = MIGRATIONS.iter().map(|(name, _)| *name);
    let mut steps: Vec<Step> = (1..).zip(known).map(step).collect();
    if taken > MIGRATIONS.len() {
        steps.push(step((u32::try_from(taken).unwrap_or(u32::MAX), "")));
    }
    steps
}

/// Why this program cannot run on a file that has taken so many steps, if it cannot.
fn refused(taken: usize, path: &Path) -> Option<OpenError> {
    let (path, known) = (path.to_owned(), MIGRATIONS.len());
    if taken > known {
        return Some(OpenError::Newer { path, found: taken, known });
    }
    let (step, _) = MIGRATIONS.get(taken)?;
    Some(OpenError::Behind { path, step: (*step).to_owned() })
}
