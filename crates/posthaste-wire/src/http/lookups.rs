//! DNS lookups, shared by all tries.
//!
//! A lookup may take long and cannot be cancelled. It holds a slot until it is done, and the tenants share
//! the slots. A name is looked up once at a time: all tries that need it wait for the same result. Results,
//! also failures, are cached for a moment.
//!
//! Invariant: the names of one tenant cannot keep another tenant from looking up its own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use posthaste_core::notification::Tenant;
use posthaste_core::recent::Recent;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fair_slots::FairSlots;
use super::resolve::Resolve;

/// Limit on parallel lookups. Each may block a thread.
const MAX_LOOKUPS: usize = 128;
/// Less than the first scheduled delay of the preset `webhook`, so that a retry looks up again.
const CACHE_TTL: Duration = Duration::from_secs(3);
/// Limit on cached results.
const CACHE_SIZE: usize = 2_048;
/// How long a try waits for a slot.
pub(super) const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of queued names from which on names without waiters are pruned.
const PRUNE_FROM: usize = 1_024;

/// The addresses of a name, or the text of an error.
pub(super) type Addresses = Result<Vec<IpAddr>, String>;

#[derive(Debug, Clone)]
enum LookupState {
    /// Waits for a slot.
    Waiting,
    Running,
    Done(Addresses),
}

pub(super) struct Lookups {
    resolver: Arc<dyn Resolve>,
    table: Mutex<Table>,
}

struct Table {
    slots: FairSlots<String>,
    /// The names that wait for a slot or are being looked up.
    pending: HashMap<String, Pending>,
    cache: Recent<String, (Instant, Addresses)>,
    running: JoinSet<()>,
    /// Number of queued names that causes the next pruning.
    prune_at: usize,
}

/// A name without a result yet.
struct Pending {
    progress: watch::Sender<LookupState>,
    /// The tenants in whose queues it waits for a slot.
    tenants: Vec<Tenant>,
}

impl Pending {
    fn is_wanted(&self) -> bool {
        matches!(*self.progress.borrow(), LookupState::Waiting) && self.progress.receiver_count() > 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoSlot;

/// A lookup that has started.
pub(super) struct Lookup(watch::Receiver<LookupState>);

impl Lookup {
    /// Waits for the result. The lookup goes on if the future is dropped.
    pub(super) async fn addresses(mut self) -> Addresses {
        let given_up = || Err("the lookup was given up".to_owned());
        match self.0.wait_for(|progress| matches!(progress, LookupState::Done(_))).await.as_deref() {
            Ok(LookupState::Done(answer)) => answer.clone(),
            Ok(LookupState::Waiting | LookupState::Running) | Err(_) => given_up(),
        }
    }
}

impl Lookups {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Arc<Self> {
        let table = Table {
            slots: FairSlots::new(MAX_LOOKUPS),
            pending: HashMap::new(),
            cache: Recent::new(CACHE_SIZE),
            running: JoinSet::new(),
            prune_at: PRUNE_FROM,
        };
        Arc::new(Self { resolver, table: Mutex::new(table) })
    }

    /// Starts to look up a name for a tenant: waits for a slot, unless the result is cached or the lookup is
    /// running.
    pub(super) async fn start(self: &Arc<Self>, tenant: &Tenant, name: &str) -> Result<Lookup, NoSlot> {
        let mut progress = self.ask(tenant, name);
        let started = progress.wait_for(|progress| !matches!(progress, LookupState::Waiting));
        let in_time = tokio::time::timeout(SLOT_TIMEOUT, started).await.is_ok();
        if in_time { Ok(Lookup(progress)) } else { Err(NoSlot) }
    }

    fn ask(self: &Arc<Self>, tenant: &Tenant, name: &str) -> watch::Receiver<LookupState> {
        let mut table = self.lock();
        if let Some((until, answer)) = table.cache.peek(name)
            && *until > Instant::now()
        {
            return watch::channel(LookupState::Done(answer.clone())).1;
        }
        let pending = table.pending.entry(name.to_owned()).or_insert_with(|| Pending {
            progress: watch::channel(LookupState::Waiting).0,
            tenants: Vec::new(),
        });
        let progress = pending.progress.subscribe();
        if matches!(*progress.borrow(), LookupState::Waiting) && !pending.tenants.contains(tenant) {
            pending.tenants.push(tenant.clone());
            table.slots.queue(tenant, name.to_owned());
            table.prune();
            self.start_queued(&mut table);
        }
        progress
    }

    /// Starts as many lookups as there are slots.
    fn start_queued(self: &Arc<Self>, table: &mut Table) {
        // Ended tasks are removed here, so that they do not pile up.
        while table.running.try_join_next().is_some() {}
        while let Some((tenant, name)) = table.slots.take() {
            match table.pending.get(&name) {
                Some(pending) if pending.is_wanted() => {
                    pending.progress.send_replace(LookupState::Running);
                    table.running.spawn(look_up(Arc::downgrade(self), self.resolver.clone(), tenant, name));
                }
                // The name runs in another tenant's slot, or no try waits for it any more.
                Some(pending) if matches!(*pending.progress.borrow(), LookupState::Waiting) => {
                    table.pending.remove(&name);
                    table.slots.release(&tenant);
                }
                Some(_) | None => table.slots.release(&tenant),
            }
        }
    }

    /// Publishes and caches the result, and frees the slot.
    fn finish(self: &Arc<Self>, tenant: &Tenant, name: &str, answer: Addresses) {
        let mut table = self.lock();
        if let Some(pending) = table.pending.remove(name) {
            pending.progress.send_replace(LookupState::Done(answer.clone()));
        }
        table.cache.insert(name.to_owned(), (Instant::now() + CACHE_TTL, answer));
        table.slots.release(tenant);
        self.start_queued(&mut table);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no code panics while it holds the lookups")
    }
}

impl Table {
    /// Drops queued names that no try waits for any more. Runs rarely.
    fn prune(&mut self) {
        if self.slots.queued() < self.prune_at {
            return;
        }
        self.pending.retain(|_, pending| {
            pending.is_wanted() || !matches!(*pending.progress.borrow(), LookupState::Waiting)
        });
        let pending = &self.pending;
        self.slots.retain(|name| pending.get(name).is_some_and(Pending::is_wanted));
        self.prune_at = self.slots.queued().saturating_mul(2).max(PRUNE_FROM);
    }
}

/// One lookup. Its waiters get a result even if the resolver panics.
async fn look_up(lookups: Weak<Lookups>, resolver: Arc<dyn Resolve>, tenant: Tenant, name: String) {
    let mut running =
        RunningLookup { lookups, tenant, name, answer: Err("the lookup broke down".to_owned()) };
    running.answer = resolver.resolve(&running.name).await.map_err(|error| error.to_string());
}

/// A running lookup. Dropping it publishes the result.
struct RunningLookup {
    lookups: Weak<Lookups>,
    tenant: Tenant,
    name: String,
    answer: Addresses,
}

impl Drop for RunningLookup {
    fn drop(&mut self) {
        if let Some(lookups) = self.lookups.upgrade() {
            let answer = std::mem::replace(&mut self.answer, Ok(Vec::new()));
            lookups.finish(&self.tenant, &self.name, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hanging;

    #[async_trait::async_trait]
    impl Resolve for Hanging {
        async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_nobody_waits_for_any_more_do_not_pile_up() {
        let lookups = Lookups::new(Arc::new(Hanging));
        let tenant: Tenant = "a".parse().unwrap();
        let wanted = lookups.ask(&tenant, "wanted");
        for number in 0..5 * PRUNE_FROM {
            let name = format!("{number}");
            let _ = tokio::time::timeout(Duration::ZERO, lookups.start(&tenant, &name)).await;
            let table = lookups.lock();
            assert!(table.slots.queued() <= PRUNE_FROM && table.pending.len() <= PRUNE_FROM + MAX_LOOKUPS);
        }
        assert!(lookups.lock().pending.contains_key("wanted"));
        drop(wanted);
    }
}
