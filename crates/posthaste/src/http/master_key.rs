//! `/v1/master-key`: under which key the secrets of the store are sealed, and its change.

use axum::Json;
use axum::extract::State;
use posthaste_core::sealed::{Key, KeyName};
use posthaste_engine::acts::Actor;
use posthaste_engine::vault::{RotateError, Rotated};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::act::{NoBody, Nothing};
use super::extract::{ActorOf, Authenticated, NoQuery};
use super::problem::{Kind, Problem, Result};
use super::{Api, Shared};
use crate::master_key::{self, HOW_TO_SET, KeyFileError, KeySource};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(get)).routes(routes!(rotate))
}

/// The master key, by its name: a part of its hash.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MasterKey)]
pub(crate) struct MasterKeyView {
    /// Whether secrets are sealed: there is a master key, and every live node knows it.
    pub(crate) sealing: bool,
    /// Where the key of this node stands.
    source: SourceView,
    /// The file that it is in, if the server made it. A backup of the store needs it as well.
    pub(crate) file: Option<String>,
    /// The key that data keys are wrapped under; null if there never was one.
    #[schema(value_type = Option<String>)]
    pub(crate) in_force: Option<KeyName>,
    /// The key that is taking its place, while a change is under way.
    #[schema(value_type = Option<String>)]
    next: Option<KeyName>,
    /// The keys that this node has, the wanted one first.
    #[schema(value_type = Vec<String>)]
    known: Vec<KeyName>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MasterKeySource)]
enum SourceView {
    Settings,
    File,
    None,
}

/// Which master key is in force, and what this node has.
#[utoipa::path(get, path = "/v1/master-key", operation_id = "masterKey", tag = "keys", security(("key" = ["reader", "all"])),
    responses((status = 200, description = "By their names; the keys themselves are never shown", body = MasterKeyView)))]
pub(crate) async fn get(
    State(api): State<Shared>,
    _: Authenticated,
    NoQuery: NoQuery,
) -> Result<Json<MasterKeyView>> {
    let vault = api.engine.vault();
    let record = vault.in_force().await?;
    let (source, file) = match &api.key_source {
        KeySource::Settings => (SourceView::Settings, None),
        KeySource::File(path) => (SourceView::File, Some(path.display().to_string())),
        KeySource::None => (SourceView::None, None),
    };
    Ok(Json(MasterKeyView {
        sealing: vault.is_on(),
        source,
        file,
        in_force: record.as_ref().map(|record| record.in_force),
        next: record.as_ref().and_then(|record| record.next),
        known: vault.key_names(),
    }))
}

/// The master key was changed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RotatedMasterKey)]
struct RotatedView {
    /// The key that was in force before.
    #[schema(value_type = String)]
    from: KeyName,
    #[schema(value_type = String)]
    to: KeyName,
    /// How many data keys were wrapped again.
    data_keys: u64,
    /// False if there was nothing to do: the wanted key was in force, and every data key wrapped under it.
    changed: bool,
}

/// Makes the wanted master key the one in force: the first of the settings, or a new one where the server keeps it in a file. Data keys
/// are wrapped again; notifications are not touched. A repeat after a crash goes on where it stands.
#[utoipa::path(post, path = "/v1/master-key/rotate", operation_id = "rotateMasterKey", tag = "keys", request_body = Option<Nothing>,
    security(("key" = ["admin", "all"])),
    responses((status = 200, description = "The wanted key is in force", body = RotatedView),
        (status = 409, description = "There is no master key, or a live node does not know the wanted one")))]
async fn rotate(
    State(api): State<Shared>,
    _: Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    _: NoBody,
) -> Result<Json<RotatedView>> {
    /// Two at a time on one node would each make a key.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let _one = ONE_AT_A_TIME.lock().await;
    let rotated = match &api.key_source {
        KeySource::File(path) => in_file(&api, path, &actor).await?,
        KeySource::Settings | KeySource::None => api.engine.rotate_master_key(&actor).await?,
    };
    Ok(Json(RotatedView {
        from: rotated.from,
        to: rotated.to,
        data_keys: rotated.wrapped,
        changed: !rotated.was_done(),
    }))
}

/// The server makes the new key itself. The file holds both until no data key needs the old one.
async fn in_file(api: &Api, path: &std::path::Path, actor: &Actor) -> Result<Rotated> {
    let vault = api.engine.vault();
    let mut keys = master_key::read(path)?.ok_or_else(|| KeyFileError::Gone { path: path.to_owned() })?;
    let in_force = vault.in_force().await?.map(|record| record.in_force);
    // A change that was begun and not ended goes on with the key that it made.
    if keys.first().map(Key::name) == in_force {
        keys.insert(0, master_key::new_key());
        master_key::write(path, &keys)?;
    }
    vault.set_keys(keys.clone()).await?;
    let rotated = api.engine.rotate_master_key(actor).await?;
    keys.truncate(1);
    vault.set_keys(keys.clone()).await?;
    master_key::write(path, &keys)?;
    Ok(rotated)
}

impl From<KeyFileError> for Problem {
    fn from(error: KeyFileError) -> Self {
        tracing::error!(error = %error, "the file of the master key cannot be used");
        let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
        Self::new(Kind::MasterKeyConflict, format!("{error}{cause}"))
    }
}

impl From<RotateError> for Problem {
    fn from(error: RotateError) -> Self {
        match error {
            RotateError::NoKey => {
                let detail = format!("this server has no master key: {HOW_TO_SET}");
                Self::new(Kind::MasterKeyMissing, detail)
            }
            RotateError::Vault(beneath) => {
                Self::new(Kind::MasterKeyConflict, format!("a data key cannot be wrapped again: {beneath}"))
            }
            RotateError::Store(error) => error.into(),
            refused @ (RotateError::Unaware { .. } | RotateError::Busy) => {
                Self::new(Kind::MasterKeyConflict, refused.to_string())
            }
        }
    }
}
