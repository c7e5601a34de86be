//! Rules for the `Cargo.toml` of each crate: a crate boundary is kept only for what it forbids.

use super::tree::Problem;

/// The rooms, what each may see of the others, and what would break its promise.
const ROOMS: &[Room] = &[
    Room {
        name: "posthaste-core",
        sees: &[],
        banned: &["tokio", "tracing", "rusqlite", "rand", "fastrand", "async-trait"],
    },
    Room {
        name: "posthaste-engine",
        sees: &["posthaste-core"],
        banned: &["rusqlite", "tokio-postgres", "hyper", "hyper-util", "reqwest", "axum"],
    },
    Room { name: "posthaste-store", sees: &["posthaste-core", "posthaste-engine"], banned: &[] },
    Room { name: "posthaste-wire", sees: &["posthaste-core", "posthaste-engine"], banned: &[] },
    Room {
        name: "posthaste",
        sees: &["posthaste-core", "posthaste-engine", "posthaste-store", "posthaste-wire"],
        banned: &[],
    },
];

/// The most crates that the workspace may have.
const MOST_CRATES: usize = 5;

struct Room {
    name: &'static str,
    sees: &'static [&'static str],
    banned: &'static [&'static str],
}

/// One line of a dependency table.
struct Dependency {
    line: usize,
    name: String,
    dev: bool,
}

/// A crate depends only on the rooms behind it, in tests too; a crate may use itself in its tests, to turn on features.
pub(super) fn arrows(path: &str, text: &str) -> Vec<Problem> {
    let Some(room) = room(path) else {
        return vec![Problem::at(path, 1, "is not one of the rooms of ARCHITECTURE.md")];
    };
    let ours = dependencies(text).into_iter().filter(|dependency| is_ours(&dependency.name));
    let allowed = |d: &Dependency| room.sees.contains(&d.name.as_str()) || (d.dev && d.name == room.name);
    let wrong = ours.filter(|dependency| !allowed(dependency));
    wrong.map(|d| Problem::at(path, d.line, format!("{} must not depend on {}", room.name, d.name))).collect()
}

/// A crate ships nothing that its room forbids. Tests may use it.
pub(super) fn bans(path: &str, text: &str) -> Vec<Problem> {
    let banned = room(path).map_or(&[][..], |room| room.banned);
    let shipped = dependencies(text).into_iter().filter(|dependency| !dependency.dev);
    let wrong = shipped.filter(|dependency| banned.contains(&dependency.name.as_str()));
    wrong
        .map(|d| Problem::at(path, d.line, format!("`{}` is what this crate exists to forbid", d.name)))
        .collect()
}

/// `[lints] workspace = true`.
pub(super) fn lints(path: &str, text: &str) -> Vec<Problem> {
    let mut keys = keys(text).into_iter();
    if keys.any(|key| key.table == "lints" && key.name == "workspace" && key.value == "true") {
        return vec![];
    }
    vec![Problem::at(path, 1, "the crate lacks `[lints]` with `workspace = true`")]
}

/// Five rooms are the ceiling.
pub(super) fn ceiling<'t>(manifests: impl Iterator<Item = &'t str>) -> Vec<Problem> {
    let over = manifests.skip(MOST_CRATES);
    over.map(|path| Problem::at(path, 1, format!("is a crate too many: {MOST_CRATES} are the ceiling")))
        .collect()
}

fn room(path: &str) -> Option<&'static Room> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    ROOMS.iter().find(|room| room.name == name)
}

fn is_ours(name: &str) -> bool {
    name == "posthaste" || name.starts_with("posthaste-")
}

/// The dependencies in every table that holds some: `[dependencies]`, `[dev-dependencies]`, `[target.x.dependencies]`,
/// `[dependencies.x]` and so on. A renamed one counts under its real name.
fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = vec![];
    for key in keys(text) {
        let Some((kind, own_table)) = dependency_table(&key.table) else { continue };
        let name = match (own_table, renamed(&key)) {
            (_, Some(real)) => real,
            (Some(name), None) => name,
            (None, None) => key.name.split('.').next().unwrap_or_default().to_owned(),
        };
        found.push(Dependency {
            line: key.line,
            name: name.replace('"', ""),
            dev: kind == "dev-dependencies",
        });
    }
    found
}

/// `target.x.dependencies.y` as ("dependencies", Some("y")).
fn dependency_table(table: &str) -> Option<(&str, Option<String>)> {
    let kinds = ["dev-dependencies", "build-dependencies", "dependencies"];
    for kind in kinds {
        if table == kind || table.ends_with(&format!(".{kind}")) {
            return Some((kind, None));
        }
        let (before, name) = table.rsplit_once('.').unwrap_or(("", table));
        if before == kind || before.ends_with(&format!(".{kind}")) {
            return Some((kind, Some(name.to_owned())));
        }
    }
    None
}

/// The name in `package = ".."`, as a key of its own or inside braces.
fn renamed(key: &Key) -> Option<String> {
    let value = if key.name == "package" || key.name.ends_with(".package") {
        key.value.as_str()
    } else {
        key.value.split_once("package")?.1.trim_start().strip_prefix('=')?
    };
    Some(value.split('"').nth(1)?.to_owned())
}

/// A `name = value` line of TOML with the table it stands in. A value over several lines counts as one.
struct Key {
    line: usize,
    table: String,
    name: String,
    value: String,
}

/// Reads as much TOML as our manifests use: tables, keys, and values whose brackets may span lines.
fn keys(text: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = vec![];
    let mut table = String::new();
    let mut open = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if open > 0 {
            open += brackets(line);
            if let Some(last) = keys.last_mut() {
                last.value.push_str(line);
            }
        } else if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').trim_start_matches('[').trim().to_owned();
        } else if let Some((name, value)) = line.split_once('=') {
            open = brackets(value);
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            keys.push(Key { line: index + 1, table: table.clone(), name, value });
        }
    }
    keys
}

/// Brackets opened less brackets closed.
fn brackets(value: &str) -> i32 {
    value.chars().fold(0, |open, c| match c {
        '[' | '{' => open + 1,
        ']' | '}' => open - 1,
        _ => open,
    })
}

#[test]
fn an_arrow_the_wrong_way_is_found_in_every_notation() {
    for bad in [
        "[dependencies]\nposthaste-store.workspace = true",
        "[dependencies]\nposthaste-store = { path = \"../posthaste-store\" }",
        "[dev-dependencies]\nposthaste-store.workspace = true",
        "[build-dependencies]\nposthaste-store.workspace = true",
        "[dependencies.posthaste-store]\nworkspace = true",
        "[target.'cfg(unix)'.dependencies]\nposthaste-store.workspace = true",
        "[dependencies]\nkeep = { package = \"posthaste-store\", path = \"x\" }",
        "[dependencies.keep]\npackage = \"posthaste-store\"",
        "[dependencies]\na = { version = \"1\", features = [\n  \"b\",\n] }\nposthaste-store.workspace = true",
    ] {
        assert!(!arrows("crates/posthaste-engine/Cargo.toml", bad).is_empty(), "{bad}");
        assert_eq!(arrows("crates/posthaste/Cargo.toml", bad), [], "{bad}");
    }
    let found =
        arrows("crates/posthaste-core/Cargo.toml", "[dependencies]\nserde = \"1\"\nposthaste-wire = \"1\"\n");
    assert_eq!(
        found,
        [Problem::at(
            "crates/posthaste-core/Cargo.toml",
            3,
            "posthaste-core must not depend on posthaste-wire"
        )]
    );
}

#[test]
fn arrows_of_the_house_are_fine() {
    let core = "[dependencies]\nposthaste-core.workspace = true";
    let both = "[dependencies]\nposthaste-core.workspace = true\nposthaste-engine.workspace = true";
    assert_eq!(arrows("crates/posthaste-engine/Cargo.toml", core), []);
    assert_eq!(arrows("crates/posthaste-store/Cargo.toml", both), []);
    assert_eq!(arrows("crates/posthaste-wire/Cargo.toml", both), []);
    let own = "[dev-dependencies]\nposthaste-engine = { path = \".\", features = [\"testing\"] }";
    assert_eq!(arrows("crates/posthaste-engine/Cargo.toml", own), []);
    assert_eq!(arrows("crates/posthaste-engine/Cargo.toml", "[features]\nposthaste-store = []"), []);
    assert_eq!(arrows("crates/posthaste-extra/Cargo.toml", "").len(), 1);
}

#[test]
fn a_forbidden_crate_is_found() {
    for room in ROOMS {
        for banned in room.banned {
            let path = format!("crates/{}/Cargo.toml", room.name);
            let bad = format!("[dependencies]\n{banned} = {{ workspace = true, features = [\"a\"] }}\n");
            assert_eq!(bans(&path, &bad).len(), 1, "{path} {banned}");
            assert_eq!(bans(&path, &bad.replace("[dep", "[dev-dep")), [], "{path} {banned}");
        }
    }
}

#[test]
fn missing_lints_are_found() {
    assert_eq!(lints("a", "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"), []);
    for bad in
        ["", "[lints]\n", "[package]\nworkspace = true\n", "[lints]\nworkspace = false\n", "# [lints]\n"]
    {
        assert_eq!(lints("a", bad).len(), 1, "{bad}");
    }
}

#[test]
fn a_sixth_crate_is_found() {
    assert_eq!(ceiling(["a", "b", "c", "d", "e"].into_iter()), []);
    assert_eq!(ceiling(["a", "b", "c", "d", "e", "f"].into_iter()).len(), 1);
}
