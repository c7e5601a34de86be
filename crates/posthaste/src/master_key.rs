//! The file with the master key that a server on an SQLite file makes for itself, beside the store.
//!
//! Invariant: the file is on disk, with its directory, before anything is sealed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use posthaste_core::sealed::{BadKey, Key};

use crate::keys;

/// What the first line of the file says.
const HEAD: &str = "# The master key of the Posthaste store beside this file. Whoever has both can read its secrets; without it they are lost.\n";

/// Where the master keys of this node stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The settings, or a variable.
    Settings,
    /// The file that this program made beside the store.
    File(PathBuf),
    /// There is none.
    None,
}

/// The line that says what to set.
pub const HOW_TO_SET: &str = "make a key with `openssl rand -hex 32`, and set POSTHASTE_MASTER_KEY or security.master_key to it on every node";

/// Why the file of the master key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("the master key cannot be read from {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the master key cannot be written to {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} holds no master key: each line {source}; restore the file from its copy")]
    Bad { path: PathBuf, source: BadKey },
    #[error("{path} is empty, and was to hold a master key: restore the file from its copy")]
    Empty { path: PathBuf },
    #[error(
        "the secrets of this store are sealed with a master key from {path}, and that file is gone: put it back, it belongs \
         to the store as its copy does; or set POSTHASTE_MASTER_KEY or security.master_key to the key"
    )]
    Gone { path: PathBuf },
}

/// The file with the master key of an SQLite file.
pub fn beside(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

/// The keys in the file, the wanted one first. None if there is no such file.
pub fn read(path: &Path) -> Result<Option<Vec<Key>>, KeyFileError> {
    let path_of = || path.to_owned();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(KeyFileError::Read { path: path_of(), source }),
    };
    let keys = Key::list(&text).map_err(|source| KeyFileError::Bad { path: path_of(), source })?;
    if keys.is_empty() { Err(KeyFileError::Empty { path: path_of() }) } else { Ok(Some(keys)) }
}

/// Makes the file with a new key. When this returns, it is on disk.
pub fn make(path: &Path) -> Result<Vec<Key>, KeyFileError> {
    let keys = vec![new_key()];
    write(path, &keys)?;
    Ok(keys)
}

pub fn new_key() -> Key {
    Key::new(keys::random())
}

/// Puts the keys in the place of what the file holds, all or nothing. When this returns, they are on disk.
pub fn write(path: &Path, keys: &[Key]) -> Result<(), KeyFileError> {
    replace(path, keys).map_err(|source| KeyFileError::Write { path: path.to_owned(), source })
}

fn replace(path: &Path, keys: &[Key]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A process that was killed left it; the lock of the store keeps others away.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = create(&new)?;
    file.write_all(HEAD.as_bytes())?;
    for key in keys {
        file.write_all(key.to_hex().as_bytes())?;
        file.write_all(b"\n")?;
    }
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_directory(path)
}

#[cfg(unix)]
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Whether others than the owner may read the file.
#[cfg(unix)]
pub fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
pub fn is_open_to_others(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_its_owners_alone_and_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = beside(&directory.path().join("posthaste.db"));
        assert!(path.ends_with("posthaste.db.key"));
        assert_eq!(read(&path).unwrap(), None);
        let made = make(&path).unwrap();
        assert_eq!(read(&path).unwrap(), Some(made.clone()));
        assert!(!is_open_to_others(&path));
        let more = vec![new_key(), made[0].clone()];
        // What a killed process left is in nobody's way.
        std::fs::write(directory.path().join("posthaste.db.key.new"), "half").unwrap();
        write(&path, &more).unwrap();
        assert_eq!(read(&path).unwrap(), Some(more));
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_not_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        std::fs::write(&path, "# nothing\n").unwrap();
        assert!(matches!(read(&path), Err(KeyFileError::Empty { .. })));
        std::fs::write(&path, "hunter2\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::Bad { .. }));
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
