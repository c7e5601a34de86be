//! Free pages are given back to the file system.
//!
//! A file that this version created is made smaller while no command waits, a few pages at a time. An older file cannot be, and
//! keeps its size: its free pages are used again. `vacuum` rewrites such a file while no process uses it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use super::backup::Unfinished;
use super::lock::Lock;
use super::migrate;
use super::open::{self, OpenError};

/// The pages that one step gives back: few, because the writer does nothing else meanwhile.
const PAGES: u32 = 64;
/// The share of the file that may be free, as a part of 1: less is left to be used again.
const FREE_SHARE: i64 = 8;
/// The free pages that are not worth a step.
const FEW: i64 = 1_024;
/// `pragma auto_vacuum` of a file that can be made smaller.
const INCREMENTAL: i64 = 2;

/// Whether the writer has to look for free pages.
pub(super) struct FreePages {
    look: bool,
}

impl Default for FreePages {
    /// A file may have been left with free pages.
    fn default() -> Self {
        Self { look: true }
    }
}

impl FreePages {
    /// Rows were removed.
    pub(super) fn note(&mut self) {
        self.look = true;
    }

    pub(super) const fn is_running(&self) -> bool {
        self.look
    }

    /// Gives a few pages back, outside of any transaction, if there are many.
    pub(super) fn step(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.look = false;
        let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let free = pragma("freelist_count")?;
        let many = free > FEW && free * FREE_SHARE > pragma("page_count")?;
        if many && pragma("auto_vacuum")? == INCREMENTAL {
            // Each row that is stepped to is a page.
            let mut statement = conn.prepare(&format!("pragma incremental_vacuum({PAGES})"))?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            self.look = true;
        }
        Ok(())
    }
}

/// Sets that the file can be made smaller. Takes effect only before the first table is created, or at the next `vacuum`.
pub(super) fn allow(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "auto_vacuum", INCREMENTAL)
}

/// What a rewrite has changed, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewritten {
    pub before: u64,
    pub after: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VacuumError {
    #[error("the file {} does not exist: name the store with --store or in the configuration", path.display())]
    NoStore { path: PathBuf },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(
        "{} cannot be rewritten because the disk is full: the new file is written beside it and needs up to {} MiB. Nothing was changed",
        path.display(),
        bytes.div_ceil(1024 * 1024)
    )]
    Full { path: PathBuf, bytes: u64 },
    #[error("{} cannot be rewritten. Nothing was changed", path.display())]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("{} cannot be rewritten. Nothing was changed", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Rewrites the file without its free pages, so that it gives space back from then on. No other process may use it. The new
/// file takes the place of the old one when it is complete and on disk.
pub fn vacuum(path: impl AsRef<Path>) -> Result<Rewritten, VacuumError> {
    let path = path.as_ref();
    if !path.try_exists().unwrap_or(true) {
        return Err(VacuumError::NoStore { path: path.to_owned() });
    }
    let path = &open::canonical(path)?;
    let lock = Lock::take(path)?;
    let done = rewrite(path);
    lock.give_up();
    done
}

fn rewrite(path: &Path) -> Result<Rewritten, VacuumError> {
    let io = |source| VacuumError::Io { path: path.to_owned(), source };
    let size = |path: &Path| path.metadata().map(|about| about.len()).map_err(io);
    let sqlite = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            VacuumError::Full { path: path.to_owned(), bytes: size(path).unwrap_or_default() }
        }
        _ => VacuumError::Sqlite { path: path.to_owned(), source },
    };
    let conn = Connection::open(path).map_err(sqlite)?;
    migrate::ours_or_empty(&conn, path)?;
    // What is in the log belongs to the file.
    conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).map_err(sqlite)?;
    let before = size(path)?;
    let new =
        Unfinished::beside(path).map_err(|_| io(std::io::Error::other("no file can be made beside it")))?;
    allow(&conn).map_err(sqlite)?;
    conn.execute("vacuum into ?1", [new.path().to_string_lossy()]).map_err(sqlite)?;
    conn.close().map_err(|(_, error)| sqlite(error))?;
    let check = Connection::open(new.path()).map_err(sqlite)?;
    migrate::ours_or_empty(&check, new.path())?;
    check.close().map_err(|(_, error)| sqlite(error))?;
    File::open(new.path()).and_then(|file| file.sync_all()).map_err(io)?;
    let after = size(new.path())?;
    fs::rename(new.path(), path).map_err(io)?;
    #[cfg(unix)]
    if let Some(directory) = path.parent() {
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)?;
    }
    Ok(Rewritten { before, after })
}
