//! Logging in, and the ends of sessions.

use std::io::{Read, Write};
use std::net::TcpStream;

use futures_util::future::join_all;
use http::Method;
use posthaste::config::Config;
use posthaste::tokens::Algorithm;
use serde_json::json;

use super::super::running::{ADMIN, Running, StoreKind};
use super::super::tokens::accepting;
use super::super::tokens::issuer::{Signer, claims};
use super::super::wrong_keys::failed_authentications;
use super::{Browser, SESSION, form, is_safe, token_of};

on_each_store! {
    a_session_ends_with_its_key;
    a_log_out_ends_one_session_and_everywhere_ends_all;
}

async fn a_session_ends_with_its_key(on: StoreKind) {
    let running = Running::start(on).await;
    let made = running
        .admin
        .post("/v1/keys", &json!({"name": "dana", "tenant": "acme", "role": "operator"}))
        .await
        .is(201);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let mut browser = Browser::with(&running, key).await;
    let page = browser.get("/notifications").await.page();
    assert!(page.contains("acme") && page.contains("dana, operator"), "{page}");
    let login = running.admin.get("/v1/audit?action=login").await;
    assert_eq!((&login["data"][0]["target"], &login["data"][0]["tenant"]), (&json!(id), &json!("acme")));
    // Nothing that is kept lets anybody in.
    let secret = browser.cookies[SESSION].rsplit('.').next().unwrap().to_owned();
    let kept = running.everything_kept().await;
    assert!(!kept.windows(secret.len()).any(|part| part == secret.as_bytes()));
    running.admin.ask(Method::DELETE, &format!("/v1/keys/{id}"), &[], "").await.is(204);
    let gone = browser.get("/notifications?status=failed").await;
    gone.is(303);
    assert_eq!(gone.to(), "/login?to=%2Fnotifications%3Fstatus%3Dfailed");
    running.stop().await;
}

async fn a_log_out_ends_one_session_and_everywhere_ends_all(on: StoreKind) {
    let running = Running::start(on).await;
    let (mut one, mut two) = (Browser::with(&running, ADMIN).await, Browser::with(&running, ADMIN).await);
    let stolen = one.cookies[SESSION].clone();
    one.press("/session", "/logout", &[]).await.is(303);
    assert!(!one.cookies.contains_key(SESSION));
    one.cookies.insert(SESSION.to_owned(), stolen);
    one.get("/").await.is(303);
    two.get("/").await.is(200);
    let mut three = Browser::with(&running, ADMIN).await;
    three.press("/session", "/logout-everywhere", &[]).await.is(303);
    two.get("/").await.is(303);
    Browser::with(&running, ADMIN).await.get("/").await.is(200);
    running.stop().await;
}

#[tokio::test]
async fn a_session_reads_the_api_and_changes_nothing_there() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::with(&running, ADMIN).await;
    browser.get("/v1/stats").await.is(200);
    browser.get("/v1/jobs").await.is(200);
    let id =
        running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await["deadLetterId"].clone();
    let requeue = format!("/v1/dead-letters/{}/requeue", id.as_str().unwrap());
    let origin = browser.origin.clone();
    for (method, path, body) in [
        (Method::POST, requeue.as_str(), ""),
        (Method::POST, "/v1/notifications", "{}"),
        (Method::POST, "/v1/keys", "{}"),
        (Method::PUT, "/v1/policies/global", "{}"),
        (Method::DELETE, "/v1/policies/global", ""),
    ] {
        browser.ask(method, path, &[("origin", &origin)], body.to_owned()).await.is(401);
    }
    // A wrong key is not mended by a session.
    browser.ask(Method::GET, "/v1/stats", &[("authorization", "Bearer wrong")], String::new()).await.is(401);
    running.stop().await;
}

#[tokio::test]
async fn an_access_token_does_not_log_in() {
    let signer = Signer::new(Algorithm::Hs256, "k");
    let running = Running::with(StoreKind::Sqlite, accepting(&signer)).await;
    let token = signer.token(&claims("a", "admin"));
    running.caller(Some(&token)).get("/v1/stats").await;
    let mut browser = Browser::new(running.address());
    let shown = browser.log_in(&token).await;
    assert!(shown.status == 403 && shown.text.contains("not known"), "{shown:?}");
    assert!(!browser.cookies.contains_key(SESSION));
    running.stop().await;
}

#[tokio::test]
async fn only_a_key_that_may_read_logs_in() {
    let running = Running::start(StoreKind::Sqlite).await;
    let sender = json!({"name": "s", "tenant": "acme", "role": "sender"});
    let sender = running.admin.post("/v1/keys", &sender).await.is(201)["key"].as_str().unwrap().to_owned();
    let mut browser = Browser::new(running.address());
    for (key, words) in [
        ("wrong", "not known, was revoked or has expired"),
        (sender.as_str(), "may only send"),
        ("<script>alert(1)</script>", "not known"),
    ] {
        let shown = browser.log_in(key).await;
        assert!(shown.status == 403 && shown.text.contains(words), "{key}: {shown:?}");
        assert!(!shown.text.contains(key), "the key is not shown");
        assert!(!browser.cookies.contains_key(SESSION));
        is_safe(&shown);
    }
    browser.log_in("").await.is(422);
    running.stop().await;
}

#[tokio::test]
async fn wrong_keys_are_slowed_and_a_right_one_is_not() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::new(running.address());
    for _ in 0..5 {
        browser.log_in("wrong").await.is(403);
    }
    // The API counts in the same place: so many that answers to this address are held back for seconds, as many as there may be.
    let (caller, counts) = (running.caller(Some("wrong")), async || failed_authentications(&running).await);
    join_all((0..30).map(|_| caller.ask(Method::GET, "/v1/stats", &[], ""))).await;
    let delayed = counts().await[1];
    let held_back = join_all((0..4).map(|_| caller.ask(Method::GET, "/v1/stats", &[], "")));
    let login = async {
        while counts().await[1] < delayed + 4 {}
        let shown = browser.log_in("wrong").await;
        assert!(shown.status == 429 && shown.text.contains("Too many wrong keys"), "{shown:?}");
        browser.log_in(ADMIN).await.is(303);
    };
    tokio::select! {
        _ = held_back => panic!("a right key waited for the wrong ones"),
        () = login => {}
    }
    running.stop().await;
}

#[tokio::test]
async fn a_login_comes_back_to_a_page_of_this_site_only() {
    let running = Running::start(StoreKind::Sqlite).await;
    for (to, wanted) in [
        ("/notifications?status=failed", "/notifications?status=failed"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example", "/"),
    ] {
        let mut browser = Browser::new(running.address());
        let shown = browser.press("/login", "/login", &[("key", ADMIN), ("to", to)]).await;
        shown.is(303);
        assert_eq!(shown.to(), wanted, "{to}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_form_to_log_in_is_its_own_and_comes_from_here() {
    let running = Running::start(StoreKind::Sqlite).await;
    let mut browser = Browser::new(running.address());
    let page = browser.get("/login").await.page();
    let fields = form(&[("token", &token_of(&page)), ("key", ADMIN)]);
    for origin in ["", "null", "http://evil.example", "https://127.0.0.1"] {
        let shown = browser.ask(Method::POST, "/login", &[("origin", origin)], fields.clone()).await;
        shown.is(403);
    }
    browser.send("/login", "/login", &[("token", "wrong"), ("key", ADMIN)]).await.is(403);
    assert!(!browser.cookies.contains_key(SESSION));
    running.stop().await;
}

/// The page to log in, as it is for whoever names this host.
async fn login_at(running: &Running, host: &str) -> String {
    let (address, host) = (running.address(), host.to_owned());
    let exchange = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /login HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

#[tokio::test]
async fn without_tls_and_from_afar_the_page_says_why_nobody_logs_in() {
    let running = Running::start(StoreKind::Sqlite).await;
    let far = login_at(&running, "posthaste.internal:7780").await;
    assert!(far.contains("This connection is not secure") && !far.contains("type=\"password\""), "{far}");
    assert!(login_at(&running, "localhost:7780").await.contains("type=\"password\""));
    running.stop().await;
    let public = |config: &mut Config| config.server.public_url = Some("https://ph.example".parse().unwrap());
    let running = Running::with(StoreKind::Sqlite, public).await;
    assert!(login_at(&running, "ph.example").await.contains("type=\"password\""));
    running.stop().await;
}
