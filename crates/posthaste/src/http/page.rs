//! Lists in pages: which part is asked for, what is shown of it, and how the parameters of a list are
//! described.

use posthaste_core::filter::List;
use posthaste_core::notification::Tenant;
use posthaste_engine::store;
use serde::Serialize;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Required, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::Api;
use super::cursor::Position;
use super::problem::{Kind, Problem, Result};
use super::query::{LONGEST, Query, short};
use crate::keys::Caller;

/// How many rows a page has by default.
const DEFAULT_LIMIT: usize = 50;
/// How many it may have.
const LARGEST_LIMIT: usize = 500;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page<T> {
    pub(crate) data: Vec<T>,
    /// The `cursor` of the next page; null if there is none. A page may be short and still have a next one.
    pub(crate) next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A list that is short enough for one page.
    pub(crate) const fn whole(data: Vec<T>) -> Self {
        Self { data, next_cursor: None }
    }
}

/// Which part of which list is asked for.
pub(crate) struct Paging<P> {
    /// How many rows.
    pub(crate) limit: usize,
    /// Where the page begins.
    pub(crate) from: Option<P>,
    list: String,
}

impl<P: Position> Paging<P> {
    /// Takes `limit` and `cursor`. A cursor is valid only for the caller, list and filters that it was made
    /// for. Call it before any other parameter is taken.
    pub(crate) fn take(api: &Api, caller: &Caller, query: &mut Query) -> Result<Self> {
        let whose = caller.tenant.as_ref().map_or("*", |tenant| tenant.as_str());
        let list = format!("{whose} {}", query.list());
        let fits = |limit: &usize| (1..=LARGEST_LIMIT).contains(limit);
        let limit = match query.take("limit") {
            None => DEFAULT_LIMIT,
            Some(given) => given.parse().ok().filter(fits).ok_or_else(|| {
                let given = short(&given);
                let detail = format!("limit must be a whole number from 1 to {LARGEST_LIMIT}, not `{given}`");
                Problem::parameter("limit", detail)
            })?,
        };
        let cursor = query.take("cursor");
        let from =
            cursor.map(|cursor| api.cursors().open(&list, &cursor).ok_or_else(bad_cursor)).transpose()?;
        Ok(Self { limit, from, list })
    }

    /// The page as the API shows it.
    pub(crate) fn show<T, V>(&self, api: &Api, page: store::Page<T, P>, show: impl FnMut(T) -> V) -> Page<V> {
        let next_cursor = page.next.map(|position| api.cursors().seal(&self.list, &position));
        Page { data: page.rows.into_iter().map(show).collect(), next_cursor }
    }
}

fn bad_cursor() -> Problem {
    let detail =
        "the cursor is not the nextCursor of this list with these parameters: start again without it";
    Problem { parameter: Some("cursor".into()), ..Problem::new(Kind::BadCursor, detail) }
}

/// Describes a parameter of a query.
pub(crate) fn parameter(name: &str, description: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema.into()))
        .build()
}

/// A text as `Query` takes it.
pub(crate) fn text() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(LONGEST)).into()
}

fn schema_of(parameter: &str) -> RefOr<Schema> {
    if parameter == "tenant" { Tenant::schema() } else { text() }
}

/// The parameters of every list.
pub(crate) struct Paged;

impl IntoParams for Paged {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let limit = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(LARGEST_LIMIT))
            .default(Some(DEFAULT_LIMIT.into()));
        vec![
            parameter("limit", "Rows of a page", limit),
            parameter("cursor", "The `nextCursor` of the page before", text()),
        ]
    }
}

/// `tenant`, for keys for all tenants.
pub(crate) struct OfTenant;

impl IntoParams for OfTenant {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![parameter("tenant", meaning("tenant"), schema_of("tenant"))]
    }
}

macro_rules! filtered {
    ($($name:ident $list:ident;)*) => {
        $(
            #[doc = concat!("The parameters of the list ", stringify!($list), ".")]
            pub(crate) struct $name;

            impl IntoParams for $name {
                fn into_params(within: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                    Paged::into_params(within).into_iter().chain(filters(List::$list)).collect()
                }
            }
        )*
    };
}

filtered! {
    NotificationFilter Notifications;
    FailedFilter Failed;
    RetryQueueFilter RetryQueue;
    DeadLetterFilter DeadLetters;
}

/// The parameters of the filter of a list.
pub(super) fn filters(list: List) -> impl Iterator<Item = Parameter> {
    list.parameters().map(|name| parameter(name, meaning(name), schema_of(name)))
}

/// What a parameter of a filter means.
fn meaning(parameter: &str) -> &'static str {
    match parameter {
        "tenant" => "Of which tenant; a key for all tenants may name any",
        "status" => {
            "Notifications: queued, sending, retrying, delivered, failed, cancelled or expired. Dead letters: pending (the \
             default), requeued, discarded, deleted or all. Several with commas"
        }
        "state" => "One state or several with commas",
        "channel" => "Over which channel; several with commas",
        "template" => "Made from which template; several with commas",
        "destination" => "To which destination; several with commas; a URL stands for its origin",
        "failureType" => "How the last attempt failed; several with commas",
        "reasonCode" => "Why it ended; several with commas",
        "statusCode" => "The status code with which the last attempt failed; several with commas",
        "since" => "At or after: a time, a date (its first moment in UTC) or a duration ago, such as 1d",
        "until" => "Before: a time, a date or a duration ago",
        "group" => "In which failure group (`grp_..`)",
        "q" => "Text in recipient, subject, event key or correlation id",
        _ => "",
    }
}
