//! Every exchange passes here: its id, its key, its role, what is counted of it, and how a problem is shown.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, Version};
use tokio::time::Instant;

use super::openapi::document;
use super::problem::{Kind, Problem, Result};
use super::request_id::RequestId;
use super::route::Access;
use super::server::Connection;
use super::{Api, Shared};
use crate::keys::Caller;

/// Lets a request through to its handler, or says why not.
pub(super) async fn exchange(State(api): State<Shared>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = RequestId::of(request.headers());
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.and_then(|path| document().routes.find(request.method(), path.as_str()));
    let mut response = match api.admit(route, &mut request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.response(&id);
    }
    response.headers_mut().insert(RequestId::HEADER, id.into_header());
    api.requests.note(route, response.status(), begun.elapsed());
    response
}

impl Api {
    fn admit(&self, route: Option<usize>, request: &mut Request) -> Result<()> {
        has_one_host(request.version(), request.headers())?;
        let Some(route) = route else { return Ok(()) };
        let access = &document().routes.all()[route].access;
        if let Access::Key { .. } = access {
            let caller = self.caller(request)?;
            access.check(&caller)?;
            request.extensions_mut().insert(caller);
        }
        Ok(())
    }

    /// Who asks, by the key of the request. The connection remembers whether it was a valid one.
    pub(super) fn caller(&self, request: &Request) -> Result<Arc<Caller>> {
        let found = self.key_of(request.headers());
        if let Some(connection) = request.extensions().get::<Connection>() {
            match found {
                Ok(_) => connection.guest.is_known(),
                Err(_) => connection.guest.is_unknown(),
            }
        }
        found
    }

    fn key_of(&self, headers: &HeaderMap) -> Result<Arc<Caller>> {
        let wrong = |detail: &str| Problem::new(Kind::Unauthorized, detail);
        let given = headers
            .get(AUTHORIZATION)
            .ok_or_else(|| wrong("the header `Authorization: Bearer <API key>` is missing"))?;
        let key = given.to_str().ok().and_then(|given| {
            let (scheme, key) = given.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let key = key.ok_or_else(|| wrong("the header must be `Authorization: Bearer <API key>`"))?;
        self.keys
            .find(&self.engine, key)
            .ok_or_else(|| wrong("the API key is not known, was revoked or has expired"))
    }
}

/// RFC 9112, 3.2: a request of HTTP/1.1 names its host, once. Two programs that each read another one of two hosts can be
/// tricked.
fn has_one_host(version: Version, headers: &HeaderMap) -> Result<()> {
    let hosts = headers.get_all(HOST).iter().count();
    if hosts == 1 || (hosts == 0 && version < Version::HTTP_11) {
        return Ok(());
    }
    let detail = format!("a request has one header `Host`, and this one has {hosts}");
    Err(Problem { parameter: Some("Host".to_owned()), ..Problem::new(Kind::BadRequest, detail) })
}
