//! The HTTP API: from a request to the function of the engine that does it, and back.
//!
//! One file a resource, each with its `router()`. `route` lists the routes, `problem` every way to be refused, `server` holds
//! the connections, `admission` decides who gets to a handler.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use posthaste_engine::engine::Engine;
use posthaste_engine::reads::Reads;
use posthaste_engine::store::{Durability, Store};
use posthaste_wire::guard::{Guard, Subnet};
use tokio::sync::watch;
use url::Url;
use utoipa_axum::router::OpenApiRouter;

use self::budget::Budget;
pub(crate) use self::cursor::Cursors;
pub(crate) use self::cursor::{hex, unhex};
use self::health::AcceptHealth;
use self::metrics::{Figures, Requests};
use self::openapi::document;
use self::problem::{Problem, Result};
use self::read_slots::{ReadSlots, Reader};
use self::stream::Streams;
use self::wrong_keys::WrongKeyAnswers;
use crate::config::{RateAnswer, Setting};
use crate::dashboard::Dashboard;
use crate::keys::{Caller, Keys};
use crate::master_key::KeySource;
use crate::tokens::Tokens;

mod access_token;
pub(crate) mod act;
pub mod admission;
mod answer_body;
pub(crate) mod audit;
pub(crate) mod body;
mod budget;
pub(crate) mod client_address;
pub(crate) mod cursor;
pub(crate) mod dead_letters;
pub(crate) mod destinations;
pub mod docs;
pub(crate) mod edit;
pub mod embedded;
pub(crate) mod extract;
pub(crate) mod failure_groups;
mod health;
pub(crate) mod jobs;
pub(crate) mod keys;
mod limits;
pub(crate) mod master_key;
pub(crate) mod metrics;
mod mistake;
pub(crate) mod nodes;
pub(crate) mod notifications;
pub mod open_connections;
pub mod openapi;
pub(crate) mod page;
mod phase;
pub(crate) mod policies;
pub mod problem;
pub(crate) mod query;
mod raw_json;
mod read_slots;
pub(crate) mod request_id;
pub(crate) mod retry_operations;
pub mod route;
pub(crate) mod saved_views;
mod send;
mod sends;
pub(crate) mod series;
pub mod server;
pub(crate) mod settings;
pub(crate) mod signing_secret;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod tenants;
pub(crate) mod unique;
pub(crate) mod views;
mod wrong_keys;

/// The API: what it was given, and what it keeps itself.
pub struct Api {
    parts: ApiParts,
    stopping: watch::Sender<bool>,
    requests: Requests,
    bodies: Arc<Budget>,
    accept_health: AcceptHealth,
    read_slots: ReadSlots,
    figures: Arc<Figures>,
    streams: Arc<Streams>,
    wrong_keys: WrongKeyAnswers,
    pub(crate) dashboard: Dashboard,
}

/// What every handler has.
pub(crate) type Shared = Arc<Api>;

/// What an API is made of.
pub struct ApiParts {
    /// What does the work.
    pub engine: Engine,
    /// What probes and metrics ask.
    pub store: Arc<dyn Store>,
    /// Who may call.
    pub keys: Keys,
    /// Who may call with an access token; none if none is accepted.
    pub tokens: Option<Arc<Tokens>>,
    /// Which addresses a webhook may name.
    pub guard: Guard,
    /// How people reach the pages; none if it is not set.
    pub public_url: Option<Url>,
    /// The proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Subnet>,
    /// How long the body of a request may take.
    pub body_timeout: Duration,
    /// The most connections at a time: streams get a part of them.
    pub connections: usize,
    /// What a send over the rate limit is answered.
    pub rate_answer: RateAnswer,
    /// Whether `/metrics` needs a key for all tenants.
    pub metrics_need_key: bool,
    /// Whether an acknowledged notification survives a power cut.
    pub durability: Durability,
    /// The configuration, without secrets.
    pub settings: Vec<Setting>,
    /// Where the master key of this node stands.
    pub key_source: KeySource,
    /// What cursors are sealed with if the settings do not say.
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
            streams: Arc::new(Streams::new(parts.connections)),
            wrong_keys: WrongKeyAnswers::new(parts.connections),
            parts,
            stopping: watch::Sender::new(false),
            requests: Requests::new(document().routes.all().len()),
            bodies: Arc::default(),
            accept_health: AcceptHealth::default(),
            read_slots: ReadSlots::default(),
            figures: Arc::default(),
            dashboard: Dashboard::default(),
        }
    }

    /// From here on the node says that it is not ready.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the node stops.
    async fn stopped(&self) {
        // An error would mean that the sender, which is here, is gone.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// By the secret of now: nodes that start at the same moment on an empty store each make one, and the last one stays.
    pub(crate) fn cursors(&self) -> Cursors {
        Cursors::new(&cursor::secret(&self.engine.settings()).unwrap_or(self.cursor_secret))
    }

    /// Reads a list or figures for a caller, in a read slot of its tenant.
    async fn read<T, F, E>(&self, caller: &Caller, read: impl FnOnce(Reads) -> F) -> Result<T>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        Problem: From<E>,
    {
        self.read_slots.run(Reader::of(caller), read(self.reads(caller))).await
    }

    /// Reads that are cheap: one row, or what is in memory.
    fn reads(&self, caller: &Caller) -> Reads {
        self.engine.reads(caller.tenant.clone())
    }
}

/// The handlers of all routes. `Admission` decides who gets to them.
fn router(api: Shared) -> Router {
    let (routes, _) = described().split_for_parts();
    let routes = routes.merge(crate::dashboard::router());
    routes.fallback(nothing_here).method_not_allowed_fallback(wrong_method).with_state(api)
}

/// Every route with its description.
fn described() -> OpenApiRouter<Shared> {
    [
        sends::router(),
        notifications::router(),
        dead_letters::router(),
        failure_groups::router(),
        saved_views::router(),
        retry_operations::router(),
        destinations::router(),
        edit::router(),
        policies::router(),
        stats::router(),
        stream::router(),
        series::router(),
        audit::router(),
        keys::router(),
        signing_secret::router(),
        master_key::router(),
        tenants::router(),
        nodes::router(),
        settings::router(),
        jobs::router(),
        health::router(),
        metrics::router(),
        openapi::router(),
        docs::router(),
    ]
    .into_iter()
    .fold(OpenApiRouter::new(), OpenApiRouter::merge)
}

async fn nothing_here(uri: Uri) -> Response {
    if uri.path() == "/docs/" {
        return docs::without_slash();
    }
    Problem::not_found("there is nothing at this address; /openapi.json lists what there is").into_response()
}

async fn wrong_method(uri: Uri) -> Problem {
    let methods = document().routes.methods(uri.path());
    let methods = if methods.is_empty() { crate::dashboard::methods(uri.path()) } else { methods };
    Problem::wrong_method(&methods)
}
