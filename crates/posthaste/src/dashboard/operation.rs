//! `/retry-operations/{id}`: one operation, how far it is, and what happened to it. The script asks for the part that changes.

use askama::Template;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use posthaste_core::id::OperationId;
use posthaste_core::operation::OperationState;
use posthaste_core::time::Timestamp;

use super::acts::again;
use super::drawing::{bar, share};
use super::flash::Flash;
use super::operations::{done_words, is_counted, title};
use super::problem::is_htmx;
use super::shell::{self, Shell};
use super::show::{self, Markup, count, counted, length, percent};
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::act::NoBody;
use crate::http::extract::{ActorOf, Authenticated, Id, NoQuery};
use crate::http::problem::{Kind, Problem, Result};
use crate::http::retry_operations;
use crate::http::views::{OperationDetail, OperationView};

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage {
    shell: Shell,
    id: OperationId,
    paused: bool,
    shown: Markup,
    may_change: bool,
}

/// What changes while it runs.
#[derive(Template)]
#[template(path = "operation-part.html")]
struct Part {
    one: OperationDetail,
    now: Timestamp,
}

/// A stage that all batches go through.
struct StageShown {
    name: &'static str,
    state: &'static str,
    figure: String,
    bar: Markup,
    note: String,
}

impl StageShown {
    /// A stage that so many of how many have gone through.
    fn of(name: &'static str, (through, all): (u64, u64), over: bool, note: String) -> Self {
        let state = match (over, through) {
            (true, _) => "succeeded",
            (false, 0) => "pending",
            (false, _) => "processing",
        };
        let part = share(through, all);
        Self { name, state, figure: count(&through), bar: bar("", &percent(&part), &[("p", part)]), note }
    }
}

impl Part {
    fn view(&self) -> &OperationView {
        &self.one.operation
    }

    fn time(&self, at: &Timestamp) -> Markup {
        show::time(*at, self.now)
    }

    fn is_over(&self) -> bool {
        self.view().finished_at.is_some()
    }

    /// What one would say on the phone.
    fn sentence(&self) -> String {
        let one = self.view();
        let done = done_words(one.action);
        let (forwarded, total) = (count(&one.forwarded), count(&one.total));
        match one.state {
            OperationState::Waiting => "It begins in a moment.".to_owned(),
            OperationState::Preparing => format!("{total} found so far; it is still looking."),
            OperationState::Forwarding => format!("{forwarded} of {total} are {done}."),
            OperationState::Paused => format!("Paused with {forwarded} of {total} {done}."),
            OperationState::Completed => format!("Done: {forwarded} of {total} are {done}."),
            OperationState::Cancelled if !self.is_over() => format!("Stopping with {forwarded} {done}."),
            OperationState::Cancelled => format!("Stopped with {forwarded} of {total} {done}."),
            OperationState::Failed => format!("Failed with {forwarded} of {total} {done}."),
        }
    }

    /// What happens next, or how it ended.
    fn next(&self) -> String {
        let one = self.view();
        match (one.state, one.paused_by.as_deref(), one.stopped_by.as_deref()) {
            (OperationState::Paused, Some("breaker"), _) => {
                "What is left goes to receivers that are blocked or whose breaker is open. It goes on by itself.".to_owned()
            }
            (OperationState::Paused, by, _) => {
                format!("{} paused it; it waits until somebody resumes it.", by.unwrap_or("Somebody"))
            }
            (OperationState::Cancelled, _, Some("canary")) => {
                "Too many of the canary's first attempts failed. The rest was left as it was.".to_owned()
            }
            (OperationState::Cancelled | OperationState::Failed, _, by) => {
                format!("{} stopped it. The rest was left as it was.", by.unwrap_or("Somebody"))
            }
            (OperationState::Completed, ..) => self.took(),
            (OperationState::Forwarding, ..) => self.left(),
            (OperationState::Waiting | OperationState::Preparing, ..) => {
                "What fails or is sent from now on is not part of it.".to_owned()
            }
        }
    }

    fn took(&self) -> String {
        let one = self.view();
        let ended = one.finished_at.unwrap_or(self.now);
        format!("It took {}.", length(&ended.since(one.started_at)))
    }

    /// How long it still takes, at the pace so far.
    fn left(&self) -> String {
        let one = self.view();
        let went = self.now.since(one.started_at);
        if one.forwarded == 0 || went.is_zero() {
            return "The first ones follow in a moment.".to_owned();
        }
        let (went, forwarded) = (went.as_millis().max(1), u128::from(one.forwarded));
        let left = u128::from(one.remaining) * went / forwarded;
        let left = std::time::Duration::from_secs(u64::try_from(left / 1_000 + 1).unwrap_or(u64::MAX));
        let pace = u64::try_from(forwarded * 1_000 / went).unwrap_or(u64::MAX);
        format!("About {} left at its pace so far, {} a second.", length(&left), count(&pace))
    }

    /// The sum, in words.
    fn sum(&self) -> String {
        let one = self.view();
        let [forwarded, skipped, remaining, total] =
            [one.forwarded, one.skipped, one.remaining, one.total].map(|number| count(&number));
        format!("{forwarded} forwarded + {skipped} skipped + {remaining} remaining = {total}")
    }

    fn bar(&self) -> Markup {
        let one = self.view();
        let of = |number| share(number, one.total);
        let staged = one.staged.saturating_sub(one.forwarded).min(one.remaining);
        let label = format!(
            "{} forwarded, {} skipped, {} remaining",
            percent(&of(one.forwarded)),
            percent(&of(one.skipped)),
            percent(&of(one.remaining))
        );
        bar(" lg", &label, &[("g", of(one.forwarded)), ("i", of(one.skipped)), ("p half", of(staged))])
    }

    fn stages(&self) -> [StageShown; 4] {
        let one = self.view();
        let (is_counted, over) = (is_counted(one), self.is_over());
        let batches = u64::from(one.batches);
        let done = batches.saturating_sub(u64::from(one.batches_remaining));
        let marked = if is_counted { "the total is final" } else { "the total grows" };
        let staged = over || (is_counted && one.staged + one.skipped >= one.total);
        [
            StageShown::of("Marking", (one.marked, one.total), is_counted, marked.to_owned()),
            StageShown::of("Staging", (one.staged, one.total), staged, "each one is decided".to_owned()),
            StageShown::of(
                "Forwarding",
                (one.forwarded, one.total),
                over || (is_counted && one.remaining == 0),
                done_words(one.action).to_owned(),
            ),
            StageShown::of(
                "Done",
                (done, batches),
                over,
                format!("of {} batches, each at most 1,000", count(&batches)),
            ),
        ]
    }

    fn by_hand(&self) -> Option<String> {
        let ids = self.one.ids.as_ref()?.len();
        Some(counted(u64::try_from(ids).unwrap_or(u64::MAX), "id was", "ids were"))
    }

    fn canary_state(&self) -> &'static str {
        self.view().canary.as_ref().map_or("", |canary| canary.state)
    }

    fn skipped(&self) -> Vec<(&'static str, u64, &'static str)> {
        let reasons = self.view().skipped_reasons.iter();
        reasons.map(|(code, number)| (*code, *number, skipped_words(code))).collect()
    }

    /// The canary: its badge, what it says, and the share that failed.
    fn canary(&self) -> Option<(&'static str, String)> {
        let canary = self.view().canary.as_ref()?;
        let (size, most, failed) = (canary.size, canary.max_failure_percent, canary.failed);
        let rule = format!("It stops the operation if more than {most} % of their first attempts fail.");
        Some(match canary.state {
            "passed" => ("succeeded", format!("Passed: {failed} of the first {size} failed. {rule}")),
            "failed" => ("deadLetter", format!("Failed: {failed} of the first {size} failed. {rule}")),
            "notNeeded" => ("cancelled", format!("The operation ended before there was a verdict. {rule}")),
            _ => ("processing", format!("The first {size} are sent alone; {failed} failed so far. {rule}")),
        })
    }

    /// What happened, newest first.
    fn events(&self) -> impl Iterator<Item = (Timestamp, String)> {
        let words = |event: &str, by: Option<&str>| match by {
            Some(by) => format!("{}, {by}", event_words(event)),
            None => event_words(event).to_owned(),
        };
        self.one.events.iter().rev().map(move |event| (event.at, words(&event.event, event.by.as_deref())))
    }
}

fn event_words(event: &str) -> &str {
    match event {
        "canaryPassed" => "the canary passed",
        "canaryFailed" => "the canary failed",
        "adopted" => "another node took it over",
        other => other,
    }
}

/// Why items were left out, for people.
fn skipped_words(code: &str) -> &'static str {
    match code {
        "CHANGED_MEANWHILE" => "Somebody acted on them one by one; that act wins.",
        "IN_ANOTHER_OPERATION" => "Another operation held them: one outstanding act each.",
        "ALREADY_RESOLVED" => "They were resolved before, or their state does not allow the act.",
        "EXPIRED" => "They are past their expiresAt, so they were not sent.",
        "EJECTED" => "They could not be read, tried 5 times; they stay as they were.",
        "CANCELLED" => "The operation was stopped before their turn; they stay as they were.",
        _ => "They stay as they were.",
    }
}

pub(super) async fn page(
    State(api): State<Shared>,
    Id(id): Id<OperationId>,
    headers: HeaderMap,
    visitor: Visitor,
) -> Result<Response> {
    let caller = Authenticated(visitor.caller.clone());
    let Json(one) = retry_operations::get(State(api.clone()), caller, NoQuery, Id(id)).await?;
    let part = Part { one, now: api.engine.now() };
    if is_htmx(&headers) {
        return Ok(shell::html(StatusCode::OK, &part));
    }
    let shown = part.render().map_err(|error| {
        tracing::error!(%error, "a page could not be made");
        Problem::new(Kind::Internal, "the page could not be made")
    })?;
    let shell = Shell::of(&api, &visitor, &title(part.view()), "/retry-operations").await;
    let may_change = visitor.may("cancelRetryOperation") && !part.is_over();
    let paused = part.view().state == OperationState::Paused;
    let page = OperationPage { shell, id, paused, shown: Markup(shown), may_change };
    Ok(page.shell.answer(&page))
}

/// Shows the operation again, with what an act on it came to.
fn changed(
    form: &Form,
    id: OperationId,
    done: Result<(StatusCode, Json<OperationView>)>,
    words: &str,
) -> Response {
    again(form, done.map(|_| Flash::done(words)), &format!("/retry-operations/{id}"))
}

fn actor(form: &Form) -> ActorOf {
    ActorOf(form.visitor.actor.clone())
}

pub(super) async fn pause(State(api): State<Shared>, Id(id): Id<OperationId>, form: Form) -> Response {
    let done = retry_operations::pause(State(api), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    changed(&form, id, done, "It is paused. What was sent goes on.")
}

pub(super) async fn resume(State(api): State<Shared>, Id(id): Id<OperationId>, form: Form) -> Response {
    let done = retry_operations::resume(State(api), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    changed(&form, id, done, "It goes on.")
}

pub(super) async fn cancel(State(api): State<Shared>, Id(id): Id<OperationId>, form: Form) -> Response {
    let done = retry_operations::cancel(State(api), actor(&form), NoQuery, Id(id), NoBody::NONE).await;
    changed(&form, id, done, "It is being stopped. The rest stays as it was.")
}
