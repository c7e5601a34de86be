//! The saved views of a list: a row of links, and a form that saves the present filter.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::view::{ViewList, ViewName};
use serde_json::json;
use url::form_urlencoded;

use super::acts::again;
use super::filter_bar::FilterBar;
use super::flash::Flash;
use super::visitor::{Form, Visitor};
use crate::client::encode;
use crate::http::Shared;
use crate::http::body::Text;
use crate::http::extract::{ActorOf, Authenticated, InPath, NoQuery};
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::saved_views::{self, ViewView};

/// What a list shows of its views.
pub(super) struct SavedViews {
    pub(super) views: Vec<Link>,
    pub(super) token: String,
    /// The list and the filter to save, where there is a filter that no view has.
    pub(super) save: Option<(&'static str, String)>,
    /// Where the form leads that deletes the view that is shown.
    pub(super) delete: Option<String>,
}

/// A view as a link.
pub(super) struct Link {
    pub(super) view: ViewView,
    pub(super) href: String,
    pub(super) current: bool,
}

impl SavedViews {
    /// The views of a list whose filter is in the bar. The list is worth showing without them.
    pub(super) async fn of(api: &Shared, visitor: &Visitor, list: ViewList, bar: &FilterBar) -> Self {
        let found = match Query::parse("/v1/views", &format!("list={}", list.name())) {
            Ok(query) => {
                saved_views::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await
            }
            Err(problem) => Err(problem),
        };
        let found = found.map_or_else(|_| vec![], |Json(page)| page.data);
        let shown = sorted(bar.pairs().to_vec());
        let link = |view: ViewView| Link {
            href: format!("/{}?{}", list.name(), view.query),
            current: bar.first().is_none() && sorted(pairs(&view.query)) == shown,
            view,
        };
        let views: Vec<Link> = found.into_iter().map(link).collect();
        let current = views.iter().find(|link| link.current);
        let may_delete = visitor.may("deleteView");
        let delete = current.filter(|_| may_delete);
        let delete = delete.map(|link| format!("/views/{}/delete", encode(&link.view.name)));
        let is_new = bar.is_filtered() && bar.problem.is_none() && current.is_none();
        let save = (is_new && visitor.may("putView")).then(|| (list.name(), bar.query()));
        Self { views, token: visitor.token.clone(), save, delete }
    }

    pub(super) const fn longest_name() -> usize {
        ViewName::MAX
    }

    pub(super) fn is_shown(&self) -> bool {
        !self.views.is_empty() || self.save.is_some()
    }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The order of conditions does not matter.
fn sorted(mut pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    pairs.sort();
    pairs
}

pub(super) async fn save(State(api): State<Shared>, form: Form) -> Response {
    let visitor = &form.visitor;
    let field = |name| form.fields.get(name).unwrap_or_default().to_owned();
    let (name, list, query) = (field("name"), field("list"), field("query"));
    let body = json!({"list": list, "query": query, "shared": form.fields.get("shared").is_some()});
    let done = put(&api, visitor, name, &body).await;
    let done = done.map(|view| Flash::done(format!("The view “{}” is saved.", view.name)));
    let otherwise =
        ViewList::from_name(&list).map_or_else(|| "/".to_owned(), |list| format!("/{}", list.name()));
    again(&form, done, &otherwise)
}

async fn put(api: &Shared, visitor: &Visitor, name: String, body: &serde_json::Value) -> Result<ViewView> {
    let text = Text::of(api, &visitor.caller, body)?;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let put = saved_views::put(State(api.clone()), caller, actor, NoQuery, InPath(name), text).await?;
    Ok(put.0)
}

pub(super) async fn delete(State(api): State<Shared>, InPath(name): InPath, form: Form) -> Response {
    let visitor = &form.visitor;
    let (caller, actor) = (Authenticated(visitor.caller.clone()), ActorOf(visitor.actor.clone()));
    let done = saved_views::delete(State(api), caller, actor, NoQuery, InPath(name.clone())).await;
    let done = done.map(|_| Flash::done(format!("The view “{name}” is deleted.")));
    again(&form, done, "/")
}
