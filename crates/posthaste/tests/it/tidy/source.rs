//! Rules for source files: Rust and SQL.

use super::tree::Problem;

/// The most lines that a file may have.
pub(super) const LONGEST: usize = 500;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "types", "models", "model", "manager", "service",
    "handler", "handlers", "misc",
];

/// What must not be left in a file. The words are cut in two, because this file is checked as well.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ig", "nore"),
];

/// Where the schema of each store lives.
const MIGRATIONS: &str = "crates/posthaste-store/migrations/";

/// The first line says what the file is for.
pub(super) fn module_doc(path: &str, text: &str) -> Vec<Problem> {
    let has_words =
        text.strip_prefix("//! ").is_some_and(|rest| !rest.lines().next().unwrap_or("").trim().is_empty());
    if has_words {
        vec![]
    } else {
        vec![Problem::at(path, 1, "the file does not start with a `//!` module doc")]
    }
}

/// A file can be read in one sitting, unless the list of long files gives a reason why not.
pub(super) fn length(path: &str, text: &str, long_files: &[(&str, &str)]) -> Vec<Problem> {
    let lines = text.lines().count();
    if lines <= LONGEST || long_files.iter().any(|(long, _)| *long == path) {
        return vec![];
    }
    vec![Problem::at(
        path,
        LONGEST + 1,
        format!("the file has {lines} lines, more than {LONGEST}: split it by subject"),
    )]
}

/// The list of long files names only files that exist and are still long.
pub(super) fn stale_long_files<'t>(
    long_files: &[(&str, &str)],
    text: impl Fn(&str) -> Option<&'t str>,
) -> Vec<Problem> {
    let is_long = |path: &str| text(path).is_some_and(|text| text.lines().count() > LONGEST);
    let stale = long_files.iter().filter(|(path, _)| !is_long(path));
    stale.map(|(path, _)| Problem::at(path, 1, "is in LONG_FILES without need: take it out")).collect()
}

/// `foo.rs` beside `foo/`: a tab in an editor then says which module it shows.
pub(super) fn no_mod_rs(path: &str) -> Vec<Problem> {
    if path.ends_with("/mod.rs") {
        return vec![Problem::at(path, 1, "call it `foo.rs` beside `foo/`, not `foo/mod.rs`")];
    }
    vec![]
}

/// Neither the file nor a directory above it has an empty name.
pub(super) fn telling_name(path: &str) -> Vec<Problem> {
    let stems = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let empty = stems.filter(|stem| EMPTY_NAMES.contains(stem));
    empty
        .map(|stem| Problem::at(path, 1, format!("`{stem}` says nothing: name it for its subject")))
        .collect()
}

/// Unfinished work lives in an issue, and a test that is not run proves nothing.
pub(super) fn no_marks(path: &str, text: &str) -> Vec<Problem> {
    find(path, text.lines(), MARKS, "finish it, or open an issue")
}

/// Core and store never read a clock or draw a random number: `now` and `draw` are passed in. Tests are free to.
pub(super) fn rim(path: &str, text: &str) -> Vec<Problem> {
    const WALL_CLOCK_AND_CHANCE: &[&str] =
        &["SystemTime::now", "Timestamp::now", "Zoned::now", "rand::", "fastrand::", "getrandom::"];
    const MONOTONIC_CLOCK: &[&str] = &["Instant::now"];
    let core = path.starts_with("crates/posthaste-core/src/");
    let store = path.starts_with("crates/posthaste-store/src/");
    let mut problems = vec![];
    if core || store {
        problems.extend(find(
            path,
            shipped_code(text),
            WALL_CLOCK_AND_CHANCE,
            "take `now` or `draw` as an argument",
        ));
    }
    if core {
        problems.extend(find(path, shipped_code(text), MONOTONIC_CLOCK, "take `now` as an argument"));
    }
    problems
}

/// Core waits for nothing, and in the engine a sleeping thread would stop every task and ignore paused time.
pub(super) fn no_thread_sleep(path: &str, text: &str) -> Vec<Problem> {
    let checked =
        ["crates/posthaste-core/", "crates/posthaste-engine/"].iter().any(|start| path.starts_with(start));
    if !checked {
        return vec![];
    }
    find(path, text.lines(), &["thread::sleep"], "use paused time or a barrier")
}

/// In the engine no wait is left to chance: of two that are ready the first is taken, so that a simulated run can be replayed.
pub(super) fn biased(path: &str, text: &str) -> Vec<Problem> {
    if !path.starts_with("crates/posthaste-engine/") {
        return vec![];
    }
    let lines: Vec<&str> = text.lines().collect();
    let follows = |index: usize| {
        lines[index + 1..].iter().map(|line| line.trim()).find(|line| !line.starts_with("//"))
            == Some("biased;")
    };
    let random = (0..lines.len()).filter(|index| lines[*index].contains("select! {") && !follows(*index));
    random.map(|index| Problem::at(path, index + 1, "begin `select!` with `biased;`")).collect()
}

/// Each migration has its twin of the same name in the other store.
pub(super) fn twins(sqlite: &[String], postgres: &[String]) -> Vec<Problem> {
    let lonely = |of: &str, names: &[String], others: &[String]| {
        let missing: Vec<&String> = names.iter().filter(|name| !others.contains(name)).collect();
        let problem =
            |name| Problem::at(&format!("{MIGRATIONS}{of}/{name}"), 1, "has no twin in the other store");
        missing.into_iter().map(problem).collect::<Vec<_>>()
    };
    let mut problems = lonely("sqlite", sqlite, postgres);
    problems.extend(lonely("postgres", postgres, sqlite));
    problems
}

/// The lines up to the test module at the end, comments blanked, so that line numbers stay.
fn shipped_code(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..end].lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line })
}

/// Every line that holds one of the words, as a word of its own.
fn find<'t>(path: &str, lines: impl Iterator<Item = &'t str>, words: &[&str], advice: &str) -> Vec<Problem> {
    let mut problems = vec![];
    for (index, line) in lines.enumerate() {
        for word in words.iter().filter(|word| holds_word(line, word)) {
            problems.push(Problem::at(path, index + 1, format!("`{word}`: {advice}")));
        }
    }
    problems
}

/// Whether `word` occurs in `line` and is not a part of a longer name.
fn holds_word(line: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    let open_end = !word.ends_with(in_name);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(in_name) && (open_end || !after.is_some_and(in_name))
    })
}

#[test]
fn a_file_without_module_doc_is_found() {
    assert_eq!(module_doc("a.rs", "//! What it is for.\n"), []);
    for bad in ["", "use std::fmt;\n", "// A comment.\n", "//!\n", "\n//! Late.\n"] {
        assert_eq!(module_doc("a.rs", bad).len(), 1, "{bad:?}");
    }
}

#[test]
fn a_long_file_is_found_unless_it_is_listed() {
    let longest = "x\n".repeat(LONGEST);
    let longer = "x\n".repeat(LONGEST + 1);
    assert_eq!(length("a.rs", &longest, &[]), []);
    assert_eq!(length("a.rs", &longer, &[("b.rs", "a table")]).len(), 1);
    assert_eq!(length("a.rs", &longer, &[("a.rs", "a table")]), []);
    assert_eq!(stale_long_files(&[("a.rs", "a table")], |_| Some(&longer)), []);
    assert_eq!(stale_long_files(&[("a.rs", "a table")], |_| Some(&longest)).len(), 1);
    assert_eq!(stale_long_files(&[("a.rs", "a table")], |_| None).len(), 1);
}

#[test]
fn a_mod_rs_is_found() {
    assert_eq!(no_mod_rs("crates/a/src/model.rs"), []);
    assert_eq!(no_mod_rs("crates/a/src/sqlite/mod.rs").len(), 1);
}

#[test]
fn an_empty_name_is_found() {
    assert_eq!(telling_name("crates/posthaste-engine/src/model_store.rs"), []);
    assert_eq!(telling_name("crates/a/src/model.rs").len(), 1);
    assert_eq!(telling_name("crates/a/src/helpers/time.rs").len(), 1);
    for name in EMPTY_NAMES {
        assert_eq!(telling_name(&format!("crates/a/src/{name}.rs")).len(), 1, "{name}");
    }
}

#[test]
fn every_mark_is_found_in_its_line() {
    for mark in MARKS {
        let found = no_marks("a.rs", &format!("//! A file.\nlet x = 1; // {mark}\n"));
        assert_eq!(found.len(), 1, "{mark}");
        assert!(found[0].to_string().starts_with("a.rs:2: "), "{}", found[0]);
    }
    assert_eq!(no_marks("a.rs", "mastodon AXXX ntf_XXXX #[must_use]"), []);
}

#[test]
fn a_clock_or_a_draw_inside_core_or_store_is_found() {
    let bad = "//! A file.\nlet now = SystemTime::now();\nlet x = fastrand::f64();\n";
    assert_eq!(rim("crates/posthaste-core/src/a.rs", bad).len(), 2);
    assert_eq!(rim("crates/posthaste-store/src/a/b.rs", bad).len(), 2);
    assert_eq!(rim("crates/posthaste-engine/src/a.rs", bad), []);
    assert_eq!(rim("crates/posthaste-core/src/a.rs", "let at = std::time::Instant::now();").len(), 1);
    assert_eq!(rim("crates/posthaste-store/src/a.rs", "let at = std::time::Instant::now();"), []);
    let fine =
        "// Never SystemTime::now.\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    use fastrand::Rng;\n}\n";
    assert_eq!(rim("crates/posthaste-store/src/a.rs", fine), []);
}

#[test]
fn a_sleeping_thread_is_found() {
    let bad = "//! A file.\nstd::thread::sleep(second);\n";
    assert_eq!(no_thread_sleep("crates/posthaste-engine/tests/it/a.rs", bad).len(), 1);
    assert_eq!(no_thread_sleep("crates/posthaste-core/src/a.rs", bad).len(), 1);
    assert_eq!(no_thread_sleep("crates/posthaste/tests/it/a.rs", bad), []);
    assert_eq!(no_thread_sleep("crates/posthaste-engine/src/a.rs", "tokio::time::sleep(second).await;"), []);
}

#[test]
fn a_wait_that_is_left_to_chance_is_found() {
    let engine = "crates/posthaste-engine/src/a.rs";
    let (good, bad) = ("tokio::select! {\n // Why.\n biased;\n", "//! A.\ntokio::select! {\n a = b => {}\n");
    assert_eq!(biased(engine, good), []);
    assert!(biased(engine, bad)[0].to_string().starts_with("crates/posthaste-engine/src/a.rs:2: "));
    assert_eq!(biased("crates/posthaste-wire/src/a.rs", bad), []);
}

#[test]
fn a_migration_without_twin_is_found() {
    let names = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (one, two) = (names(&["0001_first.sql"]), names(&["0001_first.sql", "0002_more.sql"]));
    assert_eq!(twins(&two, &two), []);
    assert_eq!(twins(&two, &one).len(), 1);
    assert_eq!(twins(&one, &two).len(), 1);
}
