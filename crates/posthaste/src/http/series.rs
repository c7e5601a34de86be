//! `/v1/stats/series` and `/v1/retry-queue/load`: figures over time.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use posthaste_core::duration;
use posthaste_core::filter::destinations;
use posthaste_core::series::{BadPoints, Figures, Points, Step};
use posthaste_core::time::Timestamp;
use serde::Serialize;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::extract::Authenticated;
use super::page::{OfTenant, parameter, text};
use super::problem::{Problem, Result};
use super::query::{Query, short};

/// How far back a series reaches, and how far ahead the load looks, if nothing else is asked for.
const A_DAY: Duration = Duration::from_secs(86_400);
const AN_HOUR: Duration = Duration::from_secs(3_600);
/// The most rows of the retry queue that are counted.
const MOST_RETRIES: usize = 100_000;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(series)).routes(routes!(load))
}

/// What happened over time.
#[derive(Serialize, ToSchema)]
#[schema(as = Series)]
pub(crate) struct SeriesView {
    #[schema(value_type = SeriesStep)]
    pub(crate) step: Step,
    /// Every step of the time that is asked for, the earliest first.
    pub(crate) data: Vec<PointView>,
}

/// The distance between two points.
#[derive(Serialize, ToSchema)]
#[expect(dead_code, reason = "it only describes them")]
enum SeriesStep {
    #[serde(rename = "1m")]
    Minute,
    #[serde(rename = "5m")]
    FiveMinutes,
    #[serde(rename = "1h")]
    Hour,
}

/// What happened in one step.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SeriesPoint)]
pub(crate) struct PointView {
    /// The start of the step.
    pub(crate) at: Timestamp,
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    /// Delivered by their very first try.
    pub(crate) first_try: u64,
    /// Retries that were scheduled.
    pub(crate) retried: u64,
    /// Became a dead letter.
    pub(crate) dead_lettered: u64,
    /// Failed without a dead letter, by their policy.
    pub(crate) failed: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    /// Half of those that were delivered took no longer, in milliseconds from acceptance or `notBefore`, within 3.2 %. Null if
    /// none was.
    pub(crate) p50_ms: Option<u64>,
    pub(crate) p95_ms: Option<u64>,
    pub(crate) p99_ms: Option<u64>,
}

impl PointView {
    fn of(at: Timestamp, figures: &Figures) -> Self {
        let times = figures.times.percentiles();
        Self {
            at,
            accepted: figures.accepted,
            delivered: figures.delivered,
            first_try: figures.first_try,
            retried: figures.retried,
            dead_lettered: figures.dead_lettered,
            failed: figures.failed,
            expired: figures.expired,
            cancelled: figures.cancelled,
            p50_ms: times.map(|times| times.p50),
            p95_ms: times.map(|times| times.p95),
            p99_ms: times.map(|times| times.p99),
        }
    }
}

/// What happened over time, by the minute or by the hour. At most 1,500 points. Of a destination, the hours in which it was one of
/// the 1,000 busiest of its tenant; without a tenant, one of the 1,000 busiest of all.
#[utoipa::path(get, path = "/v1/stats/series", operation_id = "statsSeries", tag = "figures", params(SeriesQuery), security(("key" = ["reader"])),
    responses((status = 200, description = "The figures", body = SeriesView), (status = 429, description = "")))]
pub(crate) async fn series(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<SeriesView>> {
    let now = api.engine.now();
    let (tenant, channel, destination) = (query.tenant()?, query.channel()?, destination(&mut query)?);
    let until = query.past("until", now)?.unwrap_or(now);
    let since = query.past("since", now)?.unwrap_or_else(|| until.earlier(A_DAY));
    let step = match (step(&mut query)?, &destination) {
        (None, None) => Step::default(),
        (None | Some(Step::Hour), Some(_)) => Step::Hour,
        (Some(step), None) => step,
        (Some(step), Some(_)) => return Err(only_hours(step)),
    };
    query.finish()?;
    let points = Points::new(since, until, step.length()).map_err(|bad| refused(bad, "since"))?;
    let read = |reads: posthaste_engine::reads::Reads| async move {
        match destination {
            Some(destination) => reads.series_of(&destination, tenant, channel, &points).await,
            None => reads.series(tenant, channel, &points, step.span()).await,
        }
    };
    let figures = api.read(&caller, read).await?;
    let data = figures.iter().enumerate().map(|(place, figures)| PointView::of(points.at(place), figures));
    Ok(Json(SeriesView { step, data: data.collect() }))
}

/// When retries are due.
#[derive(Serialize, ToSchema)]
#[schema(as = RetryLoad)]
pub(crate) struct LoadView {
    pub(crate) data: Vec<LoadPoint>,
    /// Whether every retry is counted: at most 100,000 are.
    pub(crate) complete: bool,
}

/// The retries that are due in one step; those that are overdue are in the first.
#[derive(Serialize, ToSchema)]
pub(crate) struct LoadPoint {
    /// The start of the step.
    pub(crate) at: Timestamp,
    pub(crate) count: u64,
}

/// How many retries are due when, up to `until` from now.
#[utoipa::path(get, path = "/v1/retry-queue/load", operation_id = "retryLoad", tag = "figures", params(LoadQuery), security(("key" = ["reader"])),
    responses((status = 200, description = "The load to come", body = LoadView), (status = 429, description = "")))]
pub(crate) async fn load(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<LoadView>> {
    let now = api.engine.now();
    let tenant = query.tenant()?;
    let until = ahead(&mut query, now)?.unwrap_or_else(|| now.later(AN_HOUR));
    let step = step(&mut query)?.unwrap_or(Step::Minute);
    query.finish()?;
    let points = Points::new(now, until, step.length()).map_err(|bad| refused(bad, "until"))?;
    let read = |reads: posthaste_engine::reads::Reads| async move {
        reads.retry_load(tenant, points, MOST_RETRIES).await
    };
    let load = api.read(&caller, read).await?;
    let data = load
        .counts
        .iter()
        .enumerate()
        .map(|(place, count)| LoadPoint { at: points.at(place), count: *count });
    Ok(Json(LoadView { data: data.collect(), complete: load.complete }))
}

/// Takes a time to come, or how long from now.
fn ahead(query: &mut Query, now: Timestamp) -> Result<Option<Timestamp>> {
    let Some(given) = query.take("until") else { return Ok(None) };
    let at = given.parse().ok().or_else(|| duration::with_unit(&given).ok().map(|ahead| now.later(ahead)));
    let wrong = |why: &str| Problem::parameter("until", format!("until: `{}` {why}", short(&given)));
    match at {
        Some(at) if at > now => Ok(Some(at)),
        Some(_) => Err(wrong("has passed")),
        None => Err(wrong("is no time and no duration from now such as 1h")),
    }
}

/// Takes a destination, or a URL, which stands for its origin.
fn destination(query: &mut Query) -> Result<Option<Arc<str>>> {
    let Some(given) = query.take("destination") else { return Ok(None) };
    match destinations(&given).as_slice() {
        [one] => Ok(Some(one.as_str().into())),
        several => {
            let detail = format!("destination: {} are given, and figures are those of one", several.len());
            Err(Problem::parameter("destination", detail))
        }
    }
}

fn only_hours(step: Step) -> Problem {
    let detail = format!(
        "step: a destination has figures by the hour only; leave it out or ask for 1h, not {}",
        step.name()
    );
    Problem::parameter("step", detail)
}

fn step(query: &mut Query) -> Result<Option<Step>> {
    let Some(given) = query.take("step") else { return Ok(None) };
    Step::from_name(&given).map(Some).ok_or_else(|| {
        Problem::parameter("step", format!("step must be 1m, 5m or 1h, not `{}`", short(&given)))
    })
}

fn refused(bad: BadPoints, backwards: &str) -> Problem {
    let parameter = match bad {
        BadPoints::Backwards => backwards,
        BadPoints::TooMany(_) => "step",
    };
    Problem::parameter(parameter, bad.to_string())
}

fn steps() -> RefOr<Schema> {
    Ref::from_schema_name("SeriesStep").into()
}

/// The parameters of a series.
struct SeriesQuery;

impl IntoParams for SeriesQuery {
    fn into_params(within: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let mut all = OfTenant::into_params(within);
        all.push(parameter("channel", "Over which channel", text()));
        let since = "From the step of this time on: a time, a date or a duration ago; a day before `until` by default";
        all.push(parameter("since", since, text()));
        all.push(parameter("until", "Before: a time, a date or a duration ago; now by default", text()));
        let destination = "To which destination, by the hour only; a URL stands for its origin";
        all.push(parameter("destination", destination, text()));
        let step = "The distance between two points; 5m by default, 1h with a destination";
        all.push(parameter("step", step, steps()));
        all
    }
}

/// The parameters of the load.
struct LoadQuery;

impl IntoParams for LoadQuery {
    fn into_params(within: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let mut all = OfTenant::into_params(within);
        all.push(parameter("until", "A time, or a duration from now; 1h by default", text()));
        all.push(parameter("step", "The distance between two points; 1m by default", steps()));
        all
    }
}
