//! Every exchange passes here: its id, its key, its role, what is counted of it, and how a problem is shown.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, Version};
use posthaste_engine::log_throttle::LogThrottle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::client_address::client_address;
use super::limits;
use super::metrics::Row;
use super::open_connections::OpenConnection;
use super::openapi::document;
use super::problem::{Kind, Problem, Result};
use super::request_id::RequestId;
use super::route::Access;
use super::server::{Answer, Connection};
use super::{Api, Shared, router};
use crate::dashboard;
use crate::keys::Caller;

/// What is said of a key, where no access token is accepted.
const UNKNOWN_KEY: &str = "the API key is not known, was revoked or has expired";
/// What is said of a key or an access token. It does not say what is wrong: that would help to make one up.
const REFUSED: &str = "the API key or access token is not accepted: it may be unknown, revoked, expired or meant for another server";

/// Checks a request and calls its handler, or refuses it. It stands before the router, because a layer of
/// axum costs several allocations for each request.
#[derive(Clone)]
pub struct Admission {
    api: Shared,
    router: Router,
}

/// The caller and the connection of a request, for its handler.
#[derive(Clone)]
pub(crate) struct RequestContext {
    /// None where no key is needed.
    pub(super) caller: Option<Arc<Caller>>,
    pub(crate) peer: IpAddr,
    pub(crate) open: Arc<OpenConnection>,
}

impl Admission {
    pub fn new(api: Shared) -> Self {
        Self { router: router(api.clone()), api }
    }
}

impl Answer for Admission {
    async fn answer(&self, mut request: Request, from: &Connection) -> Response {
        let begun = Instant::now();
        let id = RequestId::of(request.headers());
        let route = document().routes.find(request.method(), request.uri().path());
        let page = route.is_none().then(|| dashboard::Visit::of(&request)).flatten();
        let admitted = match self.api.admit(route, request.version(), request.headers(), from).await {
            Err(refused) if refused.kind == Kind::Unauthorized && dashboard::may_stand_in(&request) => {
                self.api.admit_session(route, request.headers(), from, refused).await
            }
            other => other,
        };
        let admitted = match admitted {
            Err(refused)
                if refused.kind == Kind::Unauthorized && request.headers().contains_key(AUTHORIZATION) =>
            {
                let peer = from.peer.ip();
                let address = client_address(peer, request.headers(), &self.api.trusted_proxies);
                Err(self.api.hold_back(address, &from.open).await.err().unwrap_or(refused))
            }
            other => other,
        };
        let mut response = match admitted {
            Ok(caller) => {
                let open = from.open.clone();
                request.extensions_mut().insert(RequestContext { caller, peer: from.peer.ip(), open });
                let answer = self.router.answer(request, from);
                // Sends are stored by another task, together with others, so a span would only cost time.
                if self.api.requests.is_send(route) {
                    answer.await
                } else {
                    answer.instrument(tracing::info_span!("request", id = %id.as_str())).await
                }
            }
            Err(problem) => problem.into_response(),
        };
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            log_failure(&problem, &id);
            let carried = limits::carried(response.headers());
            response = match &page {
                Some(visit) => visit.refuse(&problem, id.as_str()),
                None => problem.response(&id),
            };
            response.headers_mut().extend(carried);
        }
        response.headers_mut().insert(RequestId::HEADER, id.into_header());
        let row = route.map_or(if page.is_some() { Row::Page } else { Row::None }, Row::Route);
        self.api.requests.note(row, response.status(), begun.elapsed());
        response
    }
}

impl Api {
    /// Who asks by the session of the dashboard in place of a key; `refused` is why there is no caller by a
    /// key.
    async fn admit_session(
        &self,
        route: Option<usize>,
        headers: &HeaderMap,
        from: &Connection,
        refused: Problem,
    ) -> Result<Option<Arc<Caller>>> {
        let Some(session) = self.session_of(headers).await? else { return Err(refused) };
        from.open.has_valid_key();
        if let Some(Access::Optional(needed) | Access::Key(needed)) =
            route.map(|route| &document().routes.all()[route].access)
        {
            needed.check(&session.caller)?;
        }
        Ok(Some(session.caller))
    }

    /// Who asks, if the route needs a key.
    async fn admit(
        &self,
        route: Option<usize>,
        version: Version,
        headers: &HeaderMap,
        from: &Connection,
    ) -> Result<Option<Arc<Caller>>> {
        has_one_host(version, headers)?;
        let Some(route) = route else { return Ok(None) };
        let needed = match &document().routes.all()[route].access {
            Access::Open => return Ok(None),
            Access::Optional(_) if !self.metrics_need_key => return Ok(None),
            Access::Optional(needed) | Access::Key(needed) => needed,
        };
        let found = self.key_of(headers).await;
        // The connection remembers whether its key was valid.
        match found {
            Ok(_) => from.open.has_valid_key(),
            Err(_) => from.open.has_no_valid_key(),
        }
        let caller = found?;
        needed.check(&caller)?;
        Ok(Some(caller))
    }

    /// Who has the key, or the access token, that the headers name.
    pub(super) async fn key_of(&self, headers: &HeaderMap) -> Result<Arc<Caller>> {
        let wrong = |detail: &str| Problem::new(Kind::Unauthorized, detail);
        let given = headers
            .get(AUTHORIZATION)
            .ok_or_else(|| wrong("the header `Authorization: Bearer <API key>` is missing"))?;
        let key = given.to_str().ok().and_then(|given| {
            let (scheme, key) = given.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let key = key.ok_or_else(|| wrong("the header must be `Authorization: Bearer <API key>`"))?;
        if let Some(caller) = self.keys.find(&self.engine, key) {
            return Ok(caller);
        }
        let caller = self.find_by_token(key).await?;
        caller.ok_or_else(|| wrong(if self.tokens.is_some() { REFUSED } else { UNKNOWN_KEY }))
    }
}

/// A request that failed by a fault of the server is in the log with its id, at most once a second.
fn log_failure(problem: &Problem, id: &RequestId) {
    static FAILURES: LogThrottle = LogThrottle::new();
    let (status, code, _) = problem.kind.shown();
    if status.is_server_error()
        && let Some(requests) = FAILURES.count(Instant::now())
    {
        tracing::warn!(request = %id.as_str(), code, requests, "a request was answered with an error of the server");
    }
}

/// RFC 9112, 3.2: a request of HTTP/1.1 names its host, once. Two programs that each read another one of two
/// hosts can be tricked.
fn has_one_host(version: Version, headers: &HeaderMap) -> Result<()> {
    let hosts = headers.get_all(HOST).iter().count();
    if hosts == 1 || (hosts == 0 && version < Version::HTTP_11) {
        return Ok(());
    }
    let detail = format!("a request has one header `Host`, and this one has {hosts}");
    Err(Problem { parameter: Some("Host".into()), ..Problem::new(Kind::BadRequest, detail) })
}
