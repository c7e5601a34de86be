//! The query of a request: every parameter is known, or the request is refused.

use axum::extract::FromRequestParts;
use http::request::Parts;
use posthaste_core::channel::Channel;
use posthaste_core::filter::{Filter, List, time};
use posthaste_core::notification::{BadTenant, Tenant};
use posthaste_core::time::Timestamp;
use url::form_urlencoded;

use super::Shared;
use super::problem::{Kind, Problem, Result};

/// The most bytes of a parameter.
pub(crate) const LONGEST: usize = 1_024;
/// The most parameters: each is compared with all others to find repeated ones.
const MOST: usize = 32;

/// Parameters of lists that do not say which rows there are.
const NO_FILTERS: [&str; 3] = ["cursor", "limit", "history"];

/// The parameters of a request, each taken once.
pub(crate) struct Query {
    /// Where the request goes.
    pub(crate) path: String,
    pairs: Vec<(String, Option<String>)>,
    known: Vec<&'static str>,
}

impl FromRequestParts<Shared> for Query {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _: &Shared) -> Result<Self> {
        Self::parse(head.uri.path(), head.uri.query().unwrap_or(""))
    }
}

impl Query {
    /// The parameters of a query to a path of the API.
    pub(crate) fn parse(path: &str, query: &str) -> Result<Self> {
        let mut pairs: Vec<(String, Option<String>)> = vec![];
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if pairs.len() == MOST {
                let detail = format!("the query has more than {MOST} parameters");
                return Err(Problem::new(Kind::Invalid, detail));
            }
            let wrong = if pairs.iter().any(|(other, _)| *other == name) {
                Some("is given twice".to_owned())
            } else if value.len() > LONGEST {
                Some(format!("is longer than {LONGEST} bytes"))
            } else if value.is_empty() {
                Some("is empty: leave it out, or give a value".to_owned())
            } else if value.contains('\0') {
                // No stored text contains one, and PostgreSQL does not accept it in a query.
                Some("contains the character NUL".to_owned())
            } else {
                None
            };
            if let Some(wrong) = wrong {
                let name = short(&name);
                return Err(Problem::parameter(&name, format!("`{name}` {wrong}")));
            }
            pairs.push((name.into_owned(), Some(value.into_owned())));
        }
        Ok(Self { path: path.to_owned(), pairs, known: vec![] })
    }

    /// Takes a parameter.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let pair = self.pairs.iter_mut().find(|(given, _)| given == name)?;
        pair.1.take()
    }

    /// Takes a channel.
    pub(crate) fn channel(&mut self) -> Result<Option<Channel>> {
        let Some(value) = self.take("channel") else { return Ok(None) };
        let channel = value.parse();
        channel.map(Some).map_err(|bad| Problem::parameter("channel", format!("channel: {bad}")))
    }

    /// Takes the filter of a list.
    pub(crate) fn filter(&mut self, list: List, now: Timestamp) -> Result<Filter> {
        let taken: Vec<_> = list.parameters().map(|name| (name, self.take(name))).collect();
        let given = taken.iter().filter_map(|(name, value)| value.as_deref().map(|value| (*name, value)));
        Filter::parse(list, given, now).map_err(|bad| Problem::parameter(bad.parameter, bad.to_string()))
    }

    /// Takes the tenant whose rows are asked for.
    pub(crate) fn tenant(&mut self) -> Result<Option<Tenant>> {
        let named = self.take("tenant").map(|value| value.parse()).transpose();
        named.map_err(|bad: BadTenant| Problem::parameter("tenant", bad.to_string()))
    }

    /// Takes a parameter that is `true` or `false`, which is the default.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                let detail = format!("{name} must be true or false, not `{}`", short(other));
                Err(Problem::parameter(name, detail))
            }
        }
    }

    /// Takes a time, a date or how long ago.
    pub(crate) fn past(&mut self, name: &'static str, now: Timestamp) -> Result<Option<Timestamp>> {
        let Some(given) = self.take(name) else { return Ok(None) };
        time(&given, now).map(Some).ok_or_else(|| {
            let given = short(&given);
            let detail = format!("{name}: `{given}` is no time, date or duration ago such as 2026-04-15T10:45:30Z, 2026-04-15 or 1d");
            Problem::parameter(name, detail)
        })
    }

    /// What the list is, for its cursors: its address and its filters.
    pub(crate) fn list(&self) -> String {
        let is_filter = |(name, _): &&(String, Option<String>)| !NO_FILTERS.contains(&name.as_str());
        let mut filters: Vec<_> = self.pairs.iter().filter(is_filter).collect();
        filters.sort();
        format!("{} {filters:?}", self.path)
    }

    /// Refuses what was not taken.
    pub(crate) fn finish(self) -> Result<()> {
        let unknown = self.pairs.iter().find(|(name, _)| !self.known.iter().any(|known| known == name));
        let Some((name, _)) = unknown else { return Ok(()) };
        let detail = match self.known.as_slice() {
            [] => format!("`{}` is unknown; there are no parameters here", short(name)),
            known => format!("`{}` is unknown; the parameters are {}", short(name), known.join(", ")),
        };
        Err(Problem::parameter(&short(name), detail))
    }
}

pub(crate) fn short(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}
