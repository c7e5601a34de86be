//! `/v1/nodes`: who is alive and what each holds.

use axum::Json;
use axum::extract::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::reads::ReadError;
use posthaste_engine::store::NodeView as Node;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::extract::{Authenticated, NoQuery};
use super::page::Page;
use super::problem::Result;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A node of the cluster.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Node)]
pub(crate) struct NodeView {
    /// Its number; a node that was declared dead joins again under another.
    pub(crate) id: i64,
    /// `engine.name`, or the name of its host.
    pub(crate) name: String,
    /// False while its leases are being taken back.
    pub(crate) alive: bool,
    /// Whether it is the node that answers.
    pub(crate) this_node: bool,
    /// How many notifications are leased to it.
    pub(crate) held: u64,
    /// What the node understands; 0 for versions that did not say.
    pub(crate) level: u32,
    pub(crate) joined_at: Timestamp,
    pub(crate) last_heartbeat_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

/// Who is alive and what each holds.
#[utoipa::path(get, path = "/v1/nodes", operation_id = "listNodes", tag = "server", security(("key" = ["reader", "all"])),
    responses((status = 200, description = "All of them", body = Page<NodeView>)))]
pub(crate) async fn list(
    State(api): State<Shared>,
    _: Authenticated,
    NoQuery: NoQuery,
) -> Result<Json<Page<NodeView>>> {
    let (this, all) = api.engine.nodes().await.map_err(ReadError::from)?;
    let show = |node: Node| NodeView {
        id: node.id.0,
        this_node: node.id == this,
        name: node.name,
        alive: node.alive,
        held: node.held,
        level: node.level,
        joined_at: node.joined_at,
        last_heartbeat_at: node.beat_at,
        expires_at: node.expires_at,
    };
    Ok(Json(Page::whole(all.into_iter().map(show).collect())))
}
