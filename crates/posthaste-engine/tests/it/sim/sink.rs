//! The other side: sinks that take, refuse, fail, throttle, hang and lie, and the promises about what reaches them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::id::NotificationId;
use posthaste_core::notification::Notification;
use posthaste_core::reply::{Fault, Reply, RetryAfter};
use posthaste_core::time::Timestamp;
use posthaste_engine::channel::{Channel, Delivery};

use super::ledger::{Ledger, Number, Try};
use super::life::Life;
use super::outages::sends;
use super::world::World;

/// What a destination is like at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Takes,
    Refuses,
    Fails,
    Throttles,
    Rejects,
    /// Takes the notification, and its time, at times more than the sender has.
    Dawdles,
    Hangs,
    /// Takes the notification and breaks the connection, or answers with an error.
    Lies,
}

impl Mood {
    /// The moods that leave nobody in doubt come first.
    pub(super) const ALL: [Self; 10] = [
        Self::Takes,
        Self::Refuses,
        Self::Fails,
        Self::Throttles,
        Self::Rejects,
        Self::Dawdles,
        Self::Dawdles,
        Self::Dawdles,
        Self::Hangs,
        Self::Lies,
    ];

    /// How many of them leave nobody in doubt.
    pub(super) const CLEAR: usize = 5;
}

/// The destinations, and their moods.
pub(super) struct Sinks {
    pub(super) moods: Mutex<[Mood; SINKS]>,
    /// Until when they are down.
    pub(super) down: Mutex<[Option<Timestamp>; SINKS]>,
}

pub(super) const SINKS: usize = 4;

impl Default for Sinks {
    fn default() -> Self {
        Self { moods: Mutex::new([Mood::Takes; SINKS]), down: Mutex::default() }
    }
}

/// One process's way to the sinks.
pub(super) struct SimChannel {
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
    pub(super) sinks: Arc<Sinks>,
    /// The tries that it is making.
    under_way: AtomicU32,
}

/// How many notifications a process may send at once.
pub(super) const SLOTS: u32 = 8;

impl SimChannel {
    pub(super) fn new(world: Arc<World>, life: Arc<Life>, sinks: Arc<Sinks>) -> Self {
        Self { world, life, sinks, under_way: AtomicU32::new(0) }
    }
}

#[async_trait]
impl Channel for SimChannel {
    /// Some tries wait for seconds before they are made. The lease may be lost by then, and a drain may have begun.
    async fn ready(&self, _: &Notification) -> Result<(), Reply> {
        if self.world.unready && self.world.strikes(50) {
            let wait = self.world.draw(|chance| chance.u64(0..6_000));
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Ok(())
    }

    async fn send(&self, delivery: Delivery) -> Reply {
        let id = delivery.notification.id;
        let Some(number) = self.begins(id) else { return fault(Fault::Refused) };
        if delivery.attempt != number.1 {
            self.world
                .break_promise(format!("{id} is sent as attempt {}, it is {}", delivery.attempt, number.1));
        }
        let _sending = sends(&self.world, &self.life, &delivery);
        let underway = Underway::new(self, id, number);
        self.world.latency().await;
        self.life.runs().await;
        let faults = *self.world.faults.lock().unwrap();
        if self.world.strikes(faults.crash) {
            self.life.die();
            self.life.runs().await;
        }
        let reply = self.meet(&delivery, number, &underway).await;
        // Asked again: the send took its time, and once faults have ended nobody dies any more.
        let faults = *self.world.faults.lock().unwrap();
        if self.world.strikes(faults.crash) {
            self.life.die();
        }
        self.life.runs().await;
        self.world.latency().await;
        self.life.runs().await;
        underway.answered();
        reply
    }
}

impl SimChannel {
    /// What must be true of every try at the moment it begins (I4, I6, I15).
    fn begins(&self, id: NotificationId) -> Option<Number> {
        let world = &self.world;
        let row = world.model.inspect(|tables| tables.queue.get(&id).cloned());
        let Some(row) = row else {
            world.break_promise(format!(
                "I4: process {} sends {id}, which is not in the queue",
                self.life.number
            ));
            return None;
        };
        let number = (row.progress.generation, row.progress.attempt);
        let holder = row.lease.map(|lease| lease.node);
        if holder.is_none() || holder != self.life.node() {
            let us = self.life.node();
            world.break_promise(format!("I4: {us:?} sends {id}, which {holder:?} holds"));
        }
        if world.now() < row.due {
            world.break_promise(format!("I6: {id} is sent at {}, due {}", world.now(), row.due));
        }
        let ledger = world.ledger.lock().unwrap();
        world.expect(ledger.slots.begins(id, number, world.now()));
        if let Err(broken) = alone_and_wanted(&ledger, &self.life, id, number) {
            world.break_promise(broken);
        }
        drop(ledger);
        world.step(&self.life, "send");
        Some(number)
    }

    fn mood(&self, sink: usize) -> Mood {
        if self.sinks.down.lock().unwrap()[sink].is_some_and(|until| self.world.now() < until) {
            return Mood::Fails;
        }
        let mood = self.sinks.moods.lock().unwrap()[sink];
        if self.world.strikes(200) { Mood::Takes } else { mood }
    }

    async fn meet(&self, delivery: &Delivery, number: Number, underway: &Underway<'_>) -> Reply {
        let sink: usize = delivery.notification.to.parse().expect("recipients are sink numbers");
        let mood = self.mood(sink);
        match mood {
            Mood::Takes => {
                underway.arrives(true, false);
                http(200, None)
            }
            Mood::Refuses => fault(Fault::Refused),
            Mood::Fails => {
                underway.arrives(false, false);
                http(503, None)
            }
            Mood::Throttles => {
                underway.arrives(false, false);
                let wait = Duration::from_secs(self.world.draw(|chance| chance.u64(0..60)));
                let at = self.world.now();
                let key = (delivery.notification.id, number);
                self.world.ledger.lock().unwrap().retry_after.insert(key, (at, wait));
                http(429, Some(RetryAfter::In(wait)))
            }
            Mood::Rejects => {
                underway.arrives(false, false);
                http(400, None)
            }
            Mood::Dawdles => {
                underway.arrives(true, true);
                let wait = Duration::from_millis(self.world.draw(|chance| chance.u64(0..15_000)));
                tokio::time::sleep(wait).await;
                underway.arrives(true, false);
                http(200, None)
            }
            Mood::Hangs => {
                underway.arrives(self.world.strikes(500), true);
                std::future::pending().await
            }
            Mood::Lies => {
                underway.arrives(true, true);
                if self.world.strikes(500) { fault(Fault::Reset) } else { http(500, None) }
            }
        }
    }
}

/// Nobody else is sending it who has every right to, and nobody called it off.
fn alone_and_wanted(ledger: &Ledger, life: &Life, id: NotificationId, number: Number) -> Result<(), String> {
    let mut tries = ledger.tries.get(&id).into_iter().flatten();
    // A process that was paused may still be sending what it lost; one that never was may not.
    let rightful = |one: &&Try| one.active && (one.life.number == life.number || !one.life.has_stumbled());
    if let Some(other) = tries.find(rightful) {
        return Err(format!(
            "I4: {id} is sent by process {} while process {} sends it",
            life.number, other.life.number
        ));
    }
    if ledger.cancelled.contains(&id) {
        return Err(format!("I15: {id} was cancelled and is sent"));
    }
    match ledger.cancel_requested.get(&id) {
        Some(during) if during.0 == number.0 && *during != number => {
            Err(format!("I15: {id} was called off during {during:?} and is sent as {number:?}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A try under way; when its future is dropped, it no longer is.
struct Underway<'a> {
    channel: &'a SimChannel,
    id: NotificationId,
    index: usize,
}

impl<'a> Underway<'a> {
    fn new(channel: &'a SimChannel, id: NotificationId, number: Number) -> Self {
        if channel.under_way.fetch_add(1, Ordering::Relaxed) >= SLOTS {
            channel.world.break_promise(format!("process {} sends {id} without a slot", channel.life.number));
        }
        let mut ledger = channel.world.ledger.lock().unwrap();
        let tries = ledger.tries.entry(id).or_default();
        tries.push(Try {
            life: channel.life.clone(),
            began: channel.world.now(),
            number,
            active: true,
            arrived: false,
            took: false,
            unclear: false,
            answered: false,
        });
        Self { channel, id, index: tries.len() - 1 }
    }

    /// The sender has the answer.
    fn answered(&self) {
        self.change(|one| one.answered = true);
    }

    fn arrives(&self, took: bool, unclear: bool) {
        self.change(|one| {
            one.arrived = true;
            one.took = took;
            one.unclear = unclear;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Try)) {
        let mut ledger = self.channel.world.ledger.lock().unwrap();
        if let Some(one) = ledger.tries.get_mut(&self.id).and_then(|tries| tries.get_mut(self.index)) {
            change(one);
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.channel.under_way.fetch_sub(1, Ordering::Relaxed);
        self.change(|one| {
            one.active = false;
            one.unclear |= !one.answered;
        });
    }
}

fn http(status: u16, retry_after: Option<RetryAfter>) -> Reply {
    Reply::http_after(status, retry_after)
}

fn fault(fault: Fault) -> Reply {
    Reply::fault(fault, format!("{fault:?}"))
}
