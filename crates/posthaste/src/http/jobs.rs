//! `/v1/jobs`: background work by cron expressions, its history, run now and pause.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthaste_core::job::{Job, RunOutcome};
use posthaste_core::time::Timestamp;
use posthaste_engine::jobs::JobError;
use posthaste_engine::reads::ReadError;
use posthaste_engine::store::{JobRun, JobView as Standing};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::act::{NoBody, Nothing};
use super::extract::{ActorOf, Authenticated, InPath, NoQuery};
use super::page::{Page, Paged, Paging};
use super::problem::{Kind, Problem, Result};
use super::query::Query;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(runs))
        .routes(routes!(run))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// A job as it stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Job)]
pub(crate) struct JobView {
    /// Its name, such as `retry-expire`.
    pub(crate) id: String,
    /// When it runs, in UTC; null if only when it is asked for.
    pub(crate) cron: Option<String>,
    /// Whether it is kept from running by itself.
    pub(crate) paused: bool,
    pub(crate) next_run_at: Option<Timestamp>,
    /// Whether a run is under way.
    pub(crate) running: bool,
    pub(crate) last_run: Option<RunView>,
}

/// One run of a job.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = JobRun)]
pub(crate) struct RunView {
    /// Counts up over all jobs.
    pub(crate) number: i64,
    pub(crate) started_at: Timestamp,
    /// Null while it is under way.
    pub(crate) finished_at: Option<Timestamp>,
    /// Null while it is under way.
    #[schema(value_type = Option<JobOutcome>)]
    pub(crate) outcome: Option<&'static str>,
    /// How many rows it changed.
    pub(crate) count: u64,
    pub(crate) error: Option<String>,
    /// The name of the node that ran it.
    pub(crate) node: String,
    /// Who asked for it; null if it ran by itself.
    pub(crate) started_by: Option<String>,
}

/// How a run ended; `interrupted` if its node stopped or died.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the words")]
enum JobOutcome {
    Done,
    Failed,
    Interrupted,
}

impl JobView {
    fn of(job: Standing) -> Self {
        Self {
            running: job.running.as_ref().is_some_and(|running| running.alive),
            id: job.name,
            cron: job.cron,
            paused: job.paused,
            next_run_at: job.next_run.filter(|_| !job.paused),
            last_run: job.last_run.map(RunView::of),
        }
    }
}

impl RunView {
    fn of(run: JobRun) -> Self {
        let (count, error) = run.end.as_ref().map_or((0, None), |end| end.outcome.parts());
        Self {
            number: run.number,
            started_at: run.started_at,
            finished_at: run.end.as_ref().map(|end| end.at),
            outcome: run.end.as_ref().map(|end| RunOutcome::word(&end.outcome)),
            count,
            error: error.map(str::to_owned),
            node: run.node_name,
            started_by: run.started_by,
        }
    }
}

impl From<JobError> for Problem {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Unknown(_) => Self::not_found(error.to_string()),
            JobError::Running(_) => Self::new(Kind::JobRunning, error.to_string()),
            JobError::Store(error) => error.into(),
        }
    }
}

/// The job that the path names.
fn named(id: &str) -> Result<Job> {
    let names = Job::ALL.map(Job::name).join(", ");
    Job::from_name(id).ok_or_else(|| Problem::not_found(format!("there is no such job; there are {names}")))
}

/// Background work: when it runs, and what came of the last run.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "listJobs", tag = "server", security(("key" = ["reader", "all"])),
    responses((status = 200, description = "All of them", body = Page<JobView>)))]
pub(crate) async fn list(
    State(api): State<Shared>,
    _: Authenticated,
    NoQuery: NoQuery,
) -> Result<Json<Page<JobView>>> {
    let jobs = api.engine.jobs().await.map_err(ReadError::from)?;
    Ok(Json(Page::whole(jobs.into_iter().map(JobView::of).collect())))
}

/// The runs of a job, newest first.
#[utoipa::path(get, path = "/v1/jobs/{id}/runs", operation_id = "listJobRuns", tag = "server", params(("id" = String, Path), Paged),
    security(("key" = ["reader", "all"])),
    responses((status = 200, description = "A page", body = Page<RunView>), (status = 404, description = ""), (status = 429, description = "")))]
pub(crate) async fn runs(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    InPath(id): InPath,
    mut query: Query,
) -> Result<Json<Page<RunView>>> {
    let paging: Paging<i64> = Paging::take(&api, &caller, &mut query)?;
    query.finish()?;
    let job = named(&id)?;
    let (from, limit) = (paging.from, paging.limit);
    let page = api.read(&caller, |reads| async move { reads.job_runs(job, from, limit).await }).await?;
    Ok(Json(paging.show(&api, page, RunView::of)))
}

/// A run that was started.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobStarted {
    pub(crate) id: &'static str,
    /// The number of the run.
    pub(crate) run: i64,
}

/// Starts a run now, also of a paused job.
#[utoipa::path(post, path = "/v1/jobs/{id}/run", operation_id = "runJob", tag = "server",
    params(("id" = String, Path)), request_body = Option<Nothing>, security(("key" = ["operator", "all"])),
    responses((status = 202, description = "It has started", body = JobStarted), (status = 404, description = ""), (status = 409, description = "")))]
pub(crate) async fn run(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(id): InPath,
    _: NoBody,
) -> Result<(StatusCode, Json<JobStarted>)> {
    let job = named(&id)?;
    let run = api.engine.run_job(job, &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(JobStarted { id: job.name(), run })))
}

/// Keeps a job from running by itself; a run that is under way goes on.
#[utoipa::path(post, path = "/v1/jobs/{id}/pause", operation_id = "pauseJob", tag = "server",
    params(("id" = String, Path)), request_body = Option<Nothing>, security(("key" = ["operator", "all"])),
    responses((status = 202, description = "It is paused", body = JobView), (status = 404, description = "")))]
pub(crate) async fn pause(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(id): InPath,
    _: NoBody,
) -> Result<(StatusCode, Json<JobView>)> {
    let job = api.engine.pause_job(named(&id)?, &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(JobView::of(job))))
}

/// Lets a job run by itself again, from its next time on.
#[utoipa::path(post, path = "/v1/jobs/{id}/resume", operation_id = "resumeJob", tag = "server",
    params(("id" = String, Path)), request_body = Option<Nothing>, security(("key" = ["operator", "all"])),
    responses((status = 202, description = "It runs again", body = JobView), (status = 404, description = "")))]
pub(crate) async fn resume(
    State(api): State<Shared>,
    ActorOf(actor): ActorOf,
    NoQuery: NoQuery,
    InPath(id): InPath,
    _: NoBody,
) -> Result<(StatusCode, Json<JobView>)> {
    let job = api.engine.resume_job(named(&id)?, &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(JobView::of(job))))
}
