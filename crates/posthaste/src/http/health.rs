//! `/healthz` and `/readyz`.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::{Api, json};

/// `GET /healthz`: the process lives.
pub(super) fn health(api: &Api) -> Response<Full<Bytes>> {
    let durability = if api.durable { "full" } else { "unsafe" };
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
    } else if api.store.settings(Some(api.engine.settings().version)).await.is_err() {
        Some("the store does not answer")
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
