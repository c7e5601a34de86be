//! Outages in the simulation: destinations that are down for a while, blocks and limits, and the promises about what a process
//! sends once it knows of them (I6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::breaker::{Breaker, BreakerSettings};
use posthaste_core::channel::Channel;
use posthaste_core::destination::{
    Destination, DestinationChange, DestinationKey, DestinationKind, DestinationName, DestinationPut,
    SendLimits, StoredDestination,
};
use posthaste_core::flow::{FlowId, FlowKey, Gate};
use posthaste_core::id::OperationId;
use posthaste_core::lease::NodeId;
use posthaste_core::provider::{Pools, Provider, ProviderKind, Route};
use posthaste_core::rate::Rate;
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::Actor;
use posthaste_engine::channel::Delivery;
use posthaste_engine::destinations::DestinationTarget;
use posthaste_engine::engine::{Engine, Settings};
use posthaste_engine::store::slice::{Answer, Call};
use posthaste_engine::store::{Destinations as _, Settlement, destinations};

use super::checks::{Check, hold};
use super::life::Life;
use super::sink::SINKS;
use super::world::World;

/// The provider of e-mail, and how many it takes at once.
pub(super) const RELAY: &str = "relay";
const AT_RELAY: u32 = 3;
/// How many of a tenant the first sink takes at once.
const AT_SINK: u32 = 2;
/// How long a process may need from the answer of the store until it obeys: it asks for numbers of flows in between.
const SLACK: Duration = Duration::from_millis(500);

/// The settings of a process whose destinations are down now and then.
pub(super) fn settings(seed: u64, settings: Settings) -> Settings {
    let breaker = BreakerSettings {
        failure_threshold: 4,
        first_break: Duration::from_secs(2),
        break_duration: Duration::from_secs(10),
        // Where nothing is forgotten in time, only a probe can close it.
        forget_after: Duration::from_secs(if seed.is_multiple_of(2) { 30 } else { 3_600 }),
    };
    let at_most = |most| SendLimits { rate: None, concurrency: Some(most) };
    let name = |kind, name: &str| DestinationName { kind, name: name.into() };
    let limits = [
        (name(DestinationKind::Webhook, "sink 0"), at_most(AT_SINK)),
        (name(DestinationKind::Provider, RELAY), at_most(AT_RELAY)),
    ];
    Settings { breaker, destination_limits: limits.into(), ..settings }
}

pub(super) fn pools() -> Pools {
    Pools::new([Provider {
        name: RELAY.into(),
        channel: Channel::Email,
        kind: ProviderKind::Log,
        priority: 1,
    }])
}

/// What processes were told, and what they send.
#[derive(Debug, Default)]
pub(super) struct Told {
    known: BTreeMap<(usize, DestinationKey), Known>,
    /// When a process last had no true answer of the store.
    trouble: BTreeMap<usize, Timestamp>,
    probes: BTreeSet<(DestinationKey, i64)>,
    under_way: BTreeMap<(usize, DestinationKey), Vec<(u64, Timestamp)>>,
    count: u64,
    /// How often a breaker was opened.
    pub(super) opened: u64,
}

#[derive(Debug)]
struct Known {
    version: i64,
    value: Option<Destination>,
    since: Timestamp,
}

impl Told {
    /// A process has the answer of the store.
    pub(super) fn told(&mut self, life: &Life, asked: Option<&Call>, answer: &Answer, now: Timestamp) {
        match (asked, answer) {
            (_, Answer::Destinations(destinations::Answer::Since(rows))) => {
                for row in rows {
                    self.learned(life, row.clone(), now);
                }
            }
            (
                Some(Call::Destinations(destinations::Call::Put { changes, .. })),
                Answer::Destinations(destinations::Answer::Put(put)),
            ) => {
                for (change, put) in changes.iter().zip(put) {
                    let row = match put {
                        DestinationPut::Made(version) => StoredDestination {
                            key: change.key.clone(),
                            version: *version,
                            value: change.value.clone(),
                            changed: now,
                        },
                        DestinationPut::Conflict(found) => (**found).clone(),
                    };
                    self.learned(life, row, now);
                }
            }
            _ => {}
        }
    }

    pub(super) fn troubled(&mut self, life: &Life, now: Timestamp) {
        self.trouble.insert(life.number, now);
    }

    fn learned(&mut self, life: &Life, row: StoredDestination, now: Timestamp) {
        let place = (life.number, row.key);
        if self.known.get(&place).is_none_or(|known| known.version < row.version) {
            self.known.insert(place, Known { version: row.version, value: row.value, since: now });
        }
    }

    /// A try begins: what must be true of it.
    fn begins(&mut self, life: &Life, key: &DestinationKey, now: Timestamp) -> (u64, Check) {
        let place = (life.number, key.clone());
        let mine = self.under_way.entry(place.clone()).or_default();
        self.count += 1;
        mine.push((self.count, now));
        let limit = match key.kind {
            DestinationKind::Provider => AT_RELAY,
            DestinationKind::Webhook if &*key.name == "sink 0" => AT_SINK,
            DestinationKind::Webhook | DestinationKind::Subscription => u32::MAX,
        };
        let at_once = mine.len();
        // People may set another one.
        let is_set =
            |known: &Known| known.value.as_ref().is_some_and(|value| value.limits != SendLimits::default());
        let is_set = self.known.get(&place).is_some_and(is_set);
        let check = hold(is_set || at_once <= limit as usize, || {
            format!("process {} sends {at_once} to {key:?} at once, which takes {limit}", life.number)
        });
        (self.count, check.and_then(|()| self.obeys(life, key, now)))
    }

    /// I6: once a process knows that a breaker is open, it sends nothing but the one probe; while it ramps up, no more than it takes.
    fn obeys(&mut self, life: &Life, key: &DestinationKey, now: Timestamp) -> Check {
        let place = (life.number, key.clone());
        let Some(Known { version, value: Some(value), since }) = self.known.get(&place) else {
            return Ok(());
        };
        let says = |what: &str| {
            let number = life.number;
            format!(
                "I6: process {number} knows since {since} that {key:?} is {what} and sends at {now}: {value:?}"
            )
        };
        if let Breaker::HalfOpen { node, .. } = value.breaker
            && life.node() == Some(NodeId(node))
            && value.block.is_none()
        {
            let is_first = self.probes.insert((key.clone(), *version));
            return hold(is_first, || format!("process {} sends a second probe to {key:?}", life.number));
        }
        let trouble = self.trouble.get(&life.number).copied().unwrap_or(Timestamp::MIN);
        if now.since((*since).max(trouble)) < SLACK {
            return Ok(());
        }
        hold(value.block.is_none(), || says("blocked"))?;
        hold(value.paused(now).is_none(), || says("paused"))?;
        match value.breaker {
            Breaker::Closed { .. } => Ok(()),
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => Err(says("open")),
            Breaker::Ramping { closed_at, .. } => {
                let at_once = value.breaker.ramp(now).map_or(u32::MAX, |ramp| ramp.at_once);
                let mine = self.under_way.get(&place).into_iter().flatten();
                let count = mine.filter(|(_, began)| *began >= closed_at.later(SLACK)).count();
                hold(count <= at_once as usize, || says(&format!("ramping up to {at_once} (with {count})")))
            }
        }
    }
}

/// Once a process knows that a destination is open or blocked, its operations send nothing there but what is to be the probe.
pub(super) fn forwards(world: &World, life: &Life, id: OperationId, quotas: &[(FlowId, u32)]) {
    let (now, ledger) = (world.now(), world.ledger.lock().unwrap());
    let trouble = ledger.told.trouble.get(&life.number).copied().unwrap_or(Timestamp::MIN);
    let key_of = |flow: &FlowKey| match flow.channel {
        Channel::Email => Some(DestinationKey::provider(RELAY)),
        _ => DestinationKey::of_flow(flow),
    };
    let ignored = world.model.inspect(|tables| {
        if !tables.operations.operations.get(&id)?.action.sends() {
            return None;
        }
        let keys = quotas.iter().filter_map(|(flow, _)| key_of(tables.flows.get(flow)?));
        keys.into_iter().find(|key| {
            let known = ledger.told.known.get(&(life.number, key.clone()));
            known.is_some_and(|Known { value, since, .. }| {
                let is_open = value.as_ref().is_some_and(|value| value.gate(now) == Gate::Open);
                is_open && now.since((*since).max(trouble)) >= SLACK
            })
        })
    });
    drop(ledger);
    world.expect(hold(!world.has_outages || ignored.is_none(), || {
        format!("process {} knows that {ignored:?} is shut, and {id} sends to it", life.number)
    }));
}

/// A try that is under way.
pub(super) struct Sending {
    world: Arc<World>,
    place: (usize, DestinationKey),
    number: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut ledger = self.world.ledger.lock().unwrap();
        if let Some(mine) = ledger.told.under_way.get_mut(&self.place) {
            mine.retain(|(number, _)| *number != self.number);
        }
    }
}

pub(super) fn sends(world: &Arc<World>, life: &Life, delivery: &Delivery) -> Option<Sending> {
    let key = match &delivery.route {
        Route::Direct => DestinationKey::of_flow(&FlowKey::of(&delivery.notification))?,
        Route::Provider(provider) => DestinationKey::provider(&provider.name),
    };
    let (number, check) = world.ledger.lock().unwrap().told.begins(life, &key, world.now());
    if world.has_outages {
        world.expect(check);
    }
    Some(Sending { world: world.clone(), place: (life.number, key), number })
}

/// Every attempt that is recorded was made: what is parked spends none.
pub(super) fn attempts_were_made(world: &World, batch: &[Settlement]) {
    let ledger = world.ledger.lock().unwrap();
    let spent = batch.iter().find_map(|one| {
        let attempt = one.attempt.as_ref()?;
        let number = (attempt.generation, attempt.number);
        let tries = ledger.tries.get(&one.id).into_iter().flatten();
        (!tries.into_iter().any(|one| one.number == number)).then_some((one.id, number))
    });
    drop(ledger);
    world.expect(hold(spent.is_none(), || format!("I7: {spent:?} is recorded and was never made")));
}

/// A change is made on the row as it was expected, and no probe begins while another is under way.
pub(super) async fn swaps(world: &World, changes: &[DestinationChange], now: Timestamp) -> Vec<(i64, bool)> {
    let mut before = vec![];
    for change in changes {
        let row =
            world.model.destinations(vec![change.key.clone()]).await.ok().and_then(|mut rows| rows.pop());
        let breaker = row.as_ref().and_then(|row| row.value.as_ref()).map(|value| value.breaker);
        let probing = matches!(breaker, Some(Breaker::HalfOpen { until, .. }) if now < until);
        before.push((row.map_or(0, |row| row.version), probing));
    }
    before
}

pub(super) fn swapped(
    world: &World,
    changes: &[DestinationChange],
    put: &[DestinationPut],
    before: &[(i64, bool)],
) {
    for ((change, put), (version, probing)) in changes.iter().zip(put).zip(before) {
        if !put.is_made() {
            continue;
        }
        let key = &change.key;
        world.expect(hold(change.expected == *version, || {
            format!("{key:?} was changed as version {}, it is {version}", change.expected)
        }));
        let begins =
            matches!(change.value.as_ref().map(|value| value.breaker), Some(Breaker::HalfOpen { .. }));
        let probes = begins && change.events.iter().any(|event| event.event.name() == "probed");
        world.expect(hold(!(probes && *probing), || format!("two probes of {key:?} at once")));
        let opens = change.events.iter().any(|event| event.event.name() == "opened");
        world.ledger.lock().unwrap().told.opened += u64::from(opens);
    }
}

/// Somebody blocks, unblocks, limits or resets some destination.
pub(super) async fn meddle(world: &World, engine: &Engine) {
    let actor = Actor::local("simulation", None);
    let (what, sink, tenant) =
        world.draw(|chance| (chance.u8(0..6), chance.usize(0..=SINKS), chance.u8(0..3)));
    let key = if sink == SINKS { DestinationKey::provider(RELAY) } else { webhook(tenant, sink) };
    let target = DestinationTarget { id: key.id(), named: Some(key) };
    let limits = world.draw(|chance| SendLimits {
        rate: Rate::per_second(chance.f64() * 20.0 + 0.5).ok(),
        concurrency: Some(chance.u32(1..4)),
    });
    let _ = match what {
        0 => engine.block_destination(target, None, &actor).await,
        1..3 => engine.unblock_destination(target, &actor).await,
        3 => engine.limit_destination(target, limits, &actor).await,
        4 => engine.limit_destination(target, SendLimits::default(), &actor).await,
        _ => engine.reset_destination(target, &actor).await,
    };
}

fn webhook(tenant: u8, sink: usize) -> DestinationKey {
    let tenant = format!("t{tenant}").parse().unwrap();
    let name = format!("sink {sink}").into();
    DestinationKey { tenant: Some(tenant), kind: DestinationKind::Webhook, name }
}

/// People lift every block and every limit.
pub(super) async fn lift_all(world: &World, engine: &Engine) {
    let actor = Actor::local("simulation", None);
    let page = world.model.destination_page(None, None, 1_000).await.unwrap();
    for row in page.rows {
        let Some(value) = row.value else { continue };
        let target = DestinationTarget { id: row.key.id(), named: Some(row.key) };
        if value.block.is_some() {
            let _ = engine.unblock_destination(target.clone(), &actor).await;
        }
        if value.limits != SendLimits::default() {
            let _ = engine.limit_destination(target, SendLimits::default(), &actor).await;
        }
    }
}
