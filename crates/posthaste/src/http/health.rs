//! `/healthz` and `/readyz`.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use posthaste_engine::store::DurabilityLevel as Level;
use serde_json::json;
use tokio::time::Instant;

use super::{Api, json};

/// `GET /healthz`: the process lives.
pub(super) fn health(api: &Api) -> Response<Full<Bytes>> {
    let durability = match api.durability.level() {
        Level::Full => "full",
        Level::Unsafe => "unsafe",
        Level::Refused => "refused",
    };
    let shown = json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "durability": durability});
    json(StatusCode::OK, &shown)
}

/// `GET /readyz`: notifications are taken and delivered.
pub(super) async fn ready(api: &Api) -> Response<Full<Bytes>> {
    let reason = if api.is_stopping() {
        Some("this node is stopping")
    } else if !api.engine.is_whole() {
        Some("a part of the engine has failed: restart this node")
    } else if !api.engine.is_recording() {
        Some("outcomes cannot be recorded at present")
    } else if !api.taking.is_well() {
        Some("the store does not take what is sent; is its disk full?")
    } else if api.engine.leases_unknown_for() > LASTS {
        Some("this node holds notifications in the store that it does not know of: restart it")
    } else if !answers(api).await {
        Some(match api.durability.level() {
            Level::Full | Level::Unsafe => "the store does not answer",
            Level::Refused => {
                "the database could lose what it acknowledges: set its fsync and full_page_writes to on"
            }
        })
    } else {
        None
    };
    match reason {
        None => json(StatusCode::OK, &json!({"status": "ready"})),
        Some(reason) => {
            json(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "notReady", "reason": reason}))
        }
    }
}

/// Whether the store answers within what a load balancer waits for.
async fn answers(api: &Api) -> bool {
    let version = api.engine.settings().version;
    let asked = tokio::time::timeout(PROBE, api.store.settings(Some(version))).await;
    asked.is_ok_and(|answer| answer.is_ok())
}

/// Whether sends could be stored of late. Where nobody sends any more, because the node says that it is not ready, it is
/// given another chance after a while.
#[derive(Debug, Default)]
pub(super) struct Taking(Mutex<Option<Instant>>);

/// A difference between the leases in the store and those in memory that lasts for so long is a fault.
const LASTS: Duration = Duration::from_secs(30);

/// How long a probe waits for the store.
const PROBE: Duration = Duration::from_secs(1);

/// How long a send that could not be stored counts.
const COUNTS_FOR: Duration = Duration::from_secs(5);

impl Taking {
    /// Notes whether a send could be stored.
    pub(super) fn note(&self, stored: bool) {
        let mut failed = self.0.lock().expect("no code panics while it notes this");
        if !stored {
            *failed = Some(Instant::now());
        } else if failed.is_some() {
            *failed = None;
        }
    }

    fn is_well(&self) -> bool {
        let failed = *self.0.lock().expect("no code panics while it notes this");
        failed.is_none_or(|at| at.elapsed() > COUNTS_FOR)
    }
}
