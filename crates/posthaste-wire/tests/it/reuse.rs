//! Connections are kept, bounded, and never trusted.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::reply::Fault;
use posthaste_wire::http::{HttpOptions, PoolLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use crate::rig::{LONG, Peer, channel, fault, options, read_request, send, sink, status};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn one_after_the_other_they_share_a_connection() {
    let sink = sink().await;
    let channel = channel(options());
    for path in ["/ok", "/status/503", "/status/204", "/retry-after/429/1", "/ok?x=y"].repeat(10) {
        status(&send(&channel, &sink.url(path)).await);
    }
    assert_eq!((sink.received(), sink.accepted()), (50, 1));
}

#[tokio::test]
async fn side_by_side_they_use_as_many_connections_as_they_are() {
    let sink = Arc::new(sink().await);
    let channel = Arc::new(channel(options()));
    for _ in 0..5 {
        let start = Arc::new(Barrier::new(8));
        let mut senders = JoinSet::new();
        for _ in 0..8 {
            let (channel, sink, start) = (channel.clone(), sink.clone(), start.clone());
            senders.spawn(async move {
                start.wait().await;
                status(&send(&channel, &sink.url("/ok")).await)
            });
        }
        assert_eq!(senders.join_all().await, [200; 8]);
    }
    assert_eq!(sink.received(), 40);
    assert!(sink.accepted() <= 8, "{}", sink.accepted());
}

#[tokio::test]
async fn an_answer_of_some_length_is_read_to_its_end_to_keep_the_connection() {
    let body = "a".repeat(40_000);
    let sized = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for answer in [sized, chunked] {
        let peer = Peer::answering(answer).await;
        let channel = channel(options());
        for _ in 0..3 {
            assert_eq!(status(&send(&channel, &peer.url()).await), 200);
        }
        assert_eq!(peer.accepted(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_the_receiver_wants_closed_is_not_kept() {
    for answer in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let peer = Peer::answering(answer).await;
        let channel = channel(options());
        for _ in 0..2 {
            assert_eq!(status(&send(&channel, &peer.url()).await), 200);
        }
        assert_eq!(peer.accepted(), 2, "{answer:?}");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_waited_is_replaced() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            drop(stream);
            tell.send(()).unwrap();
        }
    });
    let peer = peer.await;
    let channel = channel(options());
    for _ in 0..5 {
        assert_eq!(status(&send(&channel, &peer.url()).await), 200);
        told.recv().await.unwrap();
        // The runtime looks at its sockets before it goes on here, so the end of the connection is known.
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.accepted(), 5);
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_not_sent_again() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            // The second request is read and never answered.
            tell.send(read_request(&mut stream).await.is_some()).unwrap();
        }
    });
    let peer = peer.await;
    let channel = channel(options());
    assert_eq!(status(&send(&channel, &peer.url()).await), 200);
    assert_eq!(fault(&send(&channel, &peer.url()).await).0, Fault::Reset);
    assert_eq!(told.recv().await, Some(true));
    assert_eq!(peer.accepted(), 1);
}

#[tokio::test]
async fn the_pool_is_bounded_for_a_destination_and_as_a_whole() {
    let limits = [
        PoolLimits { per_destination: 2, ..PoolLimits::default() },
        PoolLimits { total: 2, ..PoolLimits::default() },
    ];
    for pool in limits {
        let (tell, mut told) = mpsc::unbounded_channel();
        let together = Arc::new(Barrier::new(5));
        let waits = together.clone();
        let peer = Peer::start(move |mut stream| {
            let (tell, together) = (tell.clone(), waits.clone());
            async move {
                read_request(&mut stream).await;
                together.wait().await;
                stream.write_all(OK).await.unwrap();
                let _ = stream.read(&mut [0]).await;
                tell.send(()).unwrap();
            }
        });
        let peer = peer.await;
        let channel = channel(HttpOptions { pool, ..options() });
        let url = peer.url();
        let replies = tokio::join!(
            send(&channel, &url),
            send(&channel, &url),
            send(&channel, &url),
            send(&channel, &url),
            send(&channel, &url),
        );
        assert_eq!(status(&replies.0), 200);
        assert_eq!(peer.accepted(), 5);
        for _ in 0..3 {
            told.recv().await.unwrap();
        }
        tokio::task::yield_now().await;
        assert!(told.try_recv().is_err(), "more than three were closed");
    }
}

#[tokio::test]
async fn a_connection_that_waits_too_long_is_closed_without_another_send() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            tell.send(stream.read(&mut [0]).await.unwrap()).unwrap();
        }
    });
    let pool = PoolLimits { idle: Duration::from_millis(1), ..PoolLimits::default() };
    let channel = channel(HttpOptions { pool, ..options() });
    let peer = peer.await;
    assert_eq!(status(&send(&channel, &peer.url()).await), 200);
    let closed = tokio::time::timeout(LONG, told.recv()).await;
    assert_eq!(closed, Ok(Some(0)));
}
