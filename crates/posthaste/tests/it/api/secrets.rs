//! Secrets at rest: what is planted in a header arrives, and is found nowhere else.

use http::Method;
use posthaste::config::Config;
use posthaste_core::sealed::Key;
use posthaste_engine::store::LEVEL;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::pages::Browser;
use super::running::{ADMIN, Running, StoreKind, quick};

/// The value of each header, and what of it is secret.
const PLANTED: [(&str, &str, &str); 4] = [
    ("Authorization", "Bearer planted-token-0123456789", "planted-token-0123456789"),
    ("cookie", "sid=planted-session-abc; theme=dark", "planted-session-abc"),
    ("X-Api-Key", "planted-api-key-xyz", "planted-api-key-xyz"),
    ("x-hub-secret", "planted by the settings", "planted by the settings"),
];

fn key(byte: u8) -> Key {
    Key::new([byte; Key::LENGTH])
}

/// With a master key: of the settings, or in the file that the server makes.
async fn sealing(on: StoreKind) -> Running {
    Running::with(on, |config| {
        config.security.sensitive_headers = vec!["X-Hub-Secret".to_owned()];
        if on == StoreKind::Postgres {
            config.security.master_keys = vec![key(7)];
        }
    })
    .await
}

/// A receiver that answers with a status and everything that it was sent, in the type of its answer as well.
async fn echo(status: u16) -> (String, mpsc::UnboundedReceiver<String>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (heads, received) = mpsc::unbounded_channel();
    let mut running = JoinSet::new();
    running.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 16_384];
            let mut length = 0;
            while !bytes[..length].windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut bytes[length..]).await.unwrap() {
                    0 => break,
                    more => length += more,
                }
            }
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: text/{}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                PLANTED[0].2,
                text.len()
            );
            let _ = heads.send(text.clone());
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, received, running)
}

fn webhook(to: &str, policy: &Value) -> Value {
    let headers: serde_json::Map<String, Value> =
        PLANTED.iter().map(|(name, value, _)| ((*name).to_owned(), json!(value))).collect();
    let mut sent = json!({"channel": "webhook", "to": to, "body": {"a": 1}, "policy": policy});
    sent["headers"] = Value::Object(headers);
    sent["headers"]["x-plain"] = json!("plain-and-shown");
    sent
}

#[track_caller]
fn has_all(head: &str) {
    for (name, value, _) in PLANTED {
        let line = format!("{}: {value}", name.to_lowercase());
        assert!(head.lines().any(|sent| sent == line), "{line}: {head}");
    }
}

#[track_caller]
fn has_none(place: &str, text: &str) {
    for (_, _, secret) in PLANTED {
        assert!(!text.contains(secret), "{place} shows `{secret}`: {text}");
    }
}

fn masked() -> Value {
    json!({
        "Authorization": "Bearer ***", "cookie": "***", "X-Api-Key": "***", "x-hub-secret": "***",
        "x-plain": "plain-and-shown",
    })
}

/// Every address that may show something of these.
fn places(notification: &str, letter: &str) -> Vec<String> {
    let mut all: Vec<String> = [
        "/v1/notifications",
        "/v1/notifications/failed",
        "/v1/dead-letters?status=all",
        "/v1/retry-queue",
        "/v1/failure-groups",
        "/v1/destinations?all=true",
        "/v1/audit",
        "/v1/stats",
        "/v1/settings",
        "/v1/master-key",
        "/metrics",
    ]
    .map(str::to_owned)
    .into();
    all.push(format!("/v1/notifications/{notification}"));
    all.push(format!("/v1/dead-letters/{letter}"));
    all
}

async fn what_is_planted_in_headers_arrives_and_is_found_nowhere_else(on: StoreKind) {
    let running = sealing(on).await;
    let (url, mut received, _receiver) = echo(503).await;
    let admin = &running.admin;
    let twice = json!({"strategy": "fixed", "initialDelay": "20ms", "maxAttempts": 2, "jitter": "none",
        "quick": {"tries": 1, "delay": "1ms"}});
    let dead = admin.send_until(&webhook(&url, &twice), "deadLetter").await;
    for _ in 0..4 {
        has_all(&received.recv().await.unwrap());
    }
    assert_eq!(dead["headers"], masked());
    let attempt = &dead["attempts"][0];
    for said in [&attempt["error"], &attempt["response"]["excerpt"], &attempt["quickTries"][0]["error"]] {
        assert!(said.as_str().unwrap().contains("authorization: ***"), "{attempt}");
    }
    assert_eq!(attempt["response"]["contentType"], "text/***");
    let (id, letter) = (dead["notificationId"].as_str().unwrap(), dead["deadLetterId"].as_str().unwrap());
    let batch = json!({"notifications": [webhook(&url, &quick(1)), webhook(&url, &quick(1))]});
    let told = admin.post("/v1/notifications/batch", &batch).await.is(202);
    for item in told["accepted"].as_array().unwrap() {
        admin.wait(item["notificationId"].as_str().unwrap(), "deadLetter").await;
        has_all(&received.recv().await.unwrap());
    }
    // A requeue sends what was sealed, and so does a copy with another body.
    admin.act(&format!("/v1/dead-letters/{letter}/requeue")).await.is(202);
    has_all(&received.recv().await.unwrap());
    let again = admin.wait(id, "deadLetter").await;
    let letter = again["deadLetterId"].as_str().unwrap();
    while received.try_recv().is_ok() {}
    let edit = json!({"body": {"a": 2}, "policy": quick(1),
        "headers": {"x-new": "1", "authorization": "Bearer ***", "x-plain": null}});
    let path = format!("/v1/dead-letters/{letter}/edit-and-retry");
    let copy = admin.post(&path, &edit).await.is(202)["notificationId"].as_str().unwrap().to_owned();
    let head = received.recv().await.unwrap();
    has_all(&head);
    assert!(head.contains("x-new: 1") && !head.contains("x-plain"), "{head}");
    let copy = admin.wait(&copy, "deadLetter").await;
    assert_eq!(copy["headers"]["Authorization"], "Bearer ***");
    let asked = places(id, letter);
    for path in asked.iter().chain(&places(copy["notificationId"].as_str().unwrap(), letter)) {
        let told = admin.ask(Method::GET, path, &[], "").await;
        assert!(told.status.is_success(), "{path}: {told:?}");
        has_none(path, &String::from_utf8_lossy(&told.bytes));
    }
    let mut browser = Browser::with(&running, ADMIN).await;
    for path in asked.iter().filter_map(|path| path.strip_prefix("/v1")) {
        let page = browser.get(path).await;
        has_none(path, &page.text);
        if path.ends_with(id) {
            assert!(page.text.contains("Bearer ***"), "{}", page.text);
        }
    }
    let bytes = running.everything_kept().await;
    let kept = String::from_utf8_lossy(&bytes);
    has_none("the store", &kept);
    assert!(kept.contains("plain-and-shown"), "what is looked through is the store");
    running.stop().await;
}

async fn what_is_kept_in_plain_is_not_shown_either(on: StoreKind) {
    // An older node is alive: nothing is sealed.
    let running = sealing(on).await;
    running.change_store("update node set level = 5").await;
    let (url, mut received, _receiver) = echo(503).await;
    let master = async || running.admin.get("/v1/master-key").await;
    while master().await["sealing"] == true {
        tokio::task::yield_now().await;
    }
    let dead = running.admin.send_until(&webhook(&url, &quick(1)), "deadLetter").await;
    has_all(&received.recv().await.unwrap());
    let kept = running.everything_kept().await;
    assert!(String::from_utf8_lossy(&kept).contains(PLANTED[0].2), "it is kept as before");
    assert_eq!(dead["headers"], masked());
    has_none("the notification", &dead.to_string());
    let letter = dead["deadLetterId"].as_str().unwrap();
    let shown = running.admin.get(&format!("/v1/dead-letters/{letter}")).await;
    assert_eq!(shown["payload"]["headers"], masked());
    has_none("the dead letter", &shown.to_string());
    // Once it is gone, the copy of the old one is sealed.
    running.change_store(&format!("update node set level = {LEVEL}")).await;
    while master().await["sealing"] == false {
        tokio::task::yield_now().await;
    }
    running.admin.act(&format!("/v1/dead-letters/{letter}/requeue")).await.is(202);
    has_all(&received.recv().await.unwrap());
    running.stop().await;
}

async fn a_database_without_a_master_key_keeps_headers_and_says_so(on: StoreKind) {
    let running = Running::start(on).await;
    let told = running.admin.get("/v1/master-key").await;
    if on == StoreKind::Sqlite {
        assert_eq!((&told["source"], &told["sealing"]), (&json!("file"), &json!(true)));
        assert!(told["file"].as_str().unwrap().ends_with("posthaste.db.key"), "{told}");
    } else {
        assert_eq!((&told["source"], &told["inForce"]), (&json!("none"), &Value::Null));
        let problem = running.admin.act("/v1/master-key/rotate").await.problem(409, "MASTER_KEY_MISSING");
        assert!(problem["detail"].as_str().unwrap().contains("POSTHASTE_MASTER_KEY"), "{problem}");
        let sent = webhook(&running.sink.url("/ok"), &quick(1));
        let shown = running.admin.send_until(&sent, "succeeded").await;
        assert_eq!(shown["headers"]["Authorization"], "Bearer ***");
    }
    running.stop().await;
}

async fn a_header_whose_key_is_lost_is_asked_for_by_its_name(on: StoreKind) {
    let running = sealing(on).await;
    let dead =
        running.admin.send_until(&webhook(&running.sink.url("/status/400"), &quick(1)), "deadLetter").await;
    let letter = dead["deadLetterId"].as_str().unwrap();
    running.change_store("delete from record where kind in (8, 11)").await;
    let running = running.restart().await;
    running.admin.act(&format!("/v1/dead-letters/{letter}/requeue")).await.is(202);
    let again = running.admin.wait(dead["notificationId"].as_str().unwrap(), "deadLetter").await;
    let error = again["lastError"].as_str().unwrap();
    assert!(error.contains("sealed headers cannot be opened") && error.contains("edit and retry"), "{error}");
    let path = format!("/v1/dead-letters/{}/edit-and-retry", again["deadLetterId"].as_str().unwrap());
    let to = running.sink.url("/ok");
    let some = json!({"to": to, "headers": {"authorization": "new", "cookie": null, "x-api-key": "***", "x-hub-secret": "n"}});
    let problem = running.admin.post(&path, &some).await.problem(422, "VALIDATION_FAILED");
    assert!(
        problem["detail"].as_str().unwrap().contains("the value of `X-Api-Key` cannot be opened"),
        "{problem}"
    );
    let none = json!({"to": to, "headers": null});
    let copy = running.admin.post(&path, &none).await.is(202)["notificationId"].as_str().unwrap().to_owned();
    running.admin.wait(&copy, "succeeded").await;
    running.stop().await;
}

/// The keys that a restart comes with.
fn keys(running: Running, keys: Vec<Key>) -> Running {
    running.changed(|config: &mut Config| config.security.master_keys = keys)
}

async fn a_master_key_is_changed_while_the_server_runs(on: StoreKind) {
    let mut running = sealing(on).await;
    let (url, mut received, _receiver) = echo(503).await;
    let dead = running.admin.send_until(&webhook(&url, &quick(1)), "deadLetter").await;
    has_all(&received.recv().await.unwrap());
    let letter = dead["deadLetterId"].as_str().unwrap();
    let before = running.admin.get("/v1/master-key").await["inForce"].clone();
    if on == StoreKind::Postgres {
        running = keys(running, vec![key(8), key(7)]).restart().await;
    }
    let told = running.admin.act("/v1/master-key/rotate").await.is(200);
    assert_eq!((&told["from"], &told["changed"]), (&before, &json!(true)));
    assert!(told["dataKeys"].as_u64().unwrap() >= 1, "{told}");
    assert_ne!(told["to"], before);
    let audit = running.admin.get("/v1/audit?action=rotate-master-key").await;
    assert_eq!(audit["data"][0]["target"], told["to"]);
    if on == StoreKind::Postgres {
        let again = running.admin.act("/v1/master-key/rotate").await.is(200);
        assert_eq!((&again["changed"], &again["dataKeys"]), (&json!(false), &json!(0)));
        running = keys(running, vec![key(8)]);
    }
    running = running.restart().await;
    let now = running.admin.get("/v1/master-key").await;
    assert_eq!((&now["inForce"], &now["known"]), (&told["to"], &json!([told["to"]])));
    running.admin.act(&format!("/v1/dead-letters/{letter}/requeue")).await.is(202);
    has_all(&received.recv().await.unwrap());
    let reader = running.caller(Some(&running.key_of("acme").await));
    reader.act("/v1/master-key/rotate").await.problem(403, "FORBIDDEN");
    running.stop().await;
}

on_each_store! {
    what_is_planted_in_headers_arrives_and_is_found_nowhere_else;
    what_is_kept_in_plain_is_not_shown_either;
    a_header_whose_key_is_lost_is_asked_for_by_its_name;
    a_database_without_a_master_key_keeps_headers_and_says_so;
    a_master_key_is_changed_while_the_server_runs;
}
