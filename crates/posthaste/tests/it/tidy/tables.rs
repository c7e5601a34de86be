//! The tables of docs/policies.md, docs/states.md and docs/failures.md say what core does.

use std::collections::BTreeSet;

use posthaste_core::channel::Channel;
use posthaste_core::classify::{LOG_CODES, Overrides, Verdict, classify};
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::duration::words;
use posthaste_core::failure::FailureType;
use posthaste_core::policy::{Policy, Preset};
use posthaste_core::provider::Route;
use posthaste_core::reason::Reason;
use posthaste_core::reply::Reply;
use posthaste_core::state::{Event, State};
use posthaste_core::strategy::Strategy;
use serde_json::Value;

use super::tree::Tree;

/// The rows of the table under a heading, or before the first one, without backticks. The first row has the titles.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let tree = Tree::read();
    let text = tree.text(page).unwrap_or_else(|| panic!("there is no {page}"));
    let (_, part) =
        text.split_once(&format!("{heading}\n")).unwrap_or_else(|| panic!("{page} lacks {heading}"));
    let lines =
        part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let line = line.trim_matches('|').replace("\\|", "or");
        line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = lines.filter(|line| !line.starts_with("|---")).map(cells).collect();
    assert!(rows.len() > 1, "{page} has no table under {heading}");
    rows
}

/// The row that begins with this cell.
fn row<'t>(table: &'t [Vec<String>], first: &str) -> &'t [String] {
    table.iter().find(|row| row[0] == first).unwrap_or_else(|| panic!("no row for `{first}`"))
}

fn column(table: &[Vec<String>]) -> BTreeSet<&str> {
    table[1..].iter().map(|row| row[0].as_str()).collect()
}

#[test]
fn the_states_are_as_the_page_says() {
    let states = table("docs/states.md", "# States");
    assert_eq!(states.len(), State::ALL.len() + 1);
    for state in State::ALL {
        let wanted = [state.name(), &state.code().to_string(), state.status(), &state.words(2, 3)];
        assert_eq!(row(&states, state.name())[..4], wanted);
    }
    let letters = table("docs/states.md", "## Dead letters");
    for status in [DeadLetterStatus::Pending, DeadLetterStatus::Requeued, DeadLetterStatus::Cancelled] {
        let name = serde_json::to_value(status).unwrap();
        assert_eq!(row(&letters, name.as_str().unwrap())[1], status.code().to_string());
    }
}

#[test]
fn the_arrows_are_as_the_page_says() {
    const EVENTS: [Event; 14] = [
        Event::Claim,
        Event::Release,
        Event::Deliver,
        Event::ScheduleRetry,
        Event::Bury,
        Event::Fail,
        Event::Cancel,
        Event::Expire,
        Event::Requeue,
        Event::Retry,
        Event::Discard,
        Event::Replace,
        Event::Restore,
        Event::Bounce,
    ];
    let pairs = State::ALL.into_iter().flat_map(|from| EVENTS.map(|event| (from, event)));
    let real: BTreeSet<(String, String)> = pairs
        .filter_map(|(from, event)| from.next(event).ok().map(|to| (from.to_string(), to.to_string())))
        .collect();
    let told: BTreeSet<(String, String)> = table("docs/states.md", "## Arrows")[1..]
        .iter()
        .flat_map(|row| row[0].split(", ").map(|from| (from.to_owned(), row[1].clone())))
        .collect();
    assert_eq!(told, real);
}

#[test]
fn the_failure_types_and_reason_codes_are_as_the_page_says() {
    let types = table("docs/failures.md", "## Failure types");
    assert_eq!(types.len(), FailureType::ALL.len() + 1);
    for failure in FailureType::ALL {
        let retried = if failure.is_retried_by_default() { "yes" } else { "no" };
        assert_eq!(row(&types, failure.name())[..3], [failure.name(), &failure.code().to_string(), retried]);
    }
    let reasons = table("docs/failures.md", "## Reason codes");
    assert_eq!(column(&reasons), Reason::ALL.map(Reason::code).into_iter().collect());
    assert!(reasons.iter().all(|row| row.iter().all(|cell| !cell.is_empty())));
}

/// What core makes of a reply, as the page calls it.
fn verdict(channel: Channel, reply: &Reply) -> &'static str {
    match classify(channel, &Route::Direct, reply, &Overrides::default()) {
        Verdict::Delivered => "delivered",
        Verdict::Failed(failure) => failure.failure_type.name(),
    }
}

#[test]
fn every_status_code_means_what_the_page_says() {
    let codes = table("docs/failures.md", "## HTTP");
    for status in 100..700u16 {
        let exact = codes.iter().find(|row| row[0].split(", ").any(|code| code == status.to_string()));
        let class = match status / 100 {
            4 => "other 4xx".to_owned(),
            1 | 6 => "1xx, 600 and above".to_owned(),
            class => format!("{class}xx"),
        };
        let told = exact.map_or_else(|| row(&codes, &class), |row| &row[..]);
        for channel in Channel::ALL {
            let cell = match channel {
                Channel::Webhook => &told[1],
                Channel::Email | Channel::Sms => &told[2],
                _ => &told[3],
            };
            let reply = Reply::http(status);
            let first = cell.split(';').next().unwrap_or_default();
            assert_eq!(first, verdict(channel, &reply), "{channel} {status}");
        }
    }
}

#[test]
fn every_code_of_the_kind_log_means_what_the_page_says() {
    let told = table("docs/failures.md", "### `log`");
    let told: Vec<(&str, &str)> = told[1..].iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    let real: Vec<(&str, &str)> = LOG_CODES.iter().map(|(code, failure)| (*code, failure.name())).collect();
    assert_eq!(told, real);
}

#[test]
fn every_reply_of_smtp_means_what_the_page_says() {
    for row in &table("docs/failures.md", "## SMTP")[1..] {
        let code =
            row[0].chars().next().and_then(|class| class.to_digit(10)).map_or(354, |class| class * 100 + 50);
        let enhanced = row[1].replace('x', "9");
        let parts: Vec<u16> = enhanced.split('.').filter_map(|part| part.parse().ok()).collect();
        let enhanced = match parts.as_slice() {
            [class, subject, detail] => Some((u8::try_from(*class).unwrap(), *subject, *detail)),
            _ => None,
        };
        let reply = Reply::smtp(u16::try_from(code).unwrap(), enhanced, "");
        assert_eq!(row[2], verdict(Channel::Email, &reply), "{row:?}");
    }
}

#[test]
fn the_policy_page_has_every_field_and_strategy() {
    let shown = serde_json::to_value(Preset::Webhook.policy()).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let mut fields = names(&shown);
    fields.extend(["preset".to_owned(), "maxRetries".to_owned()]);
    let told = table("docs/policies.md", "## Fields");
    assert_eq!(column(&told), fields.iter().map(String::as_str).collect());
    let quick: BTreeSet<String> = names(&shown["quick"]).iter().map(|name| format!("quick.{name}")).collect();
    assert_eq!(
        column(&table("docs/policies.md", "## Quick tries")),
        quick.iter().map(String::as_str).collect()
    );
    let strategies = table("docs/policies.md", "## Strategies");
    assert_eq!(strategies.len(), Strategy::ALL.len() + 1);
    for strategy in Strategy::ALL {
        assert_eq!(row(&strategies, strategy.name())[1], strategy.code().to_string());
    }
    assert_eq!(table("docs/policies.md", "## Jitter").len(), 7, "six kinds and the titles");
}

/// A field of a policy as a cell of the page.
fn cell(policy: &Policy, field: &str) -> String {
    let shown = serde_json::to_value(policy).unwrap();
    let value = field.split('.').fold(&shown, |value, name| &value[name]);
    match (field, value) {
        ("maxAge", _) => words(policy.max_age()),
        (_, Value::Null) => String::new(),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Array(list)) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        (_, Value::Object(map)) => {
            let part =
                |(name, value): (&String, &Value)| format!("{name} {}", value.to_string().replace('"', ""));
            map.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        (_, other) => other.to_string(),
    }
}

#[test]
fn the_presets_are_as_the_page_says() {
    let told = table("docs/policies.md", "## Presets");
    assert_eq!(told[0][1..], Preset::ALL.map(Preset::name));
    for (at, preset) in (1..).zip(Preset::ALL) {
        let policy = preset.policy();
        for row in told[2..].iter().filter(|row| row[0] != "retryOn") {
            let wanted = match row[0].as_str() {
                "first to last attempt" => words(policy.window()),
                field => cell(&policy, field),
            };
            assert_eq!(row[at], wanted, "{} of {}", row[0], preset.name());
        }
        let retries_all = FailureType::ALL.iter().all(|failure| policy.retry_on.allows(*failure));
        assert_eq!(row(&told, "retryOn")[at], if retries_all { "every type" } else { "default" });
    }
}
