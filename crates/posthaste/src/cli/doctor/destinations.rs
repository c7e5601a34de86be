//! Destinations: which take nothing, since when, and what waits for them; and limits that can never be met.

use std::time::Duration;

use posthaste_core::destination::SendLimits;
use posthaste_core::duration;
use posthaste_core::time::Timestamp;
use serde_json::Value;

use super::super::listing::{field, short};
use super::super::reach::Session;
use super::Finding;
use crate::config::Config;

const CHECK: &str = "destinations";
/// The most that are named.
const NAMED: usize = 5;
/// No receiver answers faster for long.
const SHORTEST_SEND: Duration = Duration::from_millis(1);

/// Nothing if the server cannot say it.
pub(super) async fn check(session: &Session, now: Timestamp) -> Option<Finding> {
    let page = session.get("/v1/destinations?limit=500").await.ok()?;
    Some(finding(&page.json().ok()?, now))
}

/// The limits of the configuration.
pub(super) fn configured(config: &Config) -> Vec<Finding> {
    let of = |(name, limits): (&posthaste_core::destination::DestinationName, &SendLimits)| {
        let rate = limits.rate.map(|rate| rate.as_per_second());
        let text = never_met(&name.name, rate, limits.concurrency.map(u64::from))?;
        Some(Finding::warn("limits", text))
    };
    config.destinations.iter().filter_map(of).collect()
}

fn finding(page: &Value, now: Timestamp) -> Finding {
    let all = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found: Vec<String> = all.iter().filter_map(|row| trouble(row, now)).collect();
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    if more > 0 {
        found.push(format!("and {more} more: `posthaste destinations list`"));
    }
    found.extend(
        all.iter().filter_map(|row| {
            never_met(&field(row, "name"), row["rate"].as_f64(), row["concurrency"].as_u64())
        }),
    );
    match found.as_slice() {
        [] => Finding::ok(CHECK, "no breaker is open and nobody blocks one"),
        found => Finding::warn(CHECK, found.join("\n")),
    }
}

fn trouble(row: &Value, now: Timestamp) -> Option<String> {
    let (id, name, parked) = (field(row, "id"), field(row, "name"), field(row, "parked"));
    let since = field(row, "blockedAt").parse::<Timestamp>().ok()?;
    let length = duration::words(Duration::from_secs(now.since(since).as_secs()));
    let tenant = field(row, "tenant");
    let of = if tenant.is_empty() { String::new() } else { format!(" of {tenant}") };
    let by = field(row, "blockedBy");
    if by.is_empty() {
        let error = short(row, "lastError");
        return Some(format!("{name}{of} has taken nothing for {length}, {parked} parked: {error}"));
    }
    let reason = match short(row, "blockReason") {
        empty if empty.is_empty() => empty,
        reason => format!(" ({reason})"),
    };
    Some(format!(
        "{name}{of} has been blocked by {by}{reason} for {length}, {parked} parked: `posthaste destinations unblock {id}` lifts it"
    ))
}

/// A rate that so few sends at a time cannot reach, however fast the receiver is.
fn never_met(name: &str, rate: Option<f64>, concurrency: Option<u64>) -> Option<String> {
    let (rate, concurrency) = (rate?, concurrency?);
    let most = concurrency as f64 / SHORTEST_SEND.as_secs_f64();
    (rate > most).then(|| {
        format!(
            "{name} can never get its rate of {rate} a second with {concurrency} at a time: each send would have to take less \
             than {} ms",
            SHORTEST_SEND.as_millis()
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Mark;
    use super::*;

    fn look(rows: &[Value]) -> Finding {
        finding(&json!({"data": rows}), "2026-04-15T12:00:00Z".parse().unwrap())
    }

    fn row() -> Value {
        json!({"id": "dst_1", "name": "https://a:443", "tenant": "acme", "parked": 7, "blockedAt": "2026-04-15T10:00:00Z",
            "lastError": "connection refused"})
    }

    #[test]
    fn what_takes_nothing_is_told_with_who_since_when_and_how_many_wait() {
        let open = look(&[row()]);
        assert_eq!(open.mark, Mark::Warn);
        assert_eq!(open.text, "https://a:443 of acme has taken nothing for 2h, 7 parked: connection refused");
        let mut blocked = row();
        (blocked["blockedBy"], blocked["blockReason"]) = (json!("ada"), json!("they asked"));
        let blocked = look(&[blocked]).text;
        assert!(blocked.contains("blocked by ada (they asked) for 2h, 7 parked"), "{blocked}");
        assert!(blocked.contains("unblock dst_1"), "{blocked}");
        let many = look(&vec![row(); 7]).text;
        assert_eq!(
            (many.lines().count(), many.lines().last()),
            (6, Some("and 2 more: `posthaste destinations list`"))
        );
    }

    #[test]
    fn what_is_closed_is_fine() {
        let mut closed = row();
        closed["blockedAt"] = Value::Null;
        assert_eq!(look(&[closed, json!({})]).mark, Mark::Ok);
        assert_eq!(look(&[]).mark, Mark::Ok);
    }

    #[test]
    fn a_rate_that_the_concurrency_does_not_allow_is_told() {
        for (rate, concurrency, is_met) in [
            (Some(1_000.0), Some(1), true),
            (Some(1_001.0), Some(1), false),
            (Some(50_000.0), Some(20), false),
            (Some(1e6), None, true),
            (None, Some(1), true),
        ] {
            assert_eq!(never_met("a", rate, concurrency).is_none(), is_met, "{rate:?} {concurrency:?}");
        }
        assert_eq!(look(&[json!({"name": "a", "rate": 2_000.0, "concurrency": 1})]).mark, Mark::Warn);
    }
}
