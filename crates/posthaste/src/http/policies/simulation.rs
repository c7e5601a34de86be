//! `POST /v1/policies/simulate`: what an outage would do.
//!
//! It is bounded in size (one simulated notification stands for several), and one runs at a time on a node, on a thread of its
//! own.

use axum::Json;
use axum::extract::State;
use posthaste_core::simulate::{Asked, Effort, Simulation, simulate as run};
use tokio::sync::Semaphore;

use super::AskedPlace;
use crate::http::Shared;
use crate::http::body::{LARGEST_NOTIFICATION, Text, read};
use crate::http::extract::Authenticated;
use crate::http::problem::{Kind, Problem, Result};
use crate::http::query::Query;
use crate::http::read_slots::Reader;
use crate::http::unique::Unique;

/// One at a time: a simulation takes a processor for some tens of milliseconds, and some MB.
static TURN: Semaphore = Semaphore::const_new(1);

/// What an outage would do.
///
/// Notifications arrive for one destination, which answers by the script; policy, breaker, ramp, retry budget, rate and concurrency
/// decide as they do in earnest, in virtual time. Nothing is sent and nothing is stored. The policy counts as in a preview; without
/// one it is that of `scope`, or of the caller over `channel`. Beyond 200,000 notifications or 600,000 sends one that is simulated
/// stands for several (`standsFor`).
#[utoipa::path(post, path = "/v1/policies/simulate", operation_id = "simulatePolicy", tag = "policies", security(("key" = ["reader"])),
    params(("channel" = Option<posthaste_core::channel::Channel>, Query, description = "Whose answers and policies count; `webhook` by default"),
        ("scope" = Option<posthaste_core::policy::Scope>, Query, description = "The scope whose policy counts, or that would say `policy`")), request_body = Asked,
    responses((status = 200, description = "What came of it", body = Simulation), (status = 429, description = "")))]
pub(crate) async fn simulate(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
    text: Text<LARGEST_NOTIFICATION>,
) -> Result<Json<Simulation>> {
    let place = AskedPlace::take(&api, &caller, &mut query)?;
    query.finish()?;
    let Unique(value) = read(&text)?;
    let asked = Asked::from_json(&value)?;
    let policy = place.policy(&api, &caller, asked.policy.as_ref()).map_err(below_policy)?;
    let scenario = api.engine.scenario(asked, policy, place.channel())?;
    let simulated = async move {
        let turn = TURN.acquire().await;
        let done = tokio::task::spawn_blocking(move || run(&scenario, Effort::SMALL)).await;
        drop(turn);
        done.map_err(|_| {
            Problem::new(Kind::Internal, "the simulation broke down; the log of the server says more")
        })
    };
    Ok(Json(api.read_slots.run(Reader::of(&caller), simulated).await?))
}

/// A mistake of the policy, seen from the whole body.
fn below_policy(problem: Problem) -> Problem {
    match problem.pointer.as_deref() {
        Some(pointer) => {
            let pointer = format!("/policy{pointer}");
            problem.pointing(pointer)
        }
        None => problem,
    }
}
