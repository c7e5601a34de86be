//! The page about the command line: what it shows can be called.

use std::path::Path;

use posthaste::cli;

/// The call of `posthaste` in a line of an example, as its words; none if there is none in it.
///
/// It reads what examples hold: quotes, pipes before it, `$(..)` around it, redirections and a remark after it.
pub(crate) fn call(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    let start = ["posthaste ", "| posthaste ", "$(posthaste "].into_iter().find_map(|form| {
        let at = if form.starts_with("posthaste") {
            line.starts_with(form).then_some(0)
        } else {
            line.find(form)
        }?;
        Some(at + form.len() - "posthaste ".len())
    })?;
    let (mut words, mut word, mut quoted, mut spaces) = (Vec::new(), None::<String>, false, 0);
    for character in line[start..].chars() {
        match character {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => {
                words.extend(word.take());
                spaces += 1;
                // A remark stands apart.
                if spaces == 2 {
                    break;
                }
                continue;
            }
            '<' | '>' | '|' | ')' | '#' if !quoted && (word.is_none() || character == ')') => break,
            other => word.get_or_insert_default().push(other),
        }
        spaces = 0;
    }
    words.extend(word);
    Some(words)
}

#[test]
fn a_line_is_read_as_a_shell_would() {
    let read = |line: &str| call(line).map(|words| words.join("|"));
    assert_eq!(
        read("  posthaste send --json '{\"a\": 1}' --watch").unwrap(),
        "posthaste|send|--json|{\"a\": 1}|--watch"
    );
    assert_eq!(read("echo x | posthaste send --body - < file").unwrap(), "posthaste|send|--body|-");
    assert_eq!(read("export KEY=$(posthaste keys create --admin)").unwrap(), "posthaste|keys|create|--admin");
    assert_eq!(read("posthaste dev        to try it").unwrap(), "posthaste|dev");
    assert_eq!(read("posthaste completions zsh > file").unwrap(), "posthaste|completions|zsh");
    assert_eq!(read("see posthaste dev"), None);
}

#[test]
fn every_call_on_the_page_can_be_called_and_every_command_is_on_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(path).unwrap();
    let calls: Vec<Vec<String>> = page.lines().filter_map(call).collect();
    assert!(calls.len() > 30, "{calls:?}");
    for call in &calls {
        let parsed = cli::command().try_get_matches_from(call);
        assert!(parsed.is_ok(), "{call:?}: {}", parsed.unwrap_err());
    }
    for command in cli::command().get_subcommands() {
        let shown = calls.iter().any(|call| call.get(1).is_some_and(|word| word == command.get_name()));
        assert!(shown, "docs/cli.md does not show `posthaste {}`", command.get_name());
    }
}
