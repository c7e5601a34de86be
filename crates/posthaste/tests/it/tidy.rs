//! The house rules that a machine can check, over every file of this repository.
//!
//! Each rule is a pure function over (path, text) in one of the modules below, where a bad sample shows that it can
//! fail. Here the rules meet the real files.

mod crates;
mod docs;
mod manifest;
mod source;
mod tables;
mod tree;

use tree::{Problem, Tree};

/// Files that may be longer than `source::LONGEST`: tables and SQL, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

#[test]
fn every_file_starts_with_a_module_doc() {
    each(Tree::read().ending("crates/", ".rs"), source::module_doc);
}

#[test]
fn no_file_is_too_long() {
    let tree = Tree::read();
    let long = |path: &str, text: &str| source::length(path, text, LONG_FILES);
    each(tree.ending("crates/", ".rs"), long);
    each(tree.ending("crates/", ".sql"), long);
    none(source::stale_long_files(LONG_FILES, |path| tree.text(path)));
}

#[test]
fn no_file_is_called_mod_rs() {
    each(Tree::read().ending("crates/", ".rs"), |path, _| source::no_mod_rs(path));
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    each(Tree::read().ending("crates/", ".rs"), |path, _| source::telling_name(path));
}

#[test]
fn nothing_is_marked_as_unfinished_or_ignored() {
    let tree = Tree::read();
    each(tree.ending("crates/", ".rs"), source::no_marks);
    each(tree.ending("crates/", ".sql"), source::no_marks);
}

#[test]
fn time_and_chance_enter_at_the_rim() {
    each(Tree::read().ending("crates/", ".rs"), source::rim);
}

#[test]
fn core_and_engine_never_block_a_thread() {
    each(Tree::read().ending("crates/", ".rs"), source::no_thread_sleep);
}

#[test]
fn the_engine_leaves_no_wait_to_chance() {
    each(Tree::read().ending("crates/", ".rs"), source::biased);
}

#[test]
fn dependency_arrows_point_one_way() {
    each(Tree::read().ending("crates/", "/Cargo.toml"), manifest::arrows);
}

#[test]
fn no_crate_uses_what_its_room_forbids() {
    each(Tree::read().ending("crates/", "/Cargo.toml"), manifest::bans);
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    each(Tree::read().ending("crates/", "/Cargo.toml"), manifest::lints);
}

#[test]
fn there_are_five_crates_at_most() {
    let tree = Tree::read();
    none(manifest::ceiling(tree.ending("crates/", "/Cargo.toml").map(|(path, _)| path)));
}

/// Both stores hold the same facts and are compared by one conformance suite, so a schema change comes as a pair: the
/// same file name in both directories. Until the PostgreSQL store exists there is nothing to pair.
#[test]
fn migrations_come_in_pairs() {
    let tree = Tree::read();
    let names = |of: &str| tree.names_in(&format!("crates/posthaste-store/migrations/{of}/"));
    let postgres = names("postgres");
    if !postgres.is_empty() {
        none(source::twins(&names("sqlite"), &postgres));
    }
}

#[test]
fn decisions_are_numbered_without_gaps_and_listed() {
    let tree = Tree::read();
    let pages: Vec<String> =
        tree.names_in("docs/adr/").into_iter().filter(|name| name != "README.md").collect();
    let list = tree.text("docs/adr/README.md").expect("docs/adr/README.md lists the decisions");
    none(docs::adr_numbers(&pages));
    none(docs::adr_listed(&pages, list));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let tree = Tree::read();
    each(tree.ending("", ".md"), |path, text| docs::dead_links(path, text, |target| tree.holds(target)));
}

/// Applies a check to each file and fails with everything it found.
fn each<'t>(files: impl Iterator<Item = (&'t str, &'t str)>, check: impl Fn(&str, &str) -> Vec<Problem>) {
    none(files.flat_map(|(path, text)| check(path, text)).collect());
}

/// Fails with one line a problem.
fn none(problems: Vec<Problem>) {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}
