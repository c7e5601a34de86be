//! Opens a file: exclusive use, durability that is verified, migrations.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::blocks;
use super::migrate;
use super::planted::Planted;
use super::vacuum;

#[derive(Debug, Clone)]
pub struct Options {
    pub synchronous: Synchronous,
    /// Whether to apply missing migration steps. If not, a file that lacks some is refused.
    pub migrate: bool,
    /// Whether to run even if a power cut may lose acknowledged notifications.
    pub unsafe_durability: bool,
    /// Size of the writer's page cache in bytes. Each reader has a sixteenth of it.
    pub cache: usize,
    /// Size of the write-ahead log, in bytes, at which the writer itself stops to empty it.
    pub wal_bound: u64,
    #[cfg(feature = "planted")]
    pub planted: Option<Planted>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            migrate: true,
            unsafe_durability: false,
            cache: 48 << 20,
            wal_bound: 256 << 20,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

impl Options {
    pub(super) fn bug(&self) -> Option<Planted> {
        #[cfg(feature = "planted")]
        return self.planted;
        #[cfg(not(feature = "planted"))]
        None
    }
}

/// When SQLite calls fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// At every commit: acknowledged notifications survive a power cut.
    Full,
    /// At checkpoints only: a power cut loses the last acknowledged notifications.
    Normal,
    /// Never: a power cut may lose everything.
    Off,
}

impl Synchronous {
    /// The value of `pragma synchronous`.
    const fn level(self) -> i64 {
        match self {
            Self::Off => 0,
            Self::Normal => 1,
            Self::Full => 2,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is in use by another process: stop that one, or give this one a file of its own", path.display())]
    InUse { path: PathBuf },
    #[error("{} is a directory: name a file in it, such as {}", path.display(), path.join("posthaste.db").display())]
    Directory { path: PathBuf },
    #[error(
        "{} cannot be created because the directory {} does not exist: create it, or name another file",
        path.display(),
        directory.display()
    )]
    NoDirectory { path: PathBuf, directory: PathBuf },
    #[error(
        "{} is read-only: let the user of this process write the file and its directory, or name another \
         file",
        path.display()
    )]
    ReadOnly { path: PathBuf },
    /// The file has several hard links. The lock file depends on the name, so another process could use the
    /// file under another name.
    #[error(
        "{} has another name (a hard link), under which another process could use it: remove the other name, or \
         make a copy",
        path.display()
    )]
    Linked { path: PathBuf },
    #[error("{} cannot be opened", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A power cut could lose acknowledged notifications.
    #[error(
        "{} would run with synchronous={level}, which loses acknowledged notifications in a power cut: use FULL, or set \
         unsafe_durability = true to accept that",
        path.display()
    )]
    NotDurable {
        path: PathBuf,
        /// The value of `pragma synchronous`; FULL is 2.
        level: i64,
    },
    #[error("{} runs with journal_mode={mode} instead of WAL: put it on a local disk", path.display())]
    NoWal { path: PathBuf, mode: String },
    #[error(
        "{} has schema {found} and this Posthaste knows {known}: run the newer Posthaste again, or restore a backup from \
         before the upgrade (`posthaste migrate status` shows the steps)",
        path.display()
    )]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("{} lacks step {step} of the schema: run `posthaste migrate up`", path.display())]
    Behind { path: PathBuf, step: String },
    /// The tables do not match the number of applied steps.
    #[error(
        "{} is half migrated: {what}. Restore a backup; only where nothing in it is needed, run \
         `posthaste migrate up` with the name of a file that does not exist yet",
        path.display()
    )]
    HalfMigrated { path: PathBuf, what: String },
    #[error("{} is an SQLite file of another program: give Posthaste a file of its own", path.display())]
    Foreign { path: PathBuf },
    #[error("{} cannot be used as a store", path.display())]
    Sqlite {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::Io { path, source },
        }
    }

    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            _ => Self::Sqlite { path, source },
        }
    }
}

/// The canonical path of a file, so that all processes use the same lock file, for any spelling and through
/// any links. The file is not opened for that: closing it would end the locks that SQLite may hold on it
/// elsewhere in this process.
pub(super) fn canonical(path: &Path) -> Result<PathBuf, OpenError> {
    let io = |source| OpenError::io(path, source);
    match path.canonicalize() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        known => return known.map_err(io).and_then(writable),
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A link to a file that does not exist yet. A cycle of links is another error, handled above.
    if let Ok(target) = path.read_link() {
        return canonical(&directory.join(target));
    }
    let name = path.file_name().ok_or_else(|| io(ErrorKind::InvalidInput.into()))?;
    match directory.canonicalize() {
        Ok(known) if known.is_dir() => Ok(known.join(name)),
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(io(error))
        }
        _ => Err(OpenError::NoDirectory { path: path.to_owned(), directory: directory.to_owned() }),
    }
}

/// Refuses a directory, a file with several hard links, and a file that is marked read-only. SQLite would
/// notice the mark late, and not at all as root.
fn writable(path: PathBuf) -> Result<PathBuf, OpenError> {
    match path.metadata() {
        Ok(about) if about.is_dir() => Err(OpenError::Directory { path }),
        Ok(about) if about.permissions().readonly() => Err(OpenError::ReadOnly { path }),
        #[cfg(unix)]
        Ok(about) if std::os::unix::fs::MetadataExt::nlink(&about) > 1 => Err(OpenError::Linked { path }),
        // Other errors appear when the file is opened.
        _ => Ok(path),
    }
}

/// Creates the file if it is missing, readable only by its owner: it holds recipients and contents. SQLite
/// creates the log with the same permissions.
fn create_private(path: &Path) -> Result<(), OpenError> {
    let mut how = std::fs::OpenOptions::new();
    how.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut how, 0o600);
    match how.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::io(path, error)),
    }
}

/// The writer's connection. Applies missing migrations and marks the nodes of earlier processes as dead.
pub(super) fn writer(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    if !options.migrate {
        migrate::complete(path)?;
    }
    create_private(path)?;
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    migrate::ours_or_empty(&conn, path)?;
    // Both take effect only before the first table is created.
    conn.pragma_update(None, "page_size", PAGE_SIZE).map_err(sqlite)?;
    vacuum::allow(&conn).map_err(sqlite)?;
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(sqlite)?;
    if mode != "wal" {
        return Err(OpenError::NoWal { path: path.to_owned(), mode });
    }
    set_synchronous(&conn, path, options)?;
    conn.pragma_update(None, "cache_size", kibibytes(options.cache)).map_err(sqlite)?;
    // Checkpoints run on their own thread; see `checkpoint`.
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(sqlite)?;
    conn.pragma_update(None, "temp_store", "memory").map_err(sqlite)?;
    // Only a reader or the checkpoint thread can block the writer, while it empties the log itself.
    conn.busy_timeout(Duration::from_millis(200)).map_err(sqlite)?;
    migrate::apply_missing(&conn, path)?;
    blocks::fill(&conn).map_err(sqlite)?;
    // The lock proves that the earlier holders of leases are gone.
    conn.execute("update node set dead = 1", []).map_err(sqlite)?;
    Ok(conn)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    // Each connection is used by one thread, so it needs no mutex.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    // Without this, SQLite plans a statement again whenever a bound lane might match the partial index of
    // retries: a claim over 1,000 flows then took four to five times as long, measured against a plain
    // insert.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sqlite)?;
    conn.set_prepared_statement_cache_capacity(100);
    Ok(conn)
}

/// In bytes. Measured with the bench: 8 KiB takes about a tenth less work per step than 4 KiB; 16 KiB is no
/// better than 8 KiB.
const PAGE_SIZE: i64 = 8192;

/// Sets `synchronous`, and checks the value that SQLite reports.
fn set_synchronous(conn: &Connection, path: &Path, options: &Options) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    conn.pragma_update(None, "synchronous", options.synchronous.level()).map_err(sqlite)?;
    // On macOS, fsync alone does not reach the disk.
    conn.pragma_update(None, "fullfsync", options.synchronous == Synchronous::Full).map_err(sqlite)?;
    let level: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(sqlite)?;
    if level < Synchronous::Full.level() && !options.unsafe_durability {
        return Err(OpenError::NotDurable { path: path.to_owned(), level });
    }
    Ok(())
}

/// A read-only connection to a file that another process may be using. If there is no log yet, it leaves an
/// empty one behind.
pub(super) fn read_only(path: &Path) -> Result<Connection, OpenError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(Duration::from_secs(5)).map_err(|source| OpenError::sqlite(path, source))?;
    Ok(conn)
}

/// A read-only connection that leaves no log behind. A file without a log is not in use, or was opened just
/// now.
pub(super) fn read_only_without_log(path: &Path) -> Result<Connection, OpenError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = Path::new(&log).metadata().is_ok_and(|about| about.len() > 0);
    let Some(name) = path.to_str().filter(|_| !has_log) else { return read_only(path) };
    let name = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)
        .map_err(|source| OpenError::sqlite(path, source))
}

pub(super) fn reader(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.pragma_update(None, "cache_size", kibibytes(options.cache / 16)).map_err(sqlite)?;
    Ok(conn)
}

pub(super) fn checkpointer(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    set_synchronous(&conn, path, options)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(sqlite)?;
    conn.pragma_update(None, "cache_size", kibibytes(1 << 20)).map_err(sqlite)?;
    Ok(conn)
}

/// SQLite reads a negative cache size as kibibytes.
fn kibibytes(bytes: usize) -> i64 {
    -i64::try_from(bytes >> 10).unwrap_or(i64::MAX)
}
