//! `/v1/retry-operations`: one act on many notifications.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use posthaste_core::filter::Filter;
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::operation::{Action, Canary, MOST_IDS, Operation, Selection, narrow};
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::Actor;
use posthaste_engine::operations::{NewOperation, OperationError, Sampled};
use posthaste_engine::reads::{ReadError, Reads};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::act::{NoBody, Nothing};
use super::body::{Text, read};
use super::extract::{ActorOf, Authenticated, Id, IdempotencyKey, NoQuery};
use super::page::{Page, Paged, Paging};
use super::problem::{Kind, Problem, Result};
use super::query::{LONGEST, Query};
use super::sends::{Send, json};
use super::unique::UniqueMap;
use super::views::{
    DeadLetterView, NotificationView, OperationDetail, OperationView, PreviewView, SampleShown,
};
use super::{Api, Shared};
use crate::keys::Caller;

/// The most bytes of the body: 10,000 ids.
pub(crate) const LARGEST: usize = 512 * 1024;
/// The highest rate.
const FASTEST: u32 = 100_000;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(start))
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// What to do to how many. Exactly one of `filter`, `ids`, `group` and `all` is given.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NewRetryOperation {
    /// The parameters of the list of dead letters, or of notifications for `retryNow` and `cancel`.
    #[schema(value_type = Option<BTreeMap<String, FilterValue>>)]
    filter: Option<UniqueMap<FilterValue>>,
    /// Ids of dead letters or notifications. Of several that name one notification, one is kept: the notification itself, else
    /// its latest dead letter.
    #[schema(min_items = 1, max_items = 10_000)]
    ids: Option<Vec<String>>,
    /// The id of a failure group.
    group: Option<String>,
    /// Everything that the action can act on; not for `retryNow` and `cancel`.
    all: Option<bool>,
    /// `requeue` if it is left out.
    action: Option<Action>,
    /// The most items a second.
    #[schema(minimum = 1, maximum = 100_000)]
    rate: Option<u32>,
    canary: Option<NewCanary>,
    /// Only count, and show a sample.
    #[serde(default)]
    dry_run: bool,
}

/// The value of a parameter; several are parted by commas or given as a list.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum FilterValue {
    Text(String),
    Number(u32),
    Several(Vec<OneValue>),
}

#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum OneValue {
    Text(String),
    Number(u32),
}

impl FilterValue {
    fn text(&self) -> String {
        let one = |value: &OneValue| match value {
            OneValue::Text(text) => text.clone(),
            OneValue::Number(number) => number.to_string(),
        };
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Several(all) => all.iter().map(one).collect::<Vec<_>>().join(","),
        }
    }
}

/// The first items are sent and looked at before the rest.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NewCanary {
    /// How many.
    #[schema(minimum = 1, maximum = 1_000)]
    size: u32,
    /// The operation is stopped if more than this share of their first attempts fails.
    #[schema(maximum = 100)]
    max_failure_percent: u32,
}

impl NewRetryOperation {
    /// Checks every rule; all mistakes are told together.
    fn checked(self, actor: &Actor, now: Timestamp) -> Result<(NewOperation, bool)> {
        let action = self.action.unwrap_or(Action::Requeue);
        let mut mistakes = vec![];
        if self.rate.is_some_and(|rate| !(1..=FASTEST).contains(&rate)) {
            mistakes.push(Problem::at("/rate", format!("rate must be from 1 to {FASTEST}")));
        }
        let canary = self
            .canary
            .map(|canary| Canary { size: canary.size, max_failure_percent: canary.max_failure_percent });
        mistakes.extend(canary.and_then(|canary| check_canary(action, canary)));
        let given = [self.filter.is_some(), self.ids.is_some(), self.group.is_some(), self.all == Some(true)];
        let names = ["filter", "ids", "group", "all"];
        let mut chosen = names.into_iter().zip(given).filter(|(_, given)| *given).map(|(name, _)| name);
        let selection = match (chosen.next(), chosen.next()) {
            (None, _) => Err(Problem::at("", "give one of `filter`, `ids`, `group` and `\"all\": true`")),
            (Some(first), Some(second)) => {
                let detail = format!(
                    "`{first}` and `{second}` exclude each other: give one of filter, ids, group and all"
                );
                Err(Problem::at(format!("/{second}"), detail))
            }
            (Some("filter"), None) => {
                select_filter(action, self.filter.map(|filter| filter.0).unwrap_or_default(), actor, now)
            }
            (Some("ids"), None) => select_ids(action, self.ids.unwrap_or_default()),
            (Some(name), None) if !action.is_about_dead_letters() => Err(Problem::at(
                format!("/{name}"),
                format!("{action} takes `filter` or `ids` of notifications"),
            )),
            (Some("group"), None) => {
                let group = self.group.unwrap_or_default();
                Filter::parse(action.list(), [("group", group.as_str())], now)
                    .map_err(|bad| Problem::at("/group", bad.to_string()))
                    .map(|_| Selection::Group(group))
            }
            (Some(_), None) => Ok(Selection::All),
        };
        let selection = match selection {
            Ok(selection) => selection,
            Err(problem) => {
                mistakes.push(problem);
                Selection::All
            }
        };
        match Problem::all(mistakes) {
            Some(problem) => Err(problem),
            None => Ok((NewOperation { action, selection, rate: self.rate, canary }, self.dry_run)),
        }
    }
}

fn check_canary(action: Action, canary: Canary) -> Option<Problem> {
    if !action.sends() {
        return Some(Problem::at("/canary", format!("{action} sends nothing that a canary could look at")));
    }
    if !(1..=Canary::MOST).contains(&canary.size) {
        let detail = format!("size must be from 1 to {}", Canary::MOST);
        return Some(Problem::at("/canary/size", detail));
    }
    (canary.max_failure_percent > 100)
        .then(|| Problem::at("/canary/maxFailurePercent", "maxFailurePercent must be from 0 to 100"))
}

fn select_filter(
    action: Action,
    given: BTreeMap<String, FilterValue>,
    actor: &Actor,
    now: Timestamp,
) -> Result<Selection> {
    let list = action.list();
    if given.is_empty() {
        let all = if action.is_about_dead_letters() { "; `\"all\": true` takes all of them" } else { "" };
        return Err(Problem::at("/filter", format!("a filter needs at least one parameter{all}")));
    }
    let mut values = vec![];
    for (name, value) in &given {
        let at = |detail: String| Problem::at(format!("/filter/{name}"), detail);
        let Some(parameter) = list.parameters().find(|known| known == name) else {
            let known: Vec<_> = list.parameters().collect();
            return Err(at(format!("`{name}` is unknown; the parameters are {}", known.join(", "))));
        };
        let value = value.text();
        if value.is_empty() || value.len() > LONGEST || value.contains('\0') {
            return Err(at(format!("`{name}` must have 1 to {LONGEST} bytes, and no NUL")));
        }
        values.push((parameter, value));
    }
    let pairs = values.iter().map(|(name, value)| (*name, value.as_str()));
    let mut filter = Filter::parse(list, pairs, now)
        .map_err(|bad| Problem::at(format!("/filter/{}", bad.parameter), bad.to_string()))?;
    if let (Some(own), Some(named)) = (&actor.tenant, &filter.tenant)
        && own != named
    {
        return Err(ReadError::OtherTenant.into());
    }
    let is_given = given.contains_key("status");
    narrow(action, &mut filter, is_given)
        .map_err(|bad| Problem::at(format!("/filter/{}", bad.parameter), bad.to_string()))?;
    let parameters = filter.parameters(list).into_iter();
    Ok(Selection::Filter(parameters.map(|(name, value)| (name.to_owned(), value)).collect()))
}

fn select_ids(action: Action, ids: Vec<String>) -> Result<Selection> {
    if !(1..=MOST_IDS).contains(&ids.len()) {
        let detail =
            format!("from 1 to {MOST_IDS} ids can be given, not {}; use `filter` for more", ids.len());
        return Err(Problem::at("/ids", detail));
    }
    let letters = action.is_about_dead_letters();
    let fits =
        |id: &String| id.parse::<NotificationId>().is_ok() || (letters && id.parse::<DeadLetterId>().is_ok());
    match ids.iter().position(|id| !fits(id)) {
        None => Ok(Selection::Ids(ids.into())),
        Some(place) => {
            let kinds = if letters {
                "a dead letter (dl_..) or of a notification (ntf_..)"
            } else {
                "a notification (ntf_..)"
            };
            Err(Problem::at(format!("/ids/{place}"), format!("this is not the id of {kinds}")))
        }
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::NotFound(_) => Self::not_found(error.to_string()),
            OperationError::Finished(..) => Self::new(Kind::OperationFinished, error.to_string()),
            OperationError::TooMany(_) => Self::new(Kind::TooManyOperations, error.to_string()),
            OperationError::UnknownId { place, .. } => Self::at(format!("/ids/{place}"), error.to_string()),
            OperationError::Selection(bad) => Self::at(format!("/filter/{}", bad.parameter), bad.to_string()),
            OperationError::Store(error) => error.into(),
        }
    }
}

/// Starts an operation; 202 once it is safe on disk. With `dryRun` it is only counted.
#[utoipa::path(post, path = "/v1/retry-operations", operation_id = "startRetryOperation", tag = "retry operations",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "A repeat with the same body within 24 hours gets the same answer")),
    request_body = NewRetryOperation, security(("key" = ["operator"])),
    responses((status = 200, description = "What it would act on (`dryRun`)", body = PreviewView),
        (status = 202, description = "It has started", body = OperationView,
        headers(("idempotency-replayed", description = "`true` if it is the answer to an earlier request"))), (status = 409, description = "The key was used with another body, or too many operations are not finished"), (status = 429, description = "")))]
pub(crate) async fn start(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    IdempotencyKey(key): IdempotencyKey,
    text: Text<LARGEST>,
) -> Result<Response> {
    let asked: NewRetryOperation = read(&text)?;
    let (asked, dry_run) = asked.checked(&actor, api.engine.now())?;
    if dry_run {
        return Ok(Json(preview(&api, &caller, asked, &actor).await?).into_response());
    }
    let send = Send::of(&api, &caller, "/v1/retry-operations", key, &text);
    let operation = async {
        api.engine.has_room_for_operation(&actor).await?;
        api.engine.new_operation(asked, &actor).await
    };
    let operation: Operation = match operation.await {
        Ok(operation) => operation,
        // What was started once stays started, even if it would be refused today.
        Err(error) => return send.repeated().await?.ok_or_else(|| error.into()),
    };
    let answer = json(&OperationView::of(&operation));
    let accepted = api.engine.start_operation(operation, send.idempotency(&answer), &actor).await?;
    send.answered(accepted, answer)
}

async fn preview(api: &Shared, caller: &Caller, asked: NewOperation, actor: &Actor) -> Result<PreviewView> {
    let operation = api.engine.new_operation(asked, actor).await?;
    let preview = api.read(caller, |reads| async move { reads.preview_operation(&operation).await }).await?;
    Ok(PreviewView::of(&preview, |one| shown(api, one)))
}

/// What the body of a new operation would act on, whatever it says of `dryRun`.
pub(crate) async fn dry_run(
    api: &Shared,
    caller: &Caller,
    actor: &Actor,
    text: &[u8],
) -> Result<PreviewView> {
    let asked: NewRetryOperation = read(text)?;
    let (asked, _) = asked.checked(actor, api.engine.now())?;
    preview(api, caller, asked, actor).await
}

fn shown(api: &Api, one: &Sampled) -> SampleShown {
    match one {
        Sampled::Letter(view) => SampleShown::letter(DeadLetterView::of(view, None)),
        Sampled::Notification(view) => SampleShown::notification(NotificationView::of(api, view)),
    }
}

/// Lists operations, newest first.
///
/// With `unfinished=true` those that still have work to do: it costs as little as there are of them.
#[utoipa::path(get, path = "/v1/retry-operations", operation_id = "listRetryOperations", tag = "retry operations",
    params(("unfinished" = Option<bool>, Query, description = "Only those that are not finished"), Paged), security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<OperationView>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<OperationView>>> {
    let paging: Paging<OperationId> = Paging::take(&api, &caller, &mut query)?;
    let unfinished = query.flag("unfinished")?;
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let read = |reads: Reads| async move {
        if unfinished {
            reads.unfinished_operations(from, limit).await
        } else {
            reads.operations(from, limit).await
        }
    };
    let page = api.read(&caller, read).await?;
    Ok(Json(paging.show(&api, page, |row| OperationView::of(&row))))
}

/// One operation with its events.
#[utoipa::path(get, path = "/v1/retry-operations/{id}", operation_id = "getRetryOperation", tag = "retry operations",
    params(("id" = OperationId, Path)), security(("key" = ["reader"])),
    responses((status = 200, description = "The operation", body = OperationDetail), (status = 404, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    Id(id): Id<OperationId>,
) -> Result<Json<OperationDetail>> {
    let found = api.reads(&caller).operation(id).await.map_err(ReadError::from)?;
    let found = found.ok_or_else(|| Id::<OperationId>::missing(id))?;
    Ok(Json(OperationDetail::of(&found)))
}

/// Stops it until it is resumed.
#[utoipa::path(post, path = "/v1/retry-operations/{id}/pause", operation_id = "pauseRetryOperation", tag = "retry operations",
    params(("id" = OperationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It is paused", body = OperationView), (status = 404, description = ""), (status = 409, description = "It is finished")))]
pub(crate) async fn pause(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<OperationId>,
    _: NoBody,
) -> Result<(StatusCode, Json<OperationView>)> {
    let operation = api.engine.pause_operation(id, &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(OperationView::of(&operation))))
}

/// Lets a paused one go on.
#[utoipa::path(post, path = "/v1/retry-operations/{id}/resume", operation_id = "resumeRetryOperation", tag = "retry operations",
    params(("id" = OperationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It goes on", body = OperationView), (status = 404, description = ""), (status = 409, description = "It is finished")))]
pub(crate) async fn resume(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<OperationId>,
    _: NoBody,
) -> Result<(StatusCode, Json<OperationView>)> {
    let operation = api.engine.resume_operation(id, &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(OperationView::of(&operation))))
}

/// Stops it for good: what is not forwarded yet is skipped, `CANCELLED`.
#[utoipa::path(post, path = "/v1/retry-operations/{id}/cancel", operation_id = "cancelRetryOperation", tag = "retry operations",
    params(("id" = OperationId, Path)), request_body = Option<Nothing>, security(("key" = ["operator"])),
    responses((status = 202, description = "It is being stopped", body = OperationView), (status = 404, description = ""), (status = 409, description = "It is finished")))]
pub(crate) async fn cancel(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<OperationId>,
    _: NoBody,
) -> Result<(StatusCode, Json<OperationView>)> {
    let operation = api.engine.cancel_operation(id, &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(OperationView::of(&operation))))
}
