//! What serde says about a wrong value, in plain words.

/// Integer types as serde names them, and what they take.
const INTEGERS: [(&str, &str); 8] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number of at least 0"),
    ("usize", "a whole number of at least 0"),
    ("i16", "a whole number"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
];

/// The text of a mistake without the names that types have in Rust.
pub(super) fn in_plain_words(text: &str) -> String {
    if let Some(found) =
        ["invalid type: ", "invalid value: "].iter().find_map(|start| text.strip_prefix(start))
        && let Some((found, expected)) = found.rsplit_once(", expected ")
    {
        return format!("{} is expected here, not {}", wanted(expected), seen(found));
    }
    if let Some(rest) = text.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    if text.starts_with("data did not match any variant") {
        return "the value has none of the forms that are accepted here".to_owned();
    }
    text.to_owned()
}

fn wanted(expected: &str) -> &str {
    if let Some((_, words)) = INTEGERS.iter().find(|(name, _)| *name == expected) {
        return words;
    }
    match expected {
        "a string" | "string" | "str" | "a borrowed string" => "a text",
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a sequence" => "an array",
        "a map" => "an object",
        "unit" => "null",
        // Such as `struct NewNotification` or `struct Key with 3 elements`.
        _ if expected.starts_with("struct ") => "an object",
        _ => expected,
    }
}

fn seen(found: &str) -> String {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    match kind {
        "string" | "character" => format!("the text {value}"),
        "integer" => format!("the number {}", value.trim_matches('`')),
        "floating" => format!("the number {}", value.trim_start_matches("point ").trim_matches('`')),
        "boolean" => value.trim_matches('`').to_owned(),
        "sequence" => "an array".to_owned(),
        "map" => "an object".to_owned(),
        "unit" => "null".to_owned(),
        _ => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its mistakes are looked at")]
    struct Sample {
        text: Option<String>,
        small: Option<u8>,
        large: Option<u64>,
        number: Option<f64>,
        flag: Option<bool>,
        list: Option<Vec<u8>>,
        inner: Option<Inner>,
        word: Option<Word>,
        either: Option<Either>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {}

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Yes,
        No,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its mistakes are looked at")]
    enum Either {
        Text(String),
        Number(u8),
    }

    #[test]
    fn no_mistake_is_told_in_the_words_of_rust() {
        for (json, words) in [
            (r#"{"text": 5}"#, "a text is expected here, not the number 5"),
            (r#"{"text": 1.5}"#, "a text is expected here, not the number 1.5"),
            (r#"{"text": [1]}"#, "a text is expected here, not an array"),
            (r#"{"text": {}}"#, "a text is expected here, not an object"),
            (r#"{"text": true}"#, "a text is expected here, not true"),
            (r#"{"small": 300}"#, "a whole number from 0 to 255 is expected here, not the number 300"),
            (r#"{"large": -1}"#, "a whole number of at least 0 is expected here, not the number -1"),
            (
                r#"{"large": "x, expected y"}"#,
                r#"a whole number of at least 0 is expected here, not the text "x, expected y""#,
            ),
            (r#"{"number": "x"}"#, r#"a number is expected here, not the text "x""#),
            (r#"{"flag": null, "list": 1}"#, "an array is expected here, not the number 1"),
            (r#"{"flag": 0}"#, "true or false is expected here, not the number 0"),
            (r#"{"list": [null]}"#, "a whole number from 0 to 255 is expected here, not null"),
            (r#"{"inner": "x"}"#, r#"an object is expected here, not the text "x""#),
            (r#"{"word": "maybe"}"#, "unknown value `maybe`, expected `yes` or `no`"),
            (r#"{"either": []}"#, "the value has none of the forms that are accepted here"),
            (
                r#"{"other": 1}"#,
                "unknown field `other`, expected one of `text`, `small`, `large`, `number`, `flag`, `list`, `inner`, `word`, `either`",
            ),
        ] {
            let error = serde_json::from_str::<Sample>(json).unwrap_err().to_string();
            let error = crate::http::body::without_position(&error);
            assert_eq!(in_plain_words(&error), words, "{json}: {error}");
        }
    }
}
