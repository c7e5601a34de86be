//! The id of a request: in its answer, in its problem, and in the log lines of what it did.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::ClientResponse;
use serde_json::{Value, json};

use super::program::{Home, Program, eventually, post};

async fn ask(program: &Program, path: &str, id: &'static str) -> ClientResponse {
    let header = (HeaderName::from_static("x-request-id"), HeaderValue::from_static(id));
    program.client().send(Method::POST, path, &[header], Bytes::new()).await.unwrap()
}

#[tokio::test]
async fn an_act_is_in_the_log_with_the_id_of_its_request() {
    let home = Home::new(&[]);
    let program = home.start().await;
    let sent = json!({"channel": "webhook", "to": "https://example.com", "body": 1, "notBefore": "1h"});
    let sent = post(&program.client(), "/v1/notifications", &sent).await;
    let cancel = format!("/v1/notifications/{}/cancel", sent["notificationId"].as_str().unwrap());
    let done = ask(&program, &cancel, "trace-4711").await;
    assert_eq!(done.status, StatusCode::ACCEPTED);
    assert_eq!(done.headers["x-request-id"], "trace-4711");
    let seen = eventually(async || program.log().contains("trace-4711").then_some(())).await;
    assert!(seen.is_some(), "{}", program.log());
    let again = ask(&program, &cancel, "trace-4712").await;
    let problem: Value = serde_json::from_slice(&again.body).unwrap();
    assert_eq!((again.status, &problem["requestId"]), (StatusCode::CONFLICT, &json!("trace-4712")));
    program.stop().await;
}
