//! A filter as the parameters of a query, read and written.

use std::fmt::Write as _;

use super::words::{destinations, show_time, time};
use super::{Filter, LetterStatus};
use crate::channel::Channel;
use crate::failure::FailureType;
use crate::group::GroupId;
use crate::reason::Reason;
use crate::state::State;
use crate::time::Timestamp;

/// Which list is filtered: it decides which parameters there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Notifications.
    Notifications,
    /// Notifications that failed: those of the states `deadLetter` and `failed`.
    Failed,
    /// What waits for a retry or is under way with one.
    RetryQueue,
    /// Pending ones, unless `status` says otherwise.
    DeadLetters,
}

/// A parameter that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct BadFilter {
    /// Which one.
    pub parameter: &'static str,
    /// What is wrong and what is allowed.
    detail: String,
}

impl BadFilter {
    fn new(parameter: &'static str, detail: String) -> Self {
        Self { parameter, detail }
    }

    fn not_one_of(parameter: &'static str, given: &str, all: &str) -> Self {
        Self::new(parameter, format!("{parameter} must be one of {all}, not `{}`", short(given)))
    }
}

/// The parameters of all lists.
const PARAMETERS: [&str; 13] = [
    "tenant",
    "status",
    "state",
    "channel",
    "template",
    "destination",
    "failureType",
    "reasonCode",
    "statusCode",
    "since",
    "until",
    "q",
    "group",
];

impl List {
    /// The parameters of its filter.
    pub fn parameters(self) -> impl Iterator<Item = &'static str> {
        let without: &[&str] = match self {
            Self::Notifications => &["group"],
            Self::DeadLetters => &["state"],
            Self::Failed => &["status", "state", "group"],
            Self::RetryQueue => &["status", "state", "reasonCode", "group"],
        };
        PARAMETERS.into_iter().filter(|name| !without.contains(name))
    }
}

const FAILED: [State; 2] = [State::Failed, State::DeadLetter];

impl Filter {
    /// Reads the parameters of a list; other names are the caller's business.
    pub fn parse<'p>(
        list: List,
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
        now: Timestamp,
    ) -> Result<Self, BadFilter> {
        let mut filter = Self::default();
        let mut by_status = vec![];
        for (name, value) in pairs {
            let Some(parameter) = list.parameters().find(|known| *known == name) else { continue };
            match parameter {
                "tenant" => {
                    let tenant =
                        value.parse().map_err(|bad| BadFilter::new("tenant", format!("tenant: {bad}")))?;
                    filter.tenant = Some(tenant);
                }
                "status" if list == List::DeadLetters => filter.statuses = letter_statuses(value)?,
                "status" => by_status = states_of(value)?,
                "since" => filter.since = Some(time_of("since", value, now)?),
                "until" => filter.until = Some(time_of("until", value, now)?),
                "q" => filter.text = Some(value.to_owned()),
                "group" => filter.group = Some(group(value)?),
                several => filter.set(several, value)?,
            }
        }
        match list {
            List::Notifications if !by_status.is_empty() => filter.narrow_to(&by_status)?,
            List::Failed => filter.states = FAILED.to_vec(),
            List::DeadLetters if filter.statuses.is_empty() => filter.statuses = vec![LetterStatus::Pending],
            List::Notifications | List::DeadLetters | List::RetryQueue => {}
        }
        Ok(filter)
    }

    /// Sets a field that has several values.
    fn set(&mut self, parameter: &'static str, value: &str) -> Result<(), BadFilter> {
        match parameter {
            "state" => self.states = several("state", value, &State::ALL, State::name)?,
            "channel" => self.channels = several("channel", value, &Channel::ALL, Channel::name)?,
            "failureType" => {
                self.failure_types = several("failureType", value, &FailureType::ALL, FailureType::name)?;
            }
            "reasonCode" => self.reasons = several("reasonCode", value, &Reason::ALL, Reason::code)?,
            "statusCode" => {
                self.status_codes = sorted(each(value).map(status_code).collect::<Result<_, _>>()?)
            }
            "template" => self.templates = sorted(each(value).map(str::to_owned).collect()),
            "destination" => self.destinations = sorted(destinations(value)),
            _ => {}
        }
        Ok(())
    }

    /// Keeps the states that have one of the coarse statuses as well.
    fn narrow_to(&mut self, by_status: &[State]) -> Result<(), BadFilter> {
        if self.states.is_empty() {
            self.states = by_status.to_vec();
            return Ok(());
        }
        self.states.retain(|state| by_status.contains(state));
        if self.states.is_empty() {
            return Err(BadFilter::new("status", "no state that `state` names has this status".to_owned()));
        }
        Ok(())
    }

    /// The parameters that are read back as this filter.
    pub fn parameters(&self, list: List) -> Vec<(&'static str, String)> {
        let all: [(&'static str, Vec<String>); 13] = [
            ("tenant", self.tenant.iter().map(ToString::to_string).collect()),
            ("status", self.letter_statuses().iter().map(|status| status.name().to_owned()).collect()),
            ("state", self.states.iter().map(|state| state.name().to_owned()).collect()),
            ("channel", self.channels.iter().map(|channel| channel.name().to_owned()).collect()),
            ("template", self.templates.clone()),
            ("destination", self.destinations.clone()),
            ("failureType", self.failure_types.iter().map(|failure| failure.name().to_owned()).collect()),
            ("reasonCode", self.reasons.iter().map(|reason| reason.code().to_owned()).collect()),
            ("statusCode", self.status_codes.iter().map(ToString::to_string).collect()),
            ("since", self.since.iter().map(|since| show_time(*since)).collect()),
            ("until", self.until.iter().map(|until| show_time(*until)).collect()),
            ("q", self.text.iter().cloned().collect()),
            ("group", self.group.iter().map(ToString::to_string).collect()),
        ];
        let is_said = |name: &str| match name {
            "status" => list == List::DeadLetters,
            name => list.parameters().any(|known| known == name),
        };
        let given = all.into_iter().filter(|(name, values)| is_said(name) && !values.is_empty());
        given.map(|(name, values)| (name, values.join(","))).collect()
    }

    /// The filter as a query string without its `?`.
    pub fn query_string(&self, list: List) -> String {
        let mut query = String::new();
        for (name, value) in self.parameters(list) {
            let mark = if query.is_empty() { "" } else { "&" };
            write!(query, "{mark}{name}={}", encoded(&value)).expect("writing to a String does not fail");
        }
        query
    }
}

fn each(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
}

/// In their order and each once, so that equal filters are equal.
fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values.dedup();
    values
}

fn several<T: Copy + Ord>(
    parameter: &'static str,
    value: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, BadFilter> {
    let find = |text: &str| {
        let found = all.iter().copied().find(|one| name(*one) == text);
        found.ok_or_else(|| BadFilter::not_one_of(parameter, text, &names(all, name)))
    };
    Ok(sorted(each(value).map(find).collect::<Result<_, _>>()?))
}

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
    all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ")
}

fn letter_statuses(value: &str) -> Result<Vec<LetterStatus>, BadFilter> {
    let mut found = vec![];
    for word in each(value) {
        match (word, LetterStatus::ALL.into_iter().find(|status| status.name() == word)) {
            (_, Some(status)) => found.push(status),
            ("all", None) => found.extend(LetterStatus::NOT_DELETED),
            // The word that a dead letter shows.
            ("cancelled", None) => found.push(LetterStatus::Discarded),
            (_, None) => {
                let all = format!("{}, all", names(&LetterStatus::ALL, LetterStatus::name));
                return Err(BadFilter::not_one_of("status", word, &all));
            }
        }
    }
    Ok(sorted(found))
}

/// The states that have one of these coarse statuses.
fn states_of(value: &str) -> Result<Vec<State>, BadFilter> {
    let mut found = vec![];
    for word in each(value) {
        let before = found.len();
        found.extend(State::ALL.into_iter().filter(|state| state.status() == word));
        if found.len() == before {
            let all = "queued, sending, retrying, delivered, failed, cancelled, expired";
            return Err(BadFilter::not_one_of("status", word, all));
        }
    }
    Ok(sorted(found))
}

fn group(text: &str) -> Result<GroupId, BadFilter> {
    let group = text.parse::<GroupId>().map_err(|_| {
        let detail = format!(
            "group must be the id of a failure group, `grp_` and 26 characters, not `{}`",
            short(text)
        );
        BadFilter::new("group", detail)
    })?;
    if group.is_other() {
        let detail =
            "the group `other` is what is in no group of its own and has no list: filter by something else";
        return Err(BadFilter::new("group", detail.to_owned()));
    }
    Ok(group)
}

fn status_code(text: &str) -> Result<u16, BadFilter> {
    let bad = || {
        let detail =
            format!("statusCode must be a number such as 503, or several with commas, not `{}`", short(text));
        BadFilter::new("statusCode", detail)
    };
    crate::time::number(text).filter(|_| !text.is_empty()).ok_or_else(bad)
}

fn time_of(parameter: &'static str, value: &str, now: Timestamp) -> Result<Timestamp, BadFilter> {
    time(value, now).ok_or_else(|| {
        let detail = format!(
            "{parameter} must be a time such as 2026-04-15T10:45:30Z, a date such as 2026-04-15, or how long ago, such as 1d; \
             not `{}`",
            short(value)
        );
        BadFilter::new(parameter, detail)
    })
}

fn short(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

/// A value inside of a query string.
fn encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' | b':' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => write!(encoded, "%{byte:02X}").expect("writing to a String does not fail"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
