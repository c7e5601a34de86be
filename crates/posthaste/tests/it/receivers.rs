//! Webhooks as receivers verify them: real deliveries of the built program, held to the samples of docs/receivers.md.

mod libraries;
#[expect(unreachable_pub, reason = "readers of the page have it in a crate of its own")]
mod sample;

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use http::Method;
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::{Sink, SinkOptions};
use serde::Serialize;
use serde_json::{Value, json};

use super::program::{Home, get, post};

const PAGE: &str = include_str!("../../../../docs/receivers.md");
/// What a clock may be wrong, in seconds.
const TOLERANCE: i64 = 300;

/// The first sample of a language.
fn sample_in(language: &str) -> &'static str {
    let (_, from) = PAGE.split_once(&format!("```{language}\n")).expect("the page has the sample");
    from.split_once("```").expect("the sample ends").0
}

/// One delivery as it arrived, and what verifies it.
#[derive(Serialize)]
struct Case {
    name: &'static str,
    headers: BTreeMap<String, String>,
    body: String,
    /// The secrets that fit.
    fits: Vec<String>,
    /// The secrets that do not.
    others: Vec<String>,
}

/// What is sent, and the bytes that have to arrive.
fn bodies() -> Vec<(&'static str, Value, String)> {
    let (text, long) = ("Zażółć gęślą jaźń 🚀\r\n\t\u{2028}end ", "ä".repeat(60_000));
    vec![
        ("JSON", json!({"order": 4711, "price": 1.5}), "{\"order\":4711,\"price\":1.5}".to_owned()),
        ("null", Value::Null, "null".to_owned()),
        ("text", json!(text), text.to_owned()),
        ("an empty text", json!(""), String::new()),
        ("a long text", json!(long), long),
    ]
}

/// Sends everything once, rotates the secret, and sends it again. What arrived is signed by the first secret, then by both.
async fn deliveries() -> Vec<Case> {
    let home = Home::new(&[]);
    let program = home.start().await;
    let options = SinkOptions {
        excerpt: 256 * 1_024,
        headers: 16 * 1_024,
        ..SinkOptions::new(std::sync::Arc::new(SystemClock))
    };
    let sink = Sink::start("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
    let client = program.client();
    let mut cases = vec![];
    send_all(&client, &sink, &mut cases).await;
    let path = "/v1/signing-secret?tenant=default";
    let old = secret(&get(&client, path).await);
    let rotated = client
        .send(Method::POST, "/v1/signing-secret/rotate?tenant=default", &[], Bytes::new())
        .await
        .unwrap();
    let new = secret(&rotated.json().unwrap());
    assert_ne!(old, new);
    assert_eq!(secret(&get(&client, path).await), new);
    let before = cases.len();
    send_all(&client, &sink, &mut cases).await;
    for (number, case) in cases.iter_mut().enumerate() {
        let (fits, others) =
            if number < before { (&[&old][..], &[&new][..]) } else { (&[&old, &new][..], &[][..]) };
        case.fits = fits.iter().map(ToString::to_string).collect();
        case.others = others.iter().map(ToString::to_string).collect();
        let count = case.headers["webhook-signature"].split(' ').count();
        assert_eq!(count, fits.len(), "{}: {:?}", case.name, case.headers);
    }
    program.stop().await;
    sink.stop().await;
    cases
}

fn secret(shown: &Value) -> String {
    shown["secret"].as_str().unwrap().to_owned()
}

async fn send_all(client: &Client, sink: &Sink, cases: &mut Vec<Case>) {
    for (name, body, bytes) in bodies() {
        let sent = post(
            client,
            "/v1/notifications",
            &json!({"channel": "webhook", "to": sink.url("/ok"), "body": body}),
        )
        .await;
        let arrived = super::program::eventually(async || {
            sink.arrivals().into_iter().find(|one| one.id.as_deref() == sent["notificationId"].as_str())
        });
        let arrived = arrived.await.expect("it arrives");
        assert_eq!(arrived.body, bytes, "{name}");
        let headers = arrived.headers.into_iter().collect();
        cases.push(Case { name, headers, body: bytes, fits: vec![], others: vec![] });
    }
}

#[test]
fn the_rust_sample_of_the_page_is_the_one_that_is_tested() {
    assert_eq!(sample_in("rust"), include_str!("receivers/sample.rs"));
}

#[tokio::test]
async fn the_rust_sample_takes_what_is_genuine_once_and_nothing_else() {
    for Case { name, mut headers, body, fits, others } in deliveries().await {
        let now = SystemClock.now().as_millis() / 1_000;
        let answer = |secret: &str, headers: &BTreeMap<String, String>, body: &[u8], now: i64| {
            let (mut seen, mut worked) = (HashSet::new(), 0);
            let mut both = [0, 0];
            for answer in &mut both {
                let header = |name: &str| headers.get(name).map(String::as_str);
                *answer = sample::receive(secret, header, body, now, &mut seen, |_| worked += 1);
            }
            (both, worked)
        };
        let (taken, refused) = (([204, 204], 1), ([401, 401], 0));
        for secret in &fits {
            assert_eq!(answer(secret, &headers, body.as_bytes(), now), taken, "{name}");
            assert_eq!(answer(secret, &headers, body.as_bytes(), now + TOLERANCE - 60), taken, "{name}");
            for wrong in [TOLERANCE + 60, -TOLERANCE - 60] {
                assert_eq!(answer(secret, &headers, body.as_bytes(), now + wrong), refused, "{name} {wrong}");
            }
            assert_eq!(answer(secret, &headers, format!("{body} ").as_bytes(), now), refused, "{name}");
            assert_eq!(answer(secret, &BTreeMap::new(), body.as_bytes(), now), refused, "{name}");
        }
        for secret in &others {
            assert_eq!(answer(secret, &headers, body.as_bytes(), now), refused, "{name}");
        }
        let known = headers.clone();
        for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            let changed = match header {
                "webhook-timestamp" => (now + 1_000 - 990).to_string(),
                "webhook-signature" => known[header].to_lowercase(),
                _ => format!("{}x", known[header]),
            };
            headers.insert(header.to_owned(), changed);
            assert_eq!(answer(&fits[0], &headers, body.as_bytes(), now), refused, "{name} {header}");
            headers.clone_from(&known);
        }
    }
}
