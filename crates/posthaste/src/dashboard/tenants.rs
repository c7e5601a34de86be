//! `/tenants`: who sends, by name.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::filter_bar::FilterBar;
use super::notifications::at_its_place;
use super::shell::Shell;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::problem::Result;
use crate::http::query::Query;
use crate::http::tenants::{self, TenantView};

#[derive(Template)]
#[template(path = "tenants.html")]
struct TenantsPage {
    shell: Shell,
    bar: FilterBar,
    rows: Vec<TenantView>,
    next: Option<String>,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "tenants", std::iter::empty());
    let listed = match Query::parse("/v1/tenants", &visitor.query) {
        Ok(query) => tenants::list(State(api.clone()), Authenticated(visitor.caller.clone()), query).await,
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let shell = Shell::of(&api, &visitor, "Tenants", "/tenants").await;
    let next = bar.next(listed.next_cursor.as_ref());
    let page = TenantsPage { shell, bar, rows: listed.data, next };
    Ok(page.shell.answer_with(status, &page))
}
