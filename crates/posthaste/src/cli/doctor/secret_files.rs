//! The checks of `posthaste doctor` on files with secrets: nobody but their owner should be able to read them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::Finding;
use crate::config::{Config, StoreUrl};
use crate::wiring::KEY_FILE;

const CHECK: &str = "secrets";
/// The permissions of everybody but the owner and the group, and of the group to change a file.
const TOO_OPEN: u32 = 0o027;

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut files = config.secret_files.clone();
    files.extend(first_key(config));
    let open: Vec<String> = files.iter().filter_map(too_open).collect();
    match (files.is_empty(), open.is_empty()) {
        (true, _) => vec![],
        (false, true) => vec![Finding::ok(CHECK, "files with secrets are not open to others")],
        (false, false) => vec![Finding::warn(CHECK, open.join("\n"))],
    }
}

/// The file of the first admin key, if it still stands where a start wrote it.
fn first_key(config: &Config) -> Option<PathBuf> {
    let file = match &config.store.url {
        StoreUrl::Sqlite(store) => store.with_file_name(KEY_FILE),
        StoreUrl::Postgres(_) => KEY_FILE.into(),
    };
    file.exists().then_some(file)
}

fn too_open(file: &PathBuf) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let file = file.display();
    (mode & TOO_OPEN != 0)
        .then(|| format!("{file} holds a secret and has the mode {mode:03o}: chmod 600 {file}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_told_and_one_for_its_group_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        write(&file, "x").unwrap();
        for (mode, is_open) in [(0o600, false), (0o400, false), (0o440, false), (0o644, true), (0o620, true)]
        {
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(too_open(&file).is_some(), is_open, "{mode:o}");
        }
        assert_eq!(too_open(&directory.path().join("missing")), None);
    }
}
