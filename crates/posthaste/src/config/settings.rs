//! Every setting with its value and where it came from, for people. Secrets are masked.

use std::collections::BTreeSet;
use std::path::PathBuf;

use posthaste_store::postgres::without_password;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::layers::{ConfigValue, Key, Layers, Origin, dotted, is_empty_table};
use super::secret_text::secret_file;
use super::values;

/// What stands for a secret.
const MASK: &str = "***";

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Dotted, as in the file.
    pub key: String,
    pub value: Value,
    pub source: SettingSource,
    /// The path of the file, or the name of the variable or flag.
    pub place: Option<String>,
}

/// The kind of source that a setting came from, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SettingSource {
    /// Nothing sets it.
    BuiltIn,
    /// The command, such as `posthaste dev`.
    Command,
    File,
    Variable,
    Flag,
}

impl SettingSource {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Command => "the command",
            Self::File => "file",
            Self::Variable => "variable",
            Self::Flag => "flag",
        }
    }
}

/// All settings, sorted by key. `secrets` are the keys whose values are never shown.
pub(super) fn of(layers: &Layers, secrets: &BTreeSet<Key>) -> Vec<Setting> {
    let given = layers.given.iter().filter(|(_, given)| !is_empty_table(&given.value));
    given.map(|(key, given)| one(layers, key, given, secrets.contains(key))).collect()
}

/// The files that secrets stand in.
pub(super) fn secret_files(layers: &Layers, secrets: &BTreeSet<Key>) -> Vec<PathBuf> {
    let store = ["store", "url"].map(str::to_owned);
    let given = layers.given.iter().filter(|(key, _)| secrets.contains(*key) || key[..] == store);
    given.filter_map(|(_, given)| secret_file(given.value.as_str()?)).collect()
}

fn one(layers: &Layers, key: &Key, given: &ConfigValue, is_secret: bool) -> Setting {
    let (source, place) = source(&given.origin);
    let value = if is_secret {
        secret(&given.value)
    } else {
        let like = layers.built_in.get(key).map(|built_in| &built_in.value);
        harmless(typed(given, like), key == &["store", "url"])
    };
    Setting { key: dotted(key), value, source, place }
}

fn source(origin: &Origin) -> (SettingSource, Option<String>) {
    match origin {
        Origin::BuiltIn => (SettingSource::BuiltIn, None),
        Origin::Command(_) => (SettingSource::Command, None),
        Origin::File(path) => {
            let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            (SettingSource::File, Some(whole.display().to_string()))
        }
        Origin::ForeignVariable(name) | Origin::Variable(name) => {
            (SettingSource::Variable, Some(name.clone()))
        }
        Origin::Flag(key) => (SettingSource::Flag, Some(key.clone())),
    }
}

/// A secret is masked. Where it stands (`env:NAME`, `file:PATH`) is no secret.
fn secret(value: &Value) -> Value {
    match value.as_str() {
        Some(text) if text.is_empty() || text.starts_with("env:") || text.starts_with("file:") => text.into(),
        _ => MASK.into(),
    }
}

/// The text of a variable or a flag in the type of the built-in value.
fn typed(given: &ConfigValue, like: Option<&Value>) -> Value {
    let (Some(text), true) = (given.value.as_str(), given.origin.is_text()) else {
        return given.value.clone();
    };
    match like {
        Some(Value::Number(_) | Value::Bool(_)) => {
            text.trim().to_lowercase().parse().unwrap_or_else(|_| text.into())
        }
        Some(Value::Array(_)) => values::split(text).map(Value::from).collect(),
        Some(Value::String(_) | Value::Null | Value::Object(_)) | None => text.into(),
    }
}

/// Without what a URL may hold besides an address: a password, for the store, else all that stands before the `@`.
fn harmless(value: Value, is_store: bool) -> Value {
    match value {
        Value::String(text) if is_store => without_password(&text).into(),
        Value::String(text) => without_user(text).into(),
        Value::Array(list) => list.into_iter().map(|one| harmless(one, is_store)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, one)| (name, harmless(one, is_store))).collect()
        }
        value @ (Value::Null | Value::Bool(_) | Value::Number(_)) => value,
    }
}

pub(super) fn without_user(mut text: String) -> String {
    let Some(start) = text.find("://").map(|at| at + 3) else { return text };
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    if let Some(at) = text[start..end].rfind('@') {
        text.replace_range(start..start + at, MASK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_masked_and_where_it_stands_is_not() {
        for (given, shown) in [
            (json!("hunter2"), "***"),
            (json!(""), ""),
            (json!("env:TOKEN"), "env:TOKEN"),
            (json!("file:/run/secret"), "file:/run/secret"),
            (json!(["hunter2"]), "***"),
            (json!(7), "***"),
        ] {
            assert_eq!(secret(&given), shown);
        }
    }

    #[test]
    fn what_stands_before_the_host_of_a_url_is_not_shown() {
        for (given, shown) in [
            ("https://u:hunter2@h/p@q", "https://***@h/p@q"),
            ("https://hunter2@h", "https://***@h"),
            ("https://h/p?x=a@b", "https://h/p?x=a@b"),
            ("Posthaste <no-reply@example.com>", "Posthaste <no-reply@example.com>"),
        ] {
            assert_eq!(harmless(json!([given]), false), json!([shown]));
        }
        let store = harmless(json!("postgres://u:hunter2@h/d?password=hunter2"), true);
        assert_eq!(store, "postgres://u:***@h/d?password=***");
    }
}
