//! `/notifications/{id}`: one notification with its timeline, its story and its payload.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use posthaste_core::destination::DestinationKey;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::NotificationId;
use posthaste_core::state::State as NotificationState;
use posthaste_core::time::Timestamp;
use serde_json::value::RawValue;

use super::downtime::Downtime;
use super::filter_bar::quoted;
use super::shell::Shell;
use super::show::{self, Markup, counted};
use super::story::{Planned, Step, steps};
use super::timeline::{self, Mark};
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::destinations;
use crate::http::extract::{Authenticated, Id, NoQuery};
use crate::http::notifications;
use crate::http::problem::Result;
use crate::http::views::attempt::{AttemptView, OutcomeView};
use crate::http::views::{NotificationDetail, NotificationView, ParkedView};

/// The longest payload that is coloured; a longer one is shown as it is.
const LONGEST_COLOURED: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "notification.html")]
struct NotificationPage {
    shell: Shell,
    one: NotificationView,
    timeline: Markup,
    /// When nothing was sent to its destination, in words.
    shut: Option<String>,
    story: Vec<Step>,
    /// What keeps it waiting although it is due.
    parked: Option<ParkedView>,
    accepted: Option<Timestamp>,
    payload: Markup,
    headers: Vec<(String, String)>,
    html: Option<String>,
    metadata: Option<Markup>,
    policy: Option<Markup>,
    curl: String,
    next: Option<String>,
    priority: String,
    /// Its destination as a parameter of an address.
    destination: String,
    may: May,
}

/// What the visitor may do with it now.
struct May {
    retry: bool,
    retry_now: bool,
    cancel: bool,
    requeue: bool,
}

/// JSON for people. A text is shown without its quotes.
pub(super) fn payload(body: &RawValue) -> Markup {
    let text = body.get();
    if let Ok(plain) = serde_json::from_str::<String>(text) {
        return Markup(show::escape(&plain));
    }
    if text.len() > LONGEST_COLOURED { Markup(show::escape(text)) } else { show::json(text) }
}

pub(super) async fn page(
    State(api): State<Shared>,
    Id(id): Id<NotificationId>,
    visitor: Visitor,
) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let found = notifications::get(State(api.clone()), caller, NoQuery, Id(id)).await?.0;
    let title = title(&found.notification);
    let shell = Shell::of(&api, &visitor, &title, "/notifications").await;
    let next = found.notification.next_attempt_at.filter(|_| !found.notification.state.is_end());
    let planned = next.map(|at| Planned {
        at,
        number: found.notification.attempt,
        most: found.notification.max_attempts,
    });
    let shut = shut(&api, &visitor, &found.notification, shell.now).await;
    let page = NotificationPage {
        timeline: drawn(&found, shut.as_ref(), &shell),
        shut: shut.map(|shut| shut.said()),
        story: steps(&found.attempts, &found.events, planned, found.planned.as_ref()),
        accepted: Some(found.notification.created_at),
        payload: payload(&found.body),
        curl: curl(&found, &visitor.base),
        next: left(&found.notification),
        priority: serde_json::to_value(found.notification.priority)
            .map_or_else(|_| String::new(), |name| name.as_str().unwrap_or_default().to_owned()),
        destination: url::form_urlencoded::byte_serialize(found.notification.destination.as_bytes())
            .collect(),
        may: may(&visitor, &found.notification),
        headers: found.headers.into_iter().collect(),
        html: found.html,
        parked: found.parked,
        metadata: found.metadata.as_deref().map(payload),
        policy: found
            .policy
            .as_ref()
            .and_then(|policy| serde_json::to_string(policy).ok())
            .map(|text| show::json(&text)),
        one: found.notification,
        shell,
    };
    Ok(page.shell.answer(&page))
}

fn title(one: &NotificationView) -> String {
    match super::notifications::about(one) {
        about if about == one.channel.name() => one.to.clone(),
        about => format!("{about} to {}", one.to),
    }
}

/// How many attempts are left, in words.
fn left(one: &NotificationView) -> Option<String> {
    let left = one.max_attempts.saturating_sub(one.attempts_made);
    (!one.state.is_end() && left > 0).then(|| {
        let verb = if left == 1 { "is" } else { "are" };
        format!(
            "{} {verb} left. After that it is given up, as its policy says.",
            counted(left.into(), "attempt", "attempts")
        )
    })
}

fn may(visitor: &Visitor, one: &NotificationView) -> May {
    use NotificationState::{DeadLetter, Failed, RetryScheduled};
    May {
        retry: matches!(one.state, DeadLetter | Failed) && visitor.may("retry"),
        retry_now: one.state == RetryScheduled && visitor.may("retryNow"),
        cancel: !one.state.is_end() && !one.cancel_requested && visitor.may("cancel"),
        requeue: one.state == DeadLetter && one.dead_letter_id.is_some() && visitor.may("requeue"),
    }
}

/// When nothing was sent to its destination while it was on its way. None if it always took something, or nothing can be read of it:
/// what goes over providers waits for several.
async fn shut(api: &Shared, visitor: &Visitor, one: &NotificationView, now: Timestamp) -> Option<Downtime> {
    let (tenant, destination) = (one.tenant.clone(), one.destination.as_str().into());
    let flow = FlowKey { tenant, channel: one.channel, destination };
    let key = DestinationKey::of_flow(&flow).filter(|_| visitor.may("getDestination"))?;
    let caller = Authenticated(visitor.caller.clone());
    let found = destinations::get(State(api.clone()), caller, NoQuery, Id(key.id())).await.ok()?.0;
    let known = Downtime::of(&found.destination, &found.history, one.created_at, now);
    Some(known.shut_before(one.ended_at.unwrap_or(now))).filter(|shut| !shut.is_well())
}

fn drawn(found: &NotificationDetail, shut: Option<&Downtime>, shell: &Shell) -> Markup {
    let mark = |attempt: &AttemptView| Mark {
        at: attempt.started_at.as_millis(),
        number: attempt.number,
        class: if matches!(attempt.outcome, OutcomeView::Delivered) { "g" } else { "f" },
        range: None,
    };
    let made: Vec<Mark> = found.attempts.iter().map(mark).collect();
    let one = &found.notification;
    let next = one.next_attempt_at.map(|at| Mark::planned(one.attempt, at.as_millis(), at.as_millis()));
    let later = found.planned.iter().flat_map(|plan| &plan.attempts);
    let later = later.map(|one| Mark::planned(one.number, one.earliest.as_millis(), one.latest.as_millis()));
    let planned: Vec<Mark> = next.into_iter().chain(later).collect();
    let end = one.ended_at.map(|at| at.as_millis());
    let shut = shut.map(Downtime::parts).unwrap_or_default();
    timeline::draw(one.created_at.as_millis(), &made, &planned, &shut, end, shell.now.as_millis())
}

/// The same notification again, as a command.
fn curl(found: &NotificationDetail, base: &str) -> String {
    let one = &found.notification;
    let mut sent = serde_json::json!({
        "channel": one.channel.name(),
        "to": one.to,
        "body": serde_json::from_str::<serde_json::Value>(found.body.get()).unwrap_or_default(),
    });
    let texts =
        [("subject", &one.subject), ("eventKey", &one.event_key), ("correlationId", &one.correlation_id)];
    for (name, value) in texts {
        if let Some(value) = value {
            sent[name] = value.as_str().into();
        }
    }
    format!(
        "curl -sS {base}/v1/notifications -H \"Authorization: Bearer $POSTHASTE_KEY\" -H 'Content-Type: application/json' -d {}",
        quoted(&sent.to_string())
    )
}
