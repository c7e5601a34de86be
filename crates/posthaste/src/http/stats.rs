//! `/v1/stats`: the kept counters.

use http::StatusCode;
use posthaste_engine::store::ChannelStats;
use serde_json::{Map, Value, json};

use super::problem::Result;
use super::query::Query;
use super::{Api, Ask, json};

/// `GET /v1/stats`
pub(super) async fn get(api: &Api, ask: &Ask) -> Result {
    let mut query = Query::of(ask)?;
    let tenant = query.tenant(ask)?;
    query.finish()?;
    let now = api.engine.now();
    let stats = api.read(ask, |store| async move { store.stats(tenant, now).await }).await?;
    let total = stats.channels.iter().fold(ChannelStats::default(), |sum, (_, one)| ChannelStats {
        queued: sum.queued + one.queued,
        sending: sum.sending + one.sending,
        in_retry: sum.in_retry + one.in_retry,
        in_dead_letter: sum.in_dead_letter + one.in_dead_letter,
        delivered_24h: sum.delivered_24h + one.delivered_24h,
        ended_24h: sum.ended_24h + one.ended_24h,
    });
    let mut shown = show(&total);
    shown.insert("oldestDueSeconds".into(), json!(stats.oldest_due.map(|due| now.since(due).as_secs_f64())));
    let channels =
        stats.channels.iter().map(|(channel, one)| (channel.name().to_owned(), Value::Object(show(one))));
    shown.insert("channels".into(), Value::Object(channels.collect()));
    Ok(json(StatusCode::OK, &Value::Object(shown)))
}

fn show(one: &ChannelStats) -> Map<String, Value> {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    let rate = (one.ended_24h > 0).then(|| one.delivered_24h as f64 / one.ended_24h as f64);
    let fields = [
        ("queued", json!(one.queued)),
        ("sending", json!(one.sending)),
        ("inRetry", json!(one.in_retry)),
        ("inDeadLetter", json!(one.in_dead_letter)),
        ("successRate24h", json!(rate)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
