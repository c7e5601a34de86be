//! A forward proxy: plain requests with their whole URL, TLS through a tunnel, and proxies that refuse or hang.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use posthaste_core::reply::{Fault, Reply};
use posthaste_engine::channel::Channel as _;
use posthaste_wire::guard::Guard;
use posthaste_wire::http::{HttpOptions, Proxy};
use posthaste_wire::sink::Sink;
use posthaste_wire::webhook::WebhookChannel;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::rig::{LONG, Peer, channel, delivery, fault, notification, options, send, sink, status};
use crate::tls::{Identity, identity, server};

/// Heads of requests, in the order in which they came.
pub(crate) type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that sends everything to one address, whatever name it is asked for, and keeps the heads of requests.
pub(crate) async fn proxy(to: std::net::SocketAddr) -> (Peer, Heads) {
    let heads = Heads::default();
    let kept = heads.clone();
    let peer = Peer::start(move |mut stream| {
        let kept = kept.clone();
        async move {
            let Some(head) = read_head(&mut stream).await else { return };
            kept.lock().unwrap().push(head.clone());
            let mut onward = TcpStream::connect(to).await.unwrap();
            if head.starts_with("CONNECT ") {
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            } else {
                onward.write_all(direct(&head).as_bytes()).await.unwrap();
            }
            let _ = copy_bidirectional(&mut stream, &mut onward).await;
        }
    });
    (peer.await, heads)
}

/// The head as the receiver gets it: with the path alone.
fn direct(head: &str) -> String {
    let (line, rest) = head.split_once("\r\n").unwrap();
    let url = line.split(' ').nth(1).unwrap();
    let path = &url[url.match_indices('/').nth(2).unwrap().0..];
    format!("{}\r\n{rest}", line.replacen(url, path, 1))
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

pub(crate) fn through(proxy: &str) -> HttpOptions {
    HttpOptions { proxy: Some(Proxy::parse(proxy).unwrap()), ..options() }
}

/// Sends to the sink through a proxy on loopback, with credentials or without.
async fn sent(sink: &Sink, credentials: &str) -> (Reply, Vec<String>) {
    let (proxy, heads) = proxy(sink.address()).await;
    let channel = channel(through(&format!("http://{credentials}{}", proxy.address)));
    let reply = send(&channel, "http://hooks.test:8080/status/202?a=b").await;
    let heads = heads.lock().unwrap().clone();
    (reply, heads)
}

#[tokio::test]
async fn a_plain_webhook_goes_through_the_proxy_with_its_whole_url() {
    let sink = sink().await;
    let (reply, heads) = sent(&sink, "").await;
    assert_eq!(status(&reply), 202);
    assert!(heads[0].starts_with("POST http://hooks.test:8080/status/202?a=b HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("\r\nhost: hooks.test:8080\r\n"), "{heads:?}");
    assert!(!heads[0].contains("proxy-authorization"), "{heads:?}");
    assert_eq!(sink.accepted(), 1);
}

#[tokio::test]
async fn the_proxy_gets_its_credentials() {
    let (_, heads) = sent(&sink().await, "me:s%40crets@").await;
    assert!(heads[0].contains("\r\nproxy-authorization: Basic bWU6c0BjcmV0cw==\r\n"), "{heads:?}");
}

#[tokio::test]
async fn a_webhook_over_tls_goes_through_a_tunnel_and_the_receiver_sees_no_credentials() {
    let Identity { root, acceptor } = identity("hooks.test");
    let peer = server(acceptor).await;
    let (proxy, heads) = proxy(peer.address).await;
    let options =
        HttpOptions { roots: vec![root], ..through(&format!("http://me:secret@{}", proxy.address)) };
    let channel = channel(options);
    for _ in 0..3 {
        assert_eq!(status(&send(&channel, "https://hooks.test/in").await), 200);
    }
    let heads = heads.lock().unwrap().clone();
    assert_eq!(
        heads,
        [
            "CONNECT hooks.test:443 HTTP/1.1\r\nhost: hooks.test:443\r\nproxy-authorization: Basic bWU6c2VjcmV0\r\n\r\n"
        ]
    );
    assert_eq!((proxy.accepted(), peer.accepted()), (1, 1), "the tunnel is used again");
}

#[tokio::test]
async fn a_tunnel_to_a_receiver_with_another_certificate_is_a_fault_of_tls() {
    let peer = server(identity("other.test").acceptor).await;
    let (proxy, _) = proxy(peer.address).await;
    let reply = send(&channel(through(&format!("http://{}", proxy.address))), "https://hooks.test/").await;
    assert_eq!(fault(&reply).0, Fault::Tls, "{reply:?}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_and_what_it_says_to_a_plain_request_is_the_answer() {
    for (answer, code, says) in [
        (
            "HTTP/1.1 407 x\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
            407,
            "wants other credentials",
        ),
        ("HTTP/1.1 502 x\r\ncontent-length: 0\r\n\r\n", 502, "answered 502 to CONNECT"),
        ("SSH-2.0-x\r\n\r\n", 0, "not HTTP/1"),
    ] {
        let proxy = Peer::answering(answer).await;
        let channel = channel(through(&format!("http://me:secret@{}", proxy.address)));
        let reply = send(&channel, "https://hooks.test/").await;
        let (kind, text) = fault(&reply);
        assert_eq!(kind, Fault::NoRoute, "{text}");
        let named = format!("the proxy http://{}", proxy.address);
        assert!(text.contains(says) && text.starts_with(&named) && !text.contains("secret"), "{text}");
        let plain = send(&channel, "http://hooks.test/").await;
        match code {
            0 => {}
            // A receiver never answers so: the proxy speaks for itself.
            407 => assert_eq!(
                fault(&plain),
                (Fault::NoRoute, format!("{named} wants other credentials (407)").as_str())
            ),
            _ => assert_eq!(status(&plain), code),
        }
    }
}

#[tokio::test]
async fn a_proxy_that_closes_or_never_ends_its_head_is_no_route() {
    let closing = Peer::start(|stream| async move { drop(stream) }).await;
    let endless =
        Peer::start(|mut stream| async move { while stream.write_all(&[b'x'; 1_024]).await.is_ok() {} })
            .await;
    for proxy in [closing, endless] {
        let channel = channel(through(&format!("http://{}", proxy.address)));
        assert_eq!(fault(&send(&channel, "https://hooks.test/").await).0, Fault::NoRoute);
    }
}

#[tokio::test]
async fn a_proxy_that_says_nothing_is_given_up_at_the_deadline() {
    let silent = Peer::start(|stream| async move {
        let _open = stream;
        std::future::pending().await
    })
    .await;
    let channel = channel(through(&format!("http://{}", silent.address)));
    let reply = channel.send(delivery(notification("https://hooks.test/"), Duration::from_millis(100))).await;
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Timeout);
    assert!(text.ends_with("the proxy had not answered CONNECT"), "{text}");
}

#[tokio::test]
async fn a_proxy_that_is_down_is_named() {
    let gone = Peer::answering("").await.address;
    let reply = send(&channel(through(&format!("http://{gone}"))), "http://hooks.test/").await;
    let (kind, text) = fault(&reply);
    assert_eq!(kind, Fault::Refused, "{text}");
    assert!(text.starts_with(&format!("the proxy http://{gone} is not reachable: ")), "{text}");
}

/// The names of receivers are not looked up here, and the proxy itself may stand in a private network.
#[tokio::test]
async fn behind_a_proxy_the_guard_checks_the_host_as_it_is_written() {
    let sink = sink().await;
    let (proxy, heads) = proxy(sink.address()).await;
    let mut options = through(&format!("http://{}", proxy.address));
    options.guard = Some(Guard::default());
    let channel = WebhookChannel::new(options).unwrap();
    for forbidden in [
        "http://127.0.0.1/",
        "https://127.1/",
        "http://[::ffff:10.0.0.1]/",
        "http://0xa9fea9fe/",
        "https://192.168.1.1:8443/",
        "http://localhost:1/",
        "http://x.localhost/",
        "http://metadata.google.internal/",
    ] {
        assert_eq!(fault(&send(&channel, forbidden).await).0, Fault::Forbidden, "{forbidden}");
    }
    assert_eq!(heads.lock().unwrap().len(), 0);
    assert_eq!(status(&send(&channel, "http://hooks.test/ok").await), 200);
    assert_eq!(status(&channel.send(delivery(notification("http://93.184.216.34/ok"), LONG)).await), 200);
}
