//! `/v1/stats`: the kept counters.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use posthaste_engine::store;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::extract::Authenticated;
use super::page::OfTenant;
use super::problem::Result;
use super::query::Query;

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(get))
}

/// The kept counters.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Stats)]
struct StatsView {
    #[serde(flatten)]
    total: ChannelStats,
    /// How long the longest waiting due notification waits.
    oldest_due_seconds: Option<f64>,
    /// By channel, for those that have any.
    channels: BTreeMap<&'static str, ChannelStats>,
}

/// The kept counters of one channel, or of all.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ChannelStats {
    queued: u64,
    sending: u64,
    in_retry: u64,
    /// Pending dead letters.
    in_dead_letter: u64,
    /// Delivered of what ended in the last 24 hours, from 0 to 1; null if nothing did.
    #[serde(rename = "successRate24h")]
    success_rate_24h: Option<f64>,
}

impl ChannelStats {
    fn of(one: &store::ChannelStats) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let rate = (one.ended_24h > 0).then(|| one.delivered_24h as f64 / one.ended_24h as f64);
        Self {
            queued: one.queued,
            sending: one.sending,
            in_retry: one.in_retry,
            in_dead_letter: one.in_dead_letter,
            success_rate_24h: rate,
        }
    }
}

/// The kept counters, at most a second old.
#[utoipa::path(get, path = "/v1/stats", operation_id = "stats", tag = "figures", params(OfTenant), security(("key" = ["reader"])),
    responses((status = 200, description = "The counters", body = StatsView), (status = 429, description = "")))]
async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<StatsView>> {
    let tenant = query.tenant()?;
    query.finish()?;
    let stats = api.read(&caller, |reads| async move { reads.stats(tenant).await }).await?;
    let now = api.engine.now();
    let total =
        stats.channels.iter().fold(store::ChannelStats::default(), |sum, (_, one)| store::ChannelStats {
            queued: sum.queued + one.queued,
            sending: sum.sending + one.sending,
            in_retry: sum.in_retry + one.in_retry,
            in_dead_letter: sum.in_dead_letter + one.in_dead_letter,
            delivered_24h: sum.delivered_24h + one.delivered_24h,
            ended_24h: sum.ended_24h + one.ended_24h,
        });
    Ok(Json(StatsView {
        total: ChannelStats::of(&total),
        oldest_due_seconds: stats.oldest_due.map(|due| now.since(due).as_secs_f64()),
        channels: stats
            .channels
            .iter()
            .map(|(channel, one)| (channel.name(), ChannelStats::of(one)))
            .collect(),
    }))
}
