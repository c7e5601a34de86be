//! Reads the table of keys into the checked configuration. The known keys are those that are read here.

use std::collections::BTreeSet;

use super::client_certificates::CertificateSource;
use super::layers::{ConfigValue, Key, Layers, NAMED_SECTIONS, dotted, is_empty_table};
use super::named::Secret;
use super::nearest::nearest;
use super::problem::ConfigProblem;
use super::values::{self, Read};
use super::{Config, destinations, policies, providers, sections, settings};

/// Reads everything. The result must not be used if there are problems.
pub(super) fn config(layers: &Layers, problems: &mut Vec<ConfigProblem>) -> Config {
    let mut reader = ConfigReader::new(layers);
    let mut config = sections::read(&mut reader);
    reader.refuse_unknown();
    config.providers = providers::read(layers, &mut reader);
    let destinations = destinations::read(layers, &config.providers, &mut reader);
    (config.destinations, config.client_certificates) = (destinations.limits, destinations.certificates);
    policies::read(layers, &mut config, &mut reader);
    config.overrides = policies::overrides(layers, &config.pools(), &mut reader);
    config.settings = settings::of(layers, &reader.secrets);
    config.secret_files = settings::secret_files(layers, &reader.secrets);
    let keys = config.client_certificates.values().filter_map(CertificateSource::key_file);
    config.secret_files.extend(keys);
    config.warnings = reader.warnings;
    problems.append(&mut reader.problems);
    config
}

/// Reads single keys and remembers which.
pub(super) struct ConfigReader<'a> {
    layers: &'a Layers,
    known: BTreeSet<Key>,
    /// The keys whose values are never shown.
    secrets: BTreeSet<Key>,
    without_effect_from_here: Option<&'static str>,
    problems: Vec<ConfigProblem>,
    warnings: Vec<String>,
}

impl<'a> ConfigReader<'a> {
    fn new(layers: &'a Layers) -> Self {
        Self {
            layers,
            known: BTreeSet::new(),
            secrets: BTreeSet::new(),
            without_effect_from_here: None,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Until the next call, keys that are set have no effect, for this reason.
    pub(super) const fn without_effect_from_here(&mut self, why: Option<&'static str>) {
        self.without_effect_from_here = why;
    }

    /// Reads the value at a dotted key. A wrong value is reported, and the default is returned.
    pub(super) fn read<T: PartialEq>(&mut self, key: &str, read: impl Fn(&ConfigValue) -> Read<T>) -> T {
        let path: Key = key.split('.').map(str::to_owned).collect();
        let built_in = self.layers.built_in.get(&path).expect("a test reads every key of the default file");
        let default = read(built_in).expect("the built-in values are good; a test reads them");
        let given = self.layers.given.get(&path).unwrap_or(built_in);
        self.known.insert(path);
        match read(given) {
            Ok(value) => {
                if let Some(why) = self.without_effect_from_here.filter(|_| value != default) {
                    self.without_effect(given, key, why);
                }
                value
            }
            Err(reason) => {
                self.report_value(given, key, &reason);
                default
            }
        }
    }

    /// Reads a secret at a dotted key.
    pub(super) fn secret(&mut self, key: &str) -> Option<Secret> {
        self.hide(key.split('.').map(str::to_owned).collect());
        self.read(key, values::secret)
    }

    /// The value at this key is never shown.
    pub(super) fn hide(&mut self, path: Key) {
        self.secrets.insert(path);
    }

    /// Reports a wrong value.
    pub(super) fn report_value(&mut self, given: &ConfigValue, key: &str, reason: &str) {
        let problem = given.problem(format!("{key} {reason}"));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Reports the value at a dotted key.
    pub(super) fn report_key(&mut self, key: &str, reason: &str) {
        let path: Key = key.split('.').map(str::to_owned).collect();
        let given = self.layers.given.get(&path).or_else(|| self.layers.built_in.get(&path));
        self.report_value(given.expect("only known keys are compared"), key, reason);
    }

    /// Reports that a key is missing, in the place of the key that needs it.
    pub(super) fn report_missing(&mut self, key: &str, needed_by: &str, reason: &str) {
        let path: Key = needed_by.split('.').map(str::to_owned).collect();
        let given = self.layers.given.get(&path).expect("only a key that is set needs another one");
        self.report_value(given, key, reason);
    }

    /// Reports a setting without effect.
    pub(super) fn without_effect(&mut self, given: &ConfigValue, key: &str, why: &str) {
        let warning = format!("{}: {key} has no effect: {why}", given.origin);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Reports all keys that were not read.
    fn refuse_unknown(&mut self) {
        let layers = self.layers;
        for (path, given) in &layers.given {
            let is_open = path.len() > 1 && NAMED_SECTIONS.contains(&path[0].as_str());
            if !is_open && !self.known.contains(path) {
                self.refuse(path, given);
            }
        }
    }

    fn refuse(&mut self, path: &Key, given: &ConfigValue) {
        let is_section = self.known.iter().any(|known| known.starts_with(path))
            || (path.len() == 1 && NAMED_SECTIONS.contains(&path[0].as_str()));
        if is_section {
            if !is_empty_table(&given.value) {
                self.report_value(given, &dotted(path), values::SECTION);
            }
            return;
        }
        if let Some(known) = self.known.iter().find(|known| path.starts_with(known)) {
            let known = dotted(known);
            return self.report_value(given, &known, "must be a value, not a section");
        }
        let depth = (0..path.len()).rev().find(|depth| self.has_under(&path[..*depth])).unwrap_or(0);
        let reason = unknown(&path[depth], &self.names_under(&path[..depth]), self.elsewhere(&path[depth]));
        self.report_value(given, &dotted(&path[..=depth]), &reason);
    }

    fn has_under(&self, parent: &[String]) -> bool {
        self.known.iter().any(|known| known.starts_with(parent))
    }

    /// The names allowed in a section, or at the top.
    fn names_under(&self, parent: &[String]) -> Vec<&str> {
        let under = self.known.iter().filter(|known| known.starts_with(parent));
        let mut names: Vec<&str> = under.map(|known| known[parent.len()].as_str()).collect();
        if parent.is_empty() {
            names.extend(NAMED_SECTIONS);
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The key with this name in another section, if there is exactly one.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let mut found = self.known.iter().filter(|known| known.last().is_some_and(|last| last == name));
        found.next().filter(|_| found.next().is_none()).map(|known| dotted(known))
    }
}

/// The error text for an unknown name, with a suggestion.
pub(super) fn unknown(name: &str, candidates: &[&str], elsewhere: Option<String>) -> String {
    let meant = nearest(name, candidates.iter().copied()).map(str::to_owned).or(elsewhere);
    match meant {
        Some(meant) => format!("is unknown; did you mean `{meant}`?"),
        None => format!("is unknown; the known names are {}", candidates.join(", ")),
    }
}
