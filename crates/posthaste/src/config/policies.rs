//! `[policies.*]` and `[overrides.*]`: sections named by a scope or a channel.

use std::collections::BTreeMap;

use posthaste_core::channel::Channel;
use posthaste_core::classify::Overrides;
use posthaste_core::fields::BadField;
use posthaste_core::policy::{PolicyLayer, Scope, Source};
use posthaste_core::provider::{NoProvider, Pools};
use serde_json::{Map, Value};

use super::Config;
use super::layers::{ConfigValue, Key, Layers, dotted, is_empty_table};
use super::read::{ConfigReader, unknown};
use super::values;

/// The fields of a policy, in the spelling of files. Those of `quick`, `retry_on` and `jitter` have lists of
/// their own.
const FIELDS: &[&str] = &[
    "preset",
    "strategy",
    "initial_delay",
    "multiplier",
    "maximum_delay",
    "schedule",
    "max_attempts",
    "max_retries",
    "jitter",
    "timeout",
    "max_age",
    "dead_letter",
    "honour_retry_after",
    "maximum_retry_after",
    "quick",
    "retry_on",
];
const JITTER: &[&str] = &["plus", "percent"];
const QUICK: &[&str] =
    &["tries", "delay", "backoff", "jitter", "retry_after", "status_codes", "when", "limit"];
const RETRY_ON: &[&str] = &[
    "unknown",
    "temporary",
    "permanent",
    "timeout",
    "rate_limit",
    "network_failure",
    "authentication_failure",
    "invalid_recipient",
    "quota_exceeded",
];

/// Normalizes the fields of a policy to snake_case, and the spelling of a scope.
pub(super) fn normalized(mut key: Key) -> Key {
    if key.len() > 1 && key[0] == "policies" {
        if let Some(channel) = key[1].strip_prefix("channel:") {
            key[1] = channel.to_owned();
        }
        // Two spellings of one scope.
        if let Some(template) = key[1].strip_prefix("template:*/").filter(|name| !name.contains('/')) {
            key[1] = format!("template:{template}");
        }
        key.iter_mut().skip(2).for_each(|part| *part = snake(part));
    }
    key
}

/// Whether two fields of one policy set the same thing, so that the stronger source replaces the weaker one.
pub(super) fn is_alias(one: &[String], other: &[String]) -> bool {
    if one.len() < 3 || other.len() < 3 || one[0] != "policies" || one[..2] != other[..2] {
        return false;
    }
    let is_budget = |key: &[String]| key[2] == "max_attempts" || key[2] == "max_retries";
    let is_jitter = |key: &[String]| key[2] == "jitter";
    (is_budget(one) && is_budget(other)) || (is_jitter(one) && is_jitter(other))
}

pub(super) fn read(layers: &Layers, config: &mut Config, reader: &mut ConfigReader<'_>) {
    let pools = config.pools();
    for (name, fields) in named(layers, "policies") {
        let Some(any) = fields.first().map(|(_, given)| *given) else { continue };
        let at = dotted(&["policies".to_owned(), name.to_owned()]);
        let scope = match name.parse().map(Scope::Channel).or_else(|_| name.parse()) {
            Ok(scope) => scope,
            Err(_) => {
                let mut known: Vec<&str> = Channel::ALL.iter().map(|channel| channel.name()).collect();
                known.extend(["global", "tenant:x", "template:x", "template:tenant/x"]);
                reader.report_value(any, &at, &unknown(name, &known, None));
                continue;
            }
        };
        if !all_known(&fields, &at, reader) {
            continue;
        }
        let value = object_of(&fields);
        let layer = PolicyLayer::from_json(&value)
            .and_then(|layer| config.policies.put(Source::File, scope.clone(), layer));
        match (layer, scope) {
            (Err(bad), _) => report(&fields, &at, bad, reader),
            (Ok(()), Scope::Channel(channel))
                if !fields.iter().all(|(_, given)| is_empty_table(&given.value)) =>
            {
                warn_if_unavailable(channel, &pools, any, &at, reader);
            }
            (Ok(()), _) => {}
        }
    }
}

pub(super) fn overrides(
    layers: &Layers,
    pools: &Pools,
    reader: &mut ConfigReader<'_>,
) -> BTreeMap<Channel, Overrides> {
    let mut overrides = BTreeMap::new();
    for (name, fields) in named(layers, "overrides") {
        let Some(any) = fields.first().map(|(_, given)| *given) else { continue };
        let at = dotted(&["overrides".to_owned(), name.to_owned()]);
        let Ok(channel) = name.parse::<Channel>() else {
            let known = Channel::ALL.map(Channel::name);
            reader.report_value(any, &at, &unknown(name, &known, None));
            continue;
        };
        if fields.iter().any(|(path, given)| path.is_empty() && !is_empty_table(&given.value)) {
            reader.report_value(any, &at, values::SECTION);
            continue;
        }
        let codes = fields.iter().filter(|(path, _)| !path.is_empty());
        let codes: Map<String, Value> =
            codes.map(|(path, given)| (path.join("."), camel_text(&given.value))).collect();
        let is_empty = codes.is_empty();
        match Overrides::from_json(&Value::Object(codes)) {
            Err(bad) => report(&fields, &at, bad, reader),
            Ok(_) if is_empty => {}
            Ok(rules) => {
                warn_if_unavailable(channel, pools, any, &at, reader);
                overrides.insert(channel, rules);
            }
        }
    }
    overrides
}

/// A field of a named section: the rest of its key, and its value.
type Field<'a> = (&'a [String], &'a ConfigValue);

/// The fields of a section, grouped by the name chosen by the user.
pub(super) fn named<'a>(layers: &'a Layers, section: &str) -> BTreeMap<&'a str, Vec<Field<'a>>> {
    let mut named: BTreeMap<&str, Vec<Field<'_>>> = BTreeMap::new();
    for (key, given) in layers.given.iter().filter(|(key, _)| key.len() > 1 && key[0] == section) {
        named.entry(&key[1]).or_default().push((&key[2..], given));
    }
    named
}

/// Reports unknown fields, with a suggestion.
fn all_known(fields: &[Field<'_>], at: &str, reader: &mut ConfigReader<'_>) -> bool {
    let mut good = true;
    for (path, given) in fields {
        let mut known = FIELDS;
        for (depth, part) in path.iter().enumerate() {
            if !known.contains(&part.as_str()) {
                let key = format!("{at}.{}", dotted(&path[..=depth]));
                reader.report_value(given, &key, &unknown(part, known, None));
                good = false;
                break;
            }
            known = match part.as_str() {
                "quick" => QUICK,
                "retry_on" => RETRY_ON,
                "jitter" if depth == 0 => JITTER,
                // A table in a plain field: the policy's own parser reports it.
                _ => break,
            };
        }
    }
    good
}

/// Rebuilds one JSON object from the fields.
fn object_of(fields: &[Field<'_>]) -> Value {
    let mut object = Value::Object(Map::new());
    for (path, given) in fields {
        let Some((last, parents)) = path.split_last() else {
            if !given.value.is_object() {
                return given.value.clone();
            }
            continue;
        };
        let mut place = &mut object;
        for parent in parents {
            let map = place.as_object_mut().expect("a key inside another one replaces it");
            place = map.entry(parent.clone()).or_insert_with(|| Value::Object(Map::new()));
        }
        place[last.as_str()] = typed(last, given);
    }
    object
}

/// Converts the text of a variable or a flag to the type of the field.
fn typed(field: &str, given: &ConfigValue) -> Value {
    let Value::String(text) = given.value.clone() else { return given.value.clone() };
    if !given.origin.is_text() {
        return Value::String(text);
    }
    let one = |text: &str| match text.trim().parse::<Value>() {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => value,
        _ => Value::String(text.to_owned()),
    };
    match field {
        "schedule" | "status_codes" => values::split(&text).map(one).collect(),
        _ => one(&text),
    }
}

/// Attributes an error of a policy to the source of the field.
fn report(fields: &[Field<'_>], at: &str, bad: BadField, reader: &mut ConfigReader<'_>) {
    let field: String = bad.field.split('.').map(snake).collect::<Vec<_>>().join(".");
    let plain = field.split('[').next().unwrap_or_default();
    let matches = |path: &&[String]| {
        let path = path.join(".");
        path == plain || path.starts_with(&format!("{plain}.")) || plain.starts_with(&format!("{path}."))
    };
    let found = fields.iter().find(|(path, _)| !path.is_empty() && matches(path)).or(fields.first());
    let (_, given) = found.expect("a section without fields is not read");
    let key = if field.starts_with('(') { at.to_owned() } else { format!("{at}.{field}") };
    reader.report_value(given, &key, &bad.reason);
}

fn warn_if_unavailable(
    channel: Channel,
    pools: &Pools,
    given: &ConfigValue,
    key: &str,
    reader: &mut ConfigReader<'_>,
) {
    let why = match channel {
        Channel::Webhook => return,
        channel if !channel.has_providers() => format!("the channel {channel} is not built yet"),
        channel if pools.of(channel).is_empty() => NoProvider::Empty(channel).to_string(),
        _ => return,
    };
    reader.without_effect(given, key, &why);
}

/// Accepts the names of failure types in the spelling of files too.
fn camel_text(value: &Value) -> Value {
    let Value::String(text) = value else { return value.clone() };
    let mut parts = text.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    Value::String(camel)
}

fn snake(name: &str) -> String {
    let spell = |c: char| if c.is_ascii_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] };
    let spelled: String = name.chars().flat_map(spell).collect();
    spelled.trim_start_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// The fields that the core knows at a place, by its own complaint about one that it does not.
    fn core_fields(value: Value) -> BTreeSet<String> {
        let reason = PolicyLayer::from_json(&value).unwrap_err().reason;
        let (_, list) = reason.split_once("the fields are ").unwrap();
        list.split(", ").map(snake).collect()
    }

    #[test]
    fn the_fields_listed_here_are_those_of_the_core() {
        let listed =
            |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(listed(FIELDS), core_fields(json!({"x": 1})));
        assert_eq!(listed(QUICK), core_fields(json!({"quick": {"x": 1}})));
        assert_eq!(listed(RETRY_ON), core_fields(json!({"retryOn": {"x": 1}})));
        for field in JITTER {
            assert!(PolicyLayer::from_json(&json!({"jitter": {*field: 1}})).is_ok(), "{field}");
        }
    }
}
