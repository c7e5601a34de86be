//! The files of the repository, read once a test, and what a check says about one of them.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::path::Path;

/// A broken rule, shown as `path:line: what`, so that a terminal can jump there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl Problem {
    /// A problem in a line, counted from 1.
    pub(super) fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Every text file of the repository by its path from the root, with `/` between the parts.
pub(super) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the repository, but for hidden and build directories.
    pub(super) fn read() -> Self {
        // Cargo's word at run time comes first: worktrees that share a target directory may share this binary.
        let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let root = Path::new(&here).join("../..");
        let mut files = BTreeMap::new();
        walk(&root, "", &mut files);
        assert!(
            files.contains_key("crates/posthaste-core/src/lib.rs"),
            "{} is not the repository",
            root.display()
        );
        Self { files }
    }

    /// The files under `start` whose path ends in `end`, as (path, text).
    pub(super) fn ending(&self, start: &str, end: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(move |(path, _)| path.starts_with(start) && path.ends_with(end))
    }

    /// The text of a file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether the path is a file, or a directory that holds one.
    pub(super) fn holds(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty() || self.files.keys().any(|file| file == path || file.starts_with(&inside))
    }

    /// The names of the files right in a directory, which is given with its last `/`.
    pub(super) fn names_in(&self, directory: &str) -> Vec<String> {
        let names = self.files.keys().filter_map(|path| path.strip_prefix(directory));
        names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }
}

fn walk(directory: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(directory).expect("a directory of the repository can be listed");
    for entry in entries {
        let entry = entry.expect("a directory of the repository can be listed");
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("a listed entry has a type");
        let path = format!("{prefix}{name}");
        if kind.is_dir() && !name.starts_with('.') && name != "target" {
            walk(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).expect("a file of the repository can be read");
            files.insert(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

#[test]
fn a_problem_names_file_and_line() {
    assert_eq!(Problem::at("a/b.rs", 7, "is wrong").to_string(), "a/b.rs:7: is wrong");
}

#[test]
fn the_tree_knows_its_files_and_directories() {
    let tree = Tree::read();
    assert!(tree.holds("README.md") && tree.holds("crates/posthaste") && tree.holds(""));
    assert!(!tree.holds("READ") && !tree.holds("crates/posthaste-nowhere"));
    assert!(tree.names_in("crates/posthaste-core/").contains(&"Cargo.toml".to_owned()));
    assert!(tree.ending("crates/", "/Cargo.toml").count() > 1);
}
