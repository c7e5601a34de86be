//! Makes a store with rows of every kind by the API of a program, and keeps what that program answers about them.
//!
//! The fixtures were made so by a program from before; the correlation id of each notification is the name of its kind.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::Client;
use posthaste_wire::sink::Sink;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::place::{Kind, Place};
use crate::program::{Program, eventually, get, json as read, post};

/// Further than any test goes on: 100 years in microseconds.
const FAR: &str = "3155760000000000";
/// When what waits from the start is due. It is moved by `FAR` as well.
const LATER: &str = "2090-01-01T00:00:00Z";

/// A store as SQL, and what is known about it.
pub(super) struct Fixture {
    pub(super) dump: String,
    pub(super) told: Told,
}

/// What a program answered about the store before the upgrade.
#[derive(Serialize, Deserialize)]
pub(super) struct Told {
    /// The receiver of every notification.
    pub(super) sink: String,
    /// The key of tenant acme.
    pub(super) key: String,
    /// By path, the answers about what stays as it is until its time is changed.
    pub(super) answers: BTreeMap<String, Value>,
    /// By kind, the last answers about what moves as soon as a program starts: it is due, or was held.
    pub(super) moving: BTreeMap<String, Value>,
    /// Requests with an idempotency key.
    pub(super) repeats: Vec<Repeat>,
}

/// A request with an idempotency key, and its answer.
#[derive(Serialize, Deserialize)]
pub(super) struct Repeat {
    path: String,
    key: String,
    /// As it was sent: its hash is kept.
    body: String,
    pub(super) answer: Value,
}

impl Repeat {
    /// Hands in the same again; the answer must be the first one, and say so.
    pub(super) async fn again(&self, client: &Client) -> Value {
        let answer = send_keyed(client, &self.path, &self.key, &self.body).await;
        assert!(answer.headers.contains_key("idempotency-replayed"), "{} is not known any more", self.key);
        read(&answer, StatusCode::ACCEPTED)
    }
}

async fn send_keyed(client: &Client, path: &str, key: &str, body: &str) -> posthaste::client::ClientResponse {
    let headers = [(HeaderName::from_static("idempotency-key"), HeaderValue::from_str(key).unwrap())];
    client.send(Method::POST, path, &headers, Bytes::from(body.to_owned())).await.unwrap()
}

/// Makes a store by the program at that path, or by the one under test.
pub(super) async fn make(kind: Kind, binary: Option<&PathBuf>, sink: &Sink) -> Fixture {
    let place = Place::new(kind, binary);
    // What the first program was sending when it was killed was interrupted.
    let first = place.home.start().await;
    let maker = Maker::of(&first, sink).await;
    let interrupted = maker.interrupted(&first.client()).await;
    first.kill();
    let second = place.home.start().await;
    let client = second.client();
    for (id, state) in interrupted {
        until(&client, &id, state).await;
    }
    let acme = acme(&second, &maker.key);
    maker.ended(&acme).await;
    maker.dead(&client).await;
    maker.waiting(&acme).await;
    let repeats = maker.repeats(&acme).await;
    let moving = maker.moving(&client).await;
    second.kill();
    // Nothing moves by itself any more, but for what is due or was held when the program ended.
    place.run(&format!(
        "update queue set due = due + {FAR} where node is null;
         update queue set node = null, fence = null
         where id in (select id from notification where correlation_id in ('due', 'due-retry'));"
    ));
    let dump = place.dump();
    let told = Told { sink: sink.url(""), key: maker.key, answers: BTreeMap::new(), moving, repeats };
    let mut fixture = Fixture { dump, told };
    fixture.told.answers = answers(kind, binary, &fixture).await;
    fixture
}

/// What the same program answers on a copy.
async fn answers(kind: Kind, binary: Option<&PathBuf>, fixture: &Fixture) -> BTreeMap<String, Value> {
    let place = Place::new(kind, binary);
    place.run(&fixture.dump);
    let program = place.home.start().await;
    let client = program.client();
    let mut answers = BTreeMap::new();
    for (list, id) in [("/v1/notifications", "notificationId"), ("/v1/dead-letters", "id")] {
        let page =
            get(&client, &format!("{list}?limit=500{}", if id == "id" { "&status=all" } else { "" })).await;
        for one in page["data"].as_array().unwrap() {
            let moves =
                one["correlationId"].as_str().is_some_and(|kind| fixture.told.moving.contains_key(kind));
            let path = format!("{list}/{}", one[id].as_str().unwrap());
            if !moves {
                answers.insert(path.clone(), get(&client, &path).await);
            }
        }
    }
    for path in ["/v1/policies", "/v1/policies/template:welcome", "/v1/keys", "/v1/audit?limit=500"] {
        answers.insert(path.to_owned(), get(&client, path).await);
    }
    program.kill();
    answers
}

/// A client with the key of tenant acme.
pub(super) fn acme(program: &Program, key: &str) -> Client {
    Client::new(&format!("http://{}", program.address()), Some(key)).unwrap()
}

/// Waits until a notification is in that state.
async fn until(client: &Client, id: &str, state: &str) -> Value {
    let mut last = Value::Null;
    let reached = eventually(async || {
        last = get(client, &format!("/v1/notifications/{id}")).await;
        (last["state"] == state).then_some(())
    });
    reached.await.unwrap_or_else(|| panic!("{id} does not become {state}: {last}"));
    last
}

async fn act(client: &Client, path: &str) -> Value {
    post(client, path, &json!({})).await
}

/// Two attempts at once.
fn fast() -> Value {
    json!({"strategy": "fixed", "initialDelay": "10ms", "jitter": "none", "maxAttempts": 2, "quick": {"tries": 0}})
}

/// A retry that nobody waits for.
fn slow() -> Value {
    json!({"strategy": "fixed", "initialDelay": "1h", "jitter": "none", "maxAttempts": 9, "timeout": "50s", "quick": {"tries": 0}})
}

struct Maker<'a> {
    sink: &'a Sink,
    key: String,
}

impl<'a> Maker<'a> {
    /// Defines policies and keys.
    async fn of(program: &Program, sink: &'a Sink) -> Self {
        let client = program.client();
        for (scope, policy) in [
            (
                "template:welcome",
                json!({"maxAttempts": 3, "initialDelay": "2h", "strategy": "fixed", "quick": {"tries": 0}}),
            ),
            ("tenant:acme", json!({"maximumRetryAfter": "2h"})),
            // A fixture gets old.
            ("global", json!({"maxAge": "36500d"})),
        ] {
            let body = Bytes::from(policy.to_string());
            let answer = client.send(Method::PUT, &format!("/v1/policies/{scope}"), &[], body).await.unwrap();
            read(&answer, StatusCode::OK);
        }
        let mut made = vec![];
        for name in ["kept", "revoked"] {
            let wanted = json!({"name": name, "tenant": "acme"});
            made.push(read(&client.post("/v1/keys", &wanted).await.unwrap(), StatusCode::CREATED));
        }
        let revoked = format!("/v1/keys/{}", made[1]["id"].as_str().unwrap());
        let answer = client.send(Method::DELETE, &revoked, &[], Bytes::new()).await.unwrap();
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
        Self { sink, key: made[0]["key"].as_str().unwrap().to_owned() }
    }

    fn body(&self, kind: &str, path: &str, more: &Value) -> Value {
        let mut body = json!({"channel": "webhook", "to": self.sink.url(path), "correlationId": kind, "body": {"kind": kind}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    async fn send(&self, client: &Client, kind: &str, path: &str, more: &Value) -> String {
        let sent = post(client, "/v1/notifications", &self.body(kind, path, more)).await;
        sent["notificationId"].as_str().unwrap().to_owned()
    }

    async fn send_until(&self, client: &Client, kind: &str, path: &str, more: &Value, state: &str) -> Value {
        let id = self.send(client, kind, path, more).await;
        until(client, &id, state).await
    }

    /// What is under way when the first program is killed, with what becomes of it.
    async fn interrupted(&self, client: &Client) -> Vec<(String, &'static str)> {
        let mut sent = vec![];
        for (kind, path, state) in [
            ("interrupted", "/sequence/hang,200", "succeeded"),
            ("interrupted-retry", "/sequence/hang,503", "retryScheduled"),
        ] {
            let id = self.send(client, kind, path, &json!({"policy": slow()})).await;
            until(client, &id, "processing").await;
            sent.push((id, state));
        }
        let arrived = eventually(async || (self.sink.received() >= 2).then_some(()));
        arrived.await.expect("both are under way");
        sent
    }

    /// Notifications that came to their end.
    async fn ended(&self, client: &Client) {
        let everything = json!({
            "headers": {"x-order": "4711"}, "html": "<p>paid</p>", "metadata": {"number": 12345678901234567890u64},
            "subject": "Paid", "eventKey": "order.paid", "userId": "user-7", "module": "shop", "template": "welcome",
            "priority": "critical", "ttlSeconds": 3_000_000_000u64,
        });
        let quick = json!({"policy": {"maxAttempts": 2, "quick": {"tries": 3, "delay": "1ms"}}});
        for (kind, path, more, state) in [
            ("delivered", "/ok", json!({}), "succeeded"),
            ("delivered-everything", "/ok", everything, "succeeded"),
            ("delivered-text", "/ok", json!({"body": "paid", "priority": "low"}), "succeeded"),
            ("delivered-after-a-retry", "/sequence/503,200", json!({"policy": fast()}), "succeeded"),
            ("delivered-by-a-quick-try", "/sequence/503,503,200", quick, "succeeded"),
            ("failed", "/status/400", json!({"policy": {"deadLetter": false}}), "failed"),
            ("expired", "/status/503", json!({"policy": slow(), "ttlSeconds": 1}), "expired"),
        ] {
            self.send_until(client, kind, path, &more, state).await;
        }
        let id = self.send(client, "cancelled", "/ok", &json!({"notBefore": LATER})).await;
        act(client, &format!("/v1/notifications/{id}/cancel")).await;
    }

    /// Dead letters of every status, and what was done about them.
    async fn dead(&self, client: &Client) {
        let fast = json!({"policy": fast()});
        let hangs = json!({"policy": {"strategy": "fixed", "initialDelay": "10ms", "maxAttempts": 1, "timeout": "100ms"}});
        for (kind, path, more) in [
            ("dead", "/status/503", &fast),
            ("dead-permanent", "/status/400", &fast),
            ("dead-network", "/reset", &fast),
            ("dead-timeout", "/hang", &hangs),
        ] {
            self.send_until(client, kind, path, more, "deadLetter").await;
        }
        for (kind, path, acts, state) in [
            ("requeued", "/sequence/503,503,200", &["requeue"][..], "succeeded"),
            ("requeued-dead", "/sequence/503,503,400", &["requeue"], "deadLetter"),
            ("discarded", "/status/400", &["discard"], "failed"),
            ("restored", "/status/400", &["discard", "restore"], "deadLetter"),
        ] {
            let died = self.send_until(client, kind, path, &fast, "deadLetter").await;
            for verb in acts {
                act(client, &format!("/v1/dead-letters/{}/{verb}", died["deadLetterId"].as_str().unwrap()))
                    .await;
            }
            until(client, died["notificationId"].as_str().unwrap(), state).await;
        }
        let died = self.send_until(client, "retried", "/sequence/400,200", &fast, "deadLetter").await;
        let id = died["notificationId"].as_str().unwrap();
        act(client, &format!("/v1/notifications/{id}/retry")).await;
        until(client, id, "succeeded").await;
    }

    /// What waits, in the first and in a later generation.
    async fn waiting(&self, client: &Client) {
        for priority in ["critical", "high", "normal", "low"] {
            let more = json!({"notBefore": LATER, "priority": priority, "template": "welcome"});
            self.send(client, &format!("waiting-{priority}"), "/ok", &more).await;
        }
        let more = json!({"notBefore": LATER, "expiresAt": "2400-01-01T00:00:00Z", "metadata": {"a": [1]}});
        self.send(client, "waiting-expires", "/ok", &more).await;
        for (kind, more) in [
            ("retry", json!({"policy": slow(), "expiresAt": "2400-01-01T00:00:00Z"})),
            ("retry-template", json!({"template": "welcome"})),
        ] {
            self.send_until(client, kind, "/sequence/503,200", &more, "retryScheduled").await;
        }
        let more = json!({"policy": slow()});
        let died =
            self.send_until(client, "retry-requeued", "/sequence/400,503,200", &more, "deadLetter").await;
        act(client, &format!("/v1/dead-letters/{}/requeue", died["deadLetterId"].as_str().unwrap())).await;
        until(client, died["notificationId"].as_str().unwrap(), "retryScheduled").await;
    }

    /// Requests with an idempotency key, one of them for several notifications.
    async fn repeats(&self, client: &Client) -> Vec<Repeat> {
        let one = self.body("keyed", "/ok", &json!({}));
        let batch =
            json!({"notifications": [self.body("keyed-batch", "/ok", &json!({})), {"channel": "pigeon"}]});
        let mut repeats = vec![];
        for (path, key, body) in [
            ("/v1/notifications", "order-4711-paid", one),
            ("/v1/notifications/batch", "orders-of-today", batch),
        ] {
            let body = body.to_string();
            let answer = read(&send_keyed(client, path, key, &body).await, StatusCode::ACCEPTED);
            repeats.push(Repeat { path: path.to_owned(), key: key.to_owned(), body, answer });
        }
        for id in [&repeats[0].answer["notificationId"], &repeats[1].answer["accepted"][0]["notificationId"]]
        {
            until(client, id.as_str().unwrap(), "succeeded").await;
        }
        repeats
    }

    /// What is under way when the program is killed: first attempts, retries, and one that is to be cancelled.
    async fn moving(&self, client: &Client) -> BTreeMap<String, Value> {
        let mut moving = BTreeMap::new();
        let soon = json!({"policy": {"strategy": "fixed", "initialDelay": "10ms", "timeout": "50s", "quick": {"tries": 0}}});
        for (kind, path, state) in [
            ("held", "/hang", "processing"),
            ("held-retry", "/sequence/503,hang", "retrying"),
            ("cancel-requested", "/hang", "processing"),
            ("due", "/hang", "processing"),
            ("due-retry", "/sequence/503,hang", "retrying"),
        ] {
            let mut shown = self.send_until(client, kind, path, &soon, state).await;
            if kind == "cancel-requested" {
                let id = shown["notificationId"].as_str().unwrap();
                act(client, &format!("/v1/notifications/{id}/cancel")).await;
                shown = get(client, &format!("/v1/notifications/{id}")).await;
            }
            moving.insert(kind.to_owned(), shown);
        }
        moving
    }
}
