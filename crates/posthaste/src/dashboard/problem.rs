//! A problem of a page, in words. Without a session a visitor is sent to log in, and comes back afterwards.

use askama::Template;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::{ALLOW, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use url::form_urlencoded;

use super::visitor::theme;
use super::{at, shell};
use crate::http::problem::{Kind, Problem};

/// htmx asks with this header, and is sent elsewhere with that one.
pub(super) const FROM_HTMX: &str = "hx-request";
const REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// A request for a page.
pub(crate) struct Visit {
    /// Where it goes after a login.
    to: String,
    htmx: bool,
    theme: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'p> {
    theme: Option<&'static str>,
    title: &'static str,
    detail: &'p str,
    code: &'static str,
    request_id: &'p str,
}

impl Visit {
    /// None if the request is not for a page.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let uri = request.uri();
        if at(uri.path()).is_empty() {
            return None;
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let to = if is_read { uri.path_and_query().map_or("/", |to| to.as_str()) } else { "/" };
        let htmx = is_htmx(request.headers());
        Some(Self { to: to.to_owned(), htmx, theme: theme(request.headers()) })
    }

    /// The page for a problem.
    pub(crate) fn refuse(&self, problem: &Problem, request_id: &str) -> Response {
        if problem.kind == Kind::Unauthorized {
            return self.to_login();
        }
        let (status, code, title) = problem.kind.shown();
        let page = ProblemPage { theme: self.theme, title, detail: &problem.detail, code, request_id };
        let mut response = shell::html(status, &page);
        if let Some(allow) = problem.allow.as_deref().cloned() {
            response.headers_mut().insert(ALLOW, allow);
        }
        response
    }

    fn to_login(&self) -> Response {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("to", &self.to).finish();
        let path = if self.to == "/" { "/login".to_owned() } else { format!("/login?{query}") };
        let header = if self.htmx { REDIRECT } else { LOCATION };
        let status = if self.htmx { StatusCode::OK } else { StatusCode::SEE_OTHER };
        let path = HeaderValue::from_str(&path).unwrap_or_else(|_| HeaderValue::from_static("/login"));
        (status, [(header, path)]).into_response()
    }
}

/// Whether the script asks for a part of a page.
pub(super) fn is_htmx(headers: &HeaderMap) -> bool {
    headers.contains_key(FROM_HTMX)
}
