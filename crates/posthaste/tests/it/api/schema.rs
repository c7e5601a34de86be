//! A small checker of JSON schemas: what openapi.json uses of them, and not a keyword more.
//!
//! A keyword that is not known here is a complaint, so that nothing in the description goes unchecked.

use posthaste::http::openapi;
use posthaste_core::time::Timestamp;
use serde_json::{Map, Value};

/// The description of the API.
pub(super) fn document() -> &'static Value {
    &openapi::document().value
}

/// The schema that a reference leads to.
pub(super) fn resolve(reference: &str) -> &'static Value {
    let found = reference.strip_prefix('#').and_then(|pointer| document().pointer(pointer));
    found.unwrap_or_else(|| panic!("the reference {reference} leads nowhere"))
}

/// What is wrong with a value, each with the place.
pub(super) fn complaints(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = vec![];
    check(schema, value, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let schema = schema.as_object().unwrap_or_else(|| panic!("the schema at {place} is no object: {schema}"));
    for (keyword, said) in schema {
        match keyword.as_str() {
            // What people read, and what tools may do with it.
            "description" | "default" | "examples" => {}
            "$ref" => check(resolve(said.as_str().unwrap()), value, place, found),
            "type" if !is_of_type(said, value) => found.push(format!("{place}: {value} is not {said}")),
            "enum" if !said.as_array().unwrap().contains(value) => {
                found.push(format!("{place}: {value} is none of {said}"));
            }
            "allOf" => said.as_array().unwrap().iter().for_each(|one| check(one, value, place, found)),
            "oneOf" => {
                let fits = said.as_array().unwrap().iter().filter(|one| complaints(one, value).is_empty());
                let count = fits.count();
                if count != 1 {
                    found.push(format!("{place}: {value} fits {count} of the forms"));
                }
            }
            "minimum" if value.as_f64() < said.as_f64() && value.is_number() => {
                found.push(format!("{place}: {value} is below {said}"));
            }
            "maximum" if value.as_f64() > said.as_f64() && value.is_number() => {
                found.push(format!("{place}: {value} is above {said}"));
            }
            "pattern" if value.as_str().is_some_and(|text| !matches(said.as_str().unwrap(), text)) => {
                found.push(format!("{place}: {value} is not of the form {said}"));
            }
            "format" => {
                assert_eq!(said, "date-time", "the checker knows no other format");
                if value.as_str().is_some_and(|text| !is_time(text)) {
                    found.push(format!("{place}: {value} is not a time in UTC with milliseconds"));
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(said, item, &format!("{place}/{index}"), found);
                }
            }
            "minLength" if is_shorter(value, said) => found.push(format!("{place}: shorter than {said}")),
            "maxLength" if is_longer(value, said) => found.push(format!("{place}: longer than {said}")),
            "minItems" | "maxItems" => {
                let (length, limit) = (value.as_array().map_or(0, Vec::len) as u64, said.as_u64().unwrap());
                if value.is_array() && (if keyword == "minItems" { length < limit } else { length > limit }) {
                    found.push(format!("{place}: {length} items against {keyword} {limit}"));
                }
            }
            "required" => {
                let Some(object) = value.as_object() else { continue };
                let names = said.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                found.extend(
                    names
                        .filter(|name| !object.contains_key(*name))
                        .map(|name| format!("{place}: {name} is missing")),
                );
            }
            "properties" => {
                for (name, one) in said.as_object().unwrap() {
                    if let Some(inner) = value.get(name) {
                        check(one, inner, &format!("{place}/{name}"), found);
                    }
                }
            }
            "additionalProperties" => others(schema, said, value, place, found),
            "type" | "enum" | "minimum" | "maximum" | "minLength" | "maxLength" | "pattern" => {}
            unknown => panic!("the checker does not know the keyword {unknown} at {place}"),
        }
    }
}

fn is_shorter(value: &Value, limit: &Value) -> bool {
    value.as_str().is_some_and(|text| (text.chars().count() as u64) < limit.as_u64().unwrap())
}

fn is_longer(value: &Value, limit: &Value) -> bool {
    value.as_str().is_some_and(|text| text.chars().count() as u64 > limit.as_u64().unwrap())
}

/// The properties that the schema does not name.
fn others(schema: &Map<String, Value>, said: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let named = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in value.as_object().into_iter().flatten() {
        if named.is_some_and(|named| named.contains_key(name)) {
            continue;
        }
        match said {
            Value::Bool(false) => found.push(format!("{place}: {name} is not in the description")),
            Value::Bool(true) => {}
            schema => check(schema, inner, &format!("{place}/{name}"), found),
        }
    }
}

fn is_of_type(said: &Value, value: &Value) -> bool {
    match said {
        Value::Array(several) => several.iter().any(|one| is_of_type(one, value)),
        Value::String(name) => match name.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            unknown => panic!("there is no type {unknown}"),
        },
        other => panic!("{other} is no type"),
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    regex_lite::Regex::new(pattern).expect("a pattern that is anchored and plain").is_match(text)
}

/// RFC 3339 in the one spelling that we write: UTC, milliseconds.
fn is_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok_and(|time| time.to_string() == text)
}

#[test]
fn the_checker_finds_what_does_not_fit() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^ntf_[0-9a-hjkmnp-tv-z]{4}$"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "count": {"type": "integer", "minimum": 1, "maximum": 3},
            "list": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
            "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    let good = [
        r#"{"id": "ntf_01kz"}"#,
        r#"{"id": "ntf_0000", "at": null, "count": 3, "list": ["a", "b"], "either": 1, "texts": {"x": "y"}}"#,
        r#"{"id": "ntf_0000", "at": "2026-04-15T10:45:30.000Z"}"#,
    ];
    let bad = [
        r#"[]"#,
        r#"{}"#,
        r#"{"id": "ntf_01ku0"}"#,
        r#"{"id": "ntf_01kI"}"#,
        r#"{"id": "dl_0000"}"#,
        r#"{"id": 7}"#,
        r#"{"id": "ntf_0000", "at": "2026-04-15T10:45:30Z"}"#,
        r#"{"id": "ntf_0000", "at": "2026-04-15T12:45:30.000+02:00"}"#,
        r#"{"id": "ntf_0000", "at": "2026-02-31T10:45:30.000Z"}"#,
        r#"{"id": "ntf_0000", "count": 0}"#,
        r#"{"id": "ntf_0000", "count": 4}"#,
        r#"{"id": "ntf_0000", "count": 1.5}"#,
        r#"{"id": "ntf_0000", "list": ["c"]}"#,
        r#"{"id": "ntf_0000", "list": ["a", "a", "a"]}"#,
        r#"{"id": "ntf_0000", "either": true}"#,
        r#"{"id": "ntf_0000", "texts": {"x": 1}}"#,
        r#"{"id": "ntf_0000", "more": 1}"#,
    ];
    for text in good {
        assert_eq!(complaints(&schema, &serde_json::from_str(text).unwrap()), [""; 0], "{text}");
    }
    for text in bad {
        assert_ne!(complaints(&schema, &serde_json::from_str(text).unwrap()), [""; 0], "{text}");
    }
}
