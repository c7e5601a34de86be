//! Everything that was said, merged into one table of keys, each with its origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::problem::Problem;
use super::{DEFAULTS, policies};

/// What the names of variables that are settings begin with.
const PREFIX: &str = "POSTHASTE__";

/// The largest file that is read.
const LARGEST_FILE: u64 = 1 << 20;

/// The sections whose second part is a name that the user picks.
pub(super) const OPEN: [&str; 3] = ["overrides", "policies", "providers"];

/// The parts of a key. Names may hold dots, so the parts stay apart.
pub(super) type Key = Vec<String>;

/// Who said something, from the weakest to the strongest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    BuiltIn,
    Command(String),
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl Origin {
    /// Whether everything from there is text, whatever it means.
    pub(super) const fn is_text(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Variable(_) | Self::Flag(_))
    }

    /// A complaint about what was said there.
    fn problem(&self, reason: String) -> Problem {
        Problem { place: self.to_string(), reason, is_wrong_use: matches!(self, Self::Flag(_)) }
    }

    fn is_same_layer(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => out.write_str("config.default.toml"),
            Self::Command(key) => write!(out, "the command's own {key}"),
            Self::File(path) => write!(out, "{}", path.display()),
            Self::Variable(name) => write!(out, "variable {name}"),
            Self::Flag(key) => write!(out, "flag for {key}"),
        }
    }
}

/// A value and who said it.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl Given {
    /// A complaint about the key that this was said for.
    pub(super) fn problem(&self, reason: String) -> Problem {
        self.origin.problem(reason)
    }
}

/// The table of keys. Tables of the configuration are taken apart; only an empty one is a value.
#[derive(Debug)]
pub(super) struct Layers {
    /// What is built in, to compare with.
    pub(super) built_in: BTreeMap<Key, Given>,
    /// The strongest word on each key.
    pub(super) given: BTreeMap<Key, Given>,
}

impl Layers {
    /// What is built in and nothing else.
    pub(super) fn built_in() -> Self {
        let table: toml::Table = DEFAULTS.parse().expect("the built-in settings are TOML; a test reads them");
        let mut layers = Self { built_in: BTreeMap::new(), given: BTreeMap::new() };
        layers.add_table(&mut Vec::new(), table, &Origin::BuiltIn, &mut Vec::new());
        layers.built_in = layers.given.clone();
        layers
    }

    /// Adds a file that has to be there.
    pub(super) fn add_file(&mut self, path: &Path, problems: &mut Vec<Problem>) {
        let origin = Origin::File(path.to_owned());
        let mut bad = |reason| problems.push(origin.problem(reason));
        let text = match read_file(path) {
            Ok(text) => text,
            Err(reason) => return bad(reason),
        };
        match text.parse::<toml::Table>() {
            Ok(table) => self.add_table(&mut Vec::new(), table, &origin, problems),
            // The parser's own text quotes the line, which may hold a secret.
            Err(error) => {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                let line = before.matches('\n').count() + 1;
                bad(format!("line {line} is not TOML: {}", error.message().replace('\n', ", ")));
            }
        }
    }

    /// Adds the variables that are settings.
    pub(super) fn add_variables(&mut self, variables: &[(OsString, OsString)], problems: &mut Vec<Problem>) {
        let is_setting =
            |(name, _): &&(OsString, OsString)| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // The order of an environment is chance; the order of complaints should not be.
        let mut settings: Vec<_> = variables.iter().filter(is_setting).collect();
        settings.sort();
        for (name, text) in settings {
            let origin = Origin::Variable(name.to_string_lossy().into_owned());
            let (Some(name), Some(text)) = (name.to_str(), text.to_str()) else {
                problems.push(origin.problem("it is not UTF-8 text".to_owned()));
                continue;
            };
            let parts = name[PREFIX.len()..].split("__").map(str::to_owned).collect();
            let path = self.in_our_case(parts);
            let given = Given { value: text.into(), origin };
            self.put(path, given, problems);
        }
    }

    /// Adds what the command does by itself.
    pub(super) fn add_own(&mut self, own: &[(String, String)], problems: &mut Vec<Problem>) {
        self.add_keys(own, Origin::Command, problems);
    }

    /// Adds what the command line says.
    pub(super) fn add_flags(&mut self, flags: &[(String, String)], problems: &mut Vec<Problem>) {
        self.add_keys(flags, Origin::Flag, problems);
    }

    fn add_keys(
        &mut self,
        keys: &[(String, String)],
        origin: fn(String) -> Origin,
        problems: &mut Vec<Problem>,
    ) {
        for (key, text) in keys {
            let path = key.split('.').map(str::to_owned).collect();
            let given = Given { value: text.clone().into(), origin: origin(key.clone()) };
            self.put(path, given, problems);
        }
    }

    fn add_table(
        &mut self,
        path: &mut Key,
        table: toml::Table,
        origin: &Origin,
        problems: &mut Vec<Problem>,
    ) {
        for (key, value) in table {
            path.push(key);
            match value {
                toml::Value::Table(inner) if !inner.is_empty() => {
                    self.add_table(path, inner, origin, problems);
                }
                value => {
                    self.put(path.clone(), Given { value: json(value), origin: origin.clone() }, problems)
                }
            }
            path.pop();
        }
    }

    /// Puts a value over what weaker layers said about the same thing.
    fn put(&mut self, path: Key, given: Given, problems: &mut Vec<Problem>) {
        let path = policies::in_one_spelling(path);
        // An empty table only opens a section; it takes nothing back.
        let is_inside = |known: &Key| known.len() > path.len() && known.starts_with(&path);
        if is_empty_table(&given.value) && self.given.keys().any(is_inside) {
            return;
        }
        let clashes = |known: &Key| known.starts_with(&path) || path.starts_with(known);
        let mut said = self.given.iter().filter(|(_, other)| other.origin.is_same_layer(&given.origin));
        if let Some((_, twin)) = said.find(|(known, _)| clashes(known)) {
            let reason = format!("{} is given twice, also by {}", shown(&path), twin.origin);
            problems.push(given.problem(reason));
            return;
        }
        self.given
            .retain(|other, weaker| weaker.origin.is_same_layer(&given.origin) || !replaces(&path, other));
        self.given.insert(path, given);
    }

    /// The parts of a variable's name as the file would spell them. Names that the user picks keep the case that
    /// they have elsewhere.
    fn in_our_case(&self, mut parts: Key) -> Key {
        for at in 0..parts.len() {
            let lower = parts[at].to_lowercase();
            if at != 1 || !OPEN.contains(&parts[0].as_str()) {
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

/// A key as a person writes it.
pub(super) fn shown(path: &[String]) -> String {
    let is_bare = |part: &String| part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let quoted =
        |part: &String| if is_bare(part) && !part.is_empty() { part.clone() } else { format!("\"{part}\"") };
    let parts: Vec<String> = path.iter().map(quoted).collect();
    parts.join(".").chars().take(200).collect()
}

pub(super) fn is_empty_table(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

/// Whether a word on `path` makes a weaker one on `other` void: the same key, one inside the other, or another way
/// to say the same.
fn replaces(path: &[String], other: &[String]) -> bool {
    path.starts_with(other) || other.starts_with(path) || policies::says_the_same(path, other)
}

fn read_file(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("the file cannot be read: {error}");
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > LARGEST_FILE {
        return Err(format!("the file has {size} bytes; a configuration has at most {LARGEST_FILE}"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        // What JSON has no number for becomes text, so that the complaint can show it.
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(list) => list.into_iter().map(json).collect(),
        toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, json(value))).collect(),
    }
}
