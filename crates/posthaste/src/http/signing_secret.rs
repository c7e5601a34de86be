//! `/v1/signing-secret`: the secret that signs the webhooks of a tenant. Each look at it is in the audit.

use axum::Json;
use axum::extract::State;
use http::HeaderName;
use http::header::CACHE_CONTROL;
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::reads::ReadError;
use posthaste_engine::signing::{SigningError, SigningView};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::act::NoBody;
use super::extract::{ActorOf, Authenticated};
use super::problem::{Kind, Problem, Result};
use super::query::Query;
use super::{Api, Shared};
use crate::keys::Caller;
use crate::master_key::HOW_TO_SET;

/// What a cluster needs in which not every node can open what is encrypted.
const NOT_YET: &str = "secrets are encrypted once every live node is of this version and has the master key: upgrade the others, \
    or start them again with the key, and ask again";

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(show)).routes(routes!(rotate))
}

/// The secret that signs a tenant's webhooks.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SigningSecret)]
pub(crate) struct SecretView {
    /// For receivers: `whsec_` and base64, as libraries of Standard Webhooks take it.
    pub(crate) secret: String,
    pub(crate) created_at: Timestamp,
    /// The secret before it; null if it does not sign any more.
    pub(crate) previous: Option<PreviousSecret>,
}

/// The secret before a rotation, which signs, too.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreviousSecret {
    pub(crate) expires_at: Timestamp,
}

/// A secret is kept by no cache between here and there.
pub(crate) type Secret = ([(HeaderName, &'static str); 1], Json<SecretView>);

fn shown(view: SigningView) -> Secret {
    let previous = view.standing.previous_until.map(|expires_at| PreviousSecret { expires_at });
    let secret = SecretView { secret: view.secret.text(), created_at: view.standing.created_at, previous };
    ([(CACHE_CONTROL, "no-store")], Json(secret))
}

impl From<SigningError> for Problem {
    fn from(error: SigningError) -> Self {
        match error {
            SigningError::NoMasterKey => Self::new(Kind::MasterKeyMissing, format!("{error}; {HOW_TO_SET}")),
            SigningError::NotYet => Self::new(Kind::MasterKeyMissing, NOT_YET),
            SigningError::Busy => Self::new(Kind::Overloaded, error.to_string()),
            SigningError::Store(error) => error.into(),
            SigningError::Vault(error) => error.into(),
        }
    }
}

/// The secret that signs a tenant's webhooks; it is made if there is none. Each look is in the audit.
#[utoipa::path(get, path = "/v1/signing-secret", operation_id = "getSigningSecret", tag = "keys", security(("key" = ["admin"])),
    params(("tenant" = Option<Tenant>, Query, description = "Whose; a key for all tenants has to say it")),
    responses((status = 200, description = "The secret", body = SecretView),
        (status = 409, description = "There is no master key to encrypt it with")))]
pub(crate) async fn show(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    mut query: Query,
) -> Result<Secret> {
    let tenant = take_tenant(&api, &caller, &mut query).await?;
    query.finish()?;
    Ok(shown(api.engine.signing_secret(tenant, &actor).await?))
}

/// Gives a tenant a new secret. The old one signs, too, for 24 hours.
///
/// At most three secrets sign at a time: a third rotation within 24 hours ends the oldest one at once.
#[utoipa::path(post, path = "/v1/signing-secret/rotate", operation_id = "rotateSigningSecret", tag = "keys", security(("key" = ["admin"])),
    params(("tenant" = Option<Tenant>, Query, description = "Whose; a key for all tenants has to say it")), request_body = Option<super::act::Nothing>,
    responses((status = 200, description = "The new secret", body = SecretView),
        (status = 409, description = "There is no master key to encrypt it with")))]
pub(crate) async fn rotate(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    mut query: Query,
    _: NoBody,
) -> Result<Secret> {
    let tenant = take_tenant(&api, &caller, &mut query).await?;
    query.finish()?;
    Ok(shown(api.engine.rotate_signing_secret(tenant, &actor).await?))
}

/// Whose secret is asked for.
async fn take_tenant(api: &Api, caller: &Caller, query: &mut Query) -> Result<Tenant> {
    let named = query.tenant()?;
    match (&caller.tenant, named) {
        (Some(own), None) => Ok(own.clone()),
        (Some(own), Some(named)) if named == *own => Ok(named),
        (Some(_), Some(_)) => Err(ReadError::OtherTenant.into()),
        (None, None) => {
            let detail = "a key for all tenants has to say whose secret it asks for, such as ?tenant=acme (`--tenant acme`)";
            Err(Problem::parameter("tenant", detail))
        }
        (None, Some(named)) => match api.bad_tenant(&named).await? {
            None => Ok(named),
            Some(bad) => Err(Problem::parameter("tenant", bad.to_string())),
        },
    }
}
