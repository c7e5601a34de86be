//! `/v1/destinations`: what can be down as a whole, how it stands, and what people do about it.

use axum::Json;
use axum::extract::State;
use posthaste_core::destination::{
    BadName, DestinationId, DestinationKey, DestinationKind, DestinationName, MAX_CONCURRENCY, MAX_TEXT,
    SendLimits,
};
use posthaste_core::notification::Tenant;
use posthaste_core::rate::Rate;
use posthaste_engine::acts::Actor;
use posthaste_engine::destinations::{DestinationError, DestinationTarget};
use posthaste_engine::engine::Engine;
use posthaste_engine::reads::{ReadError, Reads};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::act::{NoBody, Nothing, Optional};
use super::body::{Text, read};
use super::extract::{ActorOf, Authenticated, Id, NoQuery};
use super::page::{OfTenant, Page, Paged, Paging};
use super::problem::{Kind, Problem, Result};
use super::query::{Query, short};
use super::views::{DestinationDetail, DestinationRow, DestinationView};
use crate::destination_name;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(put))
        .routes(routes!(block))
        .routes(routes!(unblock))
        .routes(routes!(reset))
}

impl From<DestinationError> for Problem {
    fn from(error: DestinationError) -> Self {
        let detail = error.to_string();
        match error {
            DestinationError::NotFound(_) => Self::not_found(detail),
            DestinationError::OtherName { .. } => Self::at("/name", detail),
            DestinationError::BadConcurrency => Self::at("/concurrency", detail),
            DestinationError::BlockedAlready(_)
            | DestinationError::NotBlocked(_)
            | DestinationError::OldNodes
            | DestinationError::Busy(_) => Self::new(Kind::DestinationConflict, detail),
            DestinationError::Store(error) => error.into(),
        }
    }
}

/// Destinations that are unhealthy, blocked, paused or limited by people, by tenant, kind and name; providers come first.
///
/// With `all=true` every one that is known. With `name` those of that name; a tenant's key finds its own destination of a URL
/// also before anything was sent there. With `history` each has what happened to it since then.
#[utoipa::path(get, path = "/v1/destinations", operation_id = "listDestinations", tag = "destinations",
    params(("all" = Option<bool>, Query, description = "Every known one: also those that are well, and providers"),
        ("name" = Option<String>, Query, min_length = 1, max_length = 1024, description = "A URL, which stands for its origin, the id of a subscription or the name of a provider"),
        ("history" = Option<String>, Query, min_length = 1, max_length = 1024, description = "Adds the events since then: a time, a date or a duration ago, such as 12h"),
        OfTenant, Paged),
    security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<DestinationRow>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<DestinationRow>>> {
    let paging: Paging<DestinationKey> = Paging::take(&api, &caller, &mut query)?;
    let (all, name, tenant) = (query.flag("all")?, name(&mut query)?, query.tenant()?);
    let since = query.past("history", api.engine.now())?;
    query.finish()?;
    let (from, limit) = (paging.from.clone(), paging.limit);
    let read = |reads: Reads| async move {
        let reads = reads.of(tenant)?;
        let page = match name {
            Some(name) => reads.destinations_named(name, from, limit).await,
            None if all => reads.all_destinations(from, limit).await,
            None => reads.destinations(from, limit).await,
        }?;
        let Some(since) = since else { return Ok((page, None)) };
        let keys: Vec<&DestinationKey> = page.rows.iter().map(|view| &view.key).collect();
        let histories = reads.destination_histories(&keys, since).await?;
        Ok::<_, ReadError>((page, Some(histories.into_iter())))
    };
    let ((page, mut histories), now) = (api.read(&caller, read).await?, api.engine.now());
    let show = |view| {
        let history = histories.as_mut().map(|all| all.next().unwrap_or_default());
        DestinationRow::of(view, history, now)
    };
    Ok(Json(paging.show(&api, page, show)))
}

fn name(query: &mut Query) -> Result<Option<DestinationName>> {
    let Some(given) = query.take("name") else { return Ok(None) };
    let wrong = |bad: BadName| Problem::parameter("name", format!("name {bad}, not `{}`", short(&given)));
    destination_name::parse(&given).map(Some).map_err(wrong)
}

/// One destination with its history.
#[utoipa::path(get, path = "/v1/destinations/{id}", operation_id = "getDestination", tag = "destinations",
    params(("id" = DestinationId, Path)), security(("key" = ["reader"])),
    responses((status = 200, description = "The destination", body = DestinationDetail), (status = 404, description = ""), (status = 429, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    Id(id): Id<DestinationId>,
) -> Result<Json<DestinationDetail>> {
    let read = |reads: Reads| async move {
        let Some(view) = reads.destination(id).await? else { return Ok::<_, ReadError>(None) };
        let history = reads.destination_history(&view.key).await?;
        Ok(Some((view, history)))
    };
    let found = api.read(&caller, read).await?;
    let (view, history) = found.ok_or_else(|| Id::<DestinationId>::missing(id))?;
    Ok(Json(DestinationDetail::of(view, history, api.engine.now())))
}

/// What may be sent to a destination. What is left out, or null, follows the configuration.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DestinationLimits)]
struct NewLimits {
    /// The most notifications a second, over all nodes.
    #[schema(minimum = 0.001, maximum = 1_000_000)]
    rate: Option<f64>,
    /// The most notifications at a time, over all nodes.
    #[schema(minimum = 1, maximum = 1_000_000)]
    concurrency: Option<u64>,
    /// A URL, which stands for its origin, the id of a subscription or the name of a provider. Needed if nothing is known of the
    /// id yet.
    #[schema(min_length = 1, max_length = 1024)]
    name: Option<String>,
    /// Whose it is; only for keys for all tenants.
    tenant: Option<Tenant>,
}

/// The destination in words, for an id that nothing is known of yet.
struct Named {
    name: Option<String>,
    tenant: Option<Tenant>,
}

impl Named {
    /// The destination that the body names, as far as the caller may name it.
    fn target(self, id: DestinationId, engine: &Engine, actor: &Actor) -> Result<DestinationTarget> {
        let Some(given) = self.name else {
            return match self.tenant {
                None => Ok(DestinationTarget { id, named: None }),
                Some(_) => Err(Problem::at("/name", "name is missing: a tenant alone names no destination")),
            };
        };
        let name = destination_name::parse(&given)
            .map_err(|bad| Problem::at("/name", format!("name {bad}, not `{}`", short(&given))))?;
        let tenant = match (&actor.tenant, self.tenant) {
            (Some(own), Some(named)) if *own != named => {
                let problem = Problem::from(ReadError::OtherTenant);
                return Err(problem.pointing("/tenant"));
            }
            (Some(own), _) => Some(own.clone()),
            (None, named) => named,
        };
        if name.kind == DestinationKind::Provider {
            check_provider(&name, engine, actor)?;
        }
        let missing = || Problem::at("/tenant", "tenant is missing: the destination of a URL is a tenant's");
        Ok(DestinationTarget { id, named: Some(name.key(tenant).ok_or_else(missing)?) })
    }
}

/// A name without a scheme may be a URL that was cut short.
fn check_provider(name: &DestinationName, engine: &Engine, actor: &Actor) -> Result<()> {
    let is_configured = engine.pools().all().any(|provider| *provider.name == *name.name);
    if is_configured && actor.tenant.is_none() {
        return Ok(());
    }
    let name = short(&name.name);
    let detail = format!("`{name}` is no provider; a URL begins with https:// or http://");
    Err(Problem::at("/name", detail))
}

impl NewLimits {
    fn checked(&self) -> Result<SendLimits> {
        let mut mistakes = vec![];
        let rate = self.rate.map(Rate::per_second).transpose().unwrap_or_else(|bad| {
            mistakes.push(Problem::at("/rate", format!("rate {bad}")));
            None
        });
        let fits = |most: &u32| (1..=MAX_CONCURRENCY).contains(most);
        let concurrency = self.concurrency.map(|most| u32::try_from(most).ok().filter(fits));
        if concurrency == Some(None) {
            mistakes.push(DestinationError::BadConcurrency.into());
        }
        match Problem::all(mistakes) {
            Some(problem) => Err(problem),
            None => Ok(SendLimits { rate, concurrency: concurrency.flatten() }),
        }
    }
}

/// Sets what may be sent to a destination, over all nodes. A rate or a concurrency that is not given follows the configuration.
#[utoipa::path(put, path = "/v1/destinations/{id}", operation_id = "putDestination", tag = "destinations",
    params(("id" = DestinationId, Path)), request_body = NewLimits, security(("key" = ["operator"])),
    responses((status = 200, description = "The destination", body = DestinationView), (status = 404, description = "Nothing is known of it, and no name is given"), (status = 409, description = "")))]
pub(crate) async fn put(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DestinationId>,
    text: Text,
) -> Result<Json<DestinationView>> {
    let new: NewLimits = read(&text)?;
    let limits = new.checked()?;
    let named = Named { name: new.name, tenant: new.tenant };
    let target = named.target(id, &api.engine, &actor)?;
    let view = api.engine.limit_destination(target, limits, &actor).await?;
    Ok(Json(DestinationView::of(view, api.engine.now())))
}

/// Why nothing is to be sent.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DestinationBlock)]
pub(crate) struct NewBlock {
    /// For people; up to 500 bytes.
    #[schema(max_length = 500)]
    pub(crate) reason: Option<String>,
    /// A URL, which stands for its origin, the id of a subscription or the name of a provider. Needed if nothing is known of the
    /// id yet.
    #[schema(min_length = 1, max_length = 1024)]
    pub(crate) name: Option<String>,
    /// Whose it is; only for keys for all tenants.
    pub(crate) tenant: Option<Tenant>,
}

/// Sends nothing to a destination until it is unblocked. What is under way ends; other nodes obey within two seconds.
///
/// What waits for it is parked: it spends no attempt, and goes out once the block is lifted. Its `maxAge` and `expiresAt` hold.
#[utoipa::path(post, path = "/v1/destinations/{id}/block", operation_id = "blockDestination", tag = "destinations",
    params(("id" = DestinationId, Path)), request_body = Option<NewBlock>, security(("key" = ["operator"])),
    responses((status = 200, description = "It is blocked", body = DestinationView), (status = 404, description = "Nothing is known of it, and no name is given"), (status = 409, description = "It is blocked already")))]
pub(crate) async fn block(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DestinationId>,
    Optional(new): Optional<NewBlock>,
) -> Result<Json<DestinationView>> {
    let reason = new.reason.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    if reason.as_ref().is_some_and(|reason| reason.len() > MAX_TEXT || reason.contains('\0')) {
        let detail = format!("reason must have at most {MAX_TEXT} bytes, and no NUL");
        return Err(Problem::at("/reason", detail));
    }
    let named = Named { name: new.name, tenant: new.tenant };
    let target = named.target(id, &api.engine, &actor)?;
    let view = api.engine.block_destination(target, reason, &actor).await?;
    Ok(Json(DestinationView::of(view, api.engine.now())))
}

/// Lifts a block. The breaker stays as it is.
#[utoipa::path(post, path = "/v1/destinations/{id}/unblock", operation_id = "unblockDestination", tag = "destinations",
    params(("id" = DestinationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 200, description = "It is not blocked any more", body = DestinationView), (status = 404, description = ""), (status = 409, description = "It is not blocked")))]
pub(crate) async fn unblock(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DestinationId>,
    _: NoBody,
) -> Result<Json<DestinationView>> {
    let target = DestinationTarget { id, named: None };
    let view = api.engine.unblock_destination(target, &actor).await?;
    Ok(Json(DestinationView::of(view, api.engine.now())))
}

/// Closes the breaker and ends a pause, at full speed: without a probe and without a ramp. Blocks and limits stay.
#[utoipa::path(post, path = "/v1/destinations/{id}/reset", operation_id = "resetDestination", tag = "destinations",
    params(("id" = DestinationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 200, description = "It is closed", body = DestinationView), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn reset(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<DestinationId>,
    _: NoBody,
) -> Result<Json<DestinationView>> {
    let target = DestinationTarget { id, named: None };
    let view = api.engine.reset_destination(target, &actor).await?;
    Ok(Json(DestinationView::of(view, api.engine.now())))
}
