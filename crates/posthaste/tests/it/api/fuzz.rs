//! Thousands of damaged requests, drawn from a seed: none brings the server down, and each refusal is a proper problem.
//!
//! `POSTHASTE_FUZZ_REQUESTS` asks for more of them, `POSTHASTE_FUZZ_SEED` for the run that failed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use posthaste::client::encode;
use serde_json::{Value, json};

use super::running::{Running, StoreKind};

/// How many requests are made where nothing is said; half as many to PostgreSQL, which takes longer for each.
const REQUESTS: u64 = 3_000;
/// How long that may take; a slow machine makes fewer.
const WITHIN: Duration = Duration::from_secs(30);

/// A small generator (xorshift64*), so that a seed repeats a run.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A value that may stand where it should not.
    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth > 3 { 9 } else { 11 }) {
            0 => Value::Null,
            1 => json!(self.next().is_multiple_of(2)),
            2 => json!(self.next().cast_signed()),
            3 => json!(f64::from_bits(self.next())),
            4 => json!(*self.one_of(&[0, -1, 1, 7, 500, 65_536, i64::MAX, i64::MIN])),
            5 => json!(*self.one_of(&[
                "",
                "webhook",
                "1s",
                "-1s",
                "2999-01-01T00:00:00Z",
                "http://10.0.0.1/",
                "schedule",
                "high",
                "\u{0}\r\n"
            ])),
            6 => json!("x".repeat(self.below(2_000))),
            7 => json!(
                (0..self.below(20))
                    .map(|_| char::from_u32(u32::try_from(self.next() % 0x11_0000).unwrap())
                        .unwrap_or('\u{fffd}'))
                    .collect::<String>()
            ),
            8 => json!({"percent": self.below(200)}),
            9 => Value::Array((0..self.below(4)).map(|_| self.value(depth + 1)).collect()),
            _ => (0..self.below(4))
                .map(|_| (self.name().to_owned(), self.value(depth + 1)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    fn name(&mut self) -> &'static str {
        let names = "channel to body policy headers metadata quick tries schedule jitter maxAttempts ttlSeconds notBefore \
            expiresAt userId x constructor notifications retryOn preset strategy name tenant";
        let names: Vec<&'static str> = names.split_whitespace().collect();
        names[self.below(names.len())]
    }

    /// Damages a document: a field replaced, added or removed somewhere inside.
    fn damage(&mut self, value: &mut Value) {
        match value {
            Value::Object(object) if !object.is_empty() && self.below(3) > 0 => {
                let names: Vec<String> = object.keys().cloned().collect();
                let name = self.one_of(&names).clone();
                match self.below(4) {
                    0 => drop(object.remove(&name)),
                    1 => drop(object.insert(self.name().to_owned(), self.value(0))),
                    _ => self.damage(object.get_mut(&name).unwrap()),
                }
            }
            Value::Array(list) if !list.is_empty() && self.below(3) > 0 => {
                let at = self.below(list.len());
                self.damage(&mut list[at]);
            }
            other => *other = self.value(0),
        }
    }

    /// Damages bytes: flipped, cut, doubled or mixed with others.
    fn damage_bytes(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at),
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, *self.one_of(b"{}[]\",:\\\0\xff0e-.")),
                _ => bytes.extend_from_within(at..),
            }
        }
    }

    /// A query with parameters that may be nonsense.
    fn query(&mut self) -> String {
        let names = [
            "limit",
            "cursor",
            "state",
            "channel",
            "tenant",
            "template",
            "destination",
            "failureType",
            "since",
            "until",
            "q",
            "status",
            "x",
        ];
        let mut pairs = vec![];
        for _ in 0..self.below(4) {
            let texts = ["q", "template", "destination"];
            let name = if self.below(2) == 0 { *self.one_of(&texts) } else { *self.one_of(&names) };
            let value = match self.below(4) {
                0 => self.value(3).to_string(),
                // What means something to a store, or cannot be kept in one.
                2 => (0..=self.below(4)).map(|_| *self.one_of(&['\0', '%', '\\', '\'', 'a'])).collect(),
                1 => self
                    .one_of(&[
                        "50",
                        "webhook",
                        "pending",
                        "deadLetter",
                        "2026-01-01T00:00:00Z",
                        "all",
                        "temporary",
                        "%zz",
                        "%ff",
                        "a&b",
                    ])
                    .to_string(),
                _ => String::new(),
            };
            pairs.push(format!(
                "{}={}",
                name,
                if self.below(4) == 0 {
                    value.replace(|c: char| !c.is_ascii_graphic() || "#\"<>".contains(c), "")
                } else {
                    encode(&value)
                }
            ));
        }
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }
}

/// Requests that are in order, to be damaged.
fn good(running: &Running) -> Vec<(Method, String, Value)> {
    let whole = json!({
        "channel": "webhook", "to": running.sink.url("/ok"), "userId": "u", "subject": "s", "body": {"a": [1, {"b": null}]}, "html": "h",
        "template": "t", "priority": "high", "module": "m", "eventKey": "e", "correlationId": "c", "metadata": {"k": 1},
        "headers": {"x-a": "1"}, "notBefore": "2999-01-01T00:00:00Z", "expiresAt": "2999-02-01T00:00:00Z", "policy": policy(),
    });
    vec![
        (Method::POST, "/v1/notifications".to_owned(), whole.clone()),
        (Method::POST, "/v1/notifications".to_owned(), running.webhook("/ok")),
        (
            Method::POST,
            "/v1/notifications/batch".to_owned(),
            json!({"notifications": [whole, running.webhook("/ok")]}),
        ),
        (Method::POST, "/v1/policies/preview".to_owned(), policy()),
        (
            Method::POST,
            "/v1/policies/simulate".to_owned(),
            json!({
                "policy": policy(), "rate": 2, "script": "503 for 2m, 10% timeouts and 5% refused for 1m", "duration": "5m",
                "breaker": {"failureThreshold": 3, "firstBreak": "1s", "breakDuration": "10s", "forgetAfter": "1m"},
                "limits": {"rate": 5, "concurrency": 2}, "responseTime": "20ms", "expiresAfter": "3m", "seed": 7,
            }),
        ),
        (Method::PUT, "/v1/policies/template:x".to_owned(), policy()),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "x", "tenant": "a"})),
    ]
}

fn policy() -> Value {
    json!({
        "strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "480s", "maxAttempts": 5,
        "jitter": {"percent": 10}, "timeout": "10s", "maxAge": "3d", "deadLetter": true, "honourRetryAfter": true, "maximumRetryAfter": "1h",
        "quick": {"tries": 2, "delay": "500ms", "backoff": "constant", "jitter": true, "retryAfter": true, "statusCodes": [404], "when": "any"},
        "retryOn": {"permanent": false, "timeout": true},
    })
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number")))
}

async fn no_damaged_request_is_answered_with_an_error_of_the_server(on: StoreKind) {
    let running = Running::start(on).await;
    // Another run on each store: what is refused before it comes to the store is the same on both.
    let (seed, usual) = match on {
        StoreKind::Sqlite => (0x0070_6f73_7468_6173, REQUESTS),
        StoreKind::Postgres => (0x0070_6f73_7468_6174, REQUESTS / 2),
    };
    let (seed, wanted) = (number("POSTHASTE_FUZZ_SEED", seed), number("POSTHASTE_FUZZ_REQUESTS", usual));
    let (mut draw, good, begun) = (Draw(seed.max(1)), good(&running), Instant::now());
    // Those with the most filters twice.
    let lists = [
        "/v1/notifications",
        "/v1/notifications",
        "/v1/dead-letters",
        "/v1/notifications/failed",
        "/v1/retry-queue",
        "/v1/dead-letters",
        "/v1/audit",
        "/v1/stats",
        "/v1/stats/series",
        "/v1/retry-queue/load",
        "/v1/policies/global",
    ];
    let (mut accepted, mut refused) = (0, 0);
    for request in 0..wanted {
        let (method, path, body) = if draw.below(4) == 0 {
            (Method::GET, format!("{}{}", draw.one_of(&lists), draw.query()), vec![])
        } else {
            let (method, path, mut document) = draw.one_of(&good).clone();
            if draw.below(2) == 0 {
                draw.damage(&mut document);
            }
            let mut bytes = document.to_string().into_bytes();
            if draw.below(2) == 0 {
                draw.damage_bytes(&mut bytes);
            }
            (method, path, bytes)
        };
        let shown = String::from_utf8_lossy(&body).into_owned();
        // Whether the answer fits its description, problems included, is checked where it is asked for.
        let told = running.admin.ask(method, &path, &[], Bytes::from(body)).await;
        assert!(
            !told.status.is_server_error(),
            "seed {seed}, request {request}: {path} {shown}: {}",
            told.json
        );
        if told.status.is_success() {
            accepted += 1
        } else {
            refused += 1
        }
        if wanted == usual && begun.elapsed() > WITHIN {
            break;
        }
    }
    assert!(
        accepted > 20 && refused > 20,
        "{accepted} accepted, {refused} refused: the damage is not in proportion"
    );
    // What was taken in between is there, can be read, and the engine is whole.
    running.admin.all("/v1/notifications?limit=100").await;
    running.admin.get("/readyz").await;
    running.stop().await;
}

on_each_store! {
    no_damaged_request_is_answered_with_an_error_of_the_server;
}
