//! Changes as they happen, for whoever listens.
//!
//! Every state change that this node makes passes `journal`, which tells it here. While nobody listens that costs one load of
//! an atomic. Else the change goes into the ring of its tenant and into the ring of all tenants, where somebody listens to
//! these. A listener reads the ring at its own pace. One that is slower than the ring is told that it missed something.
//!
//! Invariant: telling a change never waits for a listener.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use posthaste_core::id::NotificationId;
use posthaste_core::lease::NodeId;
use posthaste_core::live::{NotInRing, Ring, RingLimits};
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

mod event;
mod listener;

pub use self::event::{Change, Event, Progressed, Topic};
pub use self::listener::{EventId, Heard, Listener, Start};
use crate::engine::Shared;
use crate::signal::Signal;
use crate::store::Facts;

/// The rings, and whether anybody listens.
#[derive(Debug, Default)]
pub(crate) struct Live {
    is_heard: AtomicBool,
    audiences: RwLock<Audiences>,
    /// How many changes nobody heard although somebody listens to others.
    unheard: AtomicUsize,
}

/// Those who listen to one tenant, or to all of them.
#[derive(Debug, Default)]
struct Audiences {
    of_all: Option<Arc<Audience>>,
    of_tenants: HashMap<Tenant, Arc<Audience>>,
}

/// Those who listen to the same changes, and the last of these.
#[derive(Debug)]
struct Audience {
    /// Part of the ids of its entries.
    node: NodeId,
    ring: Mutex<Ring<Entry>>,
    /// The number of the next entry.
    next: Signal<u64>,
    listeners: AtomicUsize,
    /// When the last listener left.
    left: Mutex<Instant>,
}

#[derive(Debug, Clone)]
enum Entry {
    Event(Arc<Event>),
    /// From this time on this node made changes that it cannot name.
    Gap(Timestamp),
}

/// How long changes are kept for listeners that left: one that comes back misses nothing.
const KEPT: Duration = Duration::from_secs(60);
/// The most entries of a ring.
const MOST_ENTRIES: usize = 4_096;
/// What all rings hold together, unless there are so many that each has its least.
const ALL_BYTES: usize = 8 * 1024 * 1024;
/// What every ring may hold.
const LEAST_BYTES: usize = 64 * 1024;
/// The most rings. Where there are as many, one that nobody listens to makes room for another.
const MOST_RINGS: usize = 1_024;
/// Every so many changes that nobody heard, the rings are looked at.
const LOOK_EVERY: usize = 256;

impl Live {
    /// Whether any change is kept. One load, for the hot path.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    /// Whether changes of this tenant are kept.
    pub(crate) fn hears(&self, tenant: &Tenant) -> bool {
        self.hears_of(Some(tenant))
    }

    /// Whether what concerns this tenant, or all of them, is kept.
    pub(crate) fn hears_of(&self, tenant: Option<&Tenant>) -> bool {
        self.is_heard() && self.read().of(tenant).next().is_some()
    }

    /// A notification of this tenant changed.
    pub(crate) fn tell(&self, tenant: &Tenant, change: impl FnOnce() -> Change) {
        self.tell_of(Some(tenant), || Event::Notification(change()));
    }

    /// Something concerns this tenant; without one it concerns all, and no single tenant is told of it.
    pub(crate) fn tell_of(&self, tenant: Option<&Tenant>, event: impl FnOnce() -> Event) {
        if !self.is_heard() {
            return;
        }
        let audiences = self.read();
        let mut hearing = audiences.of(tenant).peekable();
        if hearing.peek().is_none() {
            drop(hearing);
            drop(audiences);
            return self.unheard();
        }
        let event = Arc::new(event());
        let (bytes, limits) = (event.bytes(), audiences.limits());
        for audience in hearing {
            audience.push(Entry::Event(event.clone()), bytes, limits);
        }
    }

    /// This node changed notifications of this tenant that it cannot name.
    pub(crate) fn gap(&self, tenant: &Tenant, at: Timestamp) {
        if self.is_heard() {
            let audiences = self.read();
            tell_gap(audiences.of(Some(tenant)), at, audiences.limits());
        }
    }

    /// This node changed notifications of tenants that it does not know.
    pub(crate) fn gap_for_all(&self, at: Timestamp) {
        if self.is_heard() {
            let audiences = self.read();
            tell_gap(audiences.all(), at, audiences.limits());
        }
    }

    /// Those who listen to this tenant, or to all; the new ones begin with this number. The caller is one of them from here on.
    fn join(&self, tenant: Option<&Tenant>, node: NodeId, first: u64) -> Arc<Audience> {
        let mut audiences = self.audiences.write().expect("no code panics while it changes the audiences");
        audiences.forget_left();
        let new = || Arc::new(Audience::new(node, first));
        let audience = match tenant {
            None => audiences.of_all.get_or_insert_with(new),
            Some(tenant) => {
                if !audiences.of_tenants.contains_key(tenant) {
                    audiences.make_room();
                }
                audiences.of_tenants.entry(tenant.clone()).or_insert_with(new)
            }
        };
        audience.listeners.fetch_add(1, Ordering::SeqCst);
        let audience = audience.clone();
        self.is_heard.store(true, Ordering::Relaxed);
        audience
    }

    /// Nobody heard a change. Now and then that is a reason to drop the rings whose listeners have left for good.
    fn unheard(&self) {
        if self.unheard.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            let mut audiences =
                self.audiences.write().expect("no code panics while it changes the audiences");
            audiences.forget_left();
            self.is_heard.store(audiences.all().next().is_some(), Ordering::Relaxed);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Audiences> {
        self.audiences.read().expect("no code panics while it changes the audiences")
    }
}

fn tell_gap<'a>(hearing: impl Iterator<Item = &'a Arc<Audience>>, at: Timestamp, limits: RingLimits) {
    hearing.for_each(|audience| audience.push(Entry::Gap(at), size_of::<Entry>(), limits));
}

impl Audiences {
    fn all(&self) -> impl Iterator<Item = &Arc<Audience>> {
        self.of_all.iter().chain(self.of_tenants.values())
    }

    /// Those who hear of this tenant; without one, of what concerns all.
    fn of(&self, tenant: Option<&Tenant>) -> impl Iterator<Item = &Arc<Audience>> {
        let own = tenant.and_then(|tenant| self.of_tenants.get(tenant));
        self.of_all.iter().chain(own).filter(|audience| !audience.is_over())
    }

    fn limits(&self) -> RingLimits {
        let rings = self.of_tenants.len() + 1;
        RingLimits { entries: MOST_ENTRIES, bytes: (ALL_BYTES / rings).max(LEAST_BYTES) }
    }

    fn forget_left(&mut self) {
        self.of_all.take_if(|audience| audience.is_over());
        self.of_tenants.retain(|_, audience| !audience.is_over());
    }

    fn make_room(&mut self) {
        if self.of_tenants.len() < MOST_RINGS {
            return;
        }
        let left = self.of_tenants.iter().filter_map(|(tenant, audience)| Some((audience.left()?, tenant)));
        if let Some((_, tenant)) = left.min() {
            let tenant = tenant.clone();
            self.of_tenants.remove(&tenant);
        }
    }
}

impl Audience {
    fn new(node: NodeId, first: u64) -> Self {
        Self {
            node,
            ring: Mutex::new(Ring::new(first)),
            next: Signal::new(first),
            listeners: AtomicUsize::new(0),
            left: Mutex::new(Instant::now()),
        }
    }

    fn push(&self, entry: Entry, bytes: usize, limits: RingLimits) {
        let next = {
            let mut ring = self.lock();
            ring.push(entry, bytes, limits);
            ring.next()
        };
        // Another one may have pushed meanwhile.
        self.next.change(|before| before.max(next));
    }

    /// Some of the entries from this number on.
    fn read(&self, from: u64, most: usize) -> Result<Vec<Entry>, NotInRing> {
        Ok(self.lock().from(from, most)?.cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Ring<Entry>> {
        self.ring.lock().expect("no code panics while it changes a ring")
    }

    /// A listener goes.
    fn leave(&self) {
        *self.left.lock().expect("no code panics while it notes a time") = Instant::now();
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }

    /// Since when nobody listens.
    fn left(&self) -> Option<Instant> {
        let is_empty = self.listeners.load(Ordering::SeqCst) == 0;
        is_empty.then(|| *self.left.lock().expect("no code panics while it notes a time"))
    }

    fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.elapsed() > KEPT)
    }
}

/// Notifications by their ids.
pub(crate) type Named = HashMap<NotificationId, Arc<Notification>>;
/// Tenants by the ids of their notifications.
pub(crate) type Tenants = HashMap<NotificationId, Tenant>;

/// The most notifications that one batch of changes looks up.
const MOST_LOOKUPS: usize = 100;

impl Shared {
    /// The notification that somebody is about to act on, for whoever listens to its tenant.
    pub(crate) async fn acted_on(&self, facts: &Facts) -> Named {
        self.named(std::iter::once((facts.id, &facts.tenant))).await
    }

    /// The notifications that are about to change, where somebody listens to their tenant. It is one bounded read, and what it
    /// does not return is told as a gap.
    pub(crate) async fn named<'a>(&self, ids: impl Iterator<Item = (NotificationId, &'a Tenant)>) -> Named {
        let heard = ids.filter(|(_, tenant)| self.live.hears(tenant)).map(|(id, _)| id);
        let heard: Vec<NotificationId> = heard.take(MOST_LOOKUPS).collect();
        if heard.is_empty() {
            return Named::new();
        }
        let found = self.store.get_many(heard).await.unwrap_or_default();
        found.into_iter().map(|view| (view.notification.id, view.notification)).collect()
    }

    /// Whose these are, if anybody listens to anything: then a change of theirs is told to no other tenant.
    pub(crate) async fn heard_tenants(&self, ids: impl Iterator<Item = NotificationId>) -> Tenants {
        if !self.live.is_heard() {
            return Tenants::new();
        }
        let facts = self.store.facts(ids.collect()).await.unwrap_or_default();
        facts.into_iter().map(|facts| (facts.id, facts.tenant)).collect()
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::channel::Channel;
    use posthaste_core::flow::FlowKey;
    use posthaste_core::notification::{Body, Content};
    use posthaste_core::state::State;

    use super::event::{MOST_BYTES, slim};
    use super::*;

    fn notification(tenant: &str, body: String) -> Arc<Notification> {
        let flow = FlowKey {
            tenant: tenant.parse().unwrap(),
            channel: Channel::Webhook,
            destination: "https://a".into(),
        };
        let content = Content::of(Body::Text(body));
        Arc::new(Notification::new(NotificationId::FIRST, flow, "https://a/b".to_owned(), content))
    }

    fn tell(live: &Live, tenant: &str) -> bool {
        let (mut was_made, notification) = (false, notification(tenant, String::new()));
        live.tell(&notification.tenant, || {
            was_made = true;
            Change::new(Timestamp::MIN, &notification, State::Pending, 1)
        });
        was_made
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_made_only_for_those_who_listen_and_for_a_minute_after_they_left() {
        let live = Live::default();
        assert!(!tell(&live, "a") && !live.is_heard());
        let tenant = "a".parse().unwrap();
        let audience = live.join(Some(&tenant), NodeId(1), 1);
        assert!(tell(&live, "a") && !tell(&live, "b"));
        assert!(live.hears(&tenant) && !live.hears(&"b".parse().unwrap()));
        audience.leave();
        tokio::time::advance(KEPT).await;
        assert!(tell(&live, "a"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!tell(&live, "a"));
        for _ in 0..LOOK_EVERY {
            assert!(!tell(&live, "a"));
        }
        assert!(!live.is_heard(), "and then a change costs one load again");
        let all = live.join(None, NodeId(1), 1);
        assert!(tell(&live, "a") && tell(&live, "b"));
        assert_eq!(all.lock().next(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_of_a_tenant_is_told_to_nobody_else() {
        let live = Live::default();
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let audiences = [Some(&a), Some(&b), None].map(|tenant| live.join(tenant, NodeId(1), 1));
        let told = || audiences.each_ref().map(|audience| audience.lock().next() - 1);
        live.gap(&a, Timestamp::MIN);
        assert_eq!(told(), [1, 0, 1]);
        live.gap_for_all(Timestamp::MIN);
        assert_eq!(told(), [2, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rings_are_bounded_and_one_with_listeners_is_kept() {
        let live = Live::default();
        let tenant = |number: usize| format!("t{number}").parse::<Tenant>().unwrap();
        let stays = live.join(Some(&tenant(0)), NodeId(1), 1);
        for number in 1..MOST_RINGS + 50 {
            live.join(Some(&tenant(number)), NodeId(1), 1).leave();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(live.read().of_tenants.len(), MOST_RINGS);
        assert_eq!(live.read().limits().bytes, LEAST_BYTES);
        assert!(live.hears(&tenant(0)) && !live.hears(&tenant(1)) && live.hears(&tenant(MOST_RINGS)));
        drop(stays);
    }

    #[test]
    fn a_large_content_is_not_kept_and_all_that_filters_ask_is() {
        let small = notification("a", "hello".to_owned());
        assert!(Arc::ptr_eq(&slim(&small), &small));
        let large = Arc::new(Notification {
            subject: Some("subject".to_owned()),
            template: Some("template".to_owned()),
            event_key: Some("event".to_owned()),
            correlation_id: Some("correlation".to_owned()),
            ..(*notification("a", "x".repeat(100_000))).clone()
        });
        let kept = slim(&large);
        assert!(kept.bytes() < MOST_BYTES);
        assert_eq!(*kept, Notification { content: kept.content.clone(), ..(*large).clone() });
    }
}
