//! How a failure is printed: text for people, one JSON object for programs. Both are on stderr.

use std::ffi::OsStr;

use serde_json::{Value, json};

use super::is_wrong_use;
use super::output::{Output, note, note_json};
use super::reach::CommandError;

/// Prints why a command failed.
pub(crate) fn print(error: &anyhow::Error, output: Output) {
    match output {
        Output::Table => note(&format!("error: {error:#}")),
        Output::Json => note_json(&to_json(error)),
    }
}

/// Prints what clap found wrong with the command line, or the help that was asked for.
pub(crate) fn print_usage(error: &clap::Error) {
    let text = error.render().to_string();
    if !error.use_stderr() || (text == without_passwords(&text) && !wants_json(std::env::args_os())) {
        // Printing fails only if the terminal is gone.
        let _ = error.print();
    } else if wants_json(std::env::args_os()) {
        let text = without_passwords(&text);
        let detail = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
        note_json(&wrong_use(detail));
    } else {
        note(without_passwords(&text).trim_end());
    }
}

/// Removes the passwords of URLs from a text that may quote the command line.
pub(crate) fn without_passwords(text: &str) -> String {
    let hidden = |word: &str| {
        let may_hold_one = word.contains("://") || word.contains("password=");
        if may_hold_one { posthaste_store::postgres::without_password(word) } else { word.to_owned() }
    };
    text.split_inclusive(char::is_whitespace).map(hidden).collect()
}

/// Whether the command line asks for JSON. It is asked of one that could not be parsed.
fn wants_json<T: AsRef<OsStr>>(words: impl IntoIterator<Item = T>) -> bool {
    let mut after_flag = false;
    words.into_iter().any(|word| {
        let word = word.as_ref();
        let found = word == "--output=json" || (after_flag && word == "json");
        after_flag = word == "--output";
        found
    })
}

fn to_json(error: &anyhow::Error) -> Value {
    if let Some(answered) = error.downcast_ref::<CommandError>() {
        return answered.json();
    }
    let detail = format!("{error:#}");
    if is_wrong_use(error) { wrong_use(&detail) } else { json!({"code": "FAILED", "detail": detail}) }
}

fn wrong_use(detail: &str) -> Value {
    json!({"code": "WRONG_USE", "detail": detail})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_removed_and_the_rest_stays() {
        for (text, wanted) in [
            (
                "unexpected argument 'postgres://u:secret@h/d' found\n",
                "unexpected argument 'postgres://u:***@h/d' found\n",
            ),
            ("the URL `http://me:secret@h/` holds a user", "the URL `http://me:***@h/` holds a user"),
            ("--set postgres://h/d?password=secret", "--set postgres://h/d?password=***"),
            ("two\n lines: http://h:1/ and u@h", "two\n lines: http://h:1/ and u@h"),
        ] {
            assert_eq!(without_passwords(text), wanted);
        }
    }

    #[test]
    fn json_is_wanted_only_where_the_flag_says_so() {
        for (words, wanted) in [
            ("posthaste stats --output json", true),
            ("posthaste stats --output=json --nope", true),
            ("posthaste stats --output table json", false),
            ("posthaste json", false),
        ] {
            assert_eq!(wants_json(words.split(' ')), wanted, "{words}");
        }
    }
}
