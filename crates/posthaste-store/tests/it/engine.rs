//! The engine on a real store, in real time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::policy::PolicySet;
use posthaste_core::provider::Pools;
use posthaste_core::reply::Reply;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::channel::{Channel, Delivery};
use posthaste_engine::clock::Clock;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::store::{Accepted, Reads, Store};
use posthaste_store::sqlite::{OpenError, Options, SqliteStore};

/// The clock of these tests begins here and runs as the machine's does.
struct Running(Instant);

impl Clock for Running {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).later(self.0.elapsed())
    }
}

/// Answers 503 to every n-th try, or never answers at all.
pub(crate) enum Sink {
    Silent,
    FailsEach(u64, AtomicU64),
}

#[async_trait]
impl Channel for Sink {
    async fn send(&self, _: Delivery) -> Reply {
        let status = match self {
            Self::Silent => std::future::pending().await,
            Self::FailsEach(n, count) if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(*n) => 503,
            Self::FailsEach(..) => 200,
        };
        Reply::http(status)
    }
}

/// Opens the file once the store before it has let go of it.
async fn open(path: &Path) -> Arc<SqliteStore> {
    loop {
        match SqliteStore::open(path, Options::default()) {
            Ok(store) => return Arc::new(store),
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn start(store: Arc<dyn Store>, sink: Sink, began: Instant) -> Engine {
    let channel: Arc<dyn Channel> = Arc::new(sink);
    let parts = Parts {
        store,
        channels: BTreeMap::from([(ChannelName::Webhook, channel)]),
        pools: Pools::default(),
        clock: Arc::new(Running(began)),
        policies: PolicySet::new(),
        overrides: BTreeMap::new(),
        seed: 7,
    };
    Engine::start(parts, Settings::default()).await.unwrap()
}

pub(crate) fn notification(engine: &Engine, destination: usize) -> Notification {
    let mut content = Content::of(Body::Text("hello".to_owned()));
    // So many that chance, which lets each third try fail, does not use them up for any of 2,000.
    let policy = r#"{"strategy": "fixed", "initialDelay": "50ms", "maxAttempts": 60, "jitter": "none", "quick": {"tries": 0}}"#;
    content.policy = Some(serde_json::from_str(policy).unwrap());
    let (tenant, origin) = ("default".parse().unwrap(), format!("http://{destination}"));
    let to = format!("{origin}/");
    let flow = FlowKey { tenant, channel: ChannelName::Webhook, destination: origin.into() };
    Notification::new(engine.notification_id(), flow, to, content)
}

async fn accept(engine: &Engine, count: usize) -> Vec<NotificationId> {
    let mut ids = vec![];
    for number in 0..count {
        let new = notification(engine, number % 7);
        ids.push(new.id);
        assert_eq!(engine.accept(None, vec![new]).await.unwrap(), Accepted::New);
    }
    ids
}

/// Waits until every one of them was delivered; panics if one ends otherwise, and after a minute.
pub(crate) async fn delivered(store: &dyn Store, ids: &[NotificationId]) {
    let until = Instant::now() + Duration::from_secs(60);
    for id in ids {
        loop {
            let view = store.get(*id).await.unwrap().unwrap();
            if view.state == State::Succeeded {
                break;
            }
            let may_come = !view.state.is_end() && Instant::now() < until;
            assert!(may_come, "{id} was not delivered: {}, {:?}, {:?}", view.state, view.progress, view.end);
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn what_an_earlier_process_held_is_delivered_within_a_second_of_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let (path, began) = (directory.path().join("posthaste.db"), Instant::now());
    let engine = start(open(&path).await, Sink::Silent, began).await;
    let ids = accept(&engine, 40).await;
    drop(engine);

    let store = open(&path).await;
    let started = Instant::now();
    let engine = start(store.clone(), Sink::FailsEach(u64::MAX, AtomicU64::new(1)), began).await;
    delivered(&*store, &ids).await;
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    for id in ids {
        let history = store.history(id).await.unwrap();
        let words: Vec<&str> = history.events.iter().map(|event| event.word.as_str()).collect();
        assert_eq!((words, history.attempts.len()), (vec!["interrupted"], 1));
    }
    assert_eq!(engine.drain(Duration::from_secs(5)).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_thousand_pass_through_a_file_with_retries_and_the_counters_agree() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("posthaste.db")).await;
    let engine = start(store.clone(), Sink::FailsEach(3, AtomicU64::new(0)), Instant::now()).await;
    let mut ids = vec![];
    for _ in 0..20 {
        let batch: Vec<Notification> = (0..100).map(|number| notification(&engine, number % 7)).collect();
        ids.extend(batch.iter().map(|one| one.id));
        assert_eq!(engine.accept(None, batch).await.unwrap(), Accepted::New);
    }
    delivered(&*store, &ids).await;
    assert_eq!(engine.drain(Duration::from_secs(5)).await.unwrap(), 0);
    assert_eq!(store.recount().await.unwrap(), None);
    let stats = store.stats(None, engine.now()).await.unwrap();
    let (_, webhooks) = stats.channels[0];
    assert_eq!(
        (webhooks.delivered_24h, webhooks.ended_24h, webhooks.sending, webhooks.in_retry),
        (2_000, 2_000, 0, 0)
    );
}
