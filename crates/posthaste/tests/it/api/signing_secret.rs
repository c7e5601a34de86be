//! `/v1/signing-secret` and `/signing-secret`: who sees a tenant's secret, what it signs, and what the audit says.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use posthaste_core::sealed::Key;
use posthaste_wire::sink::ReceivedRequest;
use serde_json::{Value, json};

use super::pages::{Browser, is_safe};
use super::running::{ADMIN, Caller, Running, StoreKind};

const PATH: &str = "/v1/signing-secret";
const ROTATE: &str = "/v1/signing-secret/rotate";

/// With a master key: of the settings, or in the file that the server makes.
async fn start(on: StoreKind) -> Running {
    Running::with(on, |config| {
        if on == StoreKind::Postgres {
            config.security.master_keys = vec![Key::new([7; Key::LENGTH])];
        }
    })
    .await
}

async fn admin_of(running: &Running, tenant: &str) -> Caller {
    running.caller(Some(&admin_key_of(running, tenant).await))
}

async fn admin_key_of(running: &Running, tenant: &str) -> String {
    let wanted = json!({"name": format!("admin of {tenant}"), "tenant": tenant, "role": "admin"});
    running.admin.post("/v1/keys", &wanted).await.is(201)["key"].as_str().unwrap().to_owned()
}

fn secret(shown: &Value) -> String {
    shown["secret"].as_str().unwrap().to_owned()
}

/// Which of the signatures of a delivery a secret made: none, or one.
fn fitting(arrived: &ReceivedRequest, secret: &str) -> usize {
    let header = |name: &str| {
        let found = arrived.headers.iter().find(|(given, _)| given == name);
        found.unwrap_or_else(|| panic!("no {name}: {:?}", arrived.headers)).1.clone()
    };
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    assert_eq!(key.len(), 32);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), arrived.body);
    let wanted = format!("v1,{}", STANDARD.encode(hmac::sign(&key, signed.as_bytes())));
    header("webhook-signature").split(' ').filter(|one| *one == wanted).count()
}

/// What arrives of a webhook that is sent now.
async fn delivered(running: &Running, by: &Caller) -> ReceivedRequest {
    let shown = by.send_until(&running.webhook("/ok"), "succeeded").await;
    let arrivals = running.sink.arrivals();
    arrivals.into_iter().find(|one| one.id.as_deref() == shown["notificationId"].as_str()).unwrap()
}

fn signatures(arrived: &ReceivedRequest) -> usize {
    let header = arrived.headers.iter().find(|(name, _)| name == "webhook-signature");
    header.map_or(0, |(_, value)| value.split(' ').count())
}

async fn a_tenant_has_a_secret_that_signs_its_webhooks_and_can_be_rotated(on: StoreKind) {
    let running = start(on).await;
    let (acme, other) = (admin_of(&running, "acme").await, admin_of(&running, "other").await);
    // The first webhook makes it, or the first look.
    let before = delivered(&running, &acme).await;
    let first = acme.get(PATH).await;
    assert_eq!(first["previous"], Value::Null);
    assert_eq!((signatures(&before), fitting(&before, &secret(&first))), (1, 1));
    let others = other.get(PATH).await;
    assert_ne!(secret(&others), secret(&first));
    assert_eq!(fitting(&delivered(&running, &other).await, &secret(&others)), 1);
    assert_eq!(fitting(&delivered(&running, &acme).await, &secret(&others)), 0);
    // A rotation: both sign.
    let second = acme.ask(Method::POST, ROTATE, &[], "").await.is(200).clone();
    assert!(second["previous"]["expiresAt"].as_str().unwrap() > second["createdAt"].as_str().unwrap());
    assert_eq!(secret(&acme.get(PATH).await), secret(&second));
    let both = delivered(&running, &acme).await;
    assert_eq!(signatures(&both), 2);
    assert_eq!([&first, &second].map(|one| fitting(&both, &secret(one))), [1, 1]);
    // Two more: the header stays short, and the oldest one ends.
    let third = acme.post(ROTATE, &json!({})).await.is(200).clone();
    let fourth = acme.post(ROTATE, &json!({})).await.is(200).clone();
    let last = delivered(&running, &acme).await;
    assert_eq!(signatures(&last), 3);
    assert_eq!([&first, &second, &third, &fourth].map(|one| fitting(&last, &secret(one))), [0, 1, 1, 1]);
    // It is kept, and not as it is.
    let kept = String::from_utf8_lossy(&running.everything_kept().await).into_owned();
    for shown in [&first, &others, &second, &third, &fourth] {
        let secret = secret(shown);
        let bare = secret.strip_prefix("whsec_").unwrap();
        assert!(
            !kept.contains(bare) && !kept.contains(&STANDARD.encode(&secret)),
            "a secret is in the store"
        );
    }
    let running = running.restart().await;
    let acme = admin_of(&running, "acme").await;
    assert_eq!(secret(&acme.get(PATH).await), secret(&fourth));
    assert_eq!(fitting(&delivered(&running, &acme).await, &secret(&fourth)), 1);
    running.stop().await;
}

async fn each_look_is_in_the_audit_with_key_and_address(on: StoreKind) {
    let running = start(on).await;
    let acme = admin_of(&running, "acme").await;
    acme.get(PATH).await;
    acme.get(PATH).await;
    acme.ask(Method::POST, ROTATE, &[], "").await.is(200);
    running.admin.get(&format!("{PATH}?tenant=acme")).await;
    let rows = acme.all("/v1/audit?target=signing-secret").await;
    let told: Vec<(&str, bool)> =
        rows.iter().map(|row| (row["action"].as_str().unwrap(), row["keyId"].is_string())).collect();
    let (show, rotate) = ("show-signing-secret", "rotate-signing-secret");
    assert_eq!(told, [(show, false), (rotate, true), (show, true), (show, true)]);
    for row in &rows {
        assert_eq!((&row["address"], &row["tenant"]), (&json!("127.0.0.1"), &json!("acme")), "{row}");
        assert!(!row.to_string().contains("whsec_"), "{row}");
    }
    assert_eq!(rows[0]["actor"], "admin");
    // The tenant's own, and nobody else's.
    let other = admin_of(&running, "other").await;
    assert!(other.all("/v1/audit?target=signing-secret").await.is_empty());
    running.stop().await;
}

async fn only_an_admin_asks_and_one_for_all_says_whose(on: StoreKind) {
    let running = start(on).await;
    let acme = admin_of(&running, "acme").await;
    let tenant = running.tenant("acme").await;
    let told = running.admin.ask(Method::GET, PATH, &[], "").await;
    assert_eq!(told.problem(422, "VALIDATION_FAILED")["parameter"], "tenant");
    running.admin.ask(Method::POST, ROTATE, &[], "").await.problem(422, "VALIDATION_FAILED");
    for (query, status) in
        [("tenant=acme", 200), ("tenant=Not%20one", 422), ("tenant=posthaste", 422), ("x=1", 422)]
    {
        let told = running.admin.ask(Method::GET, &format!("{PATH}?{query}"), &[], "").await;
        assert_eq!(told.status, status, "{query}: {}", told.json);
    }
    acme.get(&format!("{PATH}?tenant=acme")).await;
    for method in [Method::GET, Method::POST] {
        let path = if method == Method::GET { PATH } else { ROTATE };
        acme.ask(method.clone(), &format!("{path}?tenant=other"), &[], "").await.problem(403, "FORBIDDEN");
        tenant.ask(method, path, &[], "").await.problem(403, "FORBIDDEN");
    }
    acme.post(ROTATE, &json!({"overlap": "1h"})).await.problem(422, "VALIDATION_FAILED");
    let told = acme.ask(Method::GET, PATH, &[], "").await;
    assert_eq!(told.headers["cache-control"], "no-store");
    running.stop().await;
}

async fn the_page_shows_a_secret_only_when_it_is_asked_to(on: StoreKind) {
    let running = start(on).await;
    let key = admin_key_of(&running, "acme").await;
    let acme = running.caller(Some(&key));
    let mut browser = Browser::with(&running, &key).await;
    let looks = async || acme.all("/v1/audit?target=signing-secret").await.len();
    let page = browser.get("/signing-secret").await.page();
    assert!(
        page.contains("Show the secret") && page.contains("not yet") && !page.contains("whsec_"),
        "{page}"
    );
    assert!(page.contains("href=\"/signing-secret\""), "the navigation has it: {page}");
    let first = secret(&acme.get(PATH).await);
    let page = browser.get("/signing-secret").await.page();
    assert!(page.contains("hidden") && !page.contains("whsec_"), "{page}");
    assert_eq!(looks().await, 1);
    let shown = browser.press("/signing-secret", "/signing-secret/show", &[]).await;
    is_safe(&shown);
    // A plus sign is written as a reference.
    assert!(shown.page().replace("&#43;", "+").contains(&first), "the secret is not shown");
    assert_eq!(looks().await, 2);
    let shown = browser.press("/signing-secret", "/signing-secret/rotate", &[]).await.page();
    assert!(
        shown.contains("whsec_") && shown.contains("signs, too, until") && !shown.contains(&first),
        "{shown}"
    );
    assert_eq!(looks().await, 3);
    // Somebody for all tenants says whose.
    let mut admin = Browser::with(&running, ADMIN).await;
    let page = admin.get("/signing-secret").await.page();
    assert!(page.contains("name=\"tenant\"") && !page.contains("Show the secret"), "{page}");
    let page = admin.get("/signing-secret?tenant=acme").await.page();
    assert!(page.contains("Show the secret") && !page.contains("whsec_"), "{page}");
    let shown = admin.press("/signing-secret", "/signing-secret/show", &[("tenant", "acme")]).await.page();
    assert!(shown.contains("whsec_"), "{shown}");
    admin.press("/signing-secret", "/signing-secret/show", &[]).await.is(422);
    admin.get("/signing-secret?tenant=Not%20one").await.is(200);
    browser.get("/signing-secret?tenant=other").await.is(403);
    browser.press("/signing-secret", "/signing-secret/show", &[("tenant", "other")]).await.is(403);
    running.stop().await;
}

on_each_store! {
    a_tenant_has_a_secret_that_signs_its_webhooks_and_can_be_rotated;
    each_look_is_in_the_audit_with_key_and_address;
    only_an_admin_asks_and_one_for_all_says_whose;
    the_page_shows_a_secret_only_when_it_is_asked_to;
}

#[tokio::test]
async fn another_node_signs_with_a_new_secret_within_seconds() {
    let running = start(StoreKind::Postgres).await;
    let (server, elsewhere) = running.another_node().await;
    let there = elsewhere.get(&format!("{PATH}?tenant=default")).await;
    assert_eq!(fitting(&delivered(&running, &running.admin).await, &secret(&there)), 1);
    let rotated =
        elsewhere.ask(Method::POST, &format!("{ROTATE}?tenant=default"), &[], "").await.is(200).clone();
    let until = std::time::Instant::now() + Duration::from_secs(15);
    // It sends all the time, so it reads again what it uses.
    while fitting(&delivered(&running, &running.admin).await, &secret(&rotated)) == 0 {
        assert!(std::time::Instant::now() < until, "the other node does not learn of the rotation");
    }
    server.stop().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn without_a_master_key_webhooks_go_unsigned_and_the_answer_says_what_to_set() {
    let running = Running::start(StoreKind::Postgres).await;
    let arrived = delivered(&running, &running.admin).await;
    assert_eq!(signatures(&arrived), 0);
    for (method, path) in [(Method::GET, PATH), (Method::POST, ROTATE)] {
        let told = running.admin.ask(method, &format!("{path}?tenant=acme"), &[], "").await;
        let problem = told.problem(409, "MASTER_KEY_MISSING").clone();
        assert!(problem["detail"].as_str().unwrap().contains("POSTHASTE_MASTER_KEY"), "{problem}");
    }
    let mut admin = Browser::with(&running, ADMIN).await;
    let page = admin.get("/signing-secret?tenant=acme").await.page();
    assert!(page.contains("POSTHASTE_MASTER_KEY"), "{page}");
    admin.press("/signing-secret", "/signing-secret/show", &[("tenant", "acme")]).await.is(409);
    running.stop().await;
}
