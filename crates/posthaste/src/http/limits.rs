//! How inbound limits show in answers: the headers of a send, and the 429 that has an id.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName, StatusCode};
use posthaste_core::id::NotificationId;
use posthaste_core::inbound::{Allowance, Allowances};
use posthaste_core::time::Timestamp;
use serde::Deserialize;

use super::problem::{Deferred, Kind, Problem};

const LIMIT_TENANT: HeaderName = HeaderName::from_static("x-ratelimit-limit-tenant");
const REMAINING_TENANT: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tenant");
const LIMIT_MODULE: HeaderName = HeaderName::from_static("x-ratelimit-limit-module");
const REMAINING_MODULE: HeaderName = HeaderName::from_static("x-ratelimit-remaining-module");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// How a problem begins, and no other answer that is kept under an idempotency key.
const PROBLEM: &[u8] = b"{\"type\":";

/// Adds what is left of the limits. Without limits nothing is added.
pub(super) fn tell(mut response: Response, left: Allowances, now: Timestamp) -> Response {
    if left == Allowances::default() {
        return response;
    }
    let headers = response.headers_mut();
    let mut add = |of: Option<Allowance>, limit, remaining| {
        if let Some(allowance) = of {
            headers.insert(limit, allowance.limit.into());
            headers.insert(remaining, allowance.left.into());
        }
    };
    add(left.tenant, LIMIT_TENANT, REMAINING_TENANT);
    add(left.module, LIMIT_MODULE, REMAINING_MODULE);
    headers.insert(RESET, left.more_at().map_or(0, |at| seconds_until(at, now)).into());
    response
}

/// Whole seconds, rounded up.
fn seconds_until(at: Timestamp, now: Timestamp) -> u64 {
    at.since(now).as_micros().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX)
}

/// What a problem takes with it of the headers that were set beside it.
pub(super) fn carried(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let ours = [LIMIT_TENANT, REMAINING_TENANT, LIMIT_MODULE, REMAINING_MODULE, RESET, REPLAYED];
    ours.into_iter()
        .filter_map(|name| headers.get(&name).map(|value| (name.clone(), value.clone())))
        .collect()
}

/// The answer over the limit where that is a 429, as it is kept under an idempotency key.
pub(super) fn limited(id: NotificationId, until: Timestamp) -> Vec<u8> {
    serde_json::to_vec(&problem(id, until, until).view(None)).expect("a problem is made of texts")
}

fn problem(id: NotificationId, until: Timestamp, now: Timestamp) -> Problem {
    let detail = format!(
        "over the rate limit: the notification is accepted, and sent at {until}. Do not send it again"
    );
    let deferred = Deferred { notification_id: id, until, seconds: seconds_until(until, now) };
    Problem { deferred: Some(Box::new(deferred)), ..Problem::new(Kind::RateLimited, detail) }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptProblem {
    notification_id: NotificationId,
    deferred_until: Timestamp,
}

/// An answer to a send as it is kept under an idempotency key, with the status that it had.
pub(super) fn shown(kept: Vec<u8>, now: Timestamp) -> Response {
    let limited = kept.starts_with(PROBLEM).then(|| serde_json::from_slice::<KeptProblem>(&kept).ok());
    match limited.flatten() {
        Some(KeptProblem { notification_id, deferred_until }) => {
            problem(notification_id, deferred_until, now).into_response()
        }
        None => {
            let kind = HeaderValue::from_static("application/json");
            (StatusCode::ACCEPTED, [(CONTENT_TYPE, kind)], kept).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    #[test]
    fn a_kept_answer_is_shown_with_the_status_that_it_had() {
        let until = NOW.later(std::time::Duration::from_millis(1_500));
        let response = shown(limited(NotificationId::new(NOW, 7), until), NOW);
        let problem = response.extensions().get::<Problem>().unwrap();
        assert_eq!(problem.deferred.as_ref().unwrap().seconds, 2);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        for other in [&b"{\"notificationId\":\"ntf_1\"}"[..], b"{\"type\":1}", b""] {
            assert_eq!(shown(other.to_vec(), NOW).status(), StatusCode::ACCEPTED);
        }
    }

    #[test]
    fn headers_tell_what_is_left_and_the_seconds_until_there_is_more() {
        let more_at = Some(NOW.later(std::time::Duration::from_micros(1_000_001)));
        let tenant = Some(Allowance { limit: 100, left: 0, more_at });
        let left = Allowances { tenant, module: None };
        let response = tell(StatusCode::ACCEPTED.into_response(), left, NOW);
        let all: Vec<(String, String)> = carried(response.headers())
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let wanted = [LIMIT_TENANT, REMAINING_TENANT, RESET].map(|name| name.to_string());
        let wanted: Vec<(String, String)> =
            wanted.into_iter().zip(["100", "0", "2"].map(str::to_owned)).collect();
        assert_eq!(all, wanted);
        let plain = tell(StatusCode::ACCEPTED.into_response(), Allowances::default(), NOW);
        assert!(carried(plain.headers()).is_empty());
    }
}
