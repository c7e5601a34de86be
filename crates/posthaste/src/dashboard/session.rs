//! `/session`: who is logged in, the theme, and the ends of sessions.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::shell::Shell;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::problem::Result;

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage {
    shell: Shell,
    name: String,
    key: Option<String>,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let shell = Shell::of(&api, &visitor, "Session", "/session").await;
    let key = visitor.caller.key().map(|id| id.to_string());
    let page = SessionPage { shell, name: visitor.caller.name.clone(), key };
    Ok(page.shell.answer(&page))
}
