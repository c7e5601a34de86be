//! Reads the table of keys into the checked configuration. A key is known because something here asks for it.

use std::collections::BTreeSet;

use super::layers::{Given, Key, Layers, OPEN, is_empty_table, shown};
use super::nearest::nearest;
use super::problem::Problem;
use super::values::{self, Read};
use super::{Config, policies, providers, sections};

/// Reads everything. With problems, what comes back is not for use.
pub(super) fn config(layers: &Layers, problems: &mut Vec<Problem>) -> Config {
    let mut reader = Reader::new(layers);
    let mut config = sections::read(&mut reader);
    reader.refuse_unknown();
    policies::read(layers, &mut config, &mut reader);
    config.overrides = policies::overrides(layers, &mut reader);
    config.providers = providers::read(layers, &mut reader);
    config.warnings = reader.warnings;
    problems.append(&mut reader.problems);
    config
}

/// Reads one key after another and remembers which.
pub(super) struct Reader<'a> {
    layers: &'a Layers,
    known: BTreeSet<Key>,
    idle: Option<&'static str>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(layers: &'a Layers) -> Self {
        Self { layers, known: BTreeSet::new(), idle: None, problems: Vec::new(), warnings: Vec::new() }
    }

    /// From here on, keys that are set have no effect, for this reason; none ends that.
    pub(super) const fn idle(&mut self, why: Option<&'static str>) {
        self.idle = why;
    }

    /// Reads the value at a dotted key. A value that cannot be used is a problem, and the built-in one stands in.
    pub(super) fn read<T: PartialEq>(&mut self, key: &str, read: impl Fn(&Given) -> Read<T>) -> T {
        let path: Key = key.split('.').map(str::to_owned).collect();
        let built_in = self.layers.built_in.get(&path).expect("a test reads every key of the default file");
        let default = read(built_in).expect("the built-in values are good; a test reads them");
        let given = self.layers.given.get(&path).unwrap_or(built_in);
        self.known.insert(path);
        match read(given) {
            Ok(value) => {
                if let Some(why) = self.idle.filter(|_| value != default) {
                    self.without_effect(given, key, why);
                }
                value
            }
            Err(reason) => {
                self.complain(given, key, &reason);
                default
            }
        }
    }

    /// Notes what is wrong with the value of a key.
    pub(super) fn complain(&mut self, given: &Given, key: &str, reason: &str) {
        let problem = given.problem(format!("{key} {reason}"));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// The same, where the key is known by its dotted name only.
    pub(super) fn complain_about(&mut self, key: &str, reason: &str) {
        let path: Key = key.split('.').map(str::to_owned).collect();
        let given = self.layers.given.get(&path).or_else(|| self.layers.built_in.get(&path));
        self.complain(given.expect("only known keys are compared"), key, reason);
    }

    /// Notes that something was set for nothing.
    pub(super) fn without_effect(&mut self, given: &Given, key: &str, why: &str) {
        let warning = format!("{}: {key} has no effect: {why}", given.origin);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Complains about every key that nobody asked for.
    fn refuse_unknown(&mut self) {
        let layers = self.layers;
        for (path, given) in &layers.given {
            let is_open = path.len() > 1 && OPEN.contains(&path[0].as_str());
            if !is_open && !self.known.contains(path) {
                self.refuse(path, given);
            }
        }
    }

    fn refuse(&mut self, path: &Key, given: &Given) {
        let is_section = self.known.iter().any(|known| known.starts_with(path))
            || (path.len() == 1 && OPEN.contains(&path[0].as_str()));
        if is_section {
            if !is_empty_table(&given.value) {
                self.complain(given, &shown(path), values::SECTION);
            }
            return;
        }
        if let Some(known) = self.known.iter().find(|known| path.starts_with(known)) {
            let known = shown(known);
            return self.complain(given, &known, "must be a value, not a section");
        }
        let depth = (0..path.len()).rev().find(|depth| self.has_under(&path[..*depth])).unwrap_or(0);
        let reason = unknown(&path[depth], &self.names_under(&path[..depth]), self.elsewhere(&path[depth]));
        self.complain(given, &shown(&path[..=depth]), &reason);
    }

    fn has_under(&self, parent: &[String]) -> bool {
        self.known.iter().any(|known| known.starts_with(parent))
    }

    /// What may stand under a section, or at the top.
    fn names_under(&self, parent: &[String]) -> Vec<&str> {
        let under = self.known.iter().filter(|known| known.starts_with(parent));
        let mut names: Vec<&str> = under.map(|known| known[parent.len()].as_str()).collect();
        if parent.is_empty() {
            names.extend(OPEN);
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The key of that name in another section, if there is only one.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let mut found = self.known.iter().filter(|known| known.last().is_some_and(|last| last == name));
        found.next().filter(|_| found.next().is_none()).map(|known| shown(known))
    }
}

/// Why a name is refused, and what may have been meant.
pub(super) fn unknown(name: &str, candidates: &[&str], elsewhere: Option<String>) -> String {
    let meant = nearest(name, candidates.iter().copied()).map(str::to_owned).or(elsewhere);
    match meant {
        Some(meant) => format!("is unknown; did you mean `{meant}`?"),
        None => format!("is unknown; known here: {}", candidates.join(", ")),
    }
}
