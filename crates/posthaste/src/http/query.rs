//! The query of a list: every parameter is known, or the request is refused.

use std::borrow::Cow;

use posthaste_core::channel::Channel;
use posthaste_core::filter::{Filter, List};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::Page;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::cursor::Position;
use super::problem::{Kind, Problem, Result};
use super::{Api, Ask};

/// How many rows a page has where nothing is said.
const DEFAULT_LIMIT: usize = 50;
/// How many it may have.
const LARGEST_LIMIT: usize = 500;
/// The most bytes of a parameter.
const LONGEST: usize = 1_024;
/// The most parameters: twins among them are looked for one against the other.
const MOST: usize = 32;

/// The parameters of a request, each taken once.
pub(super) struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>,
    known: Vec<&'static str>,
}

impl<'a> Query<'a> {
    /// Reads the query of a request.
    pub(super) fn of(ask: &'a Ask) -> Result<Self> {
        let text = ask.head.uri.query().unwrap_or("");
        let mut pairs: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)> = vec![];
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if pairs.len() == MOST {
                let detail = format!("the query has more than {MOST} parameters");
                return Err(Problem::new(Kind::Invalid, detail));
            }
            let wrong = if pairs.iter().any(|(other, _)| *other == name) {
                Some("is given twice".to_owned())
            } else if value.len() > LONGEST {
                Some(format!("is longer than {LONGEST} bytes"))
            } else if value.is_empty() {
                Some("is empty: leave it out, or say what it is".to_owned())
            } else if value.contains('\0') {
                // No text that is kept holds one, and PostgreSQL does not even take the question.
                Some("holds the character NUL".to_owned())
            } else {
                None
            };
            if let Some(wrong) = wrong {
                let name = short(&name);
                return Err(Problem::parameter(&name, format!("`{name}` {wrong}")));
            }
            pairs.push((name, Some(value)));
        }
        Ok(Self { pairs, known: vec![] })
    }

    /// Takes a parameter.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Cow<'a, str>> {
        self.known.push(name);
        let pair = self.pairs.iter_mut().find(|(given, _)| given == name)?;
        pair.1.take()
    }

    /// Takes a channel.
    pub(super) fn channel(&mut self) -> Result<Option<Channel>> {
        let Some(value) = self.take("channel") else { return Ok(None) };
        let channel = value.parse();
        channel.map(Some).map_err(|bad| Problem::parameter("channel", format!("channel: {bad}")))
    }

    /// Takes the filter of a list. A key of one tenant sees its own rows only.
    pub(super) fn filter(&mut self, list: List, ask: &Ask, now: Timestamp) -> Result<Filter> {
        let taken: Vec<_> = list.parameters().iter().map(|name| (*name, self.take(name))).collect();
        let given = taken.iter().filter_map(|(name, value)| value.as_deref().map(|value| (*name, value)));
        let filter = Filter::parse(list, given, now)
            .map_err(|bad| Problem::parameter(bad.parameter, bad.to_string()))?;
        Ok(Filter { tenant: seen_tenant(ask, filter.tenant)?, ..filter })
    }

    /// Takes the tenant whose rows are shown.
    pub(super) fn tenant(&mut self, ask: &Ask) -> Result<Option<Tenant>> {
        let Some(value) = self.take("tenant") else { return seen_tenant(ask, None) };
        let named: Tenant =
            value.parse().map_err(|bad| Problem::parameter("tenant", format!("tenant: {bad}")))?;
        seen_tenant(ask, Some(named))
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self) -> Result<()> {
        let unknown = self.pairs.iter().find(|(name, _)| !self.known.iter().any(|known| known == name));
        let Some((name, _)) = unknown else { return Ok(()) };
        let detail = match self.known.as_slice() {
            [] => format!("`{}` is unknown; there are no parameters here", short(name)),
            known => format!("`{}` is unknown; the parameters are {}", short(name), known.join(", ")),
        };
        Err(Problem::parameter(&short(name), detail))
    }
}

/// Whose rows are shown: the caller's own, or for an admin those that it names.
fn seen_tenant(ask: &Ask, named: Option<Tenant>) -> Result<Option<Tenant>> {
    match (&ask.caller.tenant, named) {
        (None, named) => Ok(named),
        (Some(own), None) => Ok(Some(own.clone())),
        (Some(own), Some(named)) if *own == named => Ok(Some(named)),
        (Some(_), Some(_)) => Err(Problem::new(Kind::Forbidden, "this key sees only its own tenant")),
    }
}

/// Which part of which list is asked for.
pub(super) struct Paging<P> {
    /// How many rows.
    pub(super) limit: usize,
    /// Where the page begins.
    pub(super) from: Option<P>,
    list: String,
}

impl<P: Position> Paging<P> {
    /// Takes `limit` and `cursor`. A cursor goes on only in the list and with the filters that it came from.
    pub(super) fn take(api: &Api, ask: &Ask, query: &mut Query<'_>) -> Result<Self> {
        let fits = |limit: &usize| (1..=LARGEST_LIMIT).contains(limit);
        let limit = match query.take("limit") {
            None => DEFAULT_LIMIT,
            Some(given) => given.parse().ok().filter(fits).ok_or_else(|| {
                let detail = format!(
                    "limit must be a whole number from 1 to {LARGEST_LIMIT}, not `{}`",
                    short(&given)
                );
                Problem::parameter("limit", detail)
            })?,
        };
        let list = list_of(ask);
        let cursor = query.take("cursor");
        let from = match cursor {
            None => None,
            Some(cursor) => Some(api.cursors().open(&list, &cursor).ok_or_else(|| Problem {
                parameter: Some("cursor".to_owned()),
                ..Problem::new(
                    Kind::BadCursor,
                    "the cursor is not the nextCursor of this list with these parameters: start again without it",
                )
            })?),
        };
        Ok(Self { limit, from, list })
    }

    /// The page as the API shows it.
    pub(super) fn show<T>(&self, api: &Api, page: Page<T, P>, show: impl FnMut(T) -> Value) -> Value {
        let next = page.next.map(|position| api.cursors().seal(&self.list, &position));
        let data: Vec<Value> = page.rows.into_iter().map(show).collect();
        json!({"data": data, "nextCursor": next})
    }
}

/// What a cursor is bound to: whose list, at which address, with which filters.
fn list_of(ask: &Ask) -> String {
    let query = ask.head.uri.query().unwrap_or("");
    let mut filters: Vec<(Cow<'_, str>, Cow<'_, str>)> = form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name != "cursor" && name != "limit")
        .collect();
    filters.sort();
    let whose = ask.caller.tenant.as_ref().map_or("*", Tenant::as_str);
    format!("{whose} {} {filters:?}", ask.head.uri.path())
}

fn short(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}
