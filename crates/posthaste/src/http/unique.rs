//! JSON in which no object has a field twice: of two values for one name, one would be lost.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Any JSON value.
#[derive(Clone)]
pub(crate) struct Unique(pub(crate) Value);

/// An object of texts.
#[derive(Default)]
pub(super) struct UniqueTexts(pub(super) BTreeMap<String, String>);

/// An object of texts, each of which may be null.
pub(super) struct UniqueMaybeTexts(pub(super) BTreeMap<String, Option<String>>);

/// An object of such values.
pub(super) struct UniqueMap<T>(pub(super) BTreeMap<String, T>);

fn twice<E: Error>(name: &str) -> E {
    let short: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    E::custom(format_args!("`{short}` is given twice"))
}

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueReader).map(Self)
    }
}

impl<'de> Deserialize<'de> for UniqueTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsReader(PhantomData)).map(Self)
    }
}

impl<'de> Deserialize<'de> for UniqueMaybeTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsReader(PhantomData)).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for UniqueMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsReader(PhantomData)).map(Self)
    }
}

struct TextsReader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextsReader<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some(name) = fields.next_key::<String>()? {
            if texts.contains_key(&name) {
                return Err(twice(&name));
            }
            let text = fields.next_value()?;
            texts.insert(name, text);
        }
        Ok(texts)
    }
}

struct ValueReader;

impl<'de> Visitor<'de> for ValueReader {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = vec![];
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Unique(value))) = fields.next_entry::<String, Unique>()? {
            if object.contains_key(&name) {
                return Err(twice(&name));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_and_a_field_given_twice_is_refused() {
        for text in [r#"{"a":[1,-2,3.5,null,true,"x"],"b":{"a":{}}}"#, "[]", "7", r#""x""#, "null"] {
            let Unique(read) = serde_json::from_str(text).unwrap();
            assert_eq!(read.to_string(), text);
        }
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#] {
            let error = serde_json::from_str::<Unique>(text).err().unwrap();
            assert!(error.is_data() && error.to_string().starts_with("`a` is given twice"), "{error}");
        }
    }

    #[test]
    fn texts_are_read_once_each() {
        let UniqueTexts(read) = serde_json::from_str(r#"{"a":"1","b":""}"#).unwrap();
        assert_eq!(
            read.into_iter().map(|(name, text)| name + "=" + &text).collect::<Vec<_>>(),
            ["a=1", "b="]
        );
        for text in [r#"{"a":"1","a":"1"}"#, r#"{"a":1}"#, r#"{"a":null}"#, "[]"] {
            assert!(serde_json::from_str::<UniqueTexts>(text).is_err(), "{text}");
        }
    }
}
