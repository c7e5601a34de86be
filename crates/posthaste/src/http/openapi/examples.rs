//! Examples of requests and answers. Those of requests work with `posthaste dev`, whose sink listens on port
//! 7790.

use serde_json::{Value, json};

/// The example of a schema.
pub(super) fn of(name: &str) -> Option<Value> {
    let example = match name {
        "NewNotification" => send(),
        "Batch" => json!({"notifications": [
            send(),
            {"channel": "webhook", "to": "http://127.0.0.1:7790/ok", "body": "Order 4712 has shipped"},
        ]}),
        "Accepted" => json!({
            "notificationId": "ntf_01m7expnsre7j8fn39ecb261ns", "status": "queued", "state": "pending", "stateCode": 0,
            "channel": "webhook", "createdAt": "2026-11-15T06:18:21.880Z",
        }),
        "BatchAnswer" => json!({
            "accepted": [{"index": 0, "notificationId": "ntf_01m7expnsre7j8fn39ecb261ns"}],
            "rejected": [{"index": 1, "problem": problem(
                "VALIDATION_FAILED", "Something in the request is not right", 422,
                &json!({"detail": "to is missing: the address, URL, phone number or token", "pointer": "/notifications/1/to"}),
            )}],
        }),
        "Policy" => policy(),
        "Preview" => json!({
            "attempts": [
                {"number": 1, "earliest": "0s", "latest": "0s"},
                {"number": 2, "earliest": "27s", "latest": "33s"},
                {"number": 3, "earliest": "81s", "latest": "99s"},
            ],
            "window": "99s",
        }),
        "SimulationRequest" => {
            json!({"policy": {"preset": "notify"}, "rate": 10, "script": "ok for 5m, 503 for 20m, ok for 35m"})
        }
        "NewKey" => json!({"name": "checkout", "tenant": "acme"}),
        "Problem" => problem(
            "NOTIFICATION_NOT_FAILED",
            "The notification has not failed",
            409,
            &json!({
                "detail": "ntf_01m7expnsre7j8fn39ecb261ns is retryScheduled and is still being delivered; a retry is not needed",
                "state": "retryScheduled", "requestId": "5e1f3a90-2c",
            }),
        ),
        _ => return None,
    };
    Some(example)
}

fn send() -> Value {
    json!({
        "channel": "webhook", "to": "http://127.0.0.1:7790/sequence/503,200", "body": {"order": 4711, "state": "shipped"},
        "headers": {"x-shop": "north"}, "eventKey": "order.shipped", "correlationId": "order-4711",
        "metadata": {"team": "checkout"}, "priority": "high", "ttlSeconds": 86400, "policy": policy(),
    })
}

fn policy() -> Value {
    json!({
        "strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "8m", "maxAttempts": 3,
        "jitter": {"percent": 10}, "timeout": "10s", "maxAge": "3d", "quick": {"tries": 0},
    })
}

fn problem(code: &str, title: &str, status: u16, more: &Value) -> Value {
    let mut problem = more.clone();
    problem["type"] = json!(format!("urn:posthaste:problem:{code}"));
    problem["title"] = json!(title);
    problem["status"] = json!(status);
    problem["code"] = json!(code);
    problem
}
