//! What goes out and what comes back when all is well.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::notification::Body;
use posthaste_core::reply::{Fault, Reply, RetryAfter};
use posthaste_engine::channel::Channel;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::rig::{
    LONG, Peer, channel, delivery, fault, notification, options, read_request, send, sink, status,
};

/// A peer that says 204 and passes on what it read.
async fn listener() -> (Peer, mpsc::UnboundedReceiver<String>) {
    let (tell, told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                tell.send(request).unwrap();
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            }
        }
    });
    (peer.await, told)
}

#[tokio::test]
async fn a_webhook_is_a_post_with_the_headers_of_the_contract() {
    let (peer, mut told) = listener().await;
    let mut notification = notification(&format!("{}?a=b#c", peer.url()));
    notification.content.headers.insert("X-Own".to_owned(), "yes".to_owned());
    let id = notification.id.to_string();
    let reply = channel(options()).send(delivery(notification, LONG)).await;
    assert_eq!(reply, Reply::http(204));
    let request = told.recv().await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /hook?a=b HTTP/1.1");
    lines.sort_unstable();
    let expected = [
        "content-length: 10",
        "content-type: application/json",
        &format!("host: {}", peer.address),
        "posthaste-attempt: 3",
        concat!("user-agent: Posthaste/", env!("CARGO_PKG_VERSION")),
        &format!("webhook-id: {id}"),
        "webhook-timestamp: 1700000000",
        "x-own: yes",
    ];
    assert_eq!(lines, expected);
    assert_eq!(body, "{\"a\": 1.0}");
}

#[tokio::test]
async fn text_goes_as_text_unless_the_notification_names_its_type() {
    let (peer, mut told) = listener().await;
    let channel = channel(options());
    let mut notification = notification(&peer.url());
    notification.content.body = Body::Text("grüß\r\n".to_owned());
    channel.send(delivery(notification.clone(), LONG)).await;
    let request = told.recv().await.unwrap();
    assert!(request.contains("\r\ncontent-type: text/plain; charset=utf-8\r\n"), "{request}");
    assert!(
        request.contains("\r\ncontent-length: 8\r\n") && request.ends_with("\r\n\r\ngrüß\r\n"),
        "{request}"
    );
    notification.content.headers.insert("Content-Type".to_owned(), "text/csv".to_owned());
    notification.content.body = Body::Text(String::new());
    channel.send(delivery(notification, LONG)).await;
    let request = told.recv().await.unwrap();
    assert!(
        request.contains("\r\ncontent-type: text/csv\r\n") && !request.contains("text/plain"),
        "{request}"
    );
    assert!(request.contains("\r\ncontent-length: 0\r\n"), "{request}");
}

#[tokio::test]
async fn a_header_that_would_inject_another_is_not_sent() {
    let sink = sink().await;
    for (name, value) in
        [("x-a", "1\r\nx-b: 2"), ("x-a\r\nx-b", "1"), ("x-a", "\0"), ("webhook-id", "ntf_x"), ("Host", "x")]
    {
        let mut notification = notification(&sink.url("/ok"));
        notification.content.headers.insert(name.to_owned(), value.to_owned());
        let reply = channel(options()).send(delivery(notification, LONG)).await;
        assert_eq!(fault(&reply).0, Fault::Unsendable, "{name:?}");
    }
    assert_eq!(sink.accepted(), 0);
}

#[tokio::test]
async fn what_is_no_url_is_unsendable() {
    let reply = send(&channel(options()), "mailto:someone@example.com").await;
    assert_eq!(fault(&reply), (Fault::Unsendable, "the URL must start with http:// or https://"));
}

#[tokio::test]
async fn an_answer_is_told_with_status_text_and_retry_after() {
    let sink = sink().await;
    let channel = channel(options());
    let reply = send(&channel, &sink.url("/retry-after/429/5")).await;
    let wait = Some(RetryAfter::In(Duration::from_secs(5)));
    let told = Reply { text: "failed as told".to_owned(), ..Reply::http_after(429, wait) };
    assert_eq!(Reply { content_type: None, ..reply }, told);
    for (told, code) in [("/ok", 200), ("/status/404", 404), ("/status/500", 500), ("/status/204", 204)] {
        assert_eq!(status(&send(&channel, &sink.url(told)).await), code);
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let sink = sink().await;
    let to = sink.url("/ok");
    let peer =
        Peer::answering(format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")).await;
    assert_eq!(status(&send(&channel(options()), &peer.url()).await), 302);
    assert_eq!((peer.accepted(), sink.accepted()), (1, 0));
}

#[tokio::test]
async fn the_excerpt_of_an_answer_is_text_whatever_its_bytes_are() {
    let head = b"HTTP/1.1 500 No\r\ncontent-type: text/x\xff\r\ncontent-length: 4\r\n\r\n".to_vec();
    let peer = Peer::answering([head, b"\xffab\0".to_vec()].concat()).await;
    let reply = send(&channel(options()), &peer.url()).await;
    assert_eq!(reply.text, "\u{fffd}ab\u{fffd}");
    assert_eq!(reply.content_type.as_deref(), Some("text/x\u{fffd}"));
}

#[tokio::test]
async fn an_informational_answer_is_passed_over() {
    let answer = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let peer = Peer::answering(answer).await;
    assert_eq!(status(&send(&channel(options()), &peer.url()).await), 200);
}

#[tokio::test]
async fn a_name_is_connected_to_at_its_checked_address() {
    let sink = sink().await;
    let names = crate::rig::Names([("hooks.test", vec![crate::rig::LOCALHOST])].into());
    let mut options = options();
    options.resolver = Arc::new(names);
    let url = format!("http://HOOKS.test.:{}/ok", sink.address().port());
    assert_eq!(status(&send(&channel(options), &url).await), 200);
}
