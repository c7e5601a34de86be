//! One run: processes start, clients ask, things go wrong; then all is healed and everything must come to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::flow::FlowKey;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::{Body, Content, Notification, Priority};
use posthaste_core::policy::PolicySet;
use posthaste_core::provider::Pools;
use posthaste_core::time::Timestamp;
use posthaste_engine::channel::Channel;
use posthaste_engine::clock::Clock;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::model_store::Planted;
use posthaste_engine::planted::Planted as InEngine;
use tokio::task::JoinSet;

use super::checks::at_rest;
use super::clients::{act, client};
use super::inbound;
use super::late::PATIENCE;
use super::life::Life;
use super::operations::{all_ended, operate, resume_all};
use super::outages::{self, lift_all, meddle};
use super::retention::{self, levels_off, run_a_job};
use super::sink::{Mood, SINKS, SLOTS, SimChannel, Sinks};
use super::store::SimStore;
use super::world::{Faults, World};

/// What kind of run it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    /// Nothing goes wrong but at the sinks.
    pub(super) calm: bool,
    /// The jobs of retention run, with periods of seconds.
    pub(super) retention: bool,
    /// Destinations are down for a while, and people block and limit them.
    pub(super) outages: bool,
    /// There are inbound limits, and most has to wait for them.
    pub(super) inbound: bool,
    /// A bug in the store to be found.
    pub(super) planted: Option<Planted>,
    /// A bug in the engine to be found.
    pub(super) in_engine: Option<InEngine>,
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) steps: u64,
    pub(super) trace: u64,
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) duplicates: u64,
    pub(super) interruptions: u64,
    /// Calls that were answered as an error and happened later.
    pub(super) late: u64,
    /// Notifications that retention removed before the run came to rest.
    pub(super) removed: u64,
    /// How often a breaker opened.
    pub(super) opened: u64,
    /// Notifications that clients were told are deferred.
    pub(super) deferred: u64,
}

/// How many things a driver does before it heals the world.
const ACTIONS: usize = 150;
/// How many processes there are.
const PROCESSES: usize = 3;
/// How long after the healing everything must have ended: the longest policy's window and the longest wait asked for.
const BOUND: Duration = Duration::from_secs(900);

/// Runs one seed to its end, or to the first broken promise.
pub(super) fn simulate(seed: u64, plan: Plan) -> Result<Run, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut driver = Driver::new(seed, plan);
        driver.upset().await?;
        driver.heal().await?;
        let tally = at_rest(&driver.world)?;
        let removed = driver.world.ledger.lock().unwrap().removed.ended.len() as u64;
        driver.level_off().await?;
        driver.check()?;
        let opened = driver.world.ledger.lock().unwrap().told.opened;
        let deferred = driver.world.ledger.lock().unwrap().slots.deferred.len() as u64;
        Ok(Run {
            removed,
            opened,
            deferred,
            steps: driver.world.steps(),
            trace: driver.world.trace(),
            accepted: tally.accepted,
            delivered: tally.delivered,
            duplicates: tally.duplicates,
            interruptions: tally.interruptions,
            late: driver.world.ledger.lock().unwrap().late,
        })
    })
}

/// A process: its life, and its engine once that has started.
struct Process {
    life: Arc<Life>,
    engine: Arc<Engine>,
}

struct Driver {
    plan: Plan,
    world: Arc<World>,
    sinks: Arc<Sinks>,
    processes: Vec<Option<Process>>,
    clients: JoinSet<()>,
    lives: usize,
    keys: u64,
}

impl Driver {
    fn new(seed: u64, plan: Plan) -> Self {
        let faults = if plan.calm {
            Faults::default()
        } else {
            Faults { crash: 2, refuse: 10, lie: 10, late: 5, ..Faults::default() }
        };
        let world = Arc::new(World::new(seed, faults, plan.outages));
        if let Some(bug) = plan.planted {
            world.model.plant(bug);
        }
        let processes = (0..PROCESSES).map(|_| None).collect();
        Self { plan, world, sinks: Arc::default(), processes, clients: JoinSet::new(), lives: 0, keys: 0 }
    }

    fn check(&self) -> Result<(), String> {
        self.world.broken().map_or(Ok(()), Err)
    }

    fn pick(&self, most: usize) -> usize {
        self.world.draw(|chance| chance.usize(0..most))
    }

    /// The part of the run in which things go wrong.
    async fn upset(&mut self) -> Result<(), String> {
        for _ in 0..ACTIONS {
            self.bury_the_dead();
            let wait = Duration::from_millis(self.world.draw(|chance| chance.u64(0..1_000)));
            tokio::time::sleep(wait).await;
            self.act().await;
            self.check()?;
        }
        Ok(())
    }

    async fn act(&mut self) {
        if self.plan.retention && self.pick(12) == 0 {
            return self.run_a_job();
        }
        if self.plan.outages && self.pick(5) == 0 {
            return self.upset_destinations();
        }
        match self.pick(100) {
            0..42 => self.send(),
            42..46 => self.operate(),
            46..65 => self.ask(),
            65..78 => self.change_a_mood(),
            78..85 => self.start_one().await,
            85..88 if !self.plan.calm => self.kill_one(),
            88..94 if !self.plan.calm => self.pause_one(),
            94..95 if !self.plan.calm => self.cut_the_store_off(),
            95..97 => self.drain_one().await,
            97..98 => self.ask_many_times(),
            98..99 if !self.plan.calm => self.stall_commits(),
            _ => self.start_one().await,
        }
    }

    /// Faults end, the paused go on, the dead start again, sinks take everything; then all must end in time.
    async fn heal(&mut self) -> Result<(), String> {
        *self.world.faults.lock().unwrap() = Faults::default();
        *self.sinks.moods.lock().unwrap() = [Mood::Takes; SINKS];
        *self.sinks.down.lock().unwrap() = [None; SINKS];
        self.bury_the_dead();
        for process in self.processes.iter().flatten() {
            process.life.resume();
        }
        while self.processes.iter().any(Option::is_none) {
            self.start_one().await;
        }
        let deferral = if self.plan.inbound { inbound::LONGEST } else { Duration::ZERO };
        let until = self.world.now().later(BOUND + deferral);
        while self.world.now() < until {
            // What somebody asked for before the healing may still happen, so people look again.
            if let Some((_, engine)) = self.some_process() {
                resume_all(&self.world, &engine).await;
                if self.plan.outages {
                    lift_all(&self.world, &engine).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.check()?;
            let idle =
                self.world.model.inspect(|tables| tables.queue.is_empty() && all_ended(tables).is_ok());
            if idle && self.clients.is_empty() && !self.world.has_open_calls() {
                break;
            }
            while self.clients.try_join_next().is_some() {}
        }
        self.empty_handed().await
    }

    /// What is left to remove is removed.
    async fn level_off(&self) -> Result<(), String> {
        match self.some_process() {
            Some((_, engine)) if self.plan.retention => levels_off(&self.world, &engine).await,
            _ => Ok(()),
        }
    }

    /// A heartbeat later nothing is in anybody's hands, but for those that still wait for an answer that stalled.
    async fn empty_handed(&self) -> Result<(), String> {
        let until = self.world.now().later(PATIENCE + Duration::from_secs(5));
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let busy = self.processes.iter().flatten().find(|process| process.engine.busy() > 0);
            match busy {
                None => return Ok(()),
                Some(_) if !self.plan.calm && self.world.now() < until => {}
                Some(process) => {
                    return Err(format!("I16: process {} has places taken", process.life.number));
                }
            }
        }
    }

    // ---- processes ----

    fn bury_the_dead(&mut self) {
        for process in &mut self.processes {
            if process.as_ref().is_some_and(|process| process.life.is_dead()) {
                *process = None;
            }
        }
        while self.clients.try_join_next().is_some() {}
    }

    /// Starts a process where one is missing. Its own clock may be up to a minute wrong.
    async fn start_one(&mut self) {
        let Some(place) = self.processes.iter().position(Option::is_none) else { return };
        self.lives += 1;
        let life = Arc::new(Life::new(self.lives));
        let skew = self.world.draw(|chance| chance.i64(-60_000..60_000));
        let store = Arc::new(SimStore { world: self.world.clone(), life: life.clone() });
        let channel: Arc<dyn Channel> =
            Arc::new(SimChannel::new(self.world.clone(), life.clone(), self.sinks.clone()));
        let parts = Parts {
            store,
            channels: BTreeMap::from([
                (ChannelName::Webhook, channel.clone()),
                (ChannelName::Email, channel),
            ]),
            pools: if self.plan.outages { outages::pools() } else { Pools::default() },
            clock: Arc::new(Skewed { world: self.world.clone(), millis: skew }),
            policies: PolicySet::new(),
            overrides: BTreeMap::new(),
            seed: self.world.draw(|chance| chance.u64(..)),
        };
        let settings =
            Settings { concurrency: SLOTS, batch: 7, planted: self.plan.in_engine, ..Settings::default() };
        let settings =
            if self.plan.retention { retention::settings(self.world.seed, settings) } else { settings };
        let settings =
            if self.plan.outages { outages::settings(self.world.seed, settings) } else { settings };
        let settings = if self.plan.inbound { inbound::settings(settings) } else { settings };
        let started = tokio::select! {
            biased;
            () = life.ends() => None,
            started = Engine::start(parts, settings) => started.ok(),
        };
        self.processes[place] = started.map(|engine| Process { life, engine: Arc::new(engine) });
    }

    fn kill_one(&mut self) {
        let place = self.pick(PROCESSES);
        if let Some(process) = self.processes[place].take() {
            process.life.die();
        }
    }

    /// Pauses a process, often for longer than its leases last.
    fn pause_one(&mut self) {
        let place = self.pick(PROCESSES);
        let Some(process) = &self.processes[place] else { return };
        let (life, wait) = (process.life.clone(), self.world.draw(|chance| chance.u64(5..40)));
        life.pause();
        self.clients.spawn(async move {
            tokio::time::sleep(Duration::from_secs(wait)).await;
            life.resume();
        });
    }

    fn cut_the_store_off(&self) {
        let wait = Duration::from_secs(self.world.draw(|chance| chance.u64(1..25)));
        self.world.faults.lock().unwrap().outage_until = Some(self.world.now().later(wait));
    }

    /// Nothing is committed for a while, often for longer than a caller waits or a lease lasts.
    fn stall_commits(&self) {
        let wait = Duration::from_secs(self.world.draw(|chance| chance.u64(5..40)));
        self.world.faults.lock().unwrap().stalled_until = Some(self.world.now().later(wait));
    }

    /// Stops a process properly, if no client is talking to it.
    async fn drain_one(&mut self) {
        let place = self.pick(PROCESSES);
        let Some(process) = self.processes[place].take() else { return };
        let life = process.life.clone();
        match Arc::try_unwrap(process.engine) {
            Ok(engine) => {
                let least = if self.plan.calm { 30 } else { 0 };
                let patience = Duration::from_secs(self.world.draw(|chance| chance.u64(least..least + 20)));
                tokio::select! {
                    biased;
                    () = life.ends() => {}
                    _ = engine.drain(patience) => {}
                }
                life.die();
            }
            Err(engine) => self.processes[place] = Some(Process { life, engine }),
        }
    }

    fn change_a_mood(&self) {
        let moods = if self.plan.calm { &Mood::ALL[..Mood::CLEAR] } else { &Mood::ALL };
        let (sink, mood) = (self.pick(SINKS), moods[self.pick(moods.len())]);
        self.sinks.moods.lock().unwrap()[sink] = mood;
    }

    fn some_process(&self) -> Option<(Arc<Life>, Arc<Engine>)> {
        let running: Vec<&Process> =
            self.processes.iter().flatten().filter(|one| !one.life.is_dead()).collect();
        let process = running.get(self.pick(running.len().max(1)))?;
        Some((process.life.clone(), process.engine.clone()))
    }

    // ---- clients ----

    /// A client hands in one to five notifications, at times under a key, and tries again when it is left in doubt.
    fn send(&mut self) {
        let count = 1 + self.pick(5);
        let keyed = self.pick(3) == 0;
        let key = keyed.then(|| {
            self.keys += 1;
            format!("key {}", self.keys)
        });
        let tries = if keyed { 1 + self.pick(3) } else { 1 };
        for _ in 0..tries {
            let Some((life, engine)) = self.some_process() else { return };
            let notifications: Vec<Notification> = (0..count).map(|_| self.notification()).collect();
            self.clients.spawn(client(self.world.clone(), life, engine, key.clone(), notifications));
        }
    }

    fn notification(&self) -> Notification {
        let (now, outages, inbound) = (self.world.now(), self.plan.outages, self.plan.inbound);
        self.world.draw(|chance| {
            let sink = chance.usize(0..SINKS);
            let policy = POLICIES[chance.usize(0..POLICIES.len())];
            let mut content = Content::of(Body::Text("hello".to_owned()));
            content.policy = Some(serde_json::from_str(policy).unwrap());
            content.module = inbound.then(|| inbound::module(chance)).flatten();
            let within = |chance: &mut fastrand::Rng, secs: u64| {
                now.later(Duration::from_millis(chance.u64(1..secs * 1_000)))
            };
            let id = NotificationId::new(now, chance.u128(..));
            let flow = FlowKey {
                tenant: format!("t{}", chance.u8(0..3)).parse().unwrap(),
                channel: ChannelName::Webhook,
                destination: format!("sink {sink}").into(),
            };
            let mail =
                FlowKey { channel: ChannelName::Email, destination: "pool:email".into(), ..flow.clone() };
            let flow = if outages && chance.u8(0..3) == 0 { mail } else { flow };
            Notification {
                priority: Priority::ALL[chance.usize(0..4)],
                not_before: (chance.u8(0..6) == 0).then(|| within(chance, 30)),
                expires_at: (chance.u8(0..6) == 0).then(|| within(chance, 60)),
                ..Notification::new(id, flow, sink.to_string(), content)
            }
        })
    }

    /// A person or program acts on some notification.
    fn ask(&mut self) {
        let Some(id) = self.some_id() else { return };
        let Some((life, engine)) = self.some_process() else { return };
        let (what, world) = (self.pick(6), self.world.clone());
        self.clients.spawn(async move {
            tokio::select! {
                biased;
                () = life.ends() => {}
                () = act(&world, &engine, id, what) => {}
            }
        });
    }

    /// Somebody starts or changes an operation.
    fn operate(&mut self) {
        let Some((life, engine)) = self.some_process() else { return };
        let world = self.world.clone();
        self.clients.spawn(async move {
            tokio::select! {
                biased;
                () = life.ends() => {}
                () = operate(&world, &engine) => {}
            }
        });
    }

    /// Somebody asks for a job of retention to run now.
    fn run_a_job(&mut self) {
        let Some((life, engine)) = self.some_process() else { return };
        let world = self.world.clone();
        self.clients.spawn(async move {
            tokio::select! {
                biased;
                () = life.ends() => {}
                () = run_a_job(&world, &engine) => {}
            }
        });
    }

    /// A destination is down for a while, or somebody blocks, unblocks, limits or resets one.
    fn upset_destinations(&mut self) {
        if self.pick(3) > 0 {
            let (sink, wait) = (self.pick(SINKS), self.world.draw(|chance| chance.u64(5..60)));
            let until = self.world.now().later(Duration::from_secs(wait));
            self.sinks.down.lock().unwrap()[sink] = Some(until);
            return;
        }
        let Some((life, engine)) = self.some_process() else { return };
        let world = self.world.clone();
        self.clients.spawn(async move {
            tokio::select! {
                biased;
                () = life.ends() => {}
                () = meddle(&world, &engine) => {}
            }
        });
    }

    /// Many people retry the same notification at once, by every way there is (I12).
    fn ask_many_times(&mut self) {
        let ended = self.world.model.inspect(|tables| tables.ended.keys().copied().collect::<Vec<_>>());
        let Some(id) = ended.get(self.pick(ended.len().max(1))).copied() else { return };
        for turn in 0..64 {
            let Some((life, engine)) = self.some_process() else { return };
            let world = self.world.clone();
            self.clients.spawn(async move {
                tokio::select! {
                    biased;
                    () = life.ends() => {}
                    () = act(&world, &engine, id, 2 + turn % 2) => {}
                }
            });
        }
    }

    fn some_id(&self) -> Option<NotificationId> {
        let ids = self.world.model.inspect(|tables| tables.notifications.keys().copied().collect::<Vec<_>>());
        ids.get(self.pick(ids.len().max(1))).copied()
    }
}

/// Short enough that a run ends soon, and with something of every kind.
const POLICIES: [&str; 5] = [
    r#"{"strategy": "fixed", "initialDelay": "2s", "maxAttempts": 4, "jitter": "none", "timeout": "3s", "quick": {"tries": 0}}"#,
    r#"{"strategy": "exponential", "initialDelay": "1s", "multiplier": 2, "maximumDelay": "20s", "maxAttempts": 5, "jitter": {"percent": 10}, "timeout": "10s", "quick": {"tries": 2, "delay": "100ms"}}"#,
    r#"{"strategy": "schedule", "schedule": ["500ms", "30s"], "maxAttempts": 3, "jitter": {"plus": "5s"}, "timeout": "5s"}"#,
    r#"{"strategy": "immediate", "maxAttempts": 2, "timeout": "20s", "deadLetter": false}"#,
    r#"{"strategy": "none", "maxAttempts": 1, "timeout": "2s"}"#,
];

/// A clock that is wrong by so much.
struct Skewed {
    world: Arc<World>,
    millis: i64,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.world.now().as_millis().saturating_add(self.millis))
    }
}
