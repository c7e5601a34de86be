//! The lock file checkpointer a store. Its holder may use the store. The lock ends with the process, even after a
//! crash.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::open::OpenError;

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    lock_path: PathBuf,
    /// Whether this lock created the lock file.
    made: bool,
}

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        Self::take_after(path, || {})
    }

    /// `opened` runs after the lock file is opened and before it is locked.
    fn take_after(path: &Path, mut opened: impl FnMut()) -> Result<Self, OpenError> {
        let failed = |source| OpenError::io(path, source);
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        loop {
            let (file, made) = open_or_create(&lock_path).map_err(failed)?;
            opened();
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // Another process may have removed the lock file in between. The lock is then on a file that
            // others cannot see.
            if is_still_there(&file, &lock_path).map_err(failed)? {
                return Ok(Self { file, lock_path, made });
            }
        }
    }

    /// Releases the lock of a store that could not be opened, and removes the lock file if this lock created
    /// it. The file is removed while the lock is held, so that a process that has opened it before notices
    /// that in `take`.
    pub(super) fn give_up(self) {
        if self.made && cfg!(unix) {
            // If this fails, an empty file remains, which does no harm.
            let _ = std::fs::remove_file(&self.lock_path);
        }
        drop(self.file);
    }
}

fn open_or_create(lock_path: &Path) -> io::Result<(File, bool)> {
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    loop {
        match how.clone().create_new(true).open(lock_path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (file, true)),
        }
        match how.open(lock_path) {
            // It was removed in between.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found.map(|file| (file, false)),
        }
    }
}

#[cfg(unix)]
fn is_still_there(file: &File, lock_path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let held = file.metadata()?;
    match std::fs::metadata(lock_path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// On other systems the lock file is never removed.
#[cfg(not(unix))]
fn is_still_there(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock_path(path: &Path) -> PathBuf {
        path.with_extension("db.lock")
    }

    #[test]
    fn giving_up_takes_away_what_was_made_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        Lock::take(&path).unwrap().give_up();
        assert!(!cfg!(unix) || !lock_path(&path).exists());
        drop(Lock::take(&path).unwrap());
        Lock::take(&path).unwrap().give_up();
        assert!(lock_path(&path).exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_whose_file_was_taken_away_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let mut first = Some(Lock::take(&path).unwrap());
        // The first lock is given up while the second one has opened its file and is about to lock it.
        let give_up = || first.take().into_iter().for_each(Lock::give_up);
        let second = Lock::take_after(&path, give_up).unwrap();
        assert!(matches!(Lock::take(&path), Err(OpenError::InUse { .. })));
        second.give_up();
        // The same, and a third lock has created the file again and holds it.
        let (mut first, mut third) = (Some(Lock::take(&path).unwrap()), None);
        let give_up = || {
            if let Some(first) = first.take() {
                first.give_up();
                third = Some(Lock::take(&path).unwrap());
            }
        };
        assert!(matches!(Lock::take_after(&path, give_up), Err(OpenError::InUse { .. })));
        assert!(third.is_some());
    }
}
