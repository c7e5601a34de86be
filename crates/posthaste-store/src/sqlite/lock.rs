//! The lock beside a file: who holds it may use the file. It ends with the process, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::open::OpenError;

/// The lock of a file, held until this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    beside: PathBuf,
    /// Whether the lock's own file was made for this.
    made: bool,
}

impl Lock {
    /// Takes the file for this store alone.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        Self::take_after(path, || {})
    }

    /// The same; `opened` runs between the opening of the lock's file and the locking.
    fn take_after(path: &Path, mut opened: impl FnMut()) -> Result<Self, OpenError> {
        let failed = |source| OpenError::io(path, source);
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let beside = PathBuf::from(beside);
        loop {
            let (file, made) = open_or_make(&beside).map_err(failed)?;
            opened();
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // Somebody may have taken the lock's file away in between; what is locked then is nothing that others see.
            if is_still_there(&file, &beside).map_err(failed)? {
                return Ok(Self { file, beside, made });
            }
        }
    }

    /// Ends a lock under which nothing was opened, and takes its file away if it was made for this. The file goes while
    /// the lock is held, so that whoever had it open before finds that out in `take`.
    pub(super) fn give_up(self) {
        if self.made && cfg!(unix) {
            // What stays behind is an empty file that is in nobody's way.
            let _ = std::fs::remove_file(&self.beside);
        }
        drop(self.file);
    }
}

fn open_or_make(beside: &Path) -> io::Result<(File, bool)> {
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    loop {
        match how.clone().create_new(true).open(beside) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (file, true)),
        }
        match how.open(beside) {
            // It went away in between.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found.map(|file| (file, false)),
        }
    }
}

#[cfg(unix)]
fn is_still_there(file: &File, beside: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let held = file.metadata()?;
    match std::fs::metadata(beside) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Elsewhere the lock's file is never taken away.
#[cfg(not(unix))]
fn is_still_there(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(path: &Path) -> PathBuf {
        path.with_extension("db.lock")
    }

    #[test]
    fn giving_up_takes_away_what_was_made_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        Lock::take(&path).unwrap().give_up();
        assert!(!cfg!(unix) || !beside(&path).exists());
        drop(Lock::take(&path).unwrap());
        Lock::take(&path).unwrap().give_up();
        assert!(beside(&path).exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_whose_file_was_taken_away_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let mut first = Some(Lock::take(&path).unwrap());
        // The one who made the lock's file gives it up while another has it open and is about to lock it.
        let give_up = || first.take().into_iter().for_each(Lock::give_up);
        let second = Lock::take_after(&path, give_up).unwrap();
        assert!(matches!(Lock::take(&path), Err(OpenError::InUse { .. })));
        second.give_up();
        // The same, and a third has made the file anew and holds it.
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
