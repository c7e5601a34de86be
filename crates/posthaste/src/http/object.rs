//! A JSON object read field by field, with the values as they came: what is sent on is not written anew.

use std::borrow::Cow;
use std::fmt;

use posthaste_core::fields::excerpt;
use posthaste_core::time::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::problem::{Kind, Problem, Result};

/// The fields of an object; each is taken once, what is left at the end is unknown and refused.
pub(super) struct Object<'a> {
    fields: Vec<(Cow<'a, str>, Option<&'a RawValue>)>,
    known: Vec<&'static str>,
}

impl<'a> Object<'a> {
    /// Reads a document.
    pub(super) fn read(text: &'a [u8]) -> Result<Self> {
        let pairs: Pairs<'a> = serde_json::from_slice(text).map_err(|error| bad_json(text, &error))?;
        if pairs.0.len() > MOST_FIELDS {
            return Err(Problem::at("", format!("the object has more than {MOST_FIELDS} fields")));
        }
        for (index, (name, _)) in pairs.0.iter().enumerate() {
            if pairs.0[..index].iter().any(|(other, _)| other == name) {
                return Err(Problem::at(at(name), format!("{} is given twice", shown(name))));
            }
        }
        let fields = pairs.0.into_iter().map(|(name, value)| (name, Some(value))).collect();
        Ok(Self { fields, known: Vec::with_capacity(24) })
    }

    /// Takes a field; null counts as missing.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a RawValue> {
        self.take_any(name).filter(|value| value.get() != "null")
    }

    /// Takes a field, null or not.
    pub(super) fn take_any(&mut self, name: &'static str) -> Option<&'a RawValue> {
        self.known.push(name);
        self.fields.iter_mut().find(|(given, _)| given == name)?.1.take()
    }

    /// Takes a text of at most so many bytes.
    pub(super) fn text(&mut self, name: &'static str, longest: usize) -> Result<Option<String>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let text: String = typed(name, value, "a text")?;
        if text.len() > longest {
            return Err(Problem::at(at(name), format!("{name} is longer than {longest} bytes")));
        }
        Ok(Some(text))
    }

    /// Takes a text that fits on one line: it may end up in a header, a list or a log.
    pub(super) fn line(&mut self, name: &'static str, longest: usize) -> Result<Option<String>> {
        let text = self.text(name, longest)?;
        if text.as_ref().is_some_and(|text| text.is_empty() || text.chars().any(char::is_control)) {
            return Err(Problem::at(
                at(name),
                format!("{name} must not be empty nor hold control characters"),
            ));
        }
        Ok(text)
    }

    /// Takes a time.
    pub(super) fn time(&mut self, name: &'static str) -> Result<Option<Timestamp>> {
        let Some(text) = self.text(name, 64)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| Problem::at(at(name), format!("{name}: {error}")))
    }

    /// Takes a value of a type that serde knows.
    pub(super) fn typed<T: serde::de::DeserializeOwned>(
        &mut self,
        name: &'static str,
        expected: &str,
    ) -> Result<Option<T>> {
        self.take(name).map(|value| typed(name, value, expected)).transpose()
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self) -> Result<()> {
        let unknown = self.fields.iter().find(|(_, value)| value.is_some());
        let Some((name, _)) = unknown.filter(|(name, _)| !self.known.contains(&name.as_ref())) else {
            return Ok(());
        };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        let detail = format!("{} is unknown; the fields are {known}", shown(name));
        Err(Problem::at(at(name), detail))
    }
}

fn typed<T: serde::de::DeserializeOwned>(name: &str, value: &RawValue, expected: &str) -> Result<T> {
    serde_json::from_str(value.get()).map_err(|_| {
        let seen = serde_json::from_str::<Value>(value.get())
            .map_or_else(|_| "this".to_owned(), |value| excerpt(&value));
        Problem::at(at(name), format!("{name} must be {expected}, not {seen}"))
    })
}

/// The pointer of a field.
pub(super) fn at(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    format!("/{}", short.replace('~', "~0").replace('/', "~1"))
}

fn shown(name: &str) -> String {
    format!("`{}`", name.chars().take(64).flat_map(char::escape_debug).collect::<String>())
}

/// What is wrong with a text that is not an object of JSON.
fn bad_json(text: &[u8], error: &serde_json::Error) -> Problem {
    if error.is_data() && serde_json::from_slice::<&RawValue>(text).is_ok() {
        return Problem::at("", "the document must be a JSON object");
    }
    Problem::new(Kind::BadJson, format!("the body is not valid JSON: {error}"))
}

struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Self::Value, M::Error> {
                let mut pairs = Vec::with_capacity(16);
                while let Some(Name(name)) = map.next_key()? {
                    pairs.push((name, map.next_value()?));
                    if pairs.len() > MOST_FIELDS {
                        // Too many is told to whoever sent JSON, so the rest is read without being kept.
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                    }
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Twins among the fields are looked for one against the other, so there must not be too many.
const MOST_FIELDS: usize = 64;

struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Name<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a field name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> std::result::Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}
