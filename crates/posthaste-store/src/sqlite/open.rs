//! Opening a file: exclusive use, durability that is checked and not assumed, and the schema.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::blocks;
use super::migrate;
use super::planted::Planted;

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often SQLite waits for the disk.
    pub synchronous: Synchronous,
    /// Whether to take the steps of the schema that the file lacks. If not, such a file is refused.
    pub migrate: bool,
    /// Whether to run even if an acknowledged notification may be lost in a power cut.
    pub unsafe_durability: bool,
    /// The bytes of pages that the writer keeps in memory; each reader keeps a sixteenth of it.
    pub cache: usize,
    /// The bytes that the write-ahead log may grow to before the writer itself stops to empty it.
    pub wal_bound: u64,
    /// A bug to switch on.
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
    /// The bug that is switched on; none in a product.
    pub(super) fn bug(&self) -> Option<Planted> {
        #[cfg(feature = "planted")]
        return self.planted;
        #[cfg(not(feature = "planted"))]
        None
    }
}

/// When SQLite waits until the disk has what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// At every commit: what was acknowledged survives a power cut.
    Full,
    /// At checkpoints only: a power cut loses what was acknowledged last.
    Normal,
    /// Never: a power cut may lose everything.
    Off,
}

impl Synchronous {
    /// The number that SQLite gives it.
    const fn level(self) -> i64 {
        match self {
            Self::Off => 0,
            Self::Normal => 1,
            Self::Full => 2,
        }
    }
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another store of this one, uses the file.
    #[error("{} is in use by another process: stop that one, or give this one a file of its own", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A directory was named, where the file has to be.
    #[error("{} is a directory: name a file in it, such as {}", path.display(), path.join("posthaste.db").display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The directory that the file is to be in is not there.
    #[error(
        "{} cannot be made because there is no directory {}: make it, or name another file",
        path.display(),
        directory.display()
    )]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// The file, or the directory that it is in, cannot be written.
    #[error(
        "{} is read-only: let the user of this process write the file and the directory that it is in, or name another \
         file",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file has several names, and another process could use it by another one: the lock goes by the name.
    #[error(
        "{} is also a file of another name (a hard link), by which another process could use it: remove the other name, or \
         make a copy",
        path.display()
    )]
    Linked {
        /// The file.
        path: PathBuf,
    },
    /// The file or its lock cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error beneath.
        #[source]
        source: std::io::Error,
    },
    /// SQLite would acknowledge what a power cut can take back.
    #[error(
        "{} would run with synchronous={level}, which loses acknowledged notifications in a power cut: use FULL, or set \
         unsafe_durability = true to accept that",
        path.display()
    )]
    NotDurable {
        /// The file.
        path: PathBuf,
        /// What SQLite says; FULL is 2.
        level: i64,
    },
    /// SQLite cannot keep a write-ahead log there.
    #[error("{} runs with journal_mode={mode} instead of WAL: put it on a local disk", path.display())]
    NoWal {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        mode: String,
    },
    /// A newer Posthaste has written the file.
    #[error(
        "{} has schema {found} and this Posthaste knows {known}: run the newer Posthaste again, or restore a backup from \
         before the upgrade (`posthaste migrate status` shows the steps)",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema of the file.
        found: usize,
        /// The newest schema known here.
        known: usize,
    },
    /// The file has not taken every step.
    #[error("{} lacks step {step} of the schema: run `posthaste migrate up`", path.display())]
    Behind {
        /// The file.
        path: PathBuf,
        /// The first step that is missing.
        step: String,
    },
    /// The schema is not what its number of steps says.
    #[error(
        "{} is half migrated: {what}. Restore a backup; only where nothing in it is needed, run \
         `posthaste migrate up` with the name of a file that is not there yet",
        path.display()
    )]
    HalfMigrated {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Another program has written the file.
    #[error("{} is an SQLite file of another program: give Posthaste a file of its own", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// SQLite refused.
    #[error("{} cannot be used as a store", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error beneath.
        #[source]
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// What an error about the file or its lock means.
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::Io { path, source },
        }
    }

    /// What an error of SQLite means while the file is being opened.
    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            _ => Self::Sqlite { path, source },
        }
    }
}

/// The one name of a file, however it is spelled and whatever links lead to it, so that two who mean the same file ask
/// for the same lock. The file is not opened for that: closing it would end the locks that SQLite may hold on it
/// elsewhere in this process.
pub(super) fn only_name(path: &Path) -> Result<PathBuf, OpenError> {
    let io = |source| OpenError::io(path, source);
    match path.canonicalize() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        known => return known.map_err(io).and_then(writable),
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A link to a file that is still to be made. Links that lead in a circle are another error above.
    if let Ok(target) = path.read_link() {
        return only_name(&directory.join(target));
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

/// The file, if it is one and nobody has marked it as not to be written, which SQLite would find out late and root not
/// at all.
fn writable(path: PathBuf) -> Result<PathBuf, OpenError> {
    match path.metadata() {
        Ok(about) if about.is_dir() => Err(OpenError::Directory { path }),
        Ok(about) if about.permissions().readonly() => Err(OpenError::ReadOnly { path }),
        #[cfg(unix)]
        Ok(about) if std::os::unix::fs::MetadataExt::nlink(&about) > 1 => Err(OpenError::Linked { path }),
        // Whatever else is wrong shows when it is opened.
        _ => Ok(path),
    }
}

/// Makes the file if it is not there, for its owner alone: it holds what is sent to whom. Its log is made like it.
fn make_private(path: &Path) -> Result<(), OpenError> {
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

/// The connection that writes, with the schema brought up to date and every node of an earlier process dead.
pub(super) fn writer(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    if !options.migrate {
        migrate::complete(path)?;
    }
    make_private(path)?;
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    migrate::ours_or_empty(&conn, path)?;
    // Has to come before the first table.
    conn.pragma_update(None, "page_size", PAGE_SIZE).map_err(sqlite)?;
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(sqlite)?;
    if mode != "wal" {
        return Err(OpenError::NoWal { path: path.to_owned(), mode });
    }
    durable(&conn, path, options)?;
    conn.pragma_update(None, "cache_size", kibibytes(options.cache)).map_err(sqlite)?;
    // Checkpoints run beside the writer; see `checkpoint`.
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(sqlite)?;
    conn.pragma_update(None, "temp_store", "memory").map_err(sqlite)?;
    // All that can be in the writer's way is a reader or the checkpoint beside it while it empties the log itself.
    conn.busy_timeout(Duration::from_millis(200)).map_err(sqlite)?;
    migrate::take_all(&conn, path)?;
    blocks::fill(&conn).map_err(sqlite)?;
    // The lock proves that whoever held leases here is gone.
    conn.execute("update node set dead = 1", []).map_err(sqlite)?;
    Ok(conn)
}

/// A connection for one thread.
fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    // Each connection stays with its thread, so it needs no lock of its own.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    // Without this, SQLite plans a statement anew whenever a bound lane might match the partial index of retries: a
    // claim over 1,000 flows then took four to five times as long, measured against a plain insert.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sqlite)?;
    conn.set_prepared_statement_cache_capacity(100);
    Ok(conn)
}

/// Pages of this many bytes. Measured with the bench: 8 KiB does each step with about a tenth less work than 4 KiB,
/// 16 KiB no better than 8 KiB.
const PAGE_SIZE: i64 = 8192;

/// Sets how often SQLite waits for the disk, and believes only what it reads back.
fn durable(conn: &Connection, path: &Path, options: &Options) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    conn.pragma_update(None, "synchronous", options.synchronous.level()).map_err(sqlite)?;
    // Where fsync alone does not reach the disk (macOS), ask for what does.
    conn.pragma_update(None, "fullfsync", options.synchronous == Synchronous::Full).map_err(sqlite)?;
    let level: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(sqlite)?;
    if level < Synchronous::Full.level() && !options.unsafe_durability {
        return Err(OpenError::NotDurable { path: path.to_owned(), level });
    }
    Ok(())
}

/// A connection that only looks at a file, which another process may be using. Where there is no log yet, it leaves an empty
/// one behind.
pub(super) fn onlooker(path: &Path) -> Result<Connection, OpenError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(Duration::from_secs(5)).map_err(|source| OpenError::sqlite(path, source))?;
    Ok(conn)
}

/// The same for a short look that leaves nothing behind: a file without a log is nobody's, or was opened this moment.
pub(super) fn passer_by(path: &Path) -> Result<Connection, OpenError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = Path::new(&log).metadata().is_ok_and(|about| about.len() > 0);
    let Some(name) = path.to_str().filter(|_| !has_log) else { return onlooker(path) };
    let name = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)
        .map_err(|source| OpenError::sqlite(path, source))
}

/// A connection that only reads.
pub(super) fn reader(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.pragma_update(None, "cache_size", kibibytes(options.cache / 16)).map_err(sqlite)?;
    Ok(conn)
}

/// The connection that runs checkpoints.
pub(super) fn checkpointer(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::sqlite(path, source);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    durable(&conn, path, options)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(sqlite)?;
    conn.pragma_update(None, "cache_size", kibibytes(1 << 20)).map_err(sqlite)?;
    Ok(conn)
}

/// SQLite takes a negative cache size as kibibytes.
fn kibibytes(bytes: usize) -> i64 {
    -i64::try_from(bytes >> 10).unwrap_or(i64::MAX)
}
