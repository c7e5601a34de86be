//! The filter bar: its text is the query of the address, which is the query of the API and the flags of the command.

use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::reason::Reason;
use url::form_urlencoded;

use super::visitor::Visitor;

/// The field in which a condition is typed.
const TYPED: &str = "f";

/// A list with its filter.
pub(super) struct FilterBar {
    /// The address of the page, which is the API's without `/v1`.
    path: String,
    /// How people reach the server.
    base: String,
    /// The command, such as `notifications list`.
    command: &'static str,
    /// The conditions, without the place in the list.
    pairs: Vec<(String, String)>,
    is_later_page: bool,
    known: Vec<&'static str>,
    /// What was wrong with it, in the words of the API.
    pub(super) problem: Option<String>,
}

/// One condition.
pub(super) struct Token {
    pub(super) name: String,
    pub(super) value: String,
    /// The list without it.
    pub(super) without: String,
}

/// A link that sets one condition.
pub(super) struct Tab {
    pub(super) name: &'static str,
    pub(super) href: String,
    pub(super) current: bool,
    pub(super) count: Option<String>,
}

impl FilterBar {
    /// The bar of the page that a visitor asked for. `known` are the parameters of the list.
    pub(super) fn of(
        visitor: &Visitor,
        command: &'static str,
        known: impl Iterator<Item = &'static str>,
    ) -> Self {
        let given: Vec<(String, String)> =
            form_urlencoded::parse(visitor.query.as_bytes()).into_owned().collect();
        let is_later_page = given.iter().any(|(name, _)| name == "cursor");
        let pairs = given.into_iter().filter(|(name, _)| name != "cursor" && name != "limit").collect();
        let known = known.filter(|name| *name != "tenant" || visitor.caller.tenant.is_none()).collect();
        let (path, base) = (visitor.path.clone(), visitor.base.clone());
        Self { path, base, command, pairs, is_later_page, known, problem: None }
    }

    /// Where a filter that was typed leads to. None if nothing was typed.
    pub(super) fn typed(&self) -> Option<String> {
        if !self.pairs.iter().any(|(name, value)| name == TYPED || value.is_empty()) {
            return None;
        }
        let mut pairs: Vec<(String, String)> =
            self.pairs.iter().filter(|(name, value)| name != TYPED && !value.is_empty()).cloned().collect();
        for (_, typed) in self.pairs.iter().filter(|(name, _)| name == TYPED) {
            for (name, value) in conditions(typed, &self.known) {
                pairs.retain(|(given, _)| *given != name);
                pairs.push((name, value));
            }
        }
        Some(self.address(&pairs))
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        let without = |name: &str| {
            let rest: Vec<_> = self.pairs.iter().filter(|(given, _)| given != name).cloned().collect();
            self.address(&rest)
        };
        let token = |(name, value): &(String, String)| Token {
            name: name.clone(),
            value: value.clone(),
            without: without(name),
        };
        self.pairs.iter().map(token).collect()
    }

    /// The list with one condition set to another value, or without it.
    pub(super) fn tab(&self, name: &'static str, set: &str, value: Option<&str>, clears: &[&str]) -> Tab {
        let now = self.pairs.iter().find(|(given, _)| given == set).map(|(_, value)| value.as_str());
        let keeps = |given: &str| given != set && !clears.contains(&given);
        let mut pairs: Vec<_> = self.pairs.iter().filter(|(given, _)| keeps(given)).cloned().collect();
        pairs.extend(value.map(|value| (set.to_owned(), value.to_owned())));
        let has_others = self.pairs.iter().any(|(given, _)| clears.contains(&given.as_str()));
        let current = now == value && (value.is_some() || !has_others);
        Tab { name, href: self.address(&pairs), current, count: None }
    }

    /// The next page.
    pub(super) fn next(&self, cursor: Option<&String>) -> Option<String> {
        let mut pairs = self.pairs.clone();
        pairs.push(("cursor".to_owned(), cursor?.clone()));
        Some(self.address(&pairs))
    }

    /// The first page, if this is another.
    pub(super) fn first(&self) -> Option<String> {
        self.is_later_page.then(|| self.address(&self.pairs))
    }

    /// The conditions.
    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The value of a condition.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn is_filtered(&self) -> bool {
        !self.pairs.is_empty()
    }

    pub(super) fn placeholder(&self) -> String {
        let names: Vec<String> = self.known.iter().map(|name| format!("{name}=")).collect();
        format!("Add: {}", names.join(" "))
    }

    /// What can be typed, for completion.
    pub(super) fn suggestions(&self) -> Vec<String> {
        let values = |name: &str| -> Vec<&str> {
            match name {
                "channel" => Channel::ALL.map(Channel::name).into(),
                "failureType" => FailureType::ALL.map(FailureType::name).into(),
                "reasonCode" => Reason::ALL.map(Reason::code).into(),
                "since" | "until" => vec!["15m", "1h", "6h", "1d", "7d"],
                _ => vec![""],
            }
        };
        let all = self
            .known
            .iter()
            .flat_map(|name| values(name).into_iter().map(move |value| format!("{name}={value}")));
        all.collect()
    }

    /// The conditions as the query of an address.
    pub(super) fn query(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.pairs).finish()
    }

    pub(super) fn url(&self) -> String {
        self.address(&self.pairs)
    }

    pub(super) fn api(&self) -> String {
        // A stream is shown as it comes.
        let flags = if self.path == "/stream" { "-sSN" } else { "-sS" };
        format!(
            "curl {flags} '{}/v1{}' -H \"Authorization: Bearer $POSTHASTE_KEY\"",
            self.base,
            self.url().replace('\'', "%27")
        )
    }

    pub(super) fn command(&self) -> String {
        let flags = self.pairs.iter().map(|(name, value)| match (switch(name), value.as_str()) {
            (Some(switch), "true") => format!(" {switch}"),
            (Some(_), _) => String::new(),
            (None, value) => format!(" {} {}", flag(name), quoted(value)),
        });
        format!("posthaste {}{}", self.command, flags.collect::<String>())
    }

    fn address(&self, pairs: &[(String, String)]) -> String {
        if pairs.is_empty() {
            return self.path.clone();
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        format!("{}?{query}", self.path)
    }
}

/// `failureType` is `--failure-type`.
fn flag(name: &str) -> String {
    if name == "q" {
        return "--search".to_owned();
    }
    let mut flag = "--".to_owned();
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(character.to_ascii_lowercase());
    }
    flag
}

/// The flag of a parameter that is `true` or `false`. `--all` pages through a list to its end.
fn switch(name: &str) -> Option<&'static str> {
    match name {
        "all" => Some("--known"),
        "unfinished" => Some("--unfinished"),
        _ => None,
    }
}

/// A value as a shell takes it.
pub(super) fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:/@+%".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// `channel=email order 12` means the channel and a search for `order 12`.
pub(super) fn conditions(typed: &str, known: &[&'static str]) -> Vec<(String, String)> {
    let (mut found, mut words): (Vec<(String, String)>, Vec<&str>) = (vec![], vec![]);
    for word in typed.split_whitespace() {
        match word.split_once('=') {
            Some(("q", value)) => words.push(value),
            // An unknown name is kept, so that the API says what there is.
            Some((name, value))
                if known.contains(&name) || name.bytes().all(|byte| byte.is_ascii_alphabetic()) =>
            {
                found.push((name.to_owned(), value.to_owned()));
            }
            _ => words.push(word),
        }
    }
    let search = words.join(" ");
    if !search.trim().is_empty() {
        found.push(("q".to_owned(), search));
    }
    found.into_iter().filter(|(name, value)| !name.is_empty() && !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(query: &str) -> FilterBar {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        FilterBar {
            path: "/notifications".to_owned(),
            base: "http://localhost:7780".to_owned(),
            command: "notifications list",
            pairs,
            is_later_page: false,
            known: vec!["channel", "status", "q"],
            problem: None,
        }
    }

    #[test]
    fn what_is_typed_becomes_the_query() {
        for (query, wanted) in [
            ("f=channel%3Demail", Some("/notifications?channel=email")),
            ("status=failed&f=order+12", Some("/notifications?status=failed&q=order+12")),
            ("channel=sms&f=channel%3Demail", Some("/notifications?channel=email")),
            ("f=", Some("/notifications")),
            ("f=nonsense%3D1", Some("/notifications?nonsense=1")),
            ("f=a%3Db%26c", Some("/notifications?a=b%26c")),
            ("status=failed", None),
            ("", None),
        ] {
            assert_eq!(bar(query).typed().as_deref(), wanted, "{query}");
        }
    }

    #[test]
    fn the_same_list_is_an_address_a_call_and_a_command() {
        let bar = bar("channel=email&q=it%27s+1&failureType=timeout");
        assert_eq!(bar.url(), "/notifications?channel=email&q=it%27s+1&failureType=timeout");
        assert!(bar.api().contains("/v1/notifications?channel=email&q=it%27s+1"), "{}", bar.api());
        assert_eq!(
            bar.command(),
            "posthaste notifications list --channel email --search 'it'\\''s 1' --failure-type timeout"
        );
    }

    /// What a parameter may be.
    fn sample(command: &str, name: &str) -> &'static str {
        match name {
            "status" if command == "dead-letters list" => "discarded",
            "by" => "destination",
            "channel" => "email,sms",
            "failureType" => "timeout",
            "reasonCode" => "DISCARDED",
            "state" => "deadLetter",
            "status" => "failed",
            "statusCode" => "500,503",
            "all" | "unfinished" => "true",
            "since" | "until" | "history" => "1d",
            "group" => "grp_2tthczw8vgnv4tjy43e8xn4edg",
            _ => "x",
        }
    }

    #[test]
    fn the_command_takes_every_filter_of_its_page() {
        use posthaste_core::filter::List;
        for (command, known) in [
            ("notifications list", List::Notifications.parameters().collect::<Vec<_>>()),
            ("retry-queue", List::RetryQueue.parameters().collect()),
            ("dead-letters list", List::DeadLetters.parameters().collect()),
            ("tail", List::Notifications.parameters().collect()),
            ("failure-groups list", vec!["by", "tenant"]),
            ("retry-operations list", vec!["unfinished"]),
            ("destinations list", vec!["name", "all", "tenant", "history"]),
            ("audit", super::super::audit::PARAMETERS.to_vec()),
        ] {
            for name in known {
                let pairs = vec![(name.to_owned(), sample(command, name).to_owned())];
                let bar = FilterBar { command, pairs, ..bar("") };
                let words = bar.command();
                let read = crate::cli::command().try_get_matches_from(words.split(' '));
                assert!(read.is_ok(), "{words}: {}", read.unwrap_err());
            }
        }
        let bar = FilterBar { command: "destinations list", ..bar("all=false&tenant=a") };
        assert_eq!(bar.command(), "posthaste destinations list --tenant a");
    }

    #[test]
    fn a_tab_sets_one_condition_and_keeps_the_others() {
        let bar = bar("channel=email&status=failed");
        let tab = bar.tab("Queued", "status", Some("queued"), &["state"]);
        assert_eq!((tab.href.as_str(), tab.current), ("/notifications?channel=email&status=queued", false));
        assert!(bar.tab("Failed", "status", Some("failed"), &[]).current);
        let all = bar.tab("All", "status", None, &["state"]);
        assert_eq!((all.href.as_str(), all.current), ("/notifications?channel=email", false));
    }
}
