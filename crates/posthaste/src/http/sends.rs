//! `POST /v1/notifications` and `POST /v1/notifications/batch`.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::HeaderValue;
use posthaste_core::channel::Channel;
use posthaste_core::id::NotificationId;
use posthaste_core::inbound::Allowances;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::state::State as NotificationState;
use posthaste_core::time::Timestamp;
use posthaste_engine::accept::{AcceptError, Admitted};
use posthaste_engine::store::{Accepted, Idempotency, LIMITED_ANSWERS_LEVEL, PROVIDERS_LEVEL};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{LARGEST_BATCH, LARGEST_NOTIFICATION, Text, read};
use super::extract::{Authenticated, IdempotencyKey, NoQuery};
use super::problem::{Kind, Problem, Rejected, RejectedItem, Result};
use super::send::{NewNotification, SendContext};
use super::views::Status;
use super::{Api, Shared, limits};
use crate::config::RateAnswer;
use crate::keys::Caller;

/// The most notifications in a batch.
const LARGEST_COUNT: usize = 500;
/// How many notifications of a batch are read before other tasks run.
const READ_AT_ONCE: usize = 16;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(send)).routes(routes!(send_batch))
}

/// A notification that was accepted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Accepted)]
struct AcceptedView {
    notification_id: NotificationId,
    status: Status,
    state: NotificationState,
    state_code: u8,
    channel: Channel,
    created_at: Timestamp,
    /// When it is sent, if it is over a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred_until: Option<Timestamp>,
}

impl AcceptedView {
    fn of(admitted: &Admitted) -> Self {
        let one = &*admitted.notification;
        Self {
            notification_id: one.id,
            status: Status::Queued,
            state: NotificationState::Pending,
            state_code: NotificationState::Pending.code(),
            channel: one.channel,
            created_at: one.created_at(),
            deferred_until: admitted.deferred_until,
        }
    }
}

/// Up to 500 notifications.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Batch)]
struct Batch<'t> {
    #[serde(borrow)]
    #[schema(value_type = Vec<NewNotification>, min_items = 1, max_items = 500)]
    notifications: Items<'t>,
}

/// The notifications of a batch as they came. Those beyond the limit are counted and not kept: there may be
/// millions.
struct Items<'t> {
    kept: Vec<&'t RawValue>,
    count: usize,
}

impl<'de: 't, 't> Deserialize<'de> for Items<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsReader)
    }
}

struct ItemsReader;

impl<'de> Visitor<'de> for ItemsReader {
    type Value = Items<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of notifications")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut kept = vec![];
        while kept.len() < LARGEST_COUNT
            && let Some(item) = items.next_element()?
        {
            kept.push(item);
        }
        let mut count = kept.len();
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Items { kept, count })
    }
}

/// What became of each notification of a batch.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchAnswer)]
struct BatchAnswer<'p> {
    accepted: Vec<AcceptedItem>,
    #[schema(value_type = Vec<RejectedItem>)]
    rejected: Vec<RejectedItem<'p>>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AcceptedItem {
    /// Its place in the batch, from 0.
    index: usize,
    notification_id: NotificationId,
    /// When it is sent, if it is over a rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred_until: Option<Timestamp>,
}

/// Accepts one notification; 202 once it is safe on disk.
#[utoipa::path(post, path = "/v1/notifications", operation_id = "send", tag = "notifications",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "A repeat with the same body within 24 hours gets the same answer")),
    request_body = NewNotification, security(("key" = ["sender"])),
    responses((status = 202, description = "Accepted", body = AcceptedView,
        headers(("idempotency-replayed", description = "`true` if it is the answer to an earlier request"),
            ("x-ratelimit-limit-tenant" = u32, description = "Notifications that the tenant may send within a minute, if there is a limit"),
            ("x-ratelimit-remaining-tenant" = u32, description = "How many more would be sent at once"),
            ("x-ratelimit-limit-module" = u32, description = "The same of the module"),
            ("x-ratelimit-remaining-module" = u32, description = "How many more would be sent at once"),
            ("x-ratelimit-reset" = u64, description = "Seconds until more would be"))), (status = 409, description = "The key was used with another body"),
        (status = 429, description = "It is accepted, over a rate limit, and sent at `deferredUntil`; only where `rate_limit.answer` is `429`"),
        (status = 503, description = "The queue is full, or the server cannot accept now")))]
async fn send(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    IdempotencyKey(key): IdempotencyKey,
    text: Text<LARGEST_NOTIFICATION>,
) -> Result<Response> {
    let send = Send::of(&api, &caller, "/v1/notifications", key, &text);
    let notification = match send.read(&send.context(), &text, &mut BTreeMap::new()).await {
        Ok(notification) => notification,
        // What was accepted once stays accepted, even if it would be refused today: its expiry has passed, or
        // the rules changed.
        Err(problem) => return send.repeated().await?.ok_or(problem),
    };
    let (admitted, left) = match send.admit(vec![notification]).await? {
        Admission::New(admitted, left) => (admitted, left),
        Admission::Known(first) => return Ok(first),
    };
    let answer = match admitted[0].deferred_until {
        Some(until) if send.refuses_over_the_limit() => limits::limited(admitted[0].notification.id, until),
        Some(_) | None => json(&AcceptedView::of(&admitted[0])),
    };
    Ok(limits::tell(send.accept(admitted, answer).await?, left, api.engine.now()))
}

/// Accepts up to 500 notifications; each that is wrong is rejected by itself. If all are, the answer is 422.
#[utoipa::path(post, path = "/v1/notifications/batch", operation_id = "sendBatch", tag = "notifications",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, description = "A repeat with the same body within 24 hours gets the same answer")),
    request_body = Batch, security(("key" = ["sender"])),
    responses((status = 202, description = "Accepted, as far as nothing is rejected", body = BatchAnswer,
        headers(("idempotency-replayed", description = "`true` if it is the answer to an earlier request"),
            ("x-ratelimit-limit-tenant" = u32, description = "Notifications that the tenant may send within a minute, if there is a limit"),
            ("x-ratelimit-remaining-tenant" = u32, description = "How many more would be sent at once"),
            ("x-ratelimit-limit-module" = u32, description = "The same of the module"),
            ("x-ratelimit-remaining-module" = u32, description = "How many more would be sent at once"),
            ("x-ratelimit-reset" = u64, description = "Seconds until more would be"))), (status = 409, description = "The key was used with another body"),
        (status = 422, description = "The batch is wrong, or none of it was accepted: `rejected` says why each was not"),
        (status = 503, description = "The queue is full, or the server cannot accept now: nothing of it was accepted")))]
async fn send_batch(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    NoQuery: NoQuery,
    IdempotencyKey(key): IdempotencyKey,
    text: Text<LARGEST_BATCH>,
) -> Result<Response> {
    let Batch { notifications: Items { kept: items, count } } = read(&text)?;
    if !(1..=LARGEST_COUNT).contains(&count) {
        let detail = format!("a batch has from 1 to {LARGEST_COUNT} notifications, not {count}");
        return Err(Problem::at("/notifications", detail));
    }
    let send = Send::of(&api, &caller, "/v1/notifications/batch", key, &text);
    let context = send.context();
    let (mut taken, mut places, mut refused) = (Vec::with_capacity(items.len()), vec![], vec![]);
    let mut tenants = BTreeMap::new();
    for (index, item) in items.into_iter().enumerate() {
        if index % READ_AT_ONCE == READ_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        match read_item(&send, &context, item, &mut tenants).await {
            Ok(notification) => {
                places.push(index);
                taken.push(notification);
            }
            // Nothing is wrong with the item: the whole request can be repeated later.
            Err(problem) if problem.kind.shown().0.is_server_error() => return Err(problem),
            Err(problem) => {
                let problem = problem.under(&format!("/notifications/{index}"));
                refused.push(Rejected { index, problem });
            }
        }
    }
    if taken.is_empty() {
        let problem = nothing_accepted(refused);
        return send.repeated().await?.ok_or(problem);
    }
    let (admitted, left) = match send.admit(taken).await? {
        Admission::New(admitted, left) => (admitted, left),
        Admission::Known(first) => return Ok(first),
    };
    let item = |(index, one): (usize, &Admitted)| AcceptedItem {
        index,
        notification_id: one.notification.id,
        deferred_until: one.deferred_until,
    };
    let accepted = places.into_iter().zip(&admitted).map(item).collect();
    let answer = json(&BatchAnswer { accepted, rejected: refused.iter().map(Rejected::view).collect() });
    Ok(limits::tell(send.accept(admitted, answer).await?, left, api.engine.now()))
}

/// Nothing of a batch was accepted, so nothing is kept under its key: the same key serves for the batch
/// without mistakes.
fn nothing_accepted(rejected: Vec<Rejected>) -> Problem {
    let detail = match rejected.len() {
        1 => "the only notification was not accepted; `rejected` says why".to_owned(),
        count => format!("none of the {count} notifications was accepted; `rejected` says why"),
    };
    Problem { rejected: Some(rejected.into()), ..Problem::at("/notifications", detail) }
}

async fn read_item(
    send: &Send<'_>,
    context: &SendContext<'_>,
    item: &RawValue,
    tenants: &mut CheckedTenants,
) -> Result<Notification> {
    if item.get().len() > LARGEST_NOTIFICATION {
        let detail = format!("the notification is larger than {} KiB", LARGEST_NOTIFICATION / 1024);
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    send.read(context, item.get().as_bytes(), tenants).await
}

/// The tenants that a request has named so far, and why each is refused.
type CheckedTenants = BTreeMap<Tenant, Option<Problem>>;

/// What becomes of a request.
enum Admission {
    /// It can be accepted, and this is left of the limits.
    New(Vec<Admitted>, Allowances),
    /// It was accepted before, and this was the answer.
    Known(Response),
}

/// A request to send.
pub(super) struct Send<'a> {
    api: &'a Api,
    /// Whose idempotency keys count, and whose a notification is that names no tenant.
    tenant: Tenant,
    module: Option<&'a str>,
    is_for_all: bool,
    path: String,
    key: Option<String>,
    text: &'a Bytes,
}

impl<'a> Send<'a> {
    pub(super) fn of(
        api: &'a Api,
        caller: &'a Caller,
        path: &str,
        key: Option<String>,
        text: &'a Bytes,
    ) -> Self {
        let (tenant, is_for_all) = (caller.sends_for(), caller.tenant.is_none());
        Self { api, tenant, module: caller.module(), is_for_all, path: path.to_owned(), key, text }
    }

    pub(super) fn context(&self) -> SendContext<'_> {
        let engine = &self.api.engine;
        SendContext {
            tenant: &self.tenant,
            module: self.module,
            is_for_all: self.is_for_all,
            guard: &self.api.guard,
            policies: engine.policies(),
            pools: engine.pools(),
            has_older_nodes: engine.cluster_level() < PROVIDERS_LEVEL,
            now: engine.now(),
        }
    }

    /// Reads one notification. Each tenant is checked once in a request.
    async fn read(
        &self,
        context: &SendContext<'_>,
        text: &[u8],
        tenants: &mut CheckedTenants,
    ) -> Result<Notification> {
        let notification = context.read(self.api.engine.notification_id(), text)?;
        let tenant = &notification.tenant;
        if *tenant != self.tenant && !tenants.contains_key(tenant) {
            let refused = self.api.check_tenant(tenant).await.err();
            tenants.insert(tenant.clone(), refused);
        }
        match tenants.get(tenant) {
            Some(Some(problem)) => Err(problem.clone()),
            Some(None) | None => Ok(notification),
        }
    }

    /// Decides what is accepted, and when it is sent. A request that is known under its key takes nothing of any limit.
    async fn admit(&self, notifications: Vec<Notification>) -> Result<Admission> {
        let engine = &self.api.engine;
        let limited = engine.has_inbound_limits();
        if limited && let Some(first) = self.repeated().await? {
            let left = engine.allowances(&notifications).await?;
            return Ok(Admission::Known(limits::tell(first, left, engine.now())));
        }
        let admitted = match engine.admit(notifications).await {
            Err(AcceptError::QueueFull) => return self.known_or_full().await.map(Admission::Known),
            admitted => admitted?,
        };
        let left = match admitted.iter().filter_map(|one| one.allowances).reduce(Allowances::tightest) {
            Some(left) => left,
            // All of it is exempt.
            None if limited => engine.allowances(admitted.iter().map(|one| &*one.notification)).await?,
            None => Allowances::default(),
        };
        Ok(Admission::New(admitted, left))
    }

    /// Whether one notification over the limit is answered with a 429. A node of an older version would repeat it as a 202.
    fn refuses_over_the_limit(&self) -> bool {
        self.api.rate_answer == RateAnswer::TooMany
            && self.api.engine.cluster_level() >= LIMITED_ANSWERS_LEVEL
    }

    /// Stores what was read, and answers once it is durable. A repeat under the same key gets the first
    /// answer.
    async fn accept(self, admitted: Vec<Admitted>, answer: Vec<u8>) -> Result<Response> {
        let result = self.api.engine.accept_admitted(self.idempotency(&answer), admitted).await;
        self.api.accept_health.note(self.api, !matches!(result, Err(AcceptError::Store(_)))).await;
        match result {
            Err(AcceptError::QueueFull) => self.known_or_full().await,
            result => self.answered(result?, answer),
        }
    }

    /// The answer while the queue is full.
    async fn known_or_full(&self) -> Result<Response> {
        self.repeated().await?.ok_or_else(|| AcceptError::QueueFull.into())
    }

    /// How a repeat of it is recognised and answered, if it has a key.
    pub(super) fn idempotency(&self, answer: &[u8]) -> Option<Idempotency> {
        let (tenant, hash) = (self.tenant.clone(), self.hash());
        self.key.clone().map(|key| Idempotency { tenant, key, hash, answer: answer.to_vec() })
    }

    /// What the store said, as an answer.
    pub(super) fn answered(&self, accepted_as: Accepted, answer: Vec<u8>) -> Result<Response> {
        match accepted_as {
            Accepted::New => Ok(limits::shown(answer, self.api.engine.now())),
            Accepted::Twin(first) => Ok(self.replay(first)),
            Accepted::Conflict => Err(conflict()),
        }
    }

    /// The first answer to a request that is known under its key and refused today. The key of another request is a conflict.
    pub(super) async fn repeated(&self) -> Result<Option<Response>> {
        let Some(key) = self.key.clone() else { return Ok(None) };
        let hash = self.hash();
        let first = self.api.store.idempotent(self.tenant.clone(), key, self.api.engine.now()).await?;
        match first {
            Some(first) if first.hash == hash => Ok(Some(self.replay(first.answer))),
            Some(_) => Err(conflict()),
            None => Ok(None),
        }
    }

    fn replay(&self, first: Vec<u8>) -> Response {
        let mut response = limits::shown(first, self.api.engine.now());
        response.headers_mut().insert(limits::REPLAYED, HeaderValue::from_static("true"));
        response
    }

    /// One key for the same bytes sent to two addresses is a conflict, so the address is part of what is
    /// compared.
    fn hash(&self) -> [u8; 32] {
        if self.key.is_none() {
            return [0; 32];
        }
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(self.path.as_bytes());
        context.update(&[0]);
        context.update(self.text);
        context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

pub(super) fn json(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("an answer is made of texts and numbers")
}

fn conflict() -> Problem {
    let detail = "this Idempotency-Key was used in the last 24 hours with another body: use a new key for a new request";
    Problem::new(Kind::IdempotencyConflict, detail)
}
