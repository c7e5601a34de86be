//! The walk of one notification through the real parts: engine, file, webhook, sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::flow::FlowKey;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::policy::PolicySet;
use posthaste_core::provider::Pools;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::channel::Channel;
use posthaste_engine::clock::Clock;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::store::{Accepted, Reads};
use posthaste_store::sqlite::{Options, SqliteStore};
use posthaste_wire::guard::Guard;
use posthaste_wire::http::HttpOptions;
use posthaste_wire::sink::{Sink, SinkOptions};
use posthaste_wire::webhook::WebhookChannel;

struct Running(Instant);

impl Clock for Running {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).later(self.0.elapsed())
    }
}

const POLICY: &str = r#"{"strategy": "fixed", "initialDelay": "50ms", "maxAttempts": 5, "jitter": "none", "quick": {"tries": 0}}"#;

#[tokio::test]
async fn a_webhook_that_fails_twice_arrives_at_the_third_attempt() {
    let clock: Arc<dyn Clock> = Arc::new(Running(Instant::now()));
    let sink = Sink::start("127.0.0.1:0".parse().unwrap(), SinkOptions::new(clock.clone())).await.unwrap();
    let guard = Guard::allowing(&["127.0.0.0/8"]).unwrap();
    let options = HttpOptions { guard: Some(guard), ..HttpOptions::default() };
    let webhook: Arc<dyn Channel> = Arc::new(WebhookChannel::new(options).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let store =
        Arc::new(SqliteStore::open(directory.path().join("posthaste.db"), Options::default()).unwrap());
    let parts = Parts {
        store: store.clone(),
        channels: BTreeMap::from([(ChannelName::Webhook, webhook)]),
        pools: Pools::default(),
        clock,
        policies: PolicySet::new(),
        overrides: BTreeMap::new(),
        seed: 7,
    };
    let engine = Engine::start(parts, Settings::default()).await.unwrap();
    let url = sink.url("/sequence/503,503,200");
    let mut content = Content::of(Body::Json(r#"{"hello": "world"}"#.to_owned()));
    content.policy = Some(serde_json::from_str(POLICY).unwrap());
    let flow = FlowKey {
        tenant: "default".parse().unwrap(),
        channel: ChannelName::Webhook,
        destination: Guard::allowing(&["127.0.0.0/8"]).unwrap().check_url(&url).unwrap().destination.into(),
    };
    let new = Notification::new(engine.notification_id(), flow, url, content);
    let id = new.id;
    assert_eq!(engine.accept(None, vec![new]).await.unwrap(), Accepted::New);
    tokio::time::timeout(Duration::from_secs(60), sink.wait_for(3)).await.unwrap();
    assert_eq!(engine.drain(Duration::from_secs(60)).await.unwrap(), 0);

    let view = store.get(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.progress.attempt), (State::Succeeded, 3));
    let codes: Vec<_> = store.history(id).await.unwrap().attempts.iter().map(|one| one.status_code).collect();
    assert_eq!(codes, [Some(503), Some(503), Some(200)]);
    let arrivals = sink.arrivals();
    assert_eq!(arrivals.len(), 3);
    for arrival in &arrivals {
        assert_eq!(arrival.id.as_deref(), Some(&*id.to_string()));
        assert!(arrival.body.contains("world"));
    }
    sink.stop().await;
}
