//! The requests of the bench: bodies and headers, built once.

use std::net::SocketAddr;

use anyhow::ensure;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode, Uri};
use posthaste_wire::sink::Sink;
use serde_json::Value;

use super::child::ServerProcess;
use super::load::Letter;
use crate::client::Client;

pub(super) const BODY: &str = r#"{"event":"order.paid","order":{"id":4711,"total":"129.90","currency":"EUR","customer":"cus_0d1f7a3c9b5e2468"},"note":"thank you for your order thank you for your order thank you for your order"}"#;
/// The policy of notifications that fail at first: one scheduled retry after a second.
const POLICY: &str =
    r#"{"strategy":"fixed","initialDelay":"1s","maxAttempts":3,"jitter":"none","quick":{"tries":0}}"#;

/// The requests for one server.
pub(super) struct Letters {
    pub(super) single: Letter,
    pub(super) batch: Letter,
    pub(super) single_with_key: Letter,
    pub(super) batch_with_key: Letter,
    pub(super) fails_first: Letter,
}

impl Letters {
    /// All go to `/ok` of `sink`; those that fail at first go to `late`.
    pub(super) fn new(server: &ServerProcess, sink: &Sink, late: &Sink, batch: usize) -> Self {
        let one = format!(r#"{{"channel":"webhook","to":"{}","body":{BODY}}}"#, sink.url("/ok"));
        let many = format!(r#"{{"notifications":[{}]}}"#, vec![one.as_str(); batch].join(","));
        let failing = late.url("/sequence/503,200");
        let failing = format!(r#"{{"channel":"webhook","to":"{failing}","body":{BODY},"policy":{POLICY}}}"#);
        let mut headers = plain_headers(server.address);
        let mut key = HeaderValue::from_str(&format!("Bearer {}", server.key))
            .expect("a key is made of letters and digits");
        key.set_sensitive(true);
        headers.insert(AUTHORIZATION, key);
        let letter = |path, body: String, holds, keys: Option<&str>| Letter {
            path: Uri::from_static(path),
            headers: headers.clone(),
            body: Bytes::from(body),
            holds,
            wanted: StatusCode::ACCEPTED,
            keys: keys.map(str::to_owned),
        };
        let (to_one, to_many) = ("/v1/notifications", "/v1/notifications/batch");
        Self {
            single: letter(to_one, one.clone(), 1, None),
            batch: letter(to_many, many.clone(), batch as u64, None),
            single_with_key: letter(to_one, one, 1, Some(&server.key[4..20])),
            batch_with_key: letter(to_many, many, batch as u64, Some(&server.key[20..36])),
            fails_first: letter(to_one, failing, 1, None),
        }
    }

    /// Sends one of each and checks the whole response, which the sender does not.
    pub(super) async fn check(&self, server: &ServerProcess) -> anyhow::Result<()> {
        let client = Client::new(&format!("http://{}", server.address), Some(&server.key))?;
        for letter in [&self.single, &self.batch] {
            let answer =
                client.send(Method::POST, letter.path.path(), &[], letter.body.clone()).await?.ok()?;
            let text: Value = answer.json()?;
            let taken = text["accepted"].as_array().map_or(1, Vec::len);
            ensure!(taken as u64 == letter.holds, "not all of a batch was accepted: {text}");
        }
        Ok(())
    }
}

/// A delivery as the sink sees it, sent without a server between.
pub(super) fn bare(sink: &Sink) -> Letter {
    let mut headers = plain_headers(sink.address());
    headers.insert("webhook-id", HeaderValue::from_static("ntf_01jrq3v9zk8n2m4p6r8t0w2y4a"));
    headers.insert("webhook-timestamp", HeaderValue::from_static("1800000000"));
    headers.insert("posthaste-attempt", HeaderValue::from_static("1"));
    Letter {
        path: Uri::from_static("/ok"),
        headers,
        body: Bytes::from_static(BODY.as_bytes()),
        holds: 1,
        wanted: StatusCode::OK,
        keys: None,
    }
}

fn plain_headers(address: SocketAddr) -> HeaderMap {
    let host = HeaderValue::from_str(&address.to_string()).expect("an address is digits and dots");
    let agent = HeaderValue::from_static(concat!("posthaste/", env!("CARGO_PKG_VERSION")));
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(HOST, host), (USER_AGENT, agent), (CONTENT_TYPE, json)])
}
