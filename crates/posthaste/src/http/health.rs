//! `/healthz` and `/readyz`.

use std::sync::Mutex;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_engine::store::DurabilityLevel as Level;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, Shared};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(ready))
}

/// The process lives.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
    version: &'static str,
    durability: Durability,
}

/// `full`: what is acknowledged survives a power cut. `unsafe`: it may not, and the configuration allows it. `refused`: it
/// may not, and nothing is accepted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum Durability {
    Full,
    Unsafe,
    Refused,
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", operation_id = "health", tag = "server", security(()),
    responses((status = 200, description = "It lives", body = Health)))]
async fn health(State(api): State<Shared>) -> Json<Health> {
    let durability = match api.durability.level() {
        Level::Full => Durability::Full,
        Level::Unsafe => Durability::Unsafe,
        Level::Refused => Durability::Refused,
    };
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION"), durability })
}

/// Whether notifications are accepted and delivered.
#[derive(Serialize, ToSchema)]
struct Readiness {
    status: ReadinessStatus,
    /// What is wrong now.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum ReadinessStatus {
    Ready,
    NotReady,
}

/// Whether notifications are accepted and delivered.
#[utoipa::path(get, path = "/readyz", operation_id = "ready", tag = "server", security(()),
    responses((status = 200, description = "They are", body = Readiness), (status = 503, description = "They are not", body = Readiness)))]
async fn ready(State(api): State<Shared>) -> (StatusCode, Json<Readiness>) {
    match reason(&api).await {
        None => (StatusCode::OK, Json(Readiness { status: ReadinessStatus::Ready, reason: None })),
        reason => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(Readiness { status: ReadinessStatus::NotReady, reason }))
        }
    }
}

async fn reason(api: &Api) -> Option<&'static str> {
    if api.is_stopping() {
        Some("this node is stopping")
    } else if !api.engine.is_whole() {
        Some("a part of the engine has failed: restart this node")
    } else if !answers(api).await {
        // The failed sends are explained by this, so they do not count once the store answers again.
        api.accept_health.forget();
        Some(match api.durability.level() {
            Level::Full | Level::Unsafe => "the store does not answer",
            Level::Refused => {
                "the database could lose what it acknowledges: set its fsync and full_page_writes to on"
            }
        })
    } else if !api.engine.is_recording() {
        Some("the store answers, but outcomes wait to be recorded: it did not take them at the last try")
    } else if !api.accept_health.is_well() {
        Some("the store answers, but does not take what is sent; is its disk full?")
    } else if api.engine.leases_unknown_for() > MISMATCH_LIMIT {
        Some("this node holds notifications in the store that it does not know of: restart it")
    } else {
        None
    }
}

/// Whether the store answers within what a load balancer waits for.
async fn answers(api: &Api) -> bool {
    let version = api.engine.settings().version;
    let asked = tokio::time::timeout(PROBE_TIMEOUT, api.store.settings(Some(version))).await;
    asked.is_ok_and(|answer| answer.is_ok())
}

/// Whether the last sends could be stored. A failure is forgotten after a while: a node that is not ready gets no sends that
/// could prove the opposite.
#[derive(Debug, Default)]
pub(super) struct AcceptHealth {
    failed: Mutex<Option<Instant>>,
    /// Held by the send that asks whether the store is away: one at a time is enough.
    looking: tokio::sync::Mutex<()>,
}

/// How long the leases in the store may differ from those in memory before that is a fault.
const MISMATCH_LIMIT: Duration = Duration::from_secs(30);

/// Time within which the store has to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a send that could not be stored makes the node not ready.
const FAILURE_MEMORY: Duration = Duration::from_secs(5);

impl AcceptHealth {
    /// Notes whether a send could be stored. A failure counts only if the store answers: one that is away is reported as
    /// such.
    pub(super) async fn note(&self, api: &Api, stored: bool) {
        self.set(stored);
        if stored {
            return;
        }
        let Ok(_looking) = self.looking.try_lock() else { return };
        if !answers(api).await {
            self.forget();
        }
    }

    fn set(&self, stored: bool) {
        let mut failed = self.failed.lock().expect("no code panics while it notes this");
        if !stored {
            *failed = Some(Instant::now());
        } else if failed.is_some() {
            *failed = None;
        }
    }

    /// Forgets the failures so far.
    fn forget(&self) {
        self.set(true);
    }

    fn is_well(&self) -> bool {
        let failed = *self.failed.lock().expect("no code panics while it notes this");
        failed.is_none_or(|at| at.elapsed() > FAILURE_MEMORY)
    }
}
