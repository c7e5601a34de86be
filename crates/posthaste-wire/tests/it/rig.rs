//! What the tests are made with: a clock that stands, names from a table, a peer that does what a test says.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::provider::Route;
use posthaste_core::reply::{Answer, Fault, Reply};
use posthaste_core::time::Timestamp;
use posthaste_engine::channel::{Channel, Delivery};
use posthaste_engine::clock::Clock;
use posthaste_engine::vault::Opened;
use posthaste_wire::guard::{Guard, Target};
use posthaste_wire::http::{HttpOptions, Resolve};
use posthaste_wire::sink::{Sink, SinkOptions};
use posthaste_wire::webhook::WebhookChannel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Long enough that no test meets it by chance.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_999)
    }
}

/// Names with their addresses; any other name does not exist.
#[derive(Default)]
pub(crate) struct Names(pub(crate) HashMap<&'static str, Vec<IpAddr>>);

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.0.get(name).cloned().ok_or_else(|| io::Error::other("no such name"))
    }
}

/// Options that let loopback through, and know no names.
pub(crate) fn options() -> HttpOptions {
    let guard = Some(Guard::allowing(&["127.0.0.0/8", "::1"]).unwrap());
    HttpOptions { guard, resolver: Arc::new(Names::default()), ..HttpOptions::default() }
}

pub(crate) fn channel(options: HttpOptions) -> WebhookChannel {
    WebhookChannel::new(options).unwrap()
}

pub(crate) fn notification(to: &str) -> Notification {
    let id = NotificationId::new(Timestamp::from_millis(1_700_000_000_000), 7);
    let tenant = "default".parse().unwrap();
    // As the door computes it. A bad URL has none.
    let destination = Target::parse(to).map_or_else(|_| "nowhere".to_owned(), |target| target.destination);
    let flow = FlowKey { tenant, channel: ChannelName::Webhook, destination: destination.into() };
    Notification::new(id, flow, to.to_owned(), Content::of(Body::Json("{\"a\": 1.0}".to_owned())))
}

pub(crate) fn delivery(notification: Notification, timeout: Duration) -> Delivery {
    Delivery {
        notification: Arc::new(notification),
        opened: Opened::default(),
        route: Route::Direct,
        attempt: 3,
        at: StandingClock.now(),
        timeout,
        signer: None,
    }
}

/// Sends to a URL with time enough.
pub(crate) async fn send(channel: &WebhookChannel, to: &str) -> Reply {
    channel.send(delivery(notification(to), LONG)).await
}

#[track_caller]
pub(crate) fn status(reply: &Reply) -> u16 {
    reply.status_code().unwrap_or_else(|| panic!("{reply:?}"))
}

#[track_caller]
pub(crate) fn fault(reply: &Reply) -> (Fault, &str) {
    match reply.answer {
        Answer::Fault(fault) => (fault, &reply.text),
        _ => panic!("{reply:?}"),
    }
}

pub(crate) async fn sink() -> Sink {
    sink_with(|_| {}).await
}

pub(crate) async fn sink_with(change: impl FnOnce(&mut SinkOptions)) -> Sink {
    let mut options = SinkOptions::new(Arc::new(StandingClock));
    change(&mut options);
    Sink::start(SocketAddr::new(LOCALHOST, 0), options).await.unwrap()
}

/// A server that does with each connection what a test says; it ends with the test.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    _running: JoinSet<()>,
}

impl Peer {
    pub(crate) async fn start<F, S>(serve: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(TcpStream) -> F + Send + 'static,
    {
        let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = accepted.clone();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(stream));
            }
        });
        Self { address, accepted, _running: running }
    }

    /// A peer that reads one request on each connection and writes these bytes.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut stream| {
            let answer = answer.clone();
            async move {
                while read_request(&mut stream).await.is_some() {
                    // The other side may close before it has read all of it.
                    let _ = stream.write_all(&answer).await;
                }
            }
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Reads a request with the body that its `content-length` promises; `None` when the other side closed.
pub(crate) async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_err() {
            return None;
        }
        read.extend(byte);
        if read.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(head + std::str::from_utf8(&body).unwrap())
}
