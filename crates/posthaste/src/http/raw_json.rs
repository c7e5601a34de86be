//! JSON that is kept as it came. Every parser must be able to read it again.
//!
//! serde_json accepts as raw text what it refuses as a value: half of a surrogate pair, and numbers beyond
//! those of 64 bits.

use serde_json::Value;

use super::body::{pointer_of, without_position};
use super::problem::Problem;

/// The most digits in a row that are surely within the range of a number.
const SURE_DIGITS: usize = 300;

/// Refuses JSON that cannot be read as a value. `text` is valid JSON by its form, `pointer` is its place.
pub(super) fn check(pointer: &str, text: &str) -> Result<(), Problem> {
    if !may_be_unreadable(text.as_bytes()) {
        return Ok(());
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let Err(error) = serde_path_to_error::deserialize::<_, Value>(&mut reader) else { return Ok(()) };
    let found = without_position(&error.inner().to_string());
    let detail = if found.contains("number") {
        "the number is out of range: write one between -1.7e308 and 1.7e308, or a text".to_owned()
    } else if found.contains("surrogate") || found.contains("escape") || found.contains("code point") {
        r"the text contains half of a surrogate pair: write the character itself, or both halves such as \ud83d\ude00"
            .to_owned()
    } else {
        format!("this cannot be read as a JSON value: {found}")
    };
    Err(Problem::at(format!("{pointer}{}", pointer_of(error.path())), detail))
}

/// Whether something is in it that a parser may refuse: `\u`, an exponent or very many digits. Most JSON has
/// none of them.
fn may_be_unreadable(text: &[u8]) -> bool {
    let (mut in_text, mut escaped, mut digits) = (false, false, 0);
    for byte in text {
        match (in_text, byte) {
            (true, b'u') if escaped => return true,
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => (in_text, digits) = (!in_text, 0),
            (true, _) => {}
            (false, b'0'..=b'9' | b'.') => {
                digits += 1;
                if digits > SURE_DIGITS {
                    return true;
                }
            }
            // `true` and `false` have this letter too, but not after a digit.
            (false, b'e' | b'E') if digits > 0 => return true,
            (false, _) => digits = 0,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn what_no_parser_reads_is_refused_at_its_place() {
        let long = "9".repeat(400);
        for (text, place) in [
            (r#""\ud800""#, ""),
            (r#"{"a":["x","\udc00x"]}"#, "/a/1"),
            (r#"{"a":{"b":1e999}}"#, "/a/b"),
            ("[-1E+400]", "/0"),
            (&format!("[1,{long}]"), "/1"),
        ] {
            let problem = check("/body", text).unwrap_err();
            assert_eq!(problem.pointer.as_deref(), Some(format!("/body{place}").as_str()), "{text}");
        }
        let key = check("/metadata", r#"{"\ud800":1}"#).unwrap_err();
        assert!(key.detail.contains("surrogate"), "{}", key.detail);
        for text in [
            r#""\ud83d\ude00 \u0041""#,
            "1e-999",
            "1e300",
            "[true,false,null]",
            r#"{"e":1.5}"#,
            r#""1e999 \\u""#,
        ] {
            assert!(check("/body", text).is_ok(), "{text}");
        }
    }

    /// JSON whose texts and numbers are at the edge of what can be read.
    fn any_json() -> impl Strategy<Value = String> {
        let hex = prop_oneof!["[0-9a-f]{4}", "d[8-9a-f][0-9a-f]{2}"];
        let part =
            prop_oneof![hex.prop_map(|hex| format!("\\u{hex}")), "[a-zé]{0,3}", Just("\\\\".to_owned())];
        let text = prop::collection::vec(part, 0..4).prop_map(|parts| format!("\"{}\"", parts.concat()));
        let number = "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?";
        let long = (290usize..330).prop_map(|digits| "7".repeat(digits));
        let leaf = prop_oneof![text.clone(), number.prop_map(String::from), long, Just("true".to_owned())];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            let field = (text.clone(), inner.clone()).prop_map(|(name, value)| format!("{name}:{value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec(field, 0..4).prop_map(|fields| format!("{{{}}}", fields.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_accepted_can_be_read_back_and_nothing_else_is_refused(text in any_json()) {
            prop_assume!(serde_json::from_str::<&RawValue>(&text).is_ok());
            prop_assert_eq!(check("", &text).is_ok(), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
        }
    }
}
