//! The client that the commands speak through.

use std::sync::Arc;
use std::time::Duration;

use posthaste::client::{Client, ClientError};
use posthaste::clock::SystemClock;
use posthaste_wire::sink::{Sink, SinkOptions};
use serde_json::json;
use tokio::net::TcpListener;

async fn sink(address: &str) -> Sink {
    Sink::start(address.parse().unwrap(), SinkOptions::new(Arc::new(SystemClock))).await.unwrap()
}

#[tokio::test]
async fn one_connection_serves_all_calls() {
    let sink = sink("127.0.0.1:0").await;
    let client = Client::new(&sink.url(""), None).unwrap();
    for _ in 0..5 {
        assert_eq!(client.get("/ok").await.unwrap().status, 200);
        assert_eq!(client.post("/status/503", &json!({"a": 1})).await.unwrap().status, 503);
    }
    assert_eq!((sink.accepted(), sink.received()), (1, 10));
}

#[tokio::test]
async fn a_server_that_came_back_is_spoken_to_again() {
    let first = sink("127.0.0.1:0").await;
    let address = first.address().to_string();
    let client = Client::new(&first.url(""), None).unwrap();
    assert_eq!(client.get("/ok").await.unwrap().status, 200);
    first.stop().await;
    let gone = client.get("/ok").await.unwrap_err();
    assert!(matches!(gone, ClientError::Connect { .. }), "{gone:?}");
    let second = sink(&address).await;
    assert_eq!(client.post("/ok", &json!({})).await.unwrap().status, 200);
    assert_eq!(second.received(), 1);
}

#[tokio::test]
async fn an_exchange_that_was_given_up_leaves_nothing_for_the_next() {
    let sink = sink("127.0.0.1:0").await;
    let client = Client::new(&sink.url(""), None).unwrap();
    assert_eq!(client.get("/ok").await.unwrap().status, 200);
    tokio::select! {
        answer = client.get("/hang") => panic!("{answer:?}"),
        () = sink.wait_for(2) => {}
    }
    assert_eq!(client.get("/status/201").await.unwrap().status, 201);
    assert_eq!(sink.accepted(), 2);
}

#[tokio::test]
async fn a_connection_that_is_reset_is_an_error_that_names_the_server() {
    let sink = sink("127.0.0.1:0").await;
    let client = Client::new(&sink.url(""), None).unwrap();
    let error = client.post("/reset", &json!({})).await.unwrap_err();
    assert!(matches!(error, ClientError::Exchange { .. }), "{error:?}");
    assert!(error.to_string().contains(&sink.url("")), "{error}");
    assert_eq!(sink.received(), 1, "what may have arrived is not sent again");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(&url, None).unwrap().within(Duration::from_millis(20));
    let error = client.get("/").await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
}
