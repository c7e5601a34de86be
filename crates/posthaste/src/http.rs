//! The HTTP API: from a request to the function of the engine that does it, and back.
//!
//! One file a resource. `route` lists every address, `problem` every way to be refused, `server` holds the connections.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use posthaste_engine::engine::Engine;
use posthaste_engine::store::{self, Durability, Store};
use posthaste_wire::guard::Guard;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use self::budget::Budget;
use self::cursor::Cursors;
pub(crate) use self::cursor::{hex, unhex};
use self::guests::Guest;
use self::health::Taking;
use self::metrics::{Figures, Requests};
use self::problem::{Kind, Problem, Result};
use self::reads::{Reader, Reads};
use self::route::{Access, Route};
use crate::keys::{Caller, Keys};

mod act;
mod audit;
mod budget;
pub(crate) mod cursor;
mod dead_letters;
pub mod guests;
mod health;
mod intake;
mod keys;
mod metrics;
mod nodes;
mod notifications;
mod object;
pub mod openapi;
mod policies;
pub mod problem;
mod query;
mod reads;
pub mod route;
mod send;
pub mod server;
mod stats;
mod unique;
mod view;

/// The API: what it was given, and what it keeps itself.
pub struct Api {
    parts: ApiParts,
    stopping: AtomicBool,
    requests: Requests,
    bodies: Budget,
    taking: Taking,
    reads: Reads,
    figures: Arc<Figures>,
}

/// A request on its way to its resource.
pub(crate) struct Ask {
    head: Parts,
    body: Incoming,
    /// What stood in the path for `{..}`.
    inner: String,
    caller: Arc<Caller>,
}

/// What an API is made of.
pub struct ApiParts {
    /// What does the work.
    pub engine: Engine,
    /// What the lists are read from.
    pub store: Arc<dyn Store>,
    /// Who may call.
    pub keys: Keys,
    /// Which addresses a webhook may name.
    pub guard: Guard,
    /// How long the body of a request may take.
    pub body_within: Duration,
    /// Whether `/metrics` needs an admin key.
    pub metrics_need_key: bool,
    /// Whether an acknowledged notification survives a power cut.
    pub durability: Durability,
    /// What cursors are sealed with where the settings do not tell.
    pub cursor_secret: [u8; 32],
}

/// The resources ask the API for its parts by their names.
impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.parts
    }
}

impl Api {
    /// An API over a running engine.
    pub fn new(parts: ApiParts) -> Self {
        Self {
            parts,
            stopping: AtomicBool::new(false),
            requests: Requests::default(),
            bodies: Budget::default(),
            taking: Taking::default(),
            reads: Reads::default(),
            figures: Arc::default(),
        }
    }

    /// From here on the node says that it is not ready.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// By the secret of now: nodes that start at the same moment on an empty store each make one, and the last one stays.
    fn cursors(&self) -> Cursors {
        Cursors::new(&cursor::secret(&self.engine.settings()).unwrap_or(self.cursor_secret))
    }

    /// Reads a list or figures for a caller, in the line of its tenant.
    async fn read<T, F>(&self, ask: &Ask, read: impl FnOnce(Arc<dyn Store>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = store::Result<T>> + Send + 'static,
    {
        let reader = ask.caller.tenant.clone().map_or(Reader::Admin, Reader::Tenant);
        self.reads.make(reader, read(self.store.clone())).await
    }

    async fn find_and_answer(&self, request: Request<Incoming>, from: &Guest) -> (Option<Route>, Result) {
        let (head, body) = request.into_parts();
        let found = has_one_host(&head).and_then(|()| Route::find(&head.method, head.uri.path()));
        let (route, inner) = match found {
            Ok((route, inner)) => (route, inner.to_owned()),
            Err(problem) => return (None, Err(problem)),
        };
        let answer = match route.shown().2 {
            Access::Open | Access::Metrics => self.answer_anyone(route, &head).await,
            Access::Key => match self.caller(&head) {
                Ok(caller) => {
                    from.is_known();
                    self.answer_caller(route, Ask { head, body, inner, caller }).await
                }
                Err(problem) => {
                    from.is_unknown();
                    Err(problem)
                }
            },
        };
        (Some(route), answer)
    }

    /// What is answered without a caller: there is nobody here to act for.
    async fn answer_anyone(&self, route: Route, head: &Parts) -> Result {
        match route {
            Route::Health => Ok(health::health(self)),
            Route::Ready => Ok(health::ready(self).await),
            Route::Metrics => {
                if self.metrics_need_key && !self.caller(head)?.is_admin() {
                    // The figures are those of all tenants.
                    return Err(Problem::new(Kind::Forbidden, "only an admin key may read the figures"));
                }
                metrics::get(self).await
            }
            Route::OpenApi => Ok(openapi::get()),
            keyed => Err(Problem::new(Kind::Internal, format!("{keyed:?} was asked without a caller"))),
        }
    }

    fn caller(&self, head: &Parts) -> Result<Arc<Caller>> {
        let wrong = |detail: &str| Problem::new(Kind::Unauthorized, detail);
        let given = head
            .headers
            .get(AUTHORIZATION)
            .ok_or_else(|| wrong("the header `Authorization: Bearer <API key>` is missing"))?;
        let key = given.to_str().ok().and_then(|given| {
            let (scheme, key) = given.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let key = key.ok_or_else(|| wrong("the header must be `Authorization: Bearer <API key>`"))?;
        self.keys.find(&self.engine, key).ok_or_else(|| wrong("the API key is not known, or was revoked"))
    }

    async fn answer_caller(&self, route: Route, mut ask: Ask) -> Result {
        match route {
            Route::Send => notifications::send(self, ask).await,
            Route::SendBatch => notifications::send_batch(self, ask).await,
            Route::ListNotifications => notifications::list(self, &ask).await,
            Route::ListFailed => notifications::list_failed(self, &ask).await,
            Route::GetNotification => notifications::get(self, &ask).await,
            Route::Retry => notifications::retry(self, &mut ask).await,
            Route::RetryNow => notifications::retry_now(self, &mut ask).await,
            Route::Cancel => notifications::cancel(self, &mut ask).await,
            Route::RetryQueue => notifications::retry_queue(self, &ask).await,
            Route::ListDeadLetters => dead_letters::list(self, &ask).await,
            Route::GetDeadLetter => dead_letters::get(self, &ask).await,
            Route::Requeue => dead_letters::requeue(self, &mut ask).await,
            Route::Discard => dead_letters::discard(self, &mut ask).await,
            Route::Restore => dead_letters::restore(self, &mut ask).await,
            Route::Stats => stats::get(self, &ask).await,
            Route::ListNodes => nodes::list(self, &ask).await,
            Route::Audit => audit::list(self, &ask).await,
            Route::ListPolicies => policies::list(self, &ask),
            Route::PreviewPolicy => policies::preview(self, ask).await,
            Route::GetPolicy => policies::get(self, &ask),
            Route::PutPolicy => policies::put(self, ask).await,
            Route::DeletePolicy => policies::delete(self, &ask).await,
            Route::ListKeys => keys::list(self, &ask),
            Route::CreateKey => keys::create(self, ask).await,
            Route::RevokeKey => keys::revoke(self, &ask).await,
            Route::Health | Route::Ready | Route::Metrics | Route::OpenApi => {
                self.answer_anyone(route, &ask.head).await
            }
        }
    }
}

impl server::Answer for Api {
    async fn answer(&self, request: Request<Incoming>, from: &Guest) -> Response<Full<Bytes>> {
        let begun = Instant::now();
        let (route, answer) = self.find_and_answer(request, from).await;
        let response = answer.unwrap_or_else(|problem| problem.response());
        self.requests.note(route, response.status(), begun.elapsed());
        response
    }
}

/// RFC 9112, 3.2: a request of HTTP/1.1 names its host, once. Two parties that read another one each can be played off
/// against each other.
fn has_one_host(head: &Parts) -> Result<()> {
    let hosts = head.headers.get_all(HOST).iter().count();
    if hosts == 1 || (hosts == 0 && head.version < Version::HTTP_11) {
        return Ok(());
    }
    let detail = format!("a request has one header `Host`, and this one has {hosts}");
    Err(Problem { parameter: Some("Host".to_owned()), ..Problem::new(Kind::BadRequest, detail) })
}

/// A JSON answer of a shape that keeps some of its text as it came.
fn shown(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_vec(value).expect("what is shown is made of texts and JSON");
    bytes(status, text.into())
}

/// A JSON answer.
fn json(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    bytes(status, Bytes::from(value.to_string()))
}

/// An answer that is JSON already.
fn bytes(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
