//! An engine on a model store with paused time and a channel that answers as told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod faulty;

pub(crate) use faulty::{FaultyStore, Trouble};

use async_trait::async_trait;
use posthaste_core::attempt::{Attempt, Outcome};
use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification};
use posthaste_core::policy::{DEFAULT_LONGEST_TIMEOUT, PolicyLayer, PolicySet};
use posthaste_core::provider::{Pools, Provider, ProviderKind};
use posthaste_core::reply::{Reply, RetryAfter};
use posthaste_core::signature::SigningSecrets;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::Actor;
use posthaste_engine::channel::{Channel, Delivery};
use posthaste_engine::clock::Clock;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::model_store::ModelStore;
use posthaste_engine::store::{Accepted, AuditRow, DeadLetterView, Reads, Store, View};
use posthaste_engine::vault::NotStarted;
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

/// What a try waits for before it is made.
#[derive(Debug, Clone)]
pub(crate) enum Wait {
    /// It is ready after a while.
    For(Duration),
    /// It is never ready.
    Forever,
    /// It waits in vain.
    InVain(Duration, Reply),
}

/// An HTTP answer without more.
pub(crate) fn http(status: u16) -> Reply {
    Reply::http(status)
}

/// An HTTP answer that asks for some time.
pub(crate) fn http_asking(status: u16, wait: Duration) -> Reply {
    Reply::http_after(status, Some(RetryAfter::In(wait)))
}

/// A channel that plays a script for each recipient, then what it always does for it, or answers 200; it remembers
/// what arrived and when.
#[derive(Debug)]
pub(crate) struct ScriptedChannel {
    scripts: Mutex<BTreeMap<String, VecDeque<Script>>>,
    habits: Mutex<BTreeMap<String, Script>>,
    waits: Mutex<BTreeMap<String, VecDeque<Wait>>>,
    arrivals: Mutex<Vec<(NotificationId, u32, Timestamp)>>,
    signers: Mutex<Vec<Option<Arc<SigningSecrets>>>>,
    /// The headers that each try was sent with.
    headers: Mutex<Vec<BTreeMap<String, String>>>,
    clock: PausedClock,
}

impl ScriptedChannel {
    pub(crate) fn arrivals(&self) -> Vec<(NotificationId, u32, Timestamp)> {
        self.arrivals.lock().unwrap().clone()
    }

    /// What signed each arrival.
    pub(crate) fn signers(&self) -> Vec<Option<Arc<SigningSecrets>>> {
        self.signers.lock().unwrap().clone()
    }

    pub(crate) fn headers(&self) -> Vec<BTreeMap<String, String>> {
        self.headers.lock().unwrap().clone()
    }
}

#[async_trait]
impl Channel for ScriptedChannel {
    async fn ready(&self, notification: &Notification) -> Result<(), Reply> {
        let wait = self.waits.lock().unwrap().get_mut(&notification.to).and_then(VecDeque::pop_front);
        match wait {
            None => Ok(()),
            Some(Wait::For(time)) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Some(Wait::Forever) => std::future::pending().await,
            Some(Wait::InVain(time, reply)) => {
                tokio::time::sleep(time).await;
                Err(reply)
            }
        }
    }

    async fn send(&self, delivery: Delivery) -> Reply {
        let arrival = (delivery.notification.id, delivery.attempt, self.clock.now());
        self.arrivals.lock().unwrap().push(arrival);
        self.signers.lock().unwrap().push(delivery.signer.clone());
        let opened = delivery.opened.headers.iter().flat_map(|headers| headers.reveal().clone());
        let headers = delivery.notification.content.headers.clone().into_iter().chain(opened);
        self.headers.lock().unwrap().push(headers.collect());
        let to = &delivery.notification.to;
        let script = self.scripts.lock().unwrap().get_mut(to).and_then(VecDeque::pop_front);
        let habit = self.habits.lock().unwrap().get(to).cloned();
        match script.or(habit) {
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
    /// Which ways out there are.
    pub(crate) ways: Vec<ChannelName>,
    /// Where chance starts.
    pub(crate) seed: u64,
    /// The longest timeout that a message, template or tenant may ask for.
    pub(crate) longest_timeout: Duration,
}

impl Rig {
    /// A rig whose runtime must be paused (`#[tokio::test(start_paused = true)]`).
    pub(crate) fn new() -> Self {
        let clock = PausedClock::start();
        let channel = ScriptedChannel {
            scripts: Mutex::default(),
            habits: Mutex::default(),
            waits: Mutex::default(),
            arrivals: Mutex::default(),
            signers: Mutex::default(),
            headers: Mutex::default(),
            clock,
        };
        let model = ModelStore::with_clock(move || clock.now());
        // Tests of breakers set their own.
        let breaker = BreakerSettings { failure_threshold: u32::MAX, ..BreakerSettings::default() };
        let (settings, ways) = (Settings { breaker, ..Settings::default() }, vec![ChannelName::Webhook]);
        let longest_timeout = DEFAULT_LONGEST_TIMEOUT;
        Self { model, channel: Arc::new(channel), clock, settings, ways, seed: 7, longest_timeout }
    }

    /// What the channel does for a recipient, try by try.
    pub(crate) fn script(&self, to: &str, script: impl IntoIterator<Item = Script>) {
        self.channel.scripts.lock().unwrap().insert(to.to_owned(), script.into_iter().collect());
    }

    /// What the channel does for a recipient once its script is played.
    pub(crate) fn always(&self, to: &str, habit: Script) {
        self.channel.habits.lock().unwrap().insert(to.to_owned(), habit);
    }

    /// What the tries for a recipient wait for, try by try.
    pub(crate) fn waits(&self, to: &str, waits: impl IntoIterator<Item = Wait>) {
        self.channel.waits.lock().unwrap().insert(to.to_owned(), waits.into_iter().collect());
    }

    /// Starts an engine on the model store itself.
    pub(crate) async fn start(&self) -> Engine {
        self.start_on(Arc::new(self.model.clone())).await
    }

    /// The same, for one that may be refused.
    pub(crate) async fn try_start(&self) -> Result<Engine, NotStarted> {
        self.try_start_on(Arc::new(self.model.clone())).await
    }

    /// Starts an engine on another store.
    pub(crate) async fn start_on(&self, store: Arc<dyn Store>) -> Engine {
        self.try_start_on(store).await.unwrap()
    }

    async fn try_start_on(&self, store: Arc<dyn Store>) -> Result<Engine, NotStarted> {
        let channel: Arc<dyn Channel> = self.channel.clone();
        let channels = self.ways.iter().map(|way| (*way, channel.clone())).collect();
        let relays = self.ways.iter().filter(|way| way.has_providers()).map(|way| Provider {
            name: format!("{way}-relay").into(),
            channel: *way,
            kind: ProviderKind::Log,
            priority: 1,
        });
        let parts = Parts {
            store,
            channels,
            pools: Pools::new(relays),
            clock: Arc::new(self.clock),
            policies: PolicySet::new().with_longest_timeout(self.longest_timeout),
            overrides: BTreeMap::new(),
            seed: self.seed,
        };
        Engine::start(parts, self.settings.clone()).await
    }

    /// How a notification stands.
    pub(crate) async fn view(&self, id: NotificationId) -> View {
        self.model.get(id).await.unwrap().unwrap()
    }

    /// The state of a notification.
    pub(crate) async fn state(&self, id: NotificationId) -> State {
        self.view(id).await.state
    }

    /// The attempts that were recorded.
    pub(crate) async fn attempts(&self, id: NotificationId) -> Vec<Attempt> {
        self.model.history(id).await.unwrap().attempts
    }

    /// The attempts that were recorded: generation, number and outcome.
    pub(crate) async fn outcomes(&self, id: NotificationId) -> Vec<(u32, u32, Outcome)> {
        let of = |attempt: Attempt| (attempt.generation, attempt.number, attempt.outcome);
        self.attempts(id).await.into_iter().map(of).collect()
    }

    /// What else happened: word, who, generation and attempt.
    pub(crate) async fn events(&self, id: NotificationId) -> Vec<(String, Option<String>, u32, u32)> {
        let events = self.model.history(id).await.unwrap().events.into_iter();
        events.map(|event| (event.word, event.actor, event.generation, event.attempt)).collect()
    }

    /// The dead letter that a notification ended as.
    pub(crate) async fn dead_letter(&self, id: NotificationId) -> DeadLetterView {
        let name = self.view(id).await.end.unwrap().dead_letter.unwrap();
        self.model.dead_letter(name).await.unwrap().unwrap()
    }

    /// Every audit row, the first one first.
    pub(crate) fn audit(&self) -> Vec<AuditRow> {
        self.model.inspect(|tables| tables.audit.clone())
    }

    /// What arrived of a notification: the attempt, and when it came, counted from the start.
    pub(crate) fn arrivals(&self, id: NotificationId) -> Vec<(u32, Duration)> {
        let arrivals = self.channel.arrivals().into_iter().filter(|(of, _, _)| *of == id);
        arrivals.map(|(_, attempt, at)| (attempt, at.since(BEGIN))).collect()
    }

    /// How much time has passed since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(BEGIN)
    }
}

impl Drop for Rig {
    /// Whatever a test did, the kept counters are those of the rows (I17).
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.model.drift(), None);
        }
    }
}

/// A person who may do everything.
pub(crate) fn ada() -> Actor {
    Actor::local("ada", None)
}

/// A person of one tenant.
pub(crate) fn someone_of(tenant: &str) -> Actor {
    Actor::local("eve", Some(tenant.parse().unwrap()))
}

/// Holds a measured time to a promised one: not sooner, and at most a few milliseconds of the runtime's timer later.
#[track_caller]
pub(crate) fn assert_at(measured: Duration, promised: Duration) {
    let late = measured.checked_sub(promised);
    assert!(late.is_some_and(|late| late <= ms(5)), "{measured:?}, not {promised:?}");
}

/// Holds what arrived to the promised attempts and times.
#[track_caller]
pub(crate) fn assert_arrived(arrivals: &[(u32, Duration)], promised: &[(u32, Duration)]) {
    assert_eq!(arrivals.len(), promised.len(), "{arrivals:?}");
    for (arrival, promise) in arrivals.iter().zip(promised) {
        assert_eq!(arrival.0, promise.0, "{arrivals:?}");
        assert_at(arrival.1, promise.1);
    }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A webhook notification to `to` under the given policy.
pub(crate) fn notification(engine: &Engine, to: &str, policy: &str) -> Notification {
    let mut content = Content::of(Body::Text("hello".to_owned()));
    content.policy = Some(serde_json::from_str::<PolicyLayer>(policy).unwrap());
    let flow = FlowKey {
        tenant: "default".parse().unwrap(),
        channel: ChannelName::Webhook,
        destination: "http://127.0.0.1:9".into(),
    };
    Notification::new(engine.notification_id(), flow, to.to_owned(), content)
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
