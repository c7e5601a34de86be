//! Webhooks through the proxy of the configuration, and what the guard says of them.

use posthaste_wire::http::Proxy;
use serde_json::json;
use tokio::net::TcpSocket;

use super::responses::receiver;
use super::running::{Running, StoreKind, quick};

async fn webhooks_go_through_the_proxy_which_resolves_their_names(on: StoreKind) {
    let (url, _proxy) = receiver(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()).await;
    let running = Running::with(on, |config| {
        config.webhooks.proxy = Some(Proxy::parse(&url).unwrap());
        config.security.allow_subnets = vec![];
    })
    .await;
    let send = |to: &str| json!({"channel": "webhook", "to": to, "body": "x", "policy": quick(1)});
    // No resolver knows it, and the proxy stands on loopback, which is not allowed for receivers.
    let sent = running.admin.send_until(&send("http://hooks.invalid/in"), "succeeded").await;
    assert_eq!(sent["destination"], "http://hooks.invalid:80");
    for forbidden in
        ["http://127.0.0.1/", "https://localhost/", "http://[::1]/", "http://metadata.google.internal/"]
    {
        let told = running.admin.post("/v1/notifications", &send(forbidden)).await;
        assert_eq!(told.problem(422, "DESTINATION_FORBIDDEN")["pointer"], "/to", "{forbidden}");
    }
    running.stop().await;
}

async fn a_proxy_that_is_down_fails_the_attempt_and_is_named(on: StoreKind) {
    // A port that is taken and not listened on refuses connections, and nobody else can get it.
    let port = TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", port.local_addr().unwrap());
    let running = Running::with(on, |config| config.webhooks.proxy = Some(Proxy::parse(&url).unwrap())).await;
    let send = json!({"channel": "webhook", "to": "http://hooks.invalid/", "body": "x", "policy": quick(1)});
    let dead = running.admin.send_until(&send, "deadLetter").await;
    let attempt = &dead["attempts"][0];
    assert_eq!(attempt["failureType"], "networkFailure", "{attempt}");
    assert!(attempt["error"].as_str().unwrap().starts_with("the proxy http://127.0.0.1:"), "{attempt}");
    running.stop().await;
}

on_each_store! {
    webhooks_go_through_the_proxy_which_resolves_their_names;
    a_proxy_that_is_down_fails_the_attempt_and_is_named;
}
