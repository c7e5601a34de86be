//! What a receiver said when an attempt failed: kept in part, shown with one notification and nowhere else.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::running::{Running, StoreKind, quick};

/// A receiver that answers every request with these bytes; it ends with the test.
pub(super) async fn receiver(answer: Vec<u8>) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut running = JoinSet::new();
    running.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The head and the small body of a test arrive together.
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, running)
}

async fn the_start_of_a_failed_answer_is_shown_with_the_notification_only(on: StoreKind) {
    let running = Running::start(on).await;
    let page = format!("<h1>down\u{7f}</h1>{}", "ü".repeat(3_000));
    let head = format!("HTTP/1.1 503 x\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
    let (url, _receiver) = receiver([head.as_bytes(), page.as_bytes()].concat()).await;
    let send = json!({"channel": "webhook", "to": url, "body": "x", "policy": quick(2)});
    let shown = running.admin.send_until(&send, "deadLetter").await;
    for attempt in shown["attempts"].as_array().unwrap() {
        let response = &attempt["response"];
        assert_eq!(response["contentType"], "text/html", "{attempt}");
        let excerpt = response["excerpt"].as_str().unwrap();
        assert!(excerpt.starts_with("<h1>down\u{fffd}</h1>ü") && excerpt.len() <= 2_048, "{excerpt}");
        assert!(excerpt.len() > 2_040, "{}", excerpt.len());
    }
    let id = shown["deadLetterId"].as_str().unwrap();
    let letter = running.admin.get(&format!("/v1/dead-letters/{id}")).await;
    let lists = running.admin.all("/v1/dead-letters").await;
    for letter in lists.iter().chain([&letter]) {
        let made = letter["attempts"].as_array().unwrap();
        assert_eq!(made.len(), 2);
        assert!(made.iter().all(|attempt| attempt["response"] == Value::Null), "{letter}");
    }
    running.stop().await;
}

async fn a_delivery_and_an_answer_without_a_body_have_no_response(on: StoreKind) {
    let running = Running::start(on).await;
    let sent = running.admin.send_until(&running.webhook("/sequence/503,200"), "succeeded").await;
    let responses: Vec<&Value> =
        sent["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["response"]).collect();
    assert_eq!(responses, [&json!({"contentType": "text/plain", "excerpt": "failed as told"}), &Value::Null]);
    let empty = b"HTTP/1.1 503 x\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n".to_vec();
    let (url, _receiver) = receiver(empty).await;
    let send = json!({"channel": "webhook", "to": url, "body": "x", "policy": quick(1)});
    let shown = running.admin.send_until(&send, "deadLetter").await;
    assert_eq!(shown["attempts"][0]["response"], Value::Null);
    running.stop().await;
}

on_each_store! {
    the_start_of_a_failed_answer_is_shown_with_the_notification_only;
    a_delivery_and_an_answer_without_a_body_have_no_response;
}
