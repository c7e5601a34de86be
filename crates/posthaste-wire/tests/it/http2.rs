//! HTTP/2, for providers that ask for it: over TLS, with the connection kept, and refused where it is not spoken.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use posthaste_core::notification::Tenant;
use posthaste_core::reply::Fault;
use posthaste_wire::http::{ExchangeError, HttpClient, HttpOptions, Protocol, Root};
use tokio_rustls::TlsAcceptor;

use crate::rig::{LOCALHOST, LONG, Names, Peer, options};
use crate::tls::{Identity, identity_for, server};

/// What arrived: version, URI, whether there is a `host` header, and body.
type Arrivals = Arc<Mutex<Vec<(Version, String, bool, Bytes)>>>;

/// A server of HTTP/2 that keeps what arrives. `/slow` never gets an answer.
async fn h2_server(acceptor: TlsAcceptor) -> (Peer, Arrivals) {
    let arrivals = Arrivals::default();
    let kept = arrivals.clone();
    let peer = Peer::start(move |stream| {
        let (acceptor, kept) = (acceptor.clone(), kept.clone());
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let answer = service_fn(move |request| answer(request, kept.clone()));
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        }
    });
    (peer.await, arrivals)
}

async fn answer(request: Request<Incoming>, kept: Arrivals) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    if head.uri.path() == "/slow" {
        std::future::pending::<()>().await;
    }
    let has_host = head.headers.contains_key(HOST);
    kept.lock().unwrap().push((head.version, head.uri.to_string(), has_host, body));
    let mut response = Response::new(Full::from("x".repeat(100_000)));
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

fn client(root: Root) -> HttpClient {
    let resolver = Arc::new(Names([("push.test", vec![LOCALHOST])].into()));
    let options = HttpOptions { resolver, roots: vec![root], protocol: Protocol::Http2, ..options() };
    HttpClient::new(options).unwrap()
}

async fn post(
    client: &HttpClient,
    url: &str,
    within: Duration,
) -> Result<(StatusCode, usize), ExchangeError> {
    let tenant: Tenant = "default".parse().unwrap();
    let target = client.target(url).unwrap();
    let mut request = Request::new(Full::from("hello"));
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(HOST, HeaderValue::from_static("push.test"));
    let exchange = client.exchange(&tenant, target, request, within).await?;
    let response = exchange.whole(1_000_000).await.unwrap();
    Ok((response.status(), response.body().len()))
}

#[tokio::test]
async fn exchanges_go_over_http_2_one_after_the_other_on_one_connection() {
    let Identity { root, acceptor } = identity_for("push.test", &[b"h2"]);
    let (peer, arrivals) = h2_server(acceptor).await;
    let client = client(root);
    let url = format!("https://push.test:{}/3/device/abc?x=1", peer.address.port());
    for _ in 0..3 {
        assert_eq!(post(&client, &url, LONG).await.unwrap(), (StatusCode::ACCEPTED, 100_000));
    }
    assert_eq!(peer.accepted(), 1);
    let arrivals = arrivals.lock().unwrap().clone();
    assert_eq!(arrivals, vec![(Version::HTTP_2, url, false, Bytes::from("hello")); 3]);
}

#[tokio::test]
async fn a_server_without_http_2_is_refused_and_a_client_without_it_does_not_ask_for_it() {
    let Identity { root, acceptor } = identity_for("push.test", &[b"http/1.1"]);
    let old = server(acceptor).await;
    let url = format!("https://push.test:{}/", old.address.port());
    assert_eq!(post(&client(root), &url, LONG).await.unwrap_err().fault, Fault::Tls);
    let Identity { root, acceptor } = identity_for("push.test", &[]);
    let silent = server(acceptor).await;
    let url = format!("https://push.test:{}/", silent.address.port());
    let refused = post(&client(root), &url, LONG).await.unwrap_err();
    assert!(refused.text.contains("does not speak HTTP/2"), "{refused}");
    let Identity { root, acceptor } = identity_for("push.test", &[b"h2", b"http/1.1"]);
    let both = server(acceptor).await;
    let resolver = Arc::new(Names([("push.test", vec![LOCALHOST])].into()));
    let plain = HttpClient::new(HttpOptions { resolver, roots: vec![root], ..options() }).unwrap();
    let url = format!("https://push.test:{}/", both.address.port());
    assert_eq!(post(&plain, &url, LONG).await.unwrap(), (StatusCode::OK, 2));
}

#[tokio::test]
async fn without_tls_there_is_no_http_2() {
    let client = client(identity_for("push.test", &[b"h2"]).root);
    assert_eq!(post(&client, "http://push.test/", LONG).await.unwrap_err().fault, Fault::Unsendable);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up_at_the_deadline_and_the_next_one_comes() {
    let Identity { root, acceptor } = identity_for("push.test", &[b"h2"]);
    let (peer, _) = h2_server(acceptor).await;
    let client = client(root);
    let url = |path: &str| format!("https://push.test:{}{path}", peer.address.port());
    assert!(post(&client, &url("/"), LONG).await.is_ok());
    let late = post(&client, &url("/slow"), Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(late.fault, Fault::Timeout);
    assert!(post(&client, &url("/"), LONG).await.is_ok());
    assert_eq!(peer.accepted(), 2, "the connection of the one that was given up is not used again");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_given_up() {
    let Identity { root, acceptor } = identity_for("push.test", &[b"h2"]);
    let (first, _) = h2_server(acceptor.clone()).await;
    let (address, client) = (first.address, client(root));
    let url = format!("https://push.test:{}/", address.port());
    assert!(post(&client, &url, LONG).await.is_ok());
    drop(first);
    let mut failed = post(&client, &url, LONG).await.unwrap_err();
    if failed.fault == Fault::Reset {
        // The close had not arrived yet.
        assert!(failed.reused);
        failed = post(&client, &url, LONG).await.unwrap_err();
    }
    assert_eq!(failed.fault, Fault::Refused, "{failed}");
}
