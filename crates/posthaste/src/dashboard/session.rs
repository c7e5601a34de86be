//! `/session`: who is logged in, the theme, the keys of pages, and the ends of sessions.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::header::SET_COOKIE;

use super::cookie;
use super::login::{back, see};
use super::shell::Shell;
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::problem::{Problem, Result};

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

/// Switches the keys of pages on or off: whoever speaks to a browser, or presses keys by mistake, is better off without them.
pub(super) async fn choose_shortcuts(form: Form) -> Result<Response> {
    let (value, seconds) = match form.fields.get("shortcuts") {
        Some("on") => ("", 0),
        Some("off") => ("off", cookie::REMEMBERED),
        _ => return Err(Problem::at("/shortcuts", "shortcuts are on or off")),
    };
    let mut response = see(&back(&form.headers, "/session"));
    response.headers_mut().append(SET_COOKIE, cookie::set(cookie::SHORTCUTS, value, seconds));
    Ok(response)
}
