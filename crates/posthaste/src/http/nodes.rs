//! `/v1/nodes`: who is alive and what each holds.

use http::StatusCode;
use posthaste_engine::store::NodeView;
use serde_json::{Value, json};

use super::keys::admins_only;
use super::problem::Result;
use super::query::Query;
use super::{Api, Ask, json};

/// `GET /v1/nodes`
pub(super) async fn list(api: &Api, ask: &Ask) -> Result {
    Query::of(ask)?.finish()?;
    admins_only(ask, "see the nodes")?;
    let (this, all) = api.engine.nodes().await?;
    let show = |node: &NodeView| {
        json!({
            "id": node.id.0,
            "name": node.name,
            "alive": node.alive,
            "thisNode": node.id == this,
            "held": node.held,
            "level": node.level,
            "joinedAt": node.joined_at,
            "lastHeartbeatAt": node.beat_at,
            "expiresAt": node.expires_at,
        })
    };
    let data: Vec<Value> = all.iter().map(show).collect();
    Ok(json(StatusCode::OK, &json!({"data": data, "nextCursor": null})))
}
