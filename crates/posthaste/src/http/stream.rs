//! `/v1/stream`: the counters each second, and single changes as they happen, as server-sent events.
//!
//! Invariant: a stream holds its place in the ring of the engine and nothing that grows. One whose reader does not read is not
//! asked for more, and `server` closes it.

mod counters;
mod open;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderValue};
use http::request::Parts;
use posthaste_core::channel::Channel;
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{Filter, List};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::reason::Reason;
use posthaste_core::state::State as NotificationState;
use posthaste_core::time::Timestamp;
use posthaste_engine::live::{self, Change, EventId, Heard, Listener, Progressed, Start, Topic};
use posthaste_engine::reads::ReadError;
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::counters::Counters;
use self::open::OpenStream;
pub(super) use self::open::Streams;
use super::extract::Authenticated;
use super::page::{filters, parameter, text};
use super::problem::{Problem, Result};
use super::query::{Query, short};
use super::views::OperationView;
use super::{Api, Shared};
use crate::keys::Caller;

/// Counters or a comment are sent, and the key is checked, this often.
const TICK: Duration = Duration::from_secs(1);
/// How long a client waits before it connects again.
const RETRY: Duration = Duration::from_secs(2);

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(get))
}

/// The events that a stream may have, beside `missed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stats,
    Notification,
    Operation,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Stats, Self::Notification, Self::Operation];

    const fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Notification => "notification",
            Self::Operation => "operation",
        }
    }

    /// What the engine tells for it; none for counters.
    const fn topic(self) -> Option<Topic> {
        match self {
            Self::Stats => None,
            Self::Notification => Some(Topic::Notifications),
            Self::Operation => Some(Topic::Operations),
        }
    }

    /// Those that are asked for; all of them, if it is not said.
    fn chosen(query: &mut Query) -> Result<Vec<Self>> {
        let Some(given) = query.take("events") else { return Ok(Self::ALL.to_vec()) };
        let find = |name: &str| {
            let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
            found.ok_or_else(|| {
                let all = Self::ALL.map(Self::name).join(", ");
                let detail = format!("events must be one or more of {all}, not `{}`", short(name));
                Problem::parameter("events", detail)
            })
        };
        given.split(',').map(str::trim).map(find).collect()
    }
}

/// The parameters of the stream: its events, and the filter of notifications.
struct StreamQuery;

impl IntoParams for StreamQuery {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let events =
            "Which events: stats, notification, operation; several with commas. All, if it is not given";
        let last =
            "As the header Last-Event-ID, which counts before it: an EventSource cannot send one at first";
        let own = [parameter("events", events, text()), parameter(LAST_ID, last, text())];
        own.into_iter().chain(filters(List::Notifications)).collect()
    }
}

/// The parameter that stands for `Last-Event-ID`.
const LAST_ID: &str = "lastEventId";

/// The header `Last-Event-ID`.
struct LastEventId(Option<Start>);

impl FromRequestParts<Shared> for LastEventId {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &Shared) -> std::result::Result<Self, Infallible> {
        let given = head.headers.get("last-event-id").filter(|id| !id.is_empty());
        Ok(Self(given.map(|given| start_after(given.to_str().unwrap_or_default()))))
    }
}

/// After an event. What cannot be read is an event that nobody knows.
fn start_after(id: &str) -> Start {
    id.trim().parse().map_or(Start::Unknown, Start::After)
}

/// What has happened so far, for a stream that begins later and misses nothing in between.
pub(crate) struct Place {
    /// What such a stream is asked for with.
    pub(crate) query: String,
    /// Whether other nodes are alive, whose changes this one does not send.
    pub(crate) is_one_of_several: bool,
}

/// The place of now among the changes that match. They are kept for a minute, until the stream begins.
pub(crate) async fn place(api: &Api, caller: &Caller, filter: Filter) -> Result<Place> {
    let query = filter.query_string(List::Notifications);
    let mark = if query.is_empty() { "" } else { "&" };
    let listener = api.reads(caller).listen(&[], filter, Start::Now)?;
    let query = format!("{LAST_ID}={}{mark}{query}", listener.place());
    let (_, nodes) = api.engine.nodes().await.map_err(ReadError::from)?;
    Ok(Place { query, is_one_of_several: nodes.iter().filter(|node| node.alive).count() > 1 })
}

/// The counters each second and single changes as they happen, as server-sent events.
#[utoipa::path(get, path = "/v1/stream", operation_id = "stream", tag = "figures", security(("key" = ["reader"])),
    params(StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was received: what came after it is sent first")),
    responses((status = 200, description = "Events `stats`, `notification`, `operation` and `missed`, without an end", body = String, content_type = "text/event-stream"),
        (status = 429, description = "")))]
async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    Ok(LastEventId(start)): std::result::Result<LastEventId, Infallible>,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response> {
    let kinds = Kind::chosen(&mut query)?;
    let named = query.take(LAST_ID).map(|id| start_after(&id));
    let start = start.or(named).unwrap_or(Start::Now);
    let filter = query.filter(List::Notifications, api.engine.now())?;
    query.finish()?;
    let reads = api.reads(&caller);
    let tenant = reads.tenant(filter.tenant.clone())?;
    let open = api.streams.open(&caller)?;
    let topics: Vec<Topic> = kinds.iter().filter_map(|kind| kind.topic()).collect();
    let listener = match topics.as_slice() {
        [] => None,
        topics => Some(reads.listen(topics, filter, start)?),
    };
    let counters = kinds.contains(&Kind::Stats).then(|| api.streams.counters(tenant));
    let live = Live::new(api, caller, credentials(&headers), listener, counters, open);
    let events = stream::unfold(live, async |mut live| {
        let event = live.next().await?;
        Some((Ok::<_, Infallible>(event), live))
    });
    // A proxy that gathers an answer would hold the events back.
    let unbuffered = ("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(([unbuffered], Sse::new(events)).into_response())
}

/// One stream.
struct Live {
    api: Shared,
    caller: Arc<Caller>,
    /// The key, or the cookie of a session.
    credentials: HeaderMap,
    listener: Option<Listener>,
    counters: Option<Arc<Counters>>,
    tick: Interval,
    /// What is to be sent next: at most what one look at the ring has brought.
    ready: VecDeque<Event>,
    _open: OpenStream,
}

impl Live {
    fn new(
        api: Shared,
        caller: Arc<Caller>,
        credentials: HeaderMap,
        listener: Option<Listener>,
        counters: Option<Arc<Counters>>,
        open: OpenStream,
    ) -> Self {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One that is cut off before its first change comes back with this id, and misses nothing.
        let place = listener.as_ref().map(|listener| listener.place().to_string());
        let first = Event::default().retry(RETRY);
        let first = match place {
            Some(place) => first.id(place),
            None => first,
        };
        let ready = VecDeque::from([first]);
        Self { api, caller, credentials, listener, counters, tick, ready, _open: open }
    }

    /// The next event; none if the stream is over.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            tokio::select! {
                biased;
                _ = self.tick.tick() => {
                    if !self.is_admitted().await {
                        return None;
                    }
                    return Some(self.counters().await);
                }
                () = changes(self.listener.as_ref()) => {
                    let heard = self.listener.as_mut().map(Listener::take).unwrap_or_default();
                    self.ready.extend(heard.iter().map(event));
                }
            }
        }
    }

    /// Whether the key or the session is still valid, and still for the same. While the store cannot say, a session goes on.
    async fn is_admitted(&self) -> bool {
        if let Ok(caller) = self.api.key_of(&self.credentials).await {
            return caller == self.caller;
        }
        let session = self.api.session_of(&self.credentials).await;
        session.map_or(true, |found| found.is_some_and(|session| session.caller == self.caller))
    }

    /// The counters; a comment if they are not asked for or cannot be read now.
    async fn counters(&self) -> Event {
        let counted = match &self.counters {
            Some(counters) => counters.read(&self.api, &self.caller).await,
            None => None,
        };
        match counted {
            Some(counted) => Event::default().event(Kind::Stats.name()).data(counted),
            None => Event::default().comment(""),
        }
    }
}

/// The headers that say who asks. Where there is a key, cookies do not count.
fn credentials(headers: &HeaderMap) -> HeaderMap {
    if let Some(key) = headers.get(AUTHORIZATION) {
        return HeaderMap::from_iter([(AUTHORIZATION, key.clone())]);
    }
    headers.get_all(COOKIE).iter().map(|cookie| (COOKIE, cookie.clone())).collect()
}

/// Waits until there may be changes.
async fn changes(listener: Option<&Listener>) {
    match listener {
        Some(listener) => listener.wait().await,
        None => std::future::pending().await,
    }
}

fn event(heard: &Heard) -> Event {
    match heard {
        Heard::Event(id, event) => match &**event {
            live::Event::Notification(change) => {
                numbered(*id).event(Kind::Notification.name()).data(json(&ChangeView::of(change)))
            }
            live::Event::Operation(progressed) => {
                numbered(*id).event(Kind::Operation.name()).data(json(&ProgressView::of(progressed)))
            }
        },
        Heard::Missed { last, since } => {
            numbered(*last).event("missed").data(json(&MissedView { since: *since }))
        }
    }
}

fn numbered(id: EventId) -> Event {
    Event::default().id(id.to_string())
}

fn json(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("an event is made of texts and numbers")
}

/// A notification is in another state.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeView<'c> {
    at: Timestamp,
    notification_id: NotificationId,
    tenant: &'c Tenant,
    channel: Channel,
    destination: &'c str,
    state: NotificationState,
    state_code: u8,
    attempt: u32,
    failure_type: Option<FailureType>,
    status_code: Option<u16>,
    reason_code: Option<Reason>,
    dead_letter_id: Option<DeadLetterId>,
}

impl<'c> ChangeView<'c> {
    fn of(change: &'c Change) -> Self {
        let one = &*change.notification;
        Self {
            at: change.at,
            notification_id: one.id,
            tenant: &one.tenant,
            channel: one.channel,
            destination: &one.destination,
            state: change.state,
            state_code: change.state.code(),
            attempt: change.attempt,
            failure_type: change.failure.map(|(failure, _)| failure),
            status_code: change.failure.and_then(|(_, code)| code),
            reason_code: change.reason,
            dead_letter_id: change.dead_letter,
        }
    }
}

/// An operation is in another state, or further than it was: as lists show it.
#[derive(Serialize)]
struct ProgressView {
    at: Timestamp,
    #[serde(flatten)]
    operation: OperationView,
}

impl ProgressView {
    fn of(progressed: &Progressed) -> Self {
        Self { at: progressed.at, operation: OperationView::of(&progressed.operation) }
    }
}

/// Changes were not sent.
#[derive(Serialize)]
struct MissedView {
    /// The first of them happened then, or later; null if that is not known.
    since: Option<Timestamp>,
}

impl Api {
    /// How many streams are open.
    pub(super) fn open_streams(&self) -> usize {
        self.streams.count()
    }
}
