//! Reads JSON objects field by field, so that every error names the path of the field.

use std::fmt::Display;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::duration;

/// The path of the whole document.
const DOCUMENT: &str = "(document)";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadField {
    /// A path such as `quick.tries`.
    pub field: String,
    pub reason: String,
}

impl BadField {
    pub fn new(field: impl Into<String>, reason: impl Display) -> Self {
        Self { field: field.into(), reason: reason.to_string() }
    }

    /// The same error, with the path seen from the object that holds this one in its field `parent`.
    #[must_use]
    pub fn under(self, parent: &str) -> Self {
        let field = if self.field == DOCUMENT { parent.to_owned() } else { join(parent, &self.field) };
        Self { field, reason: self.reason }
    }
}

/// An object whose fields are taken one by one. Fields that are left at the end are unknown and refused.
///
/// A camelCase name also matches its snake_case spelling, which configuration files use. Null counts as
/// missing.
#[derive(Debug)]
pub struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Starts with the object at `path` (empty for the whole document).
    pub fn of(path: &str, value: &'a Value) -> Result<Self, BadField> {
        match value {
            Value::Object(map) => Ok(Self { path: path.to_owned(), map, known: Vec::new() }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let path = if path.is_empty() { DOCUMENT } else { path };
                Err(BadField::new(path, format!("must be an object, not {}", excerpt(value))))
            }
        }
    }

    /// The full path of a field of this object.
    pub fn path(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// An error about a field of this object.
    pub fn bad(&self, name: &str, reason: impl Display) -> BadField {
        BadField::new(self.path(name), reason)
    }

    pub fn take(&mut self, name: &'static str) -> Result<Option<&'a Value>, BadField> {
        self.known.push(name);
        let snake = snake(name);
        let camel_value = self.map.get(name);
        let snake_value = if snake == name { None } else { self.map.get(&snake) };
        if camel_value.is_some() && snake_value.is_some() {
            return Err(self.bad(name, format!("is also given as `{snake}`")));
        }
        Ok(camel_value.or(snake_value).filter(|value| !value.is_null()))
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<&'a str>, BadField> {
        let value = self.take(name)?;
        self.read(name, value, "a text", Value::as_str)
    }

    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, BadField> {
        let value = self.take(name)?;
        self.read(name, value, "true or false", Value::as_bool)
    }

    /// A whole number up to `u32::MAX`.
    pub fn whole(&mut self, name: &'static str) -> Result<Option<u32>, BadField> {
        let value = self.take(name)?;
        self.read(name, value, "a whole number, not negative", |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok())
        })
    }

    pub fn number(&mut self, name: &'static str) -> Result<Option<f64>, BadField> {
        let value = self.take(name)?;
        self.read(name, value, "a number", Value::as_f64)
    }

    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, BadField> {
        let value = self.take(name)?;
        value.map(duration::from_json).transpose().map_err(|error| self.bad(name, error))
    }

    pub fn list(&mut self, name: &'static str) -> Result<Option<&'a Vec<Value>>, BadField> {
        let value = self.take(name)?;
        self.read(name, value, "a list", Value::as_array)
    }

    /// One of a set of names; `all` lists them for the error.
    pub fn name<T>(
        &mut self,
        name: &'static str,
        find: fn(&str) -> Option<T>,
        all: &str,
    ) -> Result<Option<T>, BadField> {
        let value = self.take(name)?;
        self.read(name, value, &format!("one of {all}"), |value| value.as_str().and_then(find))
    }

    /// Refuses fields that were not taken.
    pub fn finish(self) -> Result<(), BadField> {
        let known = |key: &String| self.known.iter().any(|name| key == name || *key == snake(name));
        match self.map.keys().find(|key| !known(key)) {
            None => Ok(()),
            Some(key) => {
                let short: String = key.chars().take(64).collect();
                Err(self.bad(&short, format!("is unknown; the fields are {}", self.known.join(", "))))
            }
        }
    }

    fn read<T>(
        &self,
        name: &str,
        value: Option<&'a Value>,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, BadField> {
        let Some(value) = value else { return Ok(None) };
        let found = read(value);
        let bad = || self.bad(name, format!("must be {expected}, not {}", excerpt(value)));
        found.map(Some).ok_or_else(bad)
    }
}

/// A short form of a value, for error messages.
pub fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("`{}`", text.chars().take(64).collect::<String>()),
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// The snake_case spelling of a camelCase name. Names that start with a capital letter belong to other
/// systems and are not converted.
fn snake(name: &str) -> String {
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return name.to_owned();
    }
    let spell = |c: char| {
        if c.is_ascii_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] }
    };
    name.chars().flat_map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_spellings_are_taken_but_not_at_once() {
        let value = json!({"max_attempts": 3});
        let mut fields = Fields::of("", &value).unwrap();
        assert_eq!(fields.whole("maxAttempts"), Ok(Some(3)));
        assert_eq!(fields.finish(), Ok(()));
        let value = json!({"max_attempts": 3, "maxAttempts": 3});
        let error = Fields::of("policy", &value).unwrap().whole("maxAttempts").unwrap_err();
        assert_eq!(error.to_string(), "policy.maxAttempts: is also given as `max_attempts`");
    }

    #[test]
    fn what_was_not_taken_is_refused_by_its_path() {
        let value = json!({"tries": 3, "tires": 4});
        let mut fields = Fields::of("quick", &value).unwrap();
        assert_eq!(fields.whole("tries"), Ok(Some(3)));
        let error = fields.finish().unwrap_err();
        assert_eq!(error.to_string(), "quick.tires: is unknown; the fields are tries");
        assert_eq!(error.under("policy").field, "policy.quick.tires");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_shown() {
        let value = json!({"a": "x", "b": -1, "c": 1.5, "d": [1], "e": null, "f": 4_294_967_296u64});
        let mut fields = Fields::of("", &value).unwrap();
        assert_eq!(fields.flag("a").unwrap_err().to_string(), "a: must be true or false, not `x`");
        assert!(fields.whole("b").unwrap_err().reason.ends_with("not -1"));
        assert!(fields.whole("c").is_err());
        assert!(fields.whole("f").is_err());
        assert!(fields.text("d").unwrap_err().reason.ends_with("not a list"));
        assert_eq!(fields.text("e"), Ok(None));
        let error = Fields::of("", &json!(4)).unwrap_err();
        assert_eq!(error.field, "(document)");
        assert_eq!(error.under("policy").field, "policy");
    }
}
