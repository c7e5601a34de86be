//! `/v1/stats`: the kept counters, and the figures of the last 24 hours.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use posthaste_core::channel::Channel;
use posthaste_core::reason::Reason;
use posthaste_core::series::{Figures, Percentiles};
use posthaste_core::time::Timestamp;
use posthaste_engine::reads::Stats;
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

/// The kept counters, and the figures of the last 24 hours.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Stats)]
pub(crate) struct StatsView {
    #[serde(flatten)]
    pub(crate) total: ChannelStats,
    /// How long the longest waiting due notification waits.
    pub(crate) oldest_due_seconds: Option<f64>,
    /// By channel, for those that have any.
    pub(crate) channels: BTreeMap<&'static str, ChannelStats>,
}

/// The figures of one channel, or of all.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChannelStats {
    pub(crate) queued: u64,
    pub(crate) sending: u64,
    pub(crate) in_retry: u64,
    /// Pending dead letters.
    pub(crate) in_dead_letter: u64,
    /// Delivered of what ended in the last 24 hours, from 0 to 1; null if nothing did.
    #[serde(rename = "successRate24h")]
    pub(crate) success_rate_24h: Option<f64>,
    /// Delivered by the very first try of what ended in the last 24 hours, from 0 to 1; null if nothing did.
    #[serde(rename = "firstTryRate24h")]
    pub(crate) first_try_rate_24h: Option<f64>,
    /// How long deliveries took in the last 24 hours; null if there was none.
    pub(crate) time_to_deliver_ms: Option<TimeToDeliver>,
    /// Why notifications died or failed in the last 24 hours, the most frequent reason first.
    pub(crate) top_reasons: Vec<ReasonCount>,
}

/// In milliseconds from acceptance, or from `notBefore`, within 3.2 %.
#[derive(Serialize, ToSchema)]
pub(crate) struct TimeToDeliver {
    pub(crate) p50: u64,
    pub(crate) p95: u64,
    pub(crate) p99: u64,
}

/// How often something was the reason.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReasonCount {
    pub(crate) reason_code: Reason,
    pub(crate) count: u64,
}

impl ChannelStats {
    fn of(kept: &store::ChannelStats, day: &Figures) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
        let rate = (kept.ended_24h > 0).then(|| kept.delivered_24h as f64 / kept.ended_24h as f64);
        let times = day.times.percentiles();
        let reasons = day.top_reasons().into_iter();
        Self {
            queued: kept.queued,
            sending: kept.sending,
            in_retry: kept.in_retry,
            in_dead_letter: kept.in_dead_letter,
            success_rate_24h: rate,
            first_try_rate_24h: day.first_try_rate(),
            time_to_deliver_ms: times.map(|Percentiles { p50, p95, p99 }| TimeToDeliver { p50, p95, p99 }),
            top_reasons: reasons.map(|(reason_code, count)| ReasonCount { reason_code, count }).collect(),
        }
    }
}

/// The kept counters, and the figures of the last 24 hours; at most a second old.
#[utoipa::path(get, path = "/v1/stats", operation_id = "stats", tag = "figures", params(OfTenant), security(("key" = ["reader"])),
    responses((status = 200, description = "The counters", body = StatsView), (status = 429, description = "")))]
pub(crate) async fn get(
    State(api): State<Shared>,
    Authenticated(caller): Authenticated,
    mut query: Query,
) -> Result<Json<StatsView>> {
    let tenant = query.tenant()?;
    query.finish()?;
    let stats = api.read(&caller, |reads| async move { reads.stats(tenant).await }).await?;
    Ok(Json(StatsView::of(&stats, api.engine.now())))
}

impl StatsView {
    pub(super) fn of(stats: &Stats, now: Timestamp) -> Self {
        let kept: BTreeMap<Channel, store::ChannelStats> = stats.kept.channels.iter().copied().collect();
        let (mut all_kept, mut all_day) = (store::ChannelStats::default(), Figures::default());
        let mut channels = BTreeMap::new();
        for channel in Channel::ALL {
            let (counted, day) = (kept.get(&channel), stats.day.get(&channel));
            if counted.is_none() && day.is_none() {
                continue;
            }
            let (counted, day) = (counted.copied().unwrap_or_default(), day.cloned().unwrap_or_default());
            all_kept = sum(all_kept, counted);
            all_day.merge(&day);
            channels.insert(channel.name(), ChannelStats::of(&counted, &day));
        }
        Self {
            total: ChannelStats::of(&all_kept, &all_day),
            oldest_due_seconds: stats.kept.oldest_due.map(|due| now.since(due).as_secs_f64()),
            channels,
        }
    }
}

const fn sum(one: store::ChannelStats, other: store::ChannelStats) -> store::ChannelStats {
    store::ChannelStats {
        queued: one.queued + other.queued,
        sending: one.sending + other.sending,
        in_retry: one.in_retry + other.in_retry,
        in_dead_letter: one.in_dead_letter + other.in_dead_letter,
        delivered_24h: one.delivered_24h + other.delivered_24h,
        ended_24h: one.ended_24h + other.ended_24h,
    }
}
