//! `/v1/settings`: the configuration of the node that answers.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::extract::{Authenticated, NoQuery};
use super::page::Page;
use crate::config::{Setting, SettingSource};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// One key of the configuration.
#[derive(Serialize, ToSchema)]
#[schema(as = Setting)]
pub(crate) struct SettingView {
    /// Dotted, as in the file.
    pub(crate) key: String,
    /// `***` stands for a secret.
    pub(crate) value: Value,
    pub(crate) source: SettingSource,
    /// The path of the file, the name of the variable, or the key of the flag.
    pub(crate) place: Option<String>,
}

/// Every setting of the node that answers, with its value and where it came from.
///
/// Each node has a configuration of its own. Secrets are masked.
#[utoipa::path(get, path = "/v1/settings", operation_id = "listSettings", tag = "server", security(("key" = ["reader", "all"])),
    responses((status = 200, description = "All of them, by key", body = Page<SettingView>)))]
pub(crate) async fn list(
    State(api): State<Shared>,
    _: Authenticated,
    NoQuery: NoQuery,
) -> Json<Page<SettingView>> {
    let show = |Setting { key, value, source, place }: Setting| SettingView { key, value, source, place };
    Json(Page::whole(api.settings.iter().cloned().map(show).collect()))
}
