//! `/jobs`: background work, when it runs, and its runs.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::acts::again;
use super::filter_bar::FilterBar;
use super::flash::Flash;
use super::notifications::at_its_place;
use super::shell::Shell;
use super::show;
use super::visitor::{Form, Visitor};
use crate::http::Shared;
use crate::http::act::NoBody;
use crate::http::extract::{ActorOf, Authenticated, InPath, NoQuery};
use crate::http::jobs::{self, JobView, RunView};
use crate::http::problem::Result;
use crate::http::query::Query;

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    shell: Shell,
    jobs: Vec<JobView>,
    may_act: bool,
}

pub(super) async fn page(State(api): State<Shared>, visitor: Visitor) -> Result<Response> {
    let jobs = jobs::list(State(api.clone()), Authenticated(visitor.caller.clone()), NoQuery).await?.0.data;
    let shell = Shell::of(&api, &visitor, "Jobs", "/jobs").await;
    let page = JobsPage { shell, jobs, may_act: visitor.may("runJob") };
    Ok(page.shell.answer(&page))
}

#[derive(Template)]
#[template(path = "job-runs.html")]
struct RunsPage {
    shell: Shell,
    bar: FilterBar,
    id: String,
    rows: Vec<RunView>,
    next: Option<String>,
}

/// What the last run came to, for people.
fn outcome(run: &RunView) -> String {
    match (run.outcome, &run.error) {
        (None, _) => "running".to_owned(),
        (Some("done"), _) => super::show::counted(run.count, "row changed", "rows changed"),
        (Some(word), Some(error)) => format!("{word}: {error}"),
        (Some(word), None) => word.to_owned(),
    }
}

pub(super) async fn runs(
    State(api): State<Shared>,
    InPath(id): InPath,
    visitor: Visitor,
) -> Result<Response> {
    let mut bar = FilterBar::of(&visitor, "jobs runs", std::iter::empty());
    let listed = match Query::parse(&format!("/v1/jobs/{id}/runs"), &visitor.query) {
        Ok(query) => {
            let caller = Authenticated(visitor.caller.clone());
            jobs::runs(State(api.clone()), caller, InPath(id.clone()), query).await
        }
        Err(problem) => Err(problem),
    };
    let (status, listed) = at_its_place(listed, &mut bar)?;
    let shell = Shell::of(&api, &visitor, &format!("Runs of {id}"), "/jobs").await;
    let next = bar.next(listed.next_cursor.as_ref());
    let page = RunsPage { shell, bar, id, rows: listed.data, next };
    Ok(page.shell.answer_with(status, &page))
}

pub(super) async fn run(State(api): State<Shared>, InPath(id): InPath, form: Form) -> Response {
    let actor = ActorOf(form.visitor.actor.clone());
    let done = jobs::run(State(api), actor, NoQuery, InPath(id.clone()), NoBody::NONE).await;
    again(&form, done.map(|_| Flash::done(format!("{id} runs."))), "/jobs")
}

pub(super) async fn pause(State(api): State<Shared>, InPath(id): InPath, form: Form) -> Response {
    let actor = ActorOf(form.visitor.actor.clone());
    let done = jobs::pause(State(api), actor, NoQuery, InPath(id.clone()), NoBody::NONE).await;
    again(&form, done.map(|_| Flash::done(format!("{id} no longer runs by itself."))), "/jobs")
}

pub(super) async fn resume(State(api): State<Shared>, InPath(id): InPath, form: Form) -> Response {
    let actor = ActorOf(form.visitor.actor.clone());
    let done = jobs::resume(State(api), actor, NoQuery, InPath(id.clone()), NoBody::NONE).await;
    again(&form, done.map(|_| Flash::done(format!("{id} runs again from its next time on."))), "/jobs")
}
