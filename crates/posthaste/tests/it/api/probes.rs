//! Health, readiness, HEAD, and how the server says that it is stopping.

use std::time::Duration;

use http::Method;
use posthaste::http::openapi;
use serde_json::json;
use tokio::task::JoinSet;

use super::running::{ADMIN, Running, StoreKind, routes};

async fn the_probes_answer_anyone(on: StoreKind) {
    let running = Running::start(on).await;
    let nobody = running.caller(None);
    let health = nobody.get("/healthz").await;
    assert_eq!(health, json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "durability": "full"}));
    assert_eq!(nobody.get("/readyz").await, json!({"status": "ready"}));
    let told = nobody.ask(Method::GET, "/openapi.json", &[], "").await;
    assert_eq!(told.bytes, openapi::document().text);
    // Probes are often given something against caches, which is not for us.
    nobody.get("/healthz?t=1").await;
    running.stop().await;
}

async fn head_is_answered_as_get_without_the_body(on: StoreKind) {
    let running = Running::start(on).await;
    let shown = running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    let id = shown["notificationId"].as_str().unwrap();
    for route in routes().iter().filter(|route| route.method == Method::GET) {
        let path = route.path.replace("{id}", id).replace("{scope}", "global");
        let (get, head) = (
            running.admin.ask(Method::GET, &path, &[], "").await,
            running.admin.ask(Method::HEAD, &path, &[], "").await,
        );
        assert_eq!(
            (get.status, get.headers.get("content-type")),
            (head.status, head.headers.get("content-type")),
            "{path}"
        );
        assert!(head.bytes.is_empty(), "{path}");
    }
    running.caller(None).ask(Method::HEAD, "/v1/stats", &[], "").await.is(401);
    running.stop().await;
}

async fn a_server_whose_store_refuses_what_is_sent_is_not_ready(on: StoreKind) {
    let running = Running::start(on).await;
    let nobody = running.caller(None);
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    // Only what arrives is refused: outcomes are recorded, and the store can be read.
    let (refuse, serve) = match on {
        StoreKind::Sqlite => (
            "create trigger refuse before insert on notification begin insert into nowhere values (1); end",
            "drop trigger refuse",
        ),
        StoreKind::Postgres => (
            "create function refuse() returns trigger language plpgsql as
                $$ begin raise exception 'no room' using errcode = 'disk_full'; end $$;
             create trigger refuse before insert on notification execute function refuse()",
            "drop function refuse cascade",
        ),
    };
    running.change_store(refuse).await;
    let refused = running.admin.post("/v1/notifications", &running.webhook("/ok")).await;
    refused.problem(503, "STORE_UNAVAILABLE");
    let told = nobody.ask(Method::GET, "/readyz", &[], "").await.is(503);
    assert!(told["reason"].as_str().unwrap().contains("does not take what is sent"), "{told}");
    // Everything else goes on.
    nobody.get("/healthz").await;
    running.admin.get("/v1/stats").await;
    running.change_store(serve).await;
    running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
    assert_eq!(nobody.get("/readyz").await, json!({"status": "ready"}));
    running.stop().await;
}

async fn a_server_that_stops_says_so_takes_nothing_and_ends_what_is_under_way(on: StoreKind) {
    let running = Running::start(on).await;
    let (caller, sent) = (running.caller(Some(ADMIN)), running.webhook("/delay/2s"));
    let id = caller.send(&sent).await;
    let sink = async { running.sink.wait_for(1).await };
    tokio::time::timeout(Duration::from_secs(60), sink).await.unwrap();
    let mut stopping = JoinSet::new();
    stopping.spawn(running.stop());
    let unready = async {
        loop {
            let told = caller.ask(Method::GET, "/readyz", &[], "").await;
            if told.status == 503 {
                return told.json;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(10), unready).await.unwrap();
    assert_eq!(told, json!({"status": "notReady", "reason": "this node is stopping"}));
    let refused = caller.ask(Method::POST, "/v1/notifications", &[], sent.to_string()).await;
    refused.problem(503, "STOPPING");
    assert_eq!(refused.headers["retry-after"], "1");
    // Whoever asks about what is there is still answered.
    assert_eq!(caller.get(&format!("/v1/notifications/{id}")).await["state"], "processing");
    caller.get("/healthz").await;
    stopping.join_all().await;
}

on_each_store! {
    the_probes_answer_anyone;
    head_is_answered_as_get_without_the_body;
    a_server_whose_store_refuses_what_is_sent_is_not_ready;
    a_server_that_stops_says_so_takes_nothing_and_ends_what_is_under_way;
}
