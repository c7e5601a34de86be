//! The first admin key: made where there is none, and written to a file before it is good.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posthaste_engine::engine::Engine;

use super::{StartError, own_actor};
use crate::config::StoreUrl;
use crate::keys;

/// The name of the file.
pub const KEY_FILE: &str = "posthaste-admin.key";
/// How long another node on this machine may take between its file and its key.
const OTHER_NODE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An admin key that was made because there was none.
pub struct FirstKey {
    pub secret: String,
    /// Where it stands.
    pub file: PathBuf,
}

/// Why the file of the first key is not there. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum BadKeyFile {
    #[error(
        "the store has no admin key, and {} exists already: it is never overwritten. If the key in it is of an earlier store, move \
         the file away and start again; or set POSTHASTE_ADMIN_KEY",
        .0.display()
    )]
    Exists(PathBuf),
    #[error(
        "the store has no admin key, and a new one cannot be written to {}: set POSTHASTE_ADMIN_KEY (`openssl rand -hex 32` makes \
         one), or start where the file can be written",
        file.display()
    )]
    Unwritable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The file for a store: beside an SQLite file, else in the working directory.
pub(super) fn place(store: &StoreUrl) -> PathBuf {
    let file = match store {
        StoreUrl::Sqlite(store) => store.with_file_name(KEY_FILE),
        StoreUrl::Postgres(_) => KEY_FILE.into(),
    };
    std::path::absolute(&file).unwrap_or(file)
}

/// Makes the key, unless the store has an admin key. Of nodes that start together one makes it: the file comes first, then the key
/// is stored only where there is none, and whoever comes second removes its file.
pub(super) async fn make(engine: &Engine, file: &Path) -> Result<Option<FirstKey>, StartError> {
    if has_admin_key(engine) {
        return Ok(None);
    }
    let secret = keys::fresh();
    match write(file, &secret) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return match comes(engine).await {
                true => Ok(None),
                false => Err(BadKeyFile::Exists(file.to_owned()).into()),
            };
        }
        Err(source) => return Err(BadKeyFile::Unwritable { file: file.to_owned(), source }.into()),
    }
    // After an error the file stays: the store may have the key all the same.
    if keys::create_first(engine, &secret, &own_actor()).await? {
        return Ok(Some(FirstKey { secret, file: file.to_owned() }));
    }
    if let Err(error) = fs::remove_file(file) {
        tracing::warn!(file = %file.display(), %error, "another node made the first admin key; this file holds none and can be removed");
    }
    if !has_admin_key(engine) {
        tracing::error!(
            "the first admin key in the store cannot be read: set POSTHASTE_ADMIN_KEY and make another"
        );
    }
    Ok(None)
}

fn has_admin_key(engine: &Engine) -> bool {
    keys::all(&engine.settings()).iter().any(|(_, key)| key.is_admin_for_all(engine.now()))
}

/// Whether another node that has written the file stores its key.
async fn comes(engine: &Engine) -> bool {
    let looks = async {
        while !has_admin_key(engine) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(OTHER_NODE, looks).await.is_ok()
}

/// Writes a new file that only its owner can read. What is written in part is removed.
fn write(file: &Path, secret: &str) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    let written = writeln!(out, "{secret}").and_then(|()| out.sync_all()).and_then(|()| sync_directory(file));
    if written.is_err() {
        // The error that is told is the first one.
        let _ = fs::remove_file(file);
    }
    written
}

/// Without it a power cut could take the file and leave the key in the store.
fn sync_directory(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_for_its_owner_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(KEY_FILE);
        write(&file, "phk_1").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(write(&file, "phk_2").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "phk_1\n");
        let nowhere = directory.path().join("missing").join(KEY_FILE);
        assert_eq!(write(&nowhere, "phk_1").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_file_stands_beside_the_store_or_in_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        for (store, wanted) in [
            ("/var/lib/p/p.db", PathBuf::from("/var/lib/p/posthaste-admin.key")),
            ("p.db", here.join(KEY_FILE)),
        ] {
            assert_eq!(place(&StoreUrl::Sqlite(store.into())), wanted);
        }
        let postgres = crate::config::Secret::new("postgres://h/d".to_owned());
        assert_eq!(place(&StoreUrl::Postgres(postgres)), here.join(KEY_FILE));
    }
}
