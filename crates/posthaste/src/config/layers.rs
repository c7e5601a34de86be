//! All sources merged into one table of keys, each with its origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::problem::ConfigProblem;
use super::{DEFAULTS, policies};

/// The prefix of variables that are settings.
const PREFIX: &str = "POSTHASTE__";

/// A variable with a name of its own.
const MASTER_KEY: &str = "POSTHASTE_MASTER_KEY";

/// In bytes.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The sections whose keys contain a name chosen by the user.
pub(super) const NAMED_SECTIONS: [&str; 4] = ["destinations", "overrides", "policies", "providers"];

/// The parts of a key. They are not joined, because names may contain dots.
pub(super) type Key = Vec<String>;

/// The source of a value, from the weakest to the strongest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    BuiltIn,
    Command(String),
    File(PathBuf),
    /// A variable of a system that Posthaste replaces. Its values have types.
    ForeignVariable(String),
    Variable(String),
    Flag(String),
}

impl Origin {
    /// Whether all values of this source are text.
    pub(super) const fn is_text(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Variable(_) | Self::Flag(_))
    }

    /// An error about a value of this source.
    pub(super) fn problem(&self, reason: String) -> ConfigProblem {
        ConfigProblem { source: self.to_string(), reason, is_wrong_use: matches!(self, Self::Flag(_)) }
    }

    fn is_same_source(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => out.write_str("config.default.toml"),
            Self::Command(key) => write!(out, "the command's default for {key}"),
            Self::File(path) => write!(out, "{}", path.display()),
            Self::ForeignVariable(name) | Self::Variable(name) => write!(out, "variable {name}"),
            Self::Flag(key) => write!(out, "flag for {key}"),
        }
    }
}

/// A value and its source.
#[derive(Debug, Clone)]
pub(super) struct ConfigValue {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl ConfigValue {
    /// An error about this value.
    pub(super) fn problem(&self, reason: String) -> ConfigProblem {
        self.origin.problem(reason)
    }
}

/// The table of keys. TOML tables are flattened; only an empty table is a value.
#[derive(Debug)]
pub(super) struct Layers {
    /// The defaults, for comparison.
    pub(super) built_in: BTreeMap<Key, ConfigValue>,
    /// The value of the strongest source for each key.
    pub(super) given: BTreeMap<Key, ConfigValue>,
}

impl Layers {
    /// Only the defaults.
    pub(super) fn built_in() -> Self {
        let table: toml::Table = DEFAULTS.parse().expect("the built-in settings are TOML; a test reads them");
        let mut layers = Self { built_in: BTreeMap::new(), given: BTreeMap::new() };
        layers.add_table(&mut Vec::new(), table, &Origin::BuiltIn, &mut Vec::new());
        layers.built_in = layers.given.clone();
        layers
    }

    /// Adds a file, which must exist.
    pub(super) fn add_file(&mut self, path: &Path, problems: &mut Vec<ConfigProblem>) {
        let origin = Origin::File(path.to_owned());
        let mut bad = |reason| problems.push(origin.problem(reason));
        let text = match read_file(path) {
            Ok(text) => text,
            Err(reason) => return bad(reason),
        };
        match text.parse::<toml::Table>() {
            Ok(table) => self.add_table(&mut Vec::new(), table, &origin, problems),
            // The parser's error quotes the line, which may hold a secret.
            Err(error) => {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                let line = before.matches('\n').count() + 1;
                bad(format!("line {line} is not TOML: {}", error.message().replace('\n', ", ")));
            }
        }
    }

    pub(super) fn add_variables(
        &mut self,
        variables: &[(OsString, OsString)],
        problems: &mut Vec<ConfigProblem>,
    ) {
        let is_setting = |(name, text): &&(OsString, OsString)| {
            name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) || (name == MASTER_KEY && !text.is_empty())
        };
        // The order of an environment is arbitrary. The order of errors should not be.
        let mut settings: Vec<_> = variables.iter().filter(is_setting).collect();
        settings.sort();
        for (name, text) in settings {
            let origin = Origin::Variable(name.to_string_lossy().into_owned());
            let (Some(name), Some(text)) = (name.to_str(), text.to_str()) else {
                problems.push(origin.problem("it is not UTF-8 text".to_owned()));
                continue;
            };
            let name = if name == MASTER_KEY { "POSTHASTE__SECURITY__MASTER_KEY" } else { name };
            let parts = name[PREFIX.len()..].split("__").map(str::to_owned).collect();
            let path = self.in_file_case(parts);
            let given = ConfigValue { value: text.into(), origin };
            self.put(path, given, problems);
        }
    }

    /// Adds the defaults of the command.
    pub(super) fn add_command_defaults(
        &mut self,
        own: &[(String, String)],
        problems: &mut Vec<ConfigProblem>,
    ) {
        self.add_keys(own, Origin::Command, problems);
    }

    pub(super) fn add_flags(&mut self, flags: &[(String, String)], problems: &mut Vec<ConfigProblem>) {
        self.add_keys(flags, Origin::Flag, problems);
    }

    fn add_keys(
        &mut self,
        keys: &[(String, String)],
        origin: fn(String) -> Origin,
        problems: &mut Vec<ConfigProblem>,
    ) {
        for (key, text) in keys {
            let path = key.split('.').map(str::to_owned).collect();
            let given = ConfigValue { value: text.clone().into(), origin: origin(key.clone()) };
            self.put(path, given, problems);
        }
    }

    fn add_table(
        &mut self,
        path: &mut Key,
        table: toml::Table,
        origin: &Origin,
        problems: &mut Vec<ConfigProblem>,
    ) {
        for (key, value) in table {
            path.push(key);
            match value {
                toml::Value::Table(inner) if !inner.is_empty() => {
                    self.add_table(path, inner, origin, problems);
                }
                value => self.put(
                    path.clone(),
                    ConfigValue { value: json(value), origin: origin.clone() },
                    problems,
                ),
            }
            path.pop();
        }
    }

    /// Sets a value, and removes the values of weaker sources that it replaces.
    pub(super) fn put(&mut self, path: Key, given: ConfigValue, problems: &mut Vec<ConfigProblem>) {
        let path = policies::normalized(path);
        // An empty table only opens a section. It removes nothing.
        let is_inside = |known: &Key| known.len() > path.len() && known.starts_with(&path);
        if is_empty_table(&given.value) && self.given.keys().any(is_inside) {
            return;
        }
        let clashes = |known: &Key| known.starts_with(&path) || path.starts_with(known);
        let mut same_source =
            self.given.iter().filter(|(_, other)| other.origin.is_same_source(&given.origin));
        if let Some((_, twin)) = same_source.find(|(known, _)| clashes(known)) {
            let reason = format!("{} is given twice, also by {}", dotted(&path), twin.origin);
            problems.push(given.problem(reason));
            return;
        }
        self.given
            .retain(|other, weaker| weaker.origin.is_same_source(&given.origin) || !replaces(&path, other));
        self.given.insert(path, given);
    }

    /// Converts the name of a variable to the spelling of the file. Names chosen by the user keep the case
    /// that they have in other sources.
    fn in_file_case(&self, mut parts: Key) -> Key {
        for at in 0..parts.len() {
            let lower = parts[at].to_lowercase();
            if at != 1 || !NAMED_SECTIONS.contains(&parts[0].as_str()) {
                parts[at] = lower;
                continue;
            }
            let known = self.given.keys().filter(|path| path.len() > 1 && path[0] == parts[0]);
            let known = known.map(|path| &path[1]).find(|name| name.to_lowercase() == lower);
            parts[at] = match (known, parts[at].split_once(':')) {
                (Some(name), _) => name.clone(),
                (None, Some((kind, name))) => format!("{}:{name}", kind.to_lowercase()),
                (None, None) => lower,
            };
        }
        parts
    }
}

/// A key in TOML syntax, for errors.
pub(super) fn dotted(path: &[String]) -> String {
    let is_bare = |part: &String| part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let quoted =
        |part: &String| if is_bare(part) && !part.is_empty() { part.clone() } else { format!("\"{part}\"") };
    let parts: Vec<String> = path.iter().map(quoted).collect();
    parts.join(".").chars().take(200).collect()
}

pub(super) fn is_empty_table(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

/// Whether a value at `path` replaces a weaker one at `other`: the same key, one inside the other, or an
/// alias.
fn replaces(path: &[String], other: &[String]) -> bool {
    path.starts_with(other) || other.starts_with(path) || policies::is_alias(path, other)
}

fn read_file(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("the file cannot be read: {error}");
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_SIZE {
        return Err(format!("the file has {size} bytes; the limit is {MAX_FILE_SIZE}"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        // Infinity and NaN become text, so that the error can show them.
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(json).collect(),
        toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, json(value))).collect(),
    }
}
