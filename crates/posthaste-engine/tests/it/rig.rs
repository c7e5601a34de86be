//! An engine on a model store with paused time and a channel that answers as told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::classify::Overrides;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification, Priority};
use posthaste_core::policy::{PolicyLayer, PolicySet};
use posthaste_core::reply::Reply;
use posthaste_core::time::Timestamp;
use posthaste_engine::channel::{Channel, Delivery};
use posthaste_engine::clock::Clock;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::model_store::ModelStore;
use posthaste_engine::store::{Accepted, Store, View};
use tokio::time::Instant;

/// The time of paused tests: it starts here and goes by the runtime's clock.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// A clock on paused time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PausedClock {
    begin: Instant,
}

impl PausedClock {
    pub(crate) fn start() -> Self {
        Self { begin: Instant::now() }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        BEGIN.later(self.begin.elapsed())
    }
}

/// What the channel does with one try.
#[derive(Debug, Clone)]
pub(crate) enum Script {
    /// Answers.
    Answer(Reply),
    /// Answers after a while.
    Slowly(Duration, Reply),
    /// Never answers.
    Hang,
    /// Panics.
    Panic,
}

/// An HTTP answer without more.
pub(crate) fn http(status: u16) -> Reply {
    Reply::Http { status, retry_after: None, text: String::new() }
}

/// A channel that plays a script for each recipient, then answers 200, and remembers what arrived and when.
#[derive(Debug)]
pub(crate) struct ScriptedChannel {
    scripts: Mutex<BTreeMap<String, VecDeque<Script>>>,
    arrivals: Mutex<Vec<(NotificationId, u32, Timestamp)>>,
    clock: PausedClock,
}

impl ScriptedChannel {
    pub(crate) fn arrivals(&self) -> Vec<(NotificationId, u32, Timestamp)> {
        self.arrivals.lock().unwrap().clone()
    }
}

#[async_trait]
impl Channel for ScriptedChannel {
    async fn send(&self, delivery: Delivery) -> Reply {
        let arrival = (delivery.notification.id, delivery.attempt, self.clock.now());
        self.arrivals.lock().unwrap().push(arrival);
        let script =
            self.scripts.lock().unwrap().get_mut(&delivery.notification.to).and_then(VecDeque::pop_front);
        match script {
            None => http(200),
            Some(Script::Answer(reply)) => reply,
            Some(Script::Slowly(wait, reply)) => {
                tokio::time::sleep(wait).await;
                reply
            }
            Some(Script::Hang) => std::future::pending().await,
            Some(Script::Panic) => panic!("the script says so"),
        }
    }
}

/// Everything that a test of the engine needs.
pub(crate) struct Rig {
    pub(crate) model: ModelStore,
    pub(crate) channel: Arc<ScriptedChannel>,
    pub(crate) clock: PausedClock,
    pub(crate) settings: Settings,
}

impl Rig {
    /// A rig whose runtime must be paused (`#[tokio::test(start_paused = true)]`).
    pub(crate) fn new() -> Self {
        let clock = PausedClock::start();
        let channel = ScriptedChannel { scripts: Mutex::default(), arrivals: Mutex::default(), clock };
        let model = ModelStore::with_clock(move || clock.now());
        Self { model, channel: Arc::new(channel), clock, settings: Settings::default() }
    }

    /// What the channel does for a recipient, try by try.
    pub(crate) fn script(&self, to: &str, script: impl IntoIterator<Item = Script>) {
        self.channel.scripts.lock().unwrap().insert(to.to_owned(), script.into_iter().collect());
    }

    /// Starts an engine on the model store itself.
    pub(crate) async fn start(&self) -> Engine {
        self.start_on(Arc::new(self.model.clone())).await
    }

    /// Starts an engine on another store.
    pub(crate) async fn start_on(&self, store: Arc<dyn Store>) -> Engine {
        let channel: Arc<dyn Channel> = self.channel.clone();
        let parts = Parts {
            store,
            channels: BTreeMap::from([(ChannelName::Webhook, channel)]),
            clock: Arc::new(self.clock),
            policies: PolicySet::new(),
            overrides: Overrides::default(),
            seed: 7,
        };
        Engine::start(parts, self.settings.clone()).await.unwrap()
    }

    /// How a notification stands.
    pub(crate) async fn view(&self, id: NotificationId) -> View {
        self.model.get(id).await.unwrap().unwrap()
    }
}

/// A webhook notification to `to` under the given policy.
pub(crate) fn notification(engine: &Engine, to: &str, policy: &str) -> Notification {
    let mut content = Content::of(Body::Text("hello".to_owned()));
    content.policy = Some(serde_json::from_str::<PolicyLayer>(policy).unwrap());
    Notification {
        id: engine.notification_id(),
        tenant: "default".parse().unwrap(),
        channel: ChannelName::Webhook,
        destination: "http://127.0.0.1:9".into(),
        to: to.to_owned(),
        priority: Priority::Normal,
        template: None,
        subject: None,
        event_key: None,
        correlation_id: None,
        not_before: None,
        expires_at: None,
        content,
    }
}

/// Hands one notification in and answers its id.
pub(crate) async fn send(engine: &Engine, notification: Notification) -> NotificationId {
    let id = notification.id;
    assert_eq!(engine.accept(None, vec![notification]).await.unwrap(), Accepted::New);
    id
}

/// Lets that much paused time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
