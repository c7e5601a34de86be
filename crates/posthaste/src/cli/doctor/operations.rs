//! Retry operations: whether one that is not finished waits for somebody.

use std::time::Duration;

use posthaste_core::duration;
use posthaste_core::operation::BREAKER;
use posthaste_core::time::Timestamp;
use serde_json::Value;

use super::super::reach::Session;
use super::Finding;

const CHECK: &str = "operations";
/// How long a node may take to begin with one.
const WAITING: Duration = Duration::from_secs(300);
/// How long one may go without a step. It goes at the pace of its destinations, and the slowest of them may be down.
const STILL: Duration = Duration::from_secs(3_600);
/// How long one may be paused.
const PAUSED: Duration = Duration::from_secs(86_400);

/// Nothing if the server cannot say it.
pub(super) async fn check(session: &Session, now: Timestamp) -> Option<Finding> {
    let page = session.get("/v1/retry-operations?unfinished=true&limit=500").await.ok()?;
    Some(finding(&page.json().ok()?, now))
}

fn finding(page: &Value, now: Timestamp) -> Finding {
    let all = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<String> = all.iter().filter_map(|operation| trouble(operation, now)).collect();
    match found.as_slice() {
        [] => Finding::ok(CHECK, format!("{} under way, none waits for anybody", all.len())),
        found => Finding::warn(CHECK, found.join("\n")),
    }
}

fn trouble(operation: &Value, now: Timestamp) -> Option<String> {
    let text = |name: &str| operation[name].as_str().unwrap_or_default();
    let time = |name: &str| text(name).parse::<Timestamp>().ok();
    let (id, left) = (text("id"), &operation["remaining"]);
    let (limit, since) = match text("state") {
        "paused" => (PAUSED, time("changedAt")?),
        "waiting" => (WAITING, time("startedAt")?),
        // A node of an older version does not say when it went a step.
        _ => (STILL, time("changedAt")?),
    };
    let still = now.since(since);
    if still <= limit {
        return None;
    }
    let length = duration::words(Duration::from_secs(still.as_secs()));
    Some(match text("state") {
        "paused" if text("pausedBy") == BREAKER => format!(
            "{id} has waited for {length} for destinations that are open or blocked, and holds {left} items; it goes on by itself"
        ),
        "paused" => format!(
            "{id} has been paused by {} for {length}, and holds {left} items: `posthaste retry-operations resume {id}`, or `cancel`",
            text("pausedBy")
        ),
        "waiting" => format!("no node has begun with {id} for {length}; do all nodes reach the store?"),
        _ => format!(
            "{id} has gone no step for {length}, and holds {left} items: its destinations may take nothing, or its first items \
             have no answer yet\n\
             look at `posthaste retry-operations show {id}` and `posthaste stats`"
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Mark;
    use super::*;

    fn look(state: &str, changed_at: Value) -> Finding {
        let operation = json!({"id": "op_1", "state": state, "startedAt": "2026-04-10T12:00:00Z", "remaining": 7,
            "changedAt": changed_at, "pausedBy": "ada"});
        finding(&json!({"data": [operation]}), "2026-04-15T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn what_waits_for_somebody_is_told() {
        for (state, since, words) in [
            ("paused", json!("2026-04-14T11:00:00Z"), "paused by ada for 1d 1h"),
            ("forwarding", json!("2026-04-15T10:00:00Z"), "gone no step for 2h"),
            ("preparing", json!("2026-04-15T10:00:00Z"), "gone no step for 2h"),
            ("waiting", Value::Null, "no node has begun with op_1 for 5d"),
        ] {
            let found = look(state, since);
            assert_eq!(found.mark, Mark::Warn, "{state}");
            assert!(found.text.contains(words), "{}", found.text);
        }
    }

    #[test]
    fn what_waits_for_destinations_goes_on_by_itself() {
        let operation = json!({"id": "op_1", "state": "paused", "startedAt": "2026-04-10T12:00:00Z", "remaining": 7,
            "changedAt": "2026-04-14T11:00:00Z", "pausedBy": "breaker"});
        let found = finding(&json!({"data": [operation]}), "2026-04-15T12:00:00Z".parse().unwrap());
        assert_eq!(found.mark, Mark::Warn);
        assert!(found.text.contains("waited for 1d 1h for destinations"), "{}", found.text);
        assert!(!found.text.contains("resume"), "{}", found.text);
    }

    #[test]
    fn what_goes_on_or_was_paused_just_now_is_fine() {
        for (state, since) in [
            ("paused", json!("2026-04-14T13:00:00Z")),
            ("forwarding", json!("2026-04-15T11:30:00Z")),
            ("cancelled", json!("2026-04-15T11:59:00Z")),
            ("forwarding", Value::Null),
        ] {
            assert_eq!(look(state, since).mark, Mark::Ok, "{state}");
        }
        assert_eq!(finding(&json!({"data": []}), Timestamp::EPOCH).mark, Mark::Ok);
    }
}
