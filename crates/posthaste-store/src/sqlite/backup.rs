//! A copy of a file while another process uses it.
//!
//! SQLite's own backup copies every page in one step, which is one reading transaction: the copy is what was committed when
//! it began. In WAL mode a reader stops nobody who writes; all that it holds up is that the log begins anew, so the log grows
//! by what is written during the copy. `vacuum into` would do the same with a transaction that lasts longer, because it
//! builds every tree again instead of copying pages.
//!
//! Nobody ever sees half a copy under its name: it is made under another one beside it, waited for on the disk, read whole
//! and only then named.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::migrate;
use super::open::{self, OpenError};

/// A copy that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The bytes of the file.
    pub bytes: u64,
    /// How many notifications in it have not ended.
    pub waiting: u64,
    /// How many steps of the schema it has taken.
    pub schema: usize,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is nothing to copy.
    #[error("there is no file {} to copy: name the store with --store or in the configuration", path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
    },
    /// Nobody has made a store in it.
    #[error("{} is empty, there is no store in it yet: name the file that the server uses", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The place is taken.
    #[error("{} is there already and is not overwritten: name another file, or remove it first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The copy cannot be written.
    #[error("{} cannot be written: name a file in a directory that is there, can be written and has room", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error beneath.
        #[source]
        source: io::Error,
    },
    /// SQLite could not copy.
    #[error("{} cannot be copied to {}", from.display(), path.display())]
    Sqlite {
        /// The store.
        from: PathBuf,
        /// The file.
        path: PathBuf,
        /// The error beneath.
        #[source]
        source: rusqlite::Error,
    },
    /// What was copied is not in order.
    #[error("the copy of {} is not in order ({what}) and was removed: check the disk, and restore an older backup", from.display())]
    Damaged {
        /// The store.
        from: PathBuf,
        /// What SQLite says.
        what: String,
    },
}

/// Copies the store in the file `from` to a new file `to`, for its owner alone.
pub fn backup(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Copied, BackupError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if !from.try_exists().unwrap_or(true) {
        return Err(BackupError::NoStore { path: from.to_owned() });
    }
    let source = open::onlooker(from)?;
    migrate::ours_or_empty(&source, from)?;
    if migrate::taken(&source, from)? == 0 {
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

/// The file that becomes the copy; removed unless it was named.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(to: &Path) -> Result<Self, BackupError> {
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

    /// Gives it its name, if nobody has taken that meanwhile, and waits until the directory has it.
    fn name(self, to: &Path) -> Result<(), BackupError> {
        match fs::hard_link(&self.0, to) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists { path: to.to_owned() });
            }
            // A file system without second names.
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
        // It may have been renamed.
        let _ = fs::remove_file(&self.0);
    }
}

fn copy(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let mut copy = Connection::open(to)?;
    // Until it has its name it is nobody's file, and it is waited for once, at the end.
    copy.execute_batch("pragma synchronous = off; pragma journal_mode = off;")?;
    let done = Backup::new(source, &mut copy)?.step(-1)?;
    if done != StepResult::Done {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(busy, Some("the store is locked".to_owned())));
    }
    // The copy needs no log beside it; whoever opens it as a store makes one.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |row| row.get::<_, String>(0))?;
    copy.close().map_err(|(_, error)| error)
}

fn failed(from: &Path, to: &Path, source: rusqlite::Error) -> BackupError {
    BackupError::Sqlite { from: from.to_owned(), path: to.to_owned(), source }
}

/// Reads the copy whole.
fn verify(from: &Path, path: &Path, bytes: u64) -> Result<Copied, BackupError> {
    let damaged = |what: String| BackupError::Damaged { from: from.to_owned(), what };
    let sqlite = |error: rusqlite::Error| damaged(error.to_string());
    let copy = open::onlooker(path)?;
    migrate::ours_or_empty(&copy, path)?;
    let said: String = copy.query_row("pragma integrity_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
    if said != "ok" {
        return Err(damaged(said));
    }
    let schema = migrate::taken(&copy, path)?;
    if schema == 0 {
        return Err(damaged("it has no schema".to_owned()));
    }
    let waiting: i64 = copy.query_row("select count(*) from queue", [], |row| row.get(0)).map_err(sqlite)?;
    Ok(Copied { bytes, waiting: u64::try_from(waiting).unwrap_or(0), schema })
}
