//! `/v1/failure-groups`: pending dead letters by cause, destination, template, channel or tenant.

use axum::Json;
use axum::extract::State;
use posthaste_core::failure::FailureType;
use posthaste_core::group::{GroupBy, GroupId, HOURS, Note};
use posthaste_core::id::DeadLetterId;
use posthaste_core::reason::Reason;
use posthaste_core::time::Timestamp;
use posthaste_engine::groups::NotedGroup;
use posthaste_engine::store::GroupCursor;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::body::{Text, read};
use super::extract::{ActorOf, Authenticated, Id, NoQuery};
use super::page::{OfTenant, Page, Paged, Paging};
use super::problem::{Problem, Result};
use super::query::{Query, short};

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get)).routes(routes!(put_note))
}

/// Dead letters that share a cause, a destination, a template, a channel or a tenant.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FailureGroup)]
pub(crate) struct FailureGroupView {
    /// The same for every tenant.
    pub(crate) id: GroupId,
    /// What it groups by.
    #[schema(value_type = GroupKind)]
    pub(crate) by: &'static str,
    /// What it is, for people: `503: upstream connect error`, or the name of what it groups by.
    pub(crate) title: String,
    /// How many dead letters are pending.
    pub(crate) count: u64,
    /// When the first one died.
    pub(crate) first_seen: Timestamp,
    /// When the last one died.
    pub(crate) last_seen: Timestamp,
    /// How many of those that are pending died in each of the last 24 hours; the current hour is the last.
    #[schema(value_type = Vec<u64>, min_items = 24, max_items = 24)]
    pub(crate) hours: [u64; HOURS],
    /// Why the newest one ended.
    pub(crate) reason_code: Option<Reason>,
    /// How the last attempt of the newest one failed.
    pub(crate) failure_type: Option<FailureType>,
    /// The status code of the last attempt of the newest one.
    pub(crate) status_code: Option<u16>,
    /// The newest one. It may have been resolved since.
    pub(crate) sample_id: DeadLetterId,
    /// What somebody wrote at the group.
    pub(crate) note: Option<NoteView>,
}

/// A note at a failure group.
#[derive(Serialize, ToSchema)]
#[schema(as = Note)]
pub(crate) struct NoteView {
    pub(crate) text: String,
    /// Who wrote it.
    pub(crate) by: String,
    /// When.
    pub(crate) at: Timestamp,
}

/// What dead letters are grouped by.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the words")]
enum GroupKind {
    Fingerprint,
    Destination,
    Template,
    Channel,
    Tenant,
}

impl FailureGroupView {
    fn of(NotedGroup { group, note }: NotedGroup) -> Self {
        Self {
            last_seen: group.last_seen(),
            id: group.id,
            by: group.by.name(),
            title: group.title,
            count: group.count,
            first_seen: group.first_seen,
            hours: group.hours,
            reason_code: group.reason,
            failure_type: group.failure_type,
            status_code: group.status_code,
            sample_id: group.sample,
            note: note.map(|written| NoteView {
                text: written.note.text,
                by: written.note.by,
                at: written.at,
            }),
        }
    }
}

pub(super) fn by(query: &mut Query) -> Result<GroupBy> {
    let Some(given) = query.take("by") else { return Ok(GroupBy::Fingerprint) };
    GroupBy::from_name(&given).ok_or_else(|| {
        let names = GroupBy::ALL.map(GroupBy::name).join(", ");
        Problem::parameter("by", format!("by must be one of {names}, not `{}`", short(&given)))
    })
}

/// Groups of pending dead letters, the largest first.
///
/// A tenant's key sees its part of each group, a key for all tenants the sum. Beyond 10,000 groups of one kind, the rest is in a
/// group `other`.
#[utoipa::path(get, path = "/v1/failure-groups", operation_id = "listFailureGroups", tag = "dead letters",
    params(("by" = Option<GroupKind>, Query, description = "What dead letters are grouped by; `fingerprint` by default"), Paged, OfTenant),
    security(("key" = ["reader"])),
    responses((status = 200, description = "A page", body = Page<FailureGroupView>), (status = 429, description = "")))]
pub(crate) async fn list(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<Page<FailureGroupView>>> {
    let paging: Paging<GroupCursor> = Paging::take(&api, &caller, &mut query)?;
    let (by, tenant) = (by(&mut query)?, query.tenant()?);
    query.finish()?;
    let (from, limit) = (paging.from, paging.limit);
    let page =
        api.read(&caller, |reads| async move { reads.failure_groups(by, tenant, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, FailureGroupView::of)))
}

/// One group. It is known for a day after its last dead letter was resolved.
#[utoipa::path(get, path = "/v1/failure-groups/{id}", operation_id = "getFailureGroup", tag = "dead letters",
    params(("id" = GroupId, Path), OfTenant), security(("key" = ["reader"])),
    responses((status = 200, description = "The group", body = FailureGroupView), (status = 404, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
    Id(id): Id<GroupId>,
) -> Result<Json<FailureGroupView>> {
    let tenant = query.tenant()?;
    query.finish()?;
    let found = api.reads(&caller).failure_group(id, tenant).await?;
    found.map(|group| Json(FailureGroupView::of(group))).ok_or_else(|| Id::<GroupId>::missing(id))
}

/// What to write at a group.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewNote {
    /// Up to 2,000 characters; an empty text removes the note.
    #[schema(max_length = 2000)]
    text: String,
}

/// Writes a note at a group, or removes it by an empty text. It stays when the group empties.
///
/// Each tenant has notes of its own; those of keys for all tenants are seen by keys for all tenants.
#[utoipa::path(put, path = "/v1/failure-groups/{id}/note", operation_id = "putFailureGroupNote", tag = "dead letters",
    params(("id" = GroupId, Path)), request_body = NewNote, security(("key" = ["operator"])),
    responses((status = 200, description = "The group with its note", body = FailureGroupView), (status = 404, description = "")))]
pub(crate) async fn put_note(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    Id(id): Id<GroupId>,
    text: Text,
) -> Result<Json<FailureGroupView>> {
    let new: NewNote = read(&text)?;
    let note =
        Note::new(&new.text, &actor.name).map_err(|bad| Problem::at("/text", format!("text: {bad}")))?;
    let group = api.engine.put_group_note(id, note, &actor).await?;
    Ok(Json(FailureGroupView::of(group)))
}
