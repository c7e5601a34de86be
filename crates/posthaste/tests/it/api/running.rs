//! A Posthaste inside the test, its receiver, and callers whose every answer is held against openapi.json.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::{Client, ClientResponse, EventStream, Opened};
use posthaste::clock::SystemClock;
use posthaste::config::{Config, Secret, StoreUrl};
use posthaste::http::openapi;
use posthaste::http::problem::Kind;
use posthaste::http::route::Route;
use posthaste::wiring::Server;
use posthaste_wire::sink::{Sink, SinkOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::schema::{complaints, document};
use crate::postgres;

/// The admin key of every test.
pub(super) const ADMIN: &str = "the-admin-key-of-the-tests-0123456789";
/// The file of a store.
const FILE: &str = "posthaste.db";
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The store that a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// A file in a directory of its own.
    Sqlite,
    /// A database of its own on the server that the tests share.
    Postgres,
}

/// What goes with the store.
enum Place {
    Directory(TempDir),
    Database(String),
}

/// A running Posthaste with its receiver.
pub(super) struct Running {
    server: Server,
    /// Where webhooks go to.
    pub(super) sink: Sink,
    /// Somebody with the admin key.
    pub(super) admin: Caller,
    place: Place,
    config: Config,
}

impl Running {
    /// One that may send to loopback addresses.
    pub(super) async fn start(on: StoreKind) -> Self {
        Self::with(on, |_| {}).await
    }

    /// One with other settings.
    pub(super) async fn with(on: StoreKind, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::defaults();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        let (place, url) = place(on).await;
        config.store.url = url;
        config.security.allow_subnets = vec!["127.0.0.0/8".parse().unwrap()];
        // All receivers of a test share one origin; the tests of breakers say what opens them.
        config.breaker.failure_threshold = 1_000_000;
        change(&mut config);
        let server = Server::start(&config, Some(ADMIN)).await.unwrap();
        let own = SinkOptions::new(Arc::new(SystemClock));
        let options = SinkOptions { excerpt: 1024 * 1024, keep: 10_000, headers: 4_096, ..own };
        let sink = Sink::start("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let admin = Caller::new(server.address, Some(ADMIN));
        Self { server, sink, admin, place, config }
    }

    /// The same with other settings, from its next start on.
    pub(super) fn changed(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Stops it and starts it again, on the same store and at another address.
    pub(super) async fn restart(self) -> Self {
        self.server.stop().await.unwrap();
        let server = Server::start(&self.config, Some(ADMIN)).await.unwrap();
        let admin = Caller::new(server.address, Some(ADMIN));
        Self { server, admin, ..self }
    }

    /// Starts a second node on the same database, and somebody with the admin key who asks that one.
    pub(super) async fn another_node(&self) -> (Server, Caller) {
        let server = Server::start(&self.config, Some(ADMIN)).await.unwrap();
        let admin = Caller::new(server.address, Some(ADMIN));
        (server, admin)
    }

    /// Gives the receiver a page, as `posthaste dev` does.
    pub(super) fn show_sink(&self) {
        self.server.show_sink(self.sink.inbox());
    }

    /// Where the API listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Somebody with this key, or with none.
    pub(super) fn caller(&self, key: Option<&str>) -> Caller {
        Caller::new(self.server.address, key)
    }

    /// Somebody with a new key of a tenant.
    pub(super) async fn tenant(&self, name: &str) -> Caller {
        self.caller(Some(&self.key_of(name).await))
    }

    /// A new key of a tenant.
    pub(super) async fn key_of(&self, name: &str) -> String {
        let wanted = json!({"name": format!("key of {name}"), "tenant": name});
        let made = self.admin.post("/v1/keys", &wanted).await.is(201);
        made["key"].as_str().unwrap().to_owned()
    }

    /// Changes something in the store behind the server's back.
    pub(super) async fn change_store(&self, statements: &str) {
        match &self.place {
            Place::Directory(directory) => {
                let beside = rusqlite::Connection::open(directory.path().join(FILE)).unwrap();
                beside.execute_batch(statements).unwrap();
            }
            Place::Database(name) => {
                let (name, statements) = (name.clone(), statements.to_owned());
                let change = move || postgres::shared().sql(&name, &statements).unwrap();
                tokio::task::spawn_blocking(change).await.unwrap();
            }
        }
    }

    /// The name of its database.
    pub(super) fn database(&self) -> &str {
        match &self.place {
            Place::Database(name) => name,
            Place::Directory(_) => panic!("the store is a file"),
        }
    }

    /// Every byte that the store keeps; of a database, every row as text.
    pub(super) async fn everything_kept(&self) -> Vec<u8> {
        match &self.place {
            Place::Directory(directory) => {
                let files = std::fs::read_dir(directory.path()).unwrap();
                files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
            }
            Place::Database(name) => {
                let name = name.clone();
                let rows = "select database_to_xml(true, false, '')";
                let read = move || postgres::shared().sql(&name, rows).unwrap().into_bytes();
                tokio::task::spawn_blocking(read).await.unwrap()
            }
        }
    }

    /// A webhook to a path of the receiver.
    pub(super) fn webhook(&self, path: &str) -> Value {
        json!({"channel": "webhook", "to": self.sink.url(path), "body": {"hello": "world"}, "policy": quick(3)})
    }

    /// Ends it; what is under way may end first.
    pub(super) async fn stop(self) {
        self.server.stop().await.unwrap();
        self.sink.stop().await;
    }
}

async fn place(on: StoreKind) -> (Place, StoreUrl) {
    match on {
        StoreKind::Sqlite => {
            let directory = tempfile::tempdir().unwrap();
            let url = StoreUrl::Sqlite(directory.path().join(FILE));
            (Place::Directory(directory), url)
        }
        StoreKind::Postgres => {
            let name = tokio::task::spawn_blocking(postgres::database_with_tables).await.unwrap();
            let url = StoreUrl::Postgres(Secret::new(postgres::shared().url(&name)));
            (Place::Database(name), url)
        }
    }
}

/// A policy with so many attempts and next to no delay.
pub(super) fn quick(attempts: u32) -> Value {
    json!({"strategy": "fixed", "initialDelay": "20ms", "maxAttempts": attempts, "jitter": "none", "quick": {"tries": 0}})
}

/// A policy whose retries are far away.
pub(super) fn slow() -> Value {
    json!({"strategy": "fixed", "initialDelay": "1h", "maxAttempts": 3, "jitter": "none", "quick": {"tries": 0}})
}

/// Somebody who calls the API.
pub(super) struct Caller {
    client: Client,
}

/// An answer that fits the description.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// What was asked, for complaints.
    asked: String,
    /// The status.
    pub(super) status: StatusCode,
    /// The headers.
    pub(super) headers: http::HeaderMap,
    /// The body as it came.
    pub(super) bytes: Bytes,
    /// The body as JSON; null where it is none.
    pub(super) json: Value,
}

impl Told {
    /// The body, if the status is this one.
    pub(super) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.asked, String::from_utf8_lossy(&self.bytes));
        self.json.clone()
    }

    /// The problem, if it is this one.
    pub(super) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.is(status);
        assert_eq!(problem["code"], code, "{}: {problem}", self.asked);
        problem
    }
}

impl Caller {
    fn new(address: SocketAddr, key: Option<&str>) -> Self {
        Self { client: Client::new(&format!("http://{address}"), key).unwrap() }
    }

    /// One exchange.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Told {
        let headers: Vec<(HeaderName, HeaderValue)> =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let answer = if method == Method::GET && path.starts_with("/v1/stream") {
            match self.client.open(path, &headers).await.unwrap() {
                Opened::Events(events) => begun(*events).await,
                Opened::Answer(answer) => answer,
            }
        } else {
            self.client.send(method.clone(), path, &headers, body.into()).await.unwrap()
        };
        checked(&method, path, answer)
    }

    /// A stream of events, which is opened.
    pub(super) async fn stream(&self, path: &str, last_id: Option<&str>) -> EventStream<'_> {
        let headers = last_id.map(|id| (HeaderName::from_static("last-event-id"), id.parse().unwrap()));
        match self.client.open(path, headers.as_slice()).await.unwrap() {
            Opened::Events(events) => *events,
            Opened::Answer(answer) => panic!("{path}: {answer:?}"),
        }
    }

    /// Asks for a path, and gets it.
    pub(super) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, &[], "").await.is(200)
    }

    /// Hands in JSON.
    pub(super) async fn post(&self, path: &str, json: &Value) -> Told {
        self.ask(Method::POST, path, &[], json.to_string()).await
    }

    /// Asks for an act.
    pub(super) async fn act(&self, path: &str) -> Told {
        self.ask(Method::POST, path, &[], "").await
    }

    /// Sends a notification, which is taken.
    pub(super) async fn send(&self, notification: &Value) -> String {
        let told = self.post("/v1/notifications", notification).await.is(202);
        told["notificationId"].as_str().unwrap().to_owned()
    }

    /// Waits until a notification is in that state, and tells all about it.
    pub(super) async fn wait(&self, id: &str, state: &str) -> Value {
        let path = format!("/v1/notifications/{id}");
        let mut last = Value::Null;
        let reached = async {
            loop {
                last = self.get(&path).await;
                if last["state"] == state {
                    return;
                }
                // There is nothing else to wait on: a caller of the API can only ask again.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, reached).await;
        assert!(waited.is_ok(), "{id} did not become {state}: {last}");
        last
    }

    /// Sends a notification and waits until it is in that state.
    pub(super) async fn send_until(&self, notification: &Value, state: &str) -> Value {
        let id = self.send(notification).await;
        self.wait(&id, state).await
    }

    /// Every row of a list, page by page.
    pub(super) async fn all(&self, path: &str) -> Vec<Value> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let (mut rows, mut cursor) = (vec![], String::new());
        loop {
            let page = self.get(&format!("{path}{cursor}")).await;
            rows.extend(page["data"].as_array().unwrap().iter().cloned());
            match page["nextCursor"].as_str() {
                None => return rows,
                Some(next) => cursor = format!("{joint}cursor={next}"),
            }
        }
    }
}

/// What a stream without an end begins with: everything up to its first counters or comment.
async fn begun(mut events: EventStream<'_>) -> ClientResponse {
    let (headers, mut text) = (events.headers().clone(), String::new());
    // The first block has the id to come back with, and no name.
    for _ in 0..2 {
        let event = events.next().await.unwrap().expect("a stream goes on");
        text += &format!("event: {}\ndata: {}\n\n", event.name, event.data);
    }
    ClientResponse { status: StatusCode::OK, headers, body: Bytes::from(text) }
}

/// Holds an answer against the description of its route.
pub(super) fn checked(method: &Method, path: &str, answer: ClientResponse) -> Told {
    let asked = format!("{method} {path}");
    let kind = answer.headers.get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap());
    let json = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let wanted = described(method, path, answer.status, kind);
    if *method != Method::HEAD {
        match wanted {
            None => assert!(answer.body.is_empty(), "{asked}: a body where none is described"),
            Some((described, schema)) => {
                assert_eq!(kind.split(';').next().unwrap(), described, "{asked}");
                let value = if described.starts_with("text/") {
                    json!(String::from_utf8_lossy(&answer.body))
                } else {
                    json.clone()
                };
                let found = complaints(schema, &value);
                assert!(found.is_empty(), "{asked} {}: {value}\n{}", answer.status, found.join("\n"));
            }
        }
    }
    if answer.status.is_client_error() && *method != Method::HEAD {
        let known = Kind::ALL.iter().any(|kind| {
            let (status, code, _) = kind.shown();
            status == answer.status && json["code"] == code
        });
        assert!(known && json["status"] == answer.status.as_u16(), "{asked}: {json}");
        let pointer = json["pointer"].as_str().unwrap_or("");
        assert!(pointer.is_empty() || pointer.starts_with('/'), "{asked}: {pointer} is no pointer");
    }
    Told { asked, status: answer.status, headers: answer.headers, bytes: answer.body, json }
}

/// Every route that is declared.
pub(super) fn routes() -> &'static [Route] {
    openapi::document().routes.all()
}

/// The route of a request. A path without braces wins over one with them.
fn route(method: &Method, path: &str) -> Option<&'static Route> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let fits = |route: &&Route| {
        let Some((before, rest)) = route.path.split_once('{') else { return route.path == path };
        let after = rest.split_once('}').unwrap().1;
        let inner = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        inner.is_some_and(|inner| !inner.is_empty() && !inner.contains('/'))
    };
    let mut fitting: Vec<&Route> = routes().iter().filter(fits).collect();
    if fitting.iter().any(|route| route.path == path) {
        fitting.retain(|route| route.path == path);
    }
    fitting.into_iter().find(|route| route.method == method)
}

/// The type and schema of an answer; none where the body is empty.
fn described(
    method: &Method,
    path: &str,
    status: StatusCode,
    kind: &str,
) -> Option<(&'static str, &'static Value)> {
    let Some(route) = route(method, path.split('?').next().unwrap()) else {
        assert!(status == 404 || status == 405, "{method} {path} has no route, but {status}");
        return Some(("application/problem+json", &document()["components"]["schemas"]["Problem"]));
    };
    let (method, template) = (route.method.as_str().to_lowercase(), &route.path);
    let answers = &document()["paths"][template][method.as_str()]["responses"];
    let answer = &answers[status.as_str()];
    assert!(answer.is_object(), "openapi.json does not say that {method} {template} may answer {status}");
    // Where an answer has several kinds, it is the one that came; the first, if it is none of them.
    let kinds = answer.get("content")?.as_object().unwrap();
    let came = kinds.iter().find(|(name, _)| kind.split(';').next() == Some(name));
    let (kind, content) = came.or_else(|| kinds.iter().next()).unwrap();
    Some((kind.as_str(), &content["schema"]))
}

/// Sends bytes as they are and reads the answer until the server closes: for what a proper client would not send.
pub(super) async fn raw(address: SocketAddr, bytes: &[u8]) -> (u16, Value) {
    let bytes = bytes.to_vec();
    let exchange = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(&bytes);
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let answer = tokio::task::spawn_blocking(exchange).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}
