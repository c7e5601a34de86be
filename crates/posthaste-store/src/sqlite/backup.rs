//! Backup of a file while another process uses it.
//!
//! SQLite's backup function copies all pages in one read transaction: the copy is the state at its start. In
//! WAL mode a reader does not block the writer. It only keeps the log from being reset, so the log grows by
//! what is written during the copy. `vacuum into` would hold its transaction for longer, because it rebuilds
//! every tree instead of copying pages.
//!
//! An incomplete copy never appears under the name of the backup: the copy is written under another name in
//! the same directory, synced, verified and then renamed.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::migrate;
use super::open::{self, OpenError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    /// Notifications that have not ended.
    pub waiting: u64,
    /// Number of applied migration steps.
    pub schema: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("the file {} does not exist: name the store with --store or in the configuration", path.display())]
    NoStore { path: PathBuf },
    #[error("{} is empty and holds no store: name the file that the server uses", path.display())]
    Empty { path: PathBuf },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{} exists and is not overwritten: name another file, or remove it first", path.display())]
    Exists { path: PathBuf },
    #[error("{} cannot be written: name a file in a directory that exists, is writable and has free space", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} cannot be copied to {}", from.display(), path.display())]
    Sqlite {
        from: PathBuf,
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("the copy of {} is damaged ({what}) and was removed: check the disk, and restore an older backup", from.display())]
    Damaged { from: PathBuf, what: String },
}

/// Copies the store in the file `from` to a new file `to`, readable only by its owner.
pub fn backup(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Copied, BackupError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if !from.try_exists().unwrap_or(true) {
        return Err(BackupError::NoStore { path: from.to_owned() });
    }
    let source = open::read_only(from)?;
    migrate::ours_or_empty(&source, from)?;
    if migrate::applied(&source, from)? == 0 {
        return Err(BackupError::Empty { path: from.to_owned() });
    }
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let unfinished = Unfinished::beside(to)?;
    copy(&source, &unfinished.0).map_err(|error| failed(from, to, error))?;
    let written =
        || File::open(&unfinished.0).and_then(|file| file.sync_all().and_then(|()| file.metadata()));
    let bytes = written().map_err(|source| BackupError::Io { path: to.to_owned(), source })?.len();
    let copied = verify(from, &unfinished.0, bytes)?;
    unfinished.name(to)?;
    Ok(copied)
}

/// The copy before it has its final name. Removed on drop unless it was renamed.
pub(super) struct Unfinished(PathBuf);

impl Unfinished {
    pub(super) fn beside(to: &Path) -> Result<Self, BackupError> {
        let mut path = to.as_os_str().to_owned();
        path.push(format!(".{}.unfinished", std::process::id()));
        let path = PathBuf::from(path);
        let mut how = fs::OpenOptions::new();
        how.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut how, 0o600);
        how.open(&path).map_err(|source| BackupError::Io { path: to.to_owned(), source })?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Renames the copy, if the name is still free, and syncs the directory.
    fn name(self, to: &Path) -> Result<(), BackupError> {
        match fs::hard_link(&self.0, to) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists { path: to.to_owned() });
            }
            // The file system has no hard links.
            Err(_) => {
                fs::rename(&self.0, to).map_err(|source| BackupError::Io { path: to.to_owned(), source })?
            }
        }
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        drop(self);
        #[cfg(unix)]
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| BackupError::Io { path: to.to_owned(), source })?;
        #[cfg(not(unix))]
        let _ = directory;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Fails if it was renamed, which is fine.
        let _ = fs::remove_file(&self.0);
    }
}

fn copy(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let mut copy = Connection::open(to)?;
    // The file is synced once, at the end: before that, nothing depends on it.
    copy.execute_batch("pragma synchronous = off; pragma journal_mode = off;")?;
    let done = Backup::new(source, &mut copy)?.step(-1)?;
    if done != StepResult::Done {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(busy, Some("the store is locked".to_owned())));
    }
    // The copy needs no log beside it. The log is created when a store opens the copy.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |row| row.get::<_, String>(0))?;
    copy.close().map_err(|(_, error)| error)
}

fn failed(from: &Path, to: &Path, source: rusqlite::Error) -> BackupError {
    BackupError::Sqlite { from: from.to_owned(), path: to.to_owned(), source }
}

fn verify(from: &Path, path: &Path, bytes: u64) -> Result<Copied, BackupError> {
    let damaged = |what: String| BackupError::Damaged { from: from.to_owned(), what };
    let sqlite = |error: rusqlite::Error| damaged(error.to_string());
    let copy = open::read_only(path)?;
    migrate::ours_or_empty(&copy, path)?;
    let said: String = copy.query_row("pragma integrity_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
    if said != "ok" {
        return Err(damaged(said));
    }
    let schema = migrate::applied(&copy, path)?;
    if schema == 0 {
        return Err(damaged("it has no schema".to_owned()));
    }
    let waiting: i64 = copy.query_row("select count(*) from queue", [], |row| row.get(0)).map_err(sqlite)?;
    Ok(Copied { bytes, waiting: u64::try_from(waiting).unwrap_or(0), schema })
}
