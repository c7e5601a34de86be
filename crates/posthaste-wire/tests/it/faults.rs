//! Every way to get no answer, on real sockets.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::reply::{Fault, Reply};
use posthaste_engine::channel::Channel;
use posthaste_wire::guard::Guard;
use posthaste_wire::http::HttpOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::rig::{
    LOCALHOST, LONG, Names, Peer, channel, delivery, fault, notification, options, read_request, send, sink,
    status,
};

const DEADLINE: Duration = Duration::from_millis(150);
/// What a busy machine may add to a deadline.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Sends with a deadline and expects it to be kept.
async fn until_deadline(to: &str) -> String {
    let began = Instant::now();
    let reply = channel(options()).send(delivery(notification(to), DEADLINE)).await;
    let took = began.elapsed();
    assert!((DEADLINE..DEADLINE + TOLERANCE).contains(&took), "{took:?}");
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Timeout, "{text}");
    text.to_owned()
}

async fn free_port() -> u16 {
    TcpListener::bind((LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let reply = send(&channel(options()), &format!("http://127.0.0.1:{}/", free_port().await)).await;
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Refused);
    assert!(text.starts_with("cannot connect: "), "{text}");
}

#[tokio::test]
async fn a_broadcast_address_has_no_route() {
    let mut options = options();
    options.guard = Some(Guard::allowing(&["255.255.255.255"]).unwrap());
    let reply = send(&channel(options), "http://255.255.255.255:9/").await;
    assert_eq!(fault(&reply).0, Fault::NoRoute, "{reply:?}");
}

#[tokio::test]
async fn an_unknown_name_is_a_fault_of_dns() {
    let reply = send(&channel(options()), "https://nowhere.test/").await;
    assert_eq!(fault(&reply), (Fault::Dns, "cannot resolve nowhere.test: no such name"));
    let mut options = options();
    options.resolver = Arc::new(Names([("empty.test", vec![])].into()));
    let reply = send(&channel(options), "https://empty.test/").await;
    assert_eq!(fault(&reply), (Fault::Dns, "empty.test has no address"));
}

#[tokio::test]
async fn a_literal_address_that_is_closed_is_forbidden_and_nothing_connects() {
    let sink = sink().await;
    let channel = channel(HttpOptions::default());
    for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]"] {
        let reply = send(&channel, &format!("http://{host}:{}/ok", sink.address().port())).await;
        assert_eq!(fault(&reply).0, Fault::Forbidden);
    }
    assert_eq!(sink.accepted(), 0);
}

#[tokio::test]
async fn a_name_with_one_closed_address_is_forbidden_and_the_address_stays_untold() {
    let sink = sink().await;
    let open: IpAddr = Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 0x1111).into();
    for addresses in [vec![LOCALHOST], vec![LOCALHOST, open], vec![open, LOCALHOST]] {
        let resolver = Arc::new(Names([("inside.test", addresses)].into()));
        let options = HttpOptions { resolver, ..HttpOptions::default() };
        let reply =
            send(&channel(options), &format!("http://inside.test:{}/ok", sink.address().port())).await;
        let told = "inside.test leads to a forbidden address (loopback)";
        assert_eq!(fault(&reply), (Fault::Forbidden, told));
    }
    assert_eq!(sink.accepted(), 0);
}

#[tokio::test]
async fn the_system_resolver_knows_localhost_and_the_guard_forbids_it() {
    let reply = send(&channel(HttpOptions::default()), "http://localhost:9/").await;
    assert_eq!(fault(&reply).0, Fault::Forbidden, "{reply:?}");
}

#[tokio::test]
async fn the_next_address_of_a_name_is_tried_when_one_refuses() {
    let sink = sink().await;
    let second: IpAddr = [127, 0, 0, 2].into();
    let mut options = options();
    options.resolver = Arc::new(Names([("two.test", vec![second, LOCALHOST])].into()));
    let channel = channel(options);
    assert_eq!(status(&send(&channel, &format!("http://two.test:{}/ok", sink.address().port())).await), 200);
    let reply = send(&channel, &format!("http://two.test:{}/ok", free_port().await)).await;
    assert_eq!(fault(&reply).0, Fault::Refused);
}

#[tokio::test]
async fn a_connection_that_is_reset_before_the_answer_is_a_reset() {
    let sink = sink().await;
    let reply = send(&channel(options()), &sink.url("/reset")).await;
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Reset);
    assert!(text.contains("reset by peer"), "{text}");
}

#[tokio::test]
async fn a_connection_that_ends_inside_the_head_of_the_answer_is_a_reset() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-le", "SSH-2.0-x\r\n"] {
        let peer = Peer::start(move |mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let reply = send(&channel(options()), &peer.await.url()).await;
        assert_eq!(fault(&reply).0, Fault::Reset, "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_without_end_of_head_is_cut_off() {
    let peer = Peer::start(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(format!("x-a: {}\r\n", "a".repeat(1_000)).as_bytes()).await.is_ok() {}
    });
    let reply = send(&channel(options()), &peer.await.url()).await;
    assert_eq!(fault(&reply).0, Fault::Reset, "{reply:?}");
}

#[tokio::test]
async fn a_receiver_that_never_answers_meets_the_deadline() {
    let sink = sink().await;
    let text = until_deadline(&sink.url("/hang")).await;
    assert_eq!(text, "no answer within 150ms: connected, but no answer came");
    assert_eq!(sink.arrivals()[0].status, None);
}

#[tokio::test]
async fn a_lookup_and_a_handshake_that_hang_meet_the_deadline() {
    struct Hanging;
    #[async_trait::async_trait]
    impl posthaste_wire::http::Resolve for Hanging {
        async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            std::future::pending().await
        }
    }
    let mut options = options();
    options.resolver = Arc::new(Hanging);
    let reply = channel(options).send(delivery(notification("http://slow.test/"), DEADLINE)).await;
    assert_eq!(fault(&reply), (Fault::Timeout, "no answer within 150ms: the name was still being looked up"));

    let peer = Peer::start(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let text = until_deadline(&peer.await.url().replace("http:", "https:")).await;
    assert_eq!(text, "no answer within 150ms: the TLS handshake was still under way");
}

#[tokio::test]
async fn of_a_huge_answer_only_the_start_is_read() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
            let mut chunks = 0;
            while stream.write_all(chunk.as_bytes()).await.is_ok() {
                chunks += 1;
            }
            tell.send(chunks).unwrap();
        }
    });
    let reply = send(&channel(options()), &peer.await.url()).await;
    assert_eq!(reply, Reply { text: "a".repeat(4_096), ..Reply::http(200) });
    // The connection was closed, or the peer would write for ever. What it wrote is what the sockets hold.
    let chunks = told.recv().await.unwrap();
    assert!(chunks < 400, "{chunks} chunks of 64 KiB");
}

#[tokio::test]
async fn dropping_the_exchange_closes_the_connection() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let peer = Peer::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            tell.send(None).unwrap();
            tell.send(Some(stream.read(&mut [0]).await.unwrap_or(0))).unwrap();
        }
    });
    let peer = peer.await;
    let (channel, to) = (channel(options()), peer.url());
    let sent = channel.send(delivery(notification(&to), LONG));
    tokio::select! {
        reply = sent => panic!("{reply:?}"),
        arrived = told.recv() => assert_eq!(arrived, Some(None)),
    }
    assert_eq!(told.recv().await, Some(Some(0)));
}
