//! Load on a running program, and the ledger of what it acknowledged, which lives in this process and not in its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use posthaste::client::{Client, ClientResponse};
use posthaste_core::id::NotificationId;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::program::{KEY, LOOK, Program};

/// The most attempts of a notification; no flaky answer lasts for so long.
pub(crate) const MOST_ATTEMPTS: u32 = 40;
/// Stands for the path of what was cancelled.
pub(crate) const CANCELLED: &str = "cancelled";
/// How many clients send at a time.
pub(crate) const CLIENTS: usize = 4;

/// How long one of several doors may stay silent before the next is tried, where some of them may be dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);
/// How long a door is left alone that refused or did not answer.
const CLOSED: Duration = Duration::from_millis(500);
/// How many clients send at a time through several doors, of which some wait in vain.
const CLIENTS_OF_MANY: usize = 12;

const SINGLE: &str = "/v1/notifications";
const BATCH: &str = "/v1/notifications/batch";

/// What was acknowledged, and what was asked under a key.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Every acknowledged id with the path at the sink that it is for.
    pub(crate) acknowledged: BTreeMap<NotificationId, String>,
    /// Every request with an idempotency key, answered or not.
    pub(crate) keyed: Vec<Keyed>,
    /// Answers that refused for the time being.
    pub(crate) refused: Vec<ClientResponse>,
    /// How many requests got no answer, because a connection was refused, broke or stayed silent.
    pub(crate) unanswered: u64,
}

/// A request with an idempotency key.
#[derive(Clone)]
pub(crate) struct Keyed {
    /// The key, which is also the correlation id of what is sent.
    pub(crate) key: String,
    request: Request,
    /// What came back; none while nobody knows whether it was taken.
    pub(crate) ids: Option<Vec<NotificationId>>,
}

#[derive(Clone)]
struct Request {
    api: &'static str,
    to: Vec<String>,
    body: Bytes,
}

/// How a request ended.
enum Outcome {
    Acknowledged(Vec<NotificationId>),
    Refused(ClientResponse),
    /// The connection broke before there was an answer.
    Unclear,
}

/// Where load is sent to.
pub(crate) struct Aim {
    /// The sink, such as `http://127.0.0.1:1234`.
    pub(crate) sink: String,
    /// Paths at the sink. One that comes twice is drawn twice as often.
    pub(crate) paths: &'static [&'static str],
    /// How many bytes each body has beside its frame.
    pub(crate) bytes: usize,
}

impl Ledger {
    /// Takes in what another ledger holds.
    pub(crate) fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.keyed.extend(other.keyed);
        self.refused.extend(other.refused);
        self.unanswered += other.unanswered;
    }

    fn note(&mut self, request: &Request, ids: &[NotificationId]) {
        assert_eq!(request.to.len(), ids.len());
        self.acknowledged.extend(ids.iter().copied().zip(request.to.iter().cloned()));
    }

    /// Repeats requests under their keys: those without an answer, which get one now, and some that have one, which get
    /// the same again (I9).
    pub(crate) async fn repeat(&mut self, client: &Client, rng: &mut Rng) {
        let open: Vec<usize> = (0..self.keyed.len()).filter(|at| self.keyed[*at].ids.is_none()).collect();
        let some: Vec<usize> = (0..self.keyed.len().min(10)).map(|_| rng.usize(..self.keyed.len())).collect();
        for at in open.into_iter().chain(some) {
            let Keyed { key, request, ids } = self.keyed[at].clone();
            let Outcome::Acknowledged(now) = send(client, &request, Some(&key)).await else {
                panic!("{key} is not taken");
            };
            match ids {
                Some(before) => assert_eq!(before, now, "{key} got another answer than before the crash"),
                None => self.note(&request, &now),
            }
            self.keyed[at].ids = Some(now);
        }
    }
}

/// Clients that send without a pause.
pub(crate) struct Load {
    writers: JoinSet<Ledger>,
    stop: Arc<AtomicBool>,
}

impl Load {
    /// Starts to send. Each client ends by itself at the first refusal or broken connection.
    pub(crate) fn start(program: &Program, aim: Aim, rng: &mut Rng) -> Self {
        let (aim, stop) = (Arc::new(aim), Arc::new(AtomicBool::new(false)));
        let mut writers = JoinSet::new();
        for _ in 0..CLIENTS {
            writers.spawn(write(program.client(), aim.clone(), rng.fork(), stop.clone()));
        }
        Self { writers, stop }
    }

    /// Starts to send through several doors in turn. A client that is refused or gets no answer hands in the same
    /// request at the next door, until it is taken.
    pub(crate) fn through(doors: &[SocketAddr], aim: Aim, pace: Pace, rng: &mut Rng) -> Self {
        let (aim, stop) = (Arc::new(aim), Arc::new(AtomicBool::new(false)));
        let mut writers = JoinSet::new();
        let turns = Arc::new(Turns { pace, begun: Instant::now(), sent: AtomicU64::new(0) });
        for _ in 0..CLIENTS_OF_MANY {
            let open = |door: &SocketAddr| {
                Client::new(&format!("http://{door}"), Some(KEY)).unwrap().within(turns.pace.silence)
            };
            let doors = doors.iter().map(open).collect();
            writers.spawn(write_through(doors, aim.clone(), turns.clone(), rng.fork(), stop.clone()));
        }
        Self { writers, stop }
    }

    /// Waits until every client has ended by itself.
    pub(crate) async fn ended(self) -> Ledger {
        let mut ledger = Ledger::default();
        for one in self.writers.join_all().await {
            ledger.add(one);
        }
        ledger
    }

    /// Lets each client end what it is at.
    pub(crate) async fn stop(self) -> Ledger {
        self.stop.store(true, Ordering::SeqCst);
        self.ended().await
    }
}

async fn write(client: Client, aim: Arc<Aim>, mut rng: Rng, stop: Arc<AtomicBool>) -> Ledger {
    let mut ledger = Ledger::default();
    while !stop.load(Ordering::SeqCst) {
        let key = rng.bool().then(|| format!("key-{:032x}", rng.u128(..)));
        let request =
            if rng.u8(..) < 200 { single(&aim, key.as_deref(), &mut rng) } else { batch(&aim, &mut rng) };
        let outcome = send(&client, &request, key.as_deref()).await;
        let ids = match outcome {
            Outcome::Acknowledged(ids) => {
                ledger.note(&request, &ids);
                Some(ids)
            }
            Outcome::Refused(answer) => {
                ledger.refused.push(answer);
                None
            }
            Outcome::Unclear => None,
        };
        let unclear = ids.is_none();
        ledger.keyed.extend(key.map(|key| Keyed { key, request, ids }));
        if unclear {
            break;
        }
    }
    ledger
}

/// How much is sent through several doors.
pub(crate) struct Pace {
    /// How many notifications, at least.
    pub(crate) count: u64,
    /// Over which time they are spread.
    pub(crate) over: Duration,
    /// How long a door may stay silent before the next is tried.
    pub(crate) silence: Duration,
}

/// What the clients have sent of it together.
struct Turns {
    pace: Pace,
    begun: Instant,
    sent: AtomicU64,
}

impl Turns {
    /// Waits until the next request has its turn; not so once enough was sent.
    async fn next(&self) -> bool {
        let sent = self.sent.load(Ordering::SeqCst);
        let share = sent as f64 / self.pace.count.max(1) as f64;
        sleep_until(self.begun + self.pace.over.mul_f64(share.min(1.0))).await;
        sent < self.pace.count
    }
}

async fn write_through(
    doors: Vec<Client>,
    aim: Arc<Aim>,
    turns: Arc<Turns>,
    mut rng: Rng,
    stop: Arc<AtomicBool>,
) -> Ledger {
    let mut ledger = Ledger::default();
    let mut door = rng.usize(..doors.len());
    let mut closed_until = vec![Instant::now(); doors.len()];
    while turns.next().await && !stop.load(Ordering::SeqCst) {
        let key = rng.bool().then(|| format!("key-{:032x}", rng.u128(..)));
        let request =
            if rng.u8(..) < 200 { single(&aim, key.as_deref(), &mut rng) } else { batch(&aim, &mut rng) };
        let ids = loop {
            door = (door + 1) % doors.len();
            if Instant::now() < closed_until[door] {
                sleep(LOOK).await;
                continue;
            }
            match send(&doors[door], &request, key.as_deref()).await {
                Outcome::Acknowledged(ids) => break ids,
                Outcome::Refused(answer) => ledger.refused.push(answer),
                Outcome::Unclear => ledger.unanswered += 1,
            }
            closed_until[door] = Instant::now() + CLOSED;
        };
        turns.sent.fetch_add(ids.len() as u64, Ordering::SeqCst);
        ledger.note(&request, &ids);
        ledger.keyed.extend(key.map(|key| Keyed { key, request, ids: Some(ids) }));
    }
    ledger
}

fn single(aim: &Aim, key: Option<&str>, rng: &mut Rng) -> Request {
    let path = rng.choice(aim.paths).unwrap();
    let body = notification(aim, path, key);
    Request { api: SINGLE, to: vec![(*path).to_owned()], body: body.to_string().into() }
}

fn batch(aim: &Aim, rng: &mut Rng) -> Request {
    let to: Vec<String> =
        (0..rng.usize(2..30)).map(|_| (*rng.choice(aim.paths).unwrap()).to_owned()).collect();
    let list: Vec<Value> = to.iter().map(|path| notification(aim, path, None)).collect();
    Request { api: BATCH, to, body: json!({ "notifications": list }).to_string().into() }
}

fn notification(aim: &Aim, path: &str, key: Option<&str>) -> Value {
    json!({
        "channel": "webhook",
        "to": format!("{}{path}", aim.sink),
        "correlationId": key,
        "body": {"padding": "x".repeat(aim.bytes)},
        "policy": {
            "strategy": "fixed", "initialDelay": "30ms", "maxAttempts": MOST_ATTEMPTS, "jitter": "none",
            "timeout": "5s", "quick": {"tries": 0},
        },
    })
}

async fn send(client: &Client, request: &Request, key: Option<&str>) -> Outcome {
    let header = |key| (HeaderName::from_static("idempotency-key"), HeaderValue::from_str(key).unwrap());
    let headers: Vec<_> = key.map(header).into_iter().collect();
    let Ok(answer) = client.send(Method::POST, request.api, &headers, request.body.clone()).await else {
        return Outcome::Unclear;
    };
    if answer.status == StatusCode::SERVICE_UNAVAILABLE {
        assert!(
            answer.headers.contains_key(RETRY_AFTER),
            "a 503 says when to come back: {:?}",
            answer.headers
        );
        return Outcome::Refused(answer);
    }
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", String::from_utf8_lossy(&answer.body));
    let shown: Value = answer.json().unwrap();
    let id = |value: &Value| value["notificationId"].as_str().unwrap().parse().unwrap();
    if request.api == SINGLE {
        return Outcome::Acknowledged(vec![id(&shown)]);
    }
    assert_eq!(shown["rejected"], json!([]));
    Outcome::Acknowledged(shown["accepted"].as_array().unwrap().iter().map(id).collect())
}
