//! A rolling upgrade under load: two nodes of an older program are replaced, one after the other, by nodes of this one.
//!
//! `scripts/upgrade-test` builds the older program and names it in `POSTHASTE_OLD`. Without it both are the same, which shows
//! that the test itself holds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use posthaste::client::{Client, ClientResponse};
use posthaste_core::id::NotificationId;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::kept::rows_of_database;
use super::super::load::{Aim, CANCELLED, Ledger, Load, Pace, SILENCE};
use super::super::program::{KEY, Program, get, json as read, sink};
use super::leases::{Book, Strays};
use super::{CONCURRENCY, Cluster, DATABASE, number};

const PATHS: &[&str] =
    &["/ok", "/ok", "/flaky/20", "/flaky/20/reset", "/delay/100ms", "/status/400", "/status/400"];
/// How often a dead letter of the same notification is requeued.
const REQUEUES: u32 = 2;
/// The pause after an act, and after a refusal.
const PAUSE: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_two_versions_lose_nothing_and_send_nothing_twice() {
    let count = number("POSTHASTE_NODES_NOTIFICATIONS").unwrap_or(2_000);
    let over = Duration::from_millis((count * 2).max(9_000));
    let old = std::env::var_os("POSTHASTE_OLD").map(PathBuf::from);
    let (mut rng, sink) = (Rng::new(), sink().await);
    let mut cluster = Cluster::new(2, CONCURRENCY);
    let new: Vec<_> = cluster.homes.drain(..).collect();
    let mut olds = Cluster::homes(&cluster.server.url(DATABASE), &cluster.doors, CONCURRENCY);
    if let Some(old) = &old {
        olds = olds.into_iter().map(|home| home.with_binary(old.clone())).collect();
    }
    cluster.homes = olds;
    let mut nodes = cluster.start().await;
    cluster.homes = new;
    Book::open(&cluster);
    let acme = key_of(&nodes, "acme").await;
    // The other node learns of the key with its next heartbeat.
    sleep(Duration::from_secs(2)).await;
    let aim = Aim { sink: sink.url(""), paths: PATHS, bytes: 100 };
    let load = Load::through(&cluster.doors, aim, Pace { count, over, silence: SILENCE }, &mut rng);
    let people = People::start(&cluster, &acme, &sink, &mut rng);
    for place in 0..2 {
        sleep(over / 3).await;
        let before = sink.received();
        nodes.remove(place).stop().await;
        nodes.insert(place, cluster.homes[place].start().await);
        eprintln!("mixed: node {place} was replaced; {before} arrivals before, {} after", sink.received());
    }
    let mut ledger = load.ended().await;
    let (requeued, cancelled) = people.end(&mut ledger).await;
    lists_show_every_dead_letter(&cluster, &nodes, &acme).await;
    let (kept, book) = cluster.end(nodes, &mut ledger, &mut rng).await;
    let duplicates = kept.duplicates(&sink);
    eprintln!(
        "mixed: {} acknowledged, {} refusals, {} unanswered, {requeued} requeued, {cancelled} cancelled, \
         {} arrivals, {duplicates} duplicates, {} interruptions",
        ledger.acknowledged.len(),
        ledger.refused.len(),
        ledger.unanswered,
        sink.received(),
        kept.interruptions(),
    );
    assert_eq!((duplicates, kept.interruptions()), (0, 0), "I8");
    assert_eq!(book.strays(&sink), Strays::default());
    assert_eq!(kept.all.len(), ledger.acknowledged.len(), "what was answered is what is kept");
    assert!(requeued > 10 && cancelled > 10, "people act on both sides");
    sink.stop().await;
}

async fn key_of(nodes: &[Program], tenant: &str) -> String {
    let wanted = json!({"name": "mixed", "tenant": tenant});
    let made = nodes[0].client().post("/v1/keys", &wanted).await.unwrap();
    read(&made, StatusCode::CREATED)["key"].as_str().unwrap().to_owned()
}

/// Each new node lists all dead letters of all tenants, and to a tenant its own, with what old nodes buried.
async fn lists_show_every_dead_letter(cluster: &Cluster, nodes: &[Program], acme: &str) {
    nodes[0].rest().await;
    let sql = "select d.notification, f.tenant from dead_letter d join flow f on f.id = d.flow";
    let mut kept: BTreeMap<String, Vec<NotificationId>> = BTreeMap::new();
    for row in tokio::task::block_in_place(|| rows_of_database(&cluster.server, DATABASE, sql)) {
        kept.entry(row.text(1)).or_default().push(row.id());
    }
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["acme", "default"]);
    for node in nodes {
        let own = Client::new(&format!("http://{}", node.address()), Some(acme)).unwrap();
        for (client, filter, wanted) in [
            (&own, "", kept["acme"].clone()),
            (&node.client(), "&tenant=default", kept["default"].clone()),
            (&node.client(), "", kept.values().flatten().copied().collect()),
        ] {
            let mut listed = listed(client, &format!("/v1/dead-letters?status=all&limit=500{filter}")).await;
            let mut wanted = wanted;
            listed.sort_unstable();
            wanted.sort_unstable();
            assert!(
                listed == wanted,
                "{} of {} dead letters are listed ({filter})",
                listed.len(),
                wanted.len()
            );
            let ended: BTreeSet<NotificationId> = wanted.into_iter().collect();
            let shown =
                self::listed(client, &format!("/v1/notifications?state=deadLetter&limit=500{filter}")).await;
            assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), ended, "{filter}");
        }
    }
}

async fn listed(client: &Client, path: &str) -> Vec<NotificationId> {
    let (mut all, mut cursor) = (vec![], String::new());
    loop {
        let page = get(client, &format!("{path}{cursor}")).await;
        let ids = page["data"].as_array().unwrap().iter().map(|one| one["notificationId"].as_str().unwrap());
        all.extend(ids.map(|id| id.parse::<NotificationId>().unwrap()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// People who requeue, cancel and send for another tenant, each time through any door.
struct People {
    tasks: JoinSet<Ledger>,
    stop: Arc<AtomicBool>,
    requeued: Arc<AtomicU32>,
}

impl People {
    fn start(cluster: &Cluster, acme: &str, sink: &Sink, rng: &mut Rng) -> Self {
        let (mut tasks, stop) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        let requeued = Arc::new(AtomicU32::new(0));
        let doors = |key: &str| -> Doors {
            let open = |door| Client::new(&format!("http://{door}"), Some(key)).unwrap();
            Doors { clients: cluster.doors.iter().map(open).collect() }
        };
        tasks.spawn(requeue(doors(KEY), rng.fork(), stop.clone(), requeued.clone()));
        for name in ["ada", "bob"] {
            tasks.spawn(cancel(doors(acme), name, sink.url(""), rng.fork(), stop.clone()));
        }
        Self { tasks, stop, requeued }
    }

    /// How many were requeued and cancelled.
    async fn end(self, ledger: &mut Ledger) -> (u32, usize) {
        self.stop.store(true, Ordering::SeqCst);
        for one in self.tasks.join_all().await {
            ledger.add(one);
        }
        let cancelled = ledger.acknowledged.values().filter(|path| *path == CANCELLED).count();
        (self.requeued.load(Ordering::SeqCst), cancelled)
    }
}

struct Doors {
    clients: Vec<Client>,
}

impl Doors {
    /// Hands the same in at one door after the other until it is answered by other than 503.
    async fn ask(&self, rng: &mut Rng, method: Method, path: &str, key: &str, body: &str) -> ClientResponse {
        let headers = [(HeaderName::from_static("idempotency-key"), HeaderValue::from_str(key).unwrap())];
        let headers = if key.is_empty() { &[][..] } else { &headers };
        loop {
            let client = rng.choice(&self.clients).unwrap();
            match client.send(method.clone(), path, headers, Bytes::from(body.to_owned())).await {
                Ok(answer) if answer.status != StatusCode::SERVICE_UNAVAILABLE => return answer,
                Ok(_) | Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

/// Requeues dead letters of tenant default, which die again.
async fn requeue(doors: Doors, mut rng: Rng, stop: Arc<AtomicBool>, requeued: Arc<AtomicU32>) -> Ledger {
    let mut acted: BTreeMap<String, u32> = BTreeMap::new();
    while !stop.load(Ordering::SeqCst) {
        sleep(PAUSE).await;
        let path = "/v1/dead-letters?limit=20&tenant=default";
        let page: Value = read(&doors.ask(&mut rng, Method::GET, path, "", "").await, StatusCode::OK);
        for one in page["data"].as_array().unwrap() {
            let times = acted.entry(one["notificationId"].as_str().unwrap().to_owned()).or_default();
            if *times == REQUEUES || rng.bool() {
                continue;
            }
            *times += 1;
            let path = format!("/v1/dead-letters/{}/requeue", one["id"].as_str().unwrap());
            let answer = doors.ask(&mut rng, Method::POST, &path, "", "").await;
            // An answer that got lost may have been that it was requeued.
            let expected = [StatusCode::ACCEPTED, StatusCode::CONFLICT].contains(&answer.status);
            assert!(expected, "{}", String::from_utf8_lossy(&answer.body));
            requeued.fetch_add(u32::from(answer.status == StatusCode::ACCEPTED), Ordering::SeqCst);
        }
    }
    Ledger::default()
}

/// Sends what fails for a while and cancels it, and now and then what is refused for good.
async fn cancel(
    doors: Doors,
    name: &'static str,
    sink: String,
    mut rng: Rng,
    stop: Arc<AtomicBool>,
) -> Ledger {
    let mut ledger = Ledger::default();
    let policy = json!({"strategy": "fixed", "initialDelay": "300ms", "maxAttempts": 40, "jitter": "none", "quick": {"tries": 0}});
    while !stop.load(Ordering::SeqCst) {
        let dies = rng.u8(..) < 64;
        let path = if dies { "/status/400" } else { "/status/503" };
        let key = format!("{name}-{}", ledger.acknowledged.len());
        let body = json!({"channel": "webhook", "to": format!("{sink}{path}"), "correlationId": key, "body": 1, "policy": policy});
        let sent = doors.ask(&mut rng, Method::POST, "/v1/notifications", &key, &body.to_string()).await;
        let sent = read(&sent, StatusCode::ACCEPTED);
        let id = sent["notificationId"].as_str().unwrap();
        sleep(Duration::from_millis(rng.u64(..500))).await;
        if !dies {
            let cancel = format!("/v1/notifications/{id}/cancel");
            let answer = doors.ask(&mut rng, Method::POST, &cancel, "", "").await;
            let expected = [StatusCode::ACCEPTED, StatusCode::CONFLICT].contains(&answer.status);
            assert!(expected, "{}", String::from_utf8_lossy(&answer.body));
        }
        ledger.acknowledged.insert(id.parse().unwrap(), if dies { path } else { CANCELLED }.to_owned());
    }
    ledger
}
