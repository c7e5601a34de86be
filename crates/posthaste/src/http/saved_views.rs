//! `/v1/views`: filters of lists that people gave names.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::filter::List;
use posthaste_core::role::Role;
use posthaste_core::time::Timestamp;
use posthaste_core::view::{NotSaved, SavedView, ViewList, ViewName, Viewer};
use posthaste_engine::saved_views::ViewError;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Text, read};
use super::extract::{ActorOf, Authenticated, InPath, NoQuery};
use super::page::Page;
use super::problem::{Kind, Problem, Result};
use super::query::{Query, short};
use super::{Api, Shared, failure_groups};
use crate::keys::{Caller, Credential};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, put, delete))
}

/// What stands for the key that the process was given, in place of an id.
const GIVEN: &str = "given";

/// A saved view: a list with a filter.
#[derive(Serialize, ToSchema)]
#[schema(as = View)]
pub(crate) struct ViewView {
    pub(crate) name: String,
    #[schema(value_type = ViewListName)]
    pub(crate) list: ViewList,
    /// The query of the list. A duration in it counts from when the view is used.
    pub(crate) query: String,
    /// Whether every key of the tenant sees it, or only the one that saved it and admins.
    pub(crate) shared: bool,
    /// Who saved it.
    pub(crate) by: String,
    /// When.
    pub(crate) at: Timestamp,
}

/// The lists that views are of.
#[derive(ToSchema)]
#[schema(as = ViewList, rename_all = "kebab-case")]
#[expect(dead_code, reason = "it only describes the words")]
enum ViewListName {
    Notifications,
    RetryQueue,
    DeadLetters,
    FailureGroups,
}

impl ViewView {
    fn of(view: &SavedView) -> Self {
        Self {
            name: view.name.as_str().to_owned(),
            list: view.list,
            query: view.query.clone(),
            shared: view.shared,
            by: view.by.clone(),
            at: view.at,
        }
    }
}

impl From<ViewError> for Problem {
    fn from(error: ViewError) -> Self {
        let detail = error.to_string();
        match error {
            ViewError::Missing(_) => Self::not_found(detail),
            ViewError::NotSaved(NotSaved::Taken | NotSaved::Full) => Self::parameter("name", detail),
            ViewError::Busy => Self::new(Kind::Overloaded, detail),
            ViewError::Store(error) => error.into(),
        }
    }
}

fn viewer(caller: &Caller) -> Viewer {
    let key = match &caller.credential {
        Credential::Given => GIVEN.to_owned(),
        Credential::Key(id) => id.to_string(),
        Credential::Token { .. } => format!("sub:{}", caller.name),
    };
    Viewer { key, is_admin: caller.role == Role::Admin }
}

/// The saved views, by list and name.
///
/// They belong to the tenant of the key; keys for all tenants have their own.
#[utoipa::path(get, path = "/v1/views", operation_id = "listViews", tag = "views",
    params(("list" = Option<ViewListName>, Query, description = "Of which list; all by default")), security(("key" = ["reader"])),
    responses((status = 200, description = "All that the caller can see", body = Page<ViewView>)))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<ViewView>>> {
    let named = query.take("list");
    let wanted = named.map(|name| list_named(&name).map_err(|bad| Problem::parameter("list", bad)));
    let wanted = wanted.transpose()?;
    query.finish()?;
    let views = api.reads(&caller).saved_views().await?;
    let viewer = viewer(&caller);
    let asked = views.seen_by(&viewer).filter(|view| wanted.is_none_or(|list| list == view.list));
    Ok(Json(Page::whole(asked.map(ViewView::of).collect())))
}

fn list_named(name: &str) -> Result<ViewList, String> {
    ViewList::from_name(name).ok_or_else(|| {
        let names = ViewList::ALL.map(ViewList::name).join(", ");
        format!("list must be one of {names}, not `{}`", short(name))
    })
}

/// One saved view.
#[utoipa::path(get, path = "/v1/views/{name}", operation_id = "getView", tag = "views",
    params(("name" = String, Path, max_length = 60)), security(("key" = ["reader"])),
    responses((status = 200, description = "The view", body = ViewView), (status = 404, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    InPath(name): InPath,
) -> Result<Json<ViewView>> {
    let views = api.reads(&caller).saved_views().await?;
    let found = views.seen_by(&viewer(&caller)).find(|view| view.name.as_str() == name).map(ViewView::of);
    found.map(Json).ok_or_else(|| missing(&name))
}

fn missing(name: &str) -> Problem {
    Problem::not_found(format!("there is no view `{}`", short(name)))
}

/// A view to be saved.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewView {
    #[schema(required, value_type = ViewListName)]
    list: Option<String>,
    /// The parameters of the list as in its address, without `limit` and `cursor`. A duration counts from when the view is used.
    #[schema(required, max_length = 2000, example = "status=failed&since=1d")]
    query: Option<String>,
    /// Whether every key of the tenant sees it; true by default. Otherwise it is seen with this key, and by admins.
    shared: Option<bool>,
}

/// Saves a view, in place of the one of its name. At most 100 of a tenant.
///
/// The name has up to 60 characters and no `/`. Keys for all tenants have views of their own.
#[utoipa::path(put, path = "/v1/views/{name}", operation_id = "putView", tag = "views",
    params(("name" = String, Path, max_length = 60)), request_body = NewView, security(("key" = ["operator"])),
    responses((status = 200, description = "The view", body = ViewView)))]
pub(crate) async fn put(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(name): InPath,
    text: Text,
) -> Result<Json<ViewView>> {
    let name = ViewName::new(&name).map_err(|bad| Problem::parameter("name", format!("name: {bad}")))?;
    let new: NewView = read(&text)?;
    let list = new.list.ok_or_else(|| Problem::at("/list", "list is missing: of which list the view is"))?;
    let list = list_named(&list).map_err(|bad| Problem::at("/list", bad))?;
    let query = new.query.ok_or_else(|| Problem::at("/query", "query is missing: the filter of the list"))?;
    let view = SavedView {
        name,
        list,
        query: checked(&api, &caller, list, &query).map_err(|bad| bad.in_query())?,
        shared: new.shared.unwrap_or(true),
        owner: viewer(&caller).key,
        by: actor.name.clone(),
        at: api.engine.now(),
    };
    let shown = ViewView::of(&view);
    api.engine.put_saved_view(view, viewer(&caller), &actor).await?;
    Ok(Json(shown))
}

impl Problem {
    /// A mistake of a list's query, where that query is the field `query` of a body.
    fn in_query(self) -> Self {
        Self { parameter: None, ..self }.pointing("/query")
    }
}

/// The query as it is kept, if the list would take it.
fn checked(api: &Api, caller: &Caller, list: ViewList, text: &str) -> Result<String> {
    let text = text.strip_prefix('?').unwrap_or(text);
    if text.len() > SavedView::MAX_QUERY {
        let detail = format!("query: longer than {} bytes", SavedView::MAX_QUERY);
        return Err(Problem::new(Kind::Invalid, detail));
    }
    let mut query = Query::parse("", text)?;
    let tenant = match list {
        ViewList::Notifications => query.filter(List::Notifications, api.engine.now())?.tenant,
        ViewList::RetryQueue => query.filter(List::RetryQueue, api.engine.now())?.tenant,
        ViewList::DeadLetters => query.filter(List::DeadLetters, api.engine.now())?.tenant,
        ViewList::FailureGroups => {
            failure_groups::by(&mut query)?;
            query.tenant()?
        }
    };
    query.finish()?;
    api.reads(caller).tenant(tenant)?;
    // Written anew, so that whatever was encoded in some other way is the same address everywhere.
    let pairs = form_urlencoded::parse(text.as_bytes());
    let kept = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    if kept.len() > SavedView::MAX_QUERY {
        let detail = format!("query: longer than {} bytes once it is encoded", SavedView::MAX_QUERY);
        return Err(Problem::new(Kind::Invalid, detail));
    }
    Ok(kept)
}

/// Deletes a view.
#[utoipa::path(delete, path = "/v1/views/{name}", operation_id = "deleteView", tag = "views",
    params(("name" = String, Path, max_length = 60)), security(("key" = ["operator"])),
    responses((status = 204, description = "It is deleted"), (status = 404, description = "")))]
pub(crate) async fn delete(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(name): InPath,
) -> Result<StatusCode> {
    let name = ViewName::new(&name).map_err(|_| missing(&name))?;
    api.engine.delete_saved_view(name, viewer(&caller), &actor).await?;
    Ok(StatusCode::NO_CONTENT)
}
