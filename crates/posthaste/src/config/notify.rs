//! S3's variables (`NOTIFY_MAX_RETRIES` and three more) as the policy of the scope `global`.
//!
//! One of them that is set brings the whole policy, with S3's defaults for those that are not. Other variables whose
//! names begin with `NOTIFY_` belong to other programs, such as systemd's `NOTIFY_SOCKET`.

use std::ffi::OsString;

use posthaste_core::fields::BadField;
use posthaste_core::import::{self, Imported, NOTIFY_VARIABLES};
use serde_json::{Map, Value};

use super::layers::{ConfigValue, Key, Layers, Origin};
use super::nearest::nearest;
use super::problem::ConfigProblem;

/// The place of a field that no variable sets.
const ALL: &str = "NOTIFY_*";

/// What came of the variables.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// For the log, if one of them is set.
    pub(super) notice: Option<String>,
    pub(super) warnings: Vec<String>,
}

/// Adds the policy that the variables set; empty ones count as not set.
pub(super) fn add(
    layers: &mut Layers,
    variables: &[(OsString, OsString)],
    problems: &mut Vec<ConfigProblem>,
) -> Taken {
    let mut set = Map::new();
    for (name, text) in variables.iter().filter(|(_, text)| !text.is_empty()) {
        let Some(name) = NOTIFY_VARIABLES.into_iter().find(|known| name.to_str() == Some(known)) else {
            continue;
        };
        match text.to_str() {
            Some(text) => drop(set.insert(name.to_owned(), text.into())),
            None => problems.push(origin(name).problem("it is not UTF-8 text".to_owned())),
        }
    }
    let warnings = misspelled(variables);
    if set.is_empty() {
        return Taken { notice: None, warnings };
    }
    let names: Vec<String> = set.keys().cloned().collect();
    match import::import_json(&Value::Object(set)) {
        Err(BadField { field, reason }) => {
            problems.push(origin(&field).problem(reason));
            Taken { notice: None, warnings }
        }
        Ok(imported) => {
            put(layers, &imported, &names, problems);
            let policy = serde_json::to_string(&imported.policy).unwrap_or_default();
            let notice = format!("the policy of the scope global is set by {}: {policy}", names.join(", "));
            Taken { notice: Some(notice), warnings }
        }
    }
}

fn put(layers: &mut Layers, imported: &Imported, set: &[String], problems: &mut Vec<ConfigProblem>) {
    let Ok(Value::Object(fields)) = serde_json::to_value(&imported.policy) else { return };
    for (field, value) in fields {
        let variable = match field.as_str() {
            "maxAttempts" => "NOTIFY_MAX_RETRIES",
            "timeout" => "NOTIFY_ADAPTER_TIMEOUT_SEC",
            "initialDelay" | "maximumDelay" => "NOTIFY_BACKOFF_BASE_SEC",
            "jitter" => "NOTIFY_BACKOFF_JITTER_PERCENT",
            _ => ALL,
        };
        let variable = if set.iter().any(|name| name == variable) { variable } else { ALL };
        let mut path: Key = vec!["policies".to_owned(), "global".to_owned(), field];
        let value = match value {
            Value::Object(inner) => {
                let Some((name, value)) = inner.into_iter().next() else { continue };
                path.push(name);
                value
            }
            value => value,
        };
        layers.put(path, ConfigValue { value, origin: origin(variable) }, problems);
    }
}

fn origin(variable: &str) -> Origin {
    Origin::ForeignVariable(variable.to_owned())
}

/// A warning for each variable whose name is nearly one of the four.
fn misspelled(variables: &[(OsString, OsString)]) -> Vec<String> {
    let names = variables.iter().filter_map(|(name, _)| name.to_str());
    let others = names.filter(|name| name.starts_with("NOTIFY_") && !NOTIFY_VARIABLES.contains(name));
    let mut warnings: Vec<String> = others
        .filter_map(|name| {
            let meant = nearest(name, NOTIFY_VARIABLES)?;
            Some(format!("variable {name} has no effect; did you mean {meant}?"))
        })
        .collect();
    warnings.sort_unstable();
    warnings
}
