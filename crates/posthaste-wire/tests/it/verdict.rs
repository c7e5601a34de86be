//! The head of an answer is the verdict, whatever becomes of its body.

use std::time::Duration;

use posthaste_core::notification::Body;
use posthaste_core::reply::{Answer, Fault, Reply, RetryAfter};
use posthaste_engine::channel::Channel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::rig::{LONG, Peer, channel, delivery, fault, notification, options, read_request, send, status};

/// What a peer does once it has written its answer.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Writes no more and keeps the connection open.
    Waits,
    /// Writes on and on.
    Drips,
    /// Closes the connection.
    Closes,
    /// Resets the connection.
    Resets,
}

/// A peer that reads one request on each connection and leaves its answer unfinished. It reports when it is
/// done with a connection.
async fn unfinished(answer: &'static str, then: Then) -> (Peer, mpsc::UnboundedReceiver<()>) {
    let (tell, told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            end(stream, then).await;
            let _ = tell.send(());
        }
    });
    (peer.await, told)
}

async fn end(mut stream: TcpStream, then: Then) {
    match then {
        Then::Waits => drop(stream.read(&mut [0]).await),
        Then::Drips => {
            while stream.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Then::Closes => {}
        Then::Resets => stream.set_zero_linger().unwrap(),
    }
}

const UNFINISHED: [(&str, u16, Option<u64>); 9] = [
    ("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc", 200, None),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", 200, None),
    ("HTTP/1.1 204 No Content\r\n\r\nabc", 204, None),
    ("HTTP/1.1 400 Bad\r\ncontent-length: 1000\r\n\r\nabc", 400, None),
    ("HTTP/1.1 410 Gone\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", 410, None),
    ("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 1000\r\n\r\nabc", 429, Some(7)),
    ("HTTP/1.1 503 Busy\r\nretry-after: 9\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", 503, Some(9)),
    ("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", 200, None),
    ("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n", 500, None),
];

#[tokio::test]
async fn an_answer_whose_body_does_not_end_or_breaks_off_counts_as_its_head_says() {
    let mut sends = JoinSet::new();
    for then in [Then::Waits, Then::Drips, Then::Closes, Then::Resets] {
        for (answer, code, wait) in UNFINISHED {
            sends.spawn(counts_as_its_head_says(answer, then, code, wait));
        }
    }
    sends.join_all().await;
}

async fn counts_as_its_head_says(answer: &'static str, then: Then, code: u16, wait: Option<u64>) {
    let (peer, mut told) = unfinished(answer, then).await;
    let reply = send(&channel(options()), &peer.url()).await;
    let Reply { answer: Answer::Http { status, retry_after }, text, .. } = reply else {
        panic!("{answer:?} {then:?}: {reply:?}")
    };
    let wait = wait.map(|secs| RetryAfter::In(Duration::from_secs(secs)));
    assert_eq!((status, retry_after), (code, wait), "{answer:?} {then:?}");
    let has_body = answer.contains("abc") && status != 204;
    assert!(!has_body || text.starts_with("abc"), "{answer:?} {then:?}: {text:?}");
    // The connection is closed from our side too: a peer that waits or drips would otherwise never be done.
    told.recv().await.unwrap();
}

#[tokio::test]
async fn a_connection_whose_body_was_not_read_to_the_end_is_not_used_again() {
    for then in [Then::Waits, Then::Drips, Then::Closes, Then::Resets] {
        let (peer, mut told) = unfinished(UNFINISHED[0].0, then).await;
        let channel = channel(options());
        for sends in 1..=2 {
            assert_eq!(status(&send(&channel, &peer.url()).await), 200);
            told.recv().await.unwrap();
            assert_eq!(peer.accepted(), sends, "{then:?}");
        }
    }
}

#[tokio::test]
async fn a_connection_whose_body_arrived_in_pieces_is_used_again() {
    let peer = Peer::start(|mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            for piece in ["HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n", "abc", "def"] {
                let _ = stream.write_all(piece.as_bytes()).await;
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let channel = channel(options());
    for _ in 0..3 {
        let whole = Reply { text: "abcdef".to_owned(), ..Reply::http(200) };
        assert_eq!(send(&channel, &peer.url()).await, whole);
    }
    assert_eq!(peer.accepted(), 1);
}

#[tokio::test]
async fn a_head_shortly_before_the_deadline_is_the_verdict_even_under_the_timer_of_the_engine() {
    const TIMEOUT: Duration = Duration::from_millis(150);
    for then in [Then::Waits, Then::Drips] {
        let (peer, _told) = unfinished(UNFINISHED[0].0, then).await;
        let channel = channel(options());
        let url = peer.url();
        let sent = tokio::time::timeout(TIMEOUT, channel.send(delivery(notification(&url), TIMEOUT)));
        assert_eq!(status(&sent.await.expect("the reply comes before the timer ends")), 200);
    }
}

#[tokio::test]
async fn informational_heads_without_end_are_no_verdict() {
    let peer = Peer::start(|mut stream| async move {
        read_request(&mut stream).await;
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let sent = delivery(notification(&peer.url()), Duration::from_millis(150));
    let reply = channel(options()).send(sent).await;
    assert_eq!(fault(&reply).0, Fault::Timeout, "{reply:?}");
}

/// More than the buffers of two sockets hold, so that the request is still on its way when the answer comes.
const LARGE: usize = 16 * 1024 * 1024;

#[tokio::test]
async fn a_receiver_that_answers_before_it_has_read_the_request_has_answered() {
    for then in [Then::Waits, Then::Closes, Then::Resets] {
        let peer = Peer::start(move |mut stream| async move {
            stream.read_exact(&mut [0; 100]).await.unwrap();
            let answer = b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nabc";
            stream.write_all(answer).await.unwrap();
            end(stream, then).await;
        })
        .await;
        let mut large = notification(&peer.url());
        large.content.body = Body::Text("x".repeat(LARGE));
        let reply = channel(options()).send(delivery(large, LONG)).await;
        assert_eq!(status(&reply), 413, "{then:?}");
    }
}
