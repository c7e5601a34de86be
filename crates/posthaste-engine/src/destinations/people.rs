//! What people see of one destination and do to it: its history; limits, block, unblock, reset.
//!
//! Invariant: a caller of one tenant sees the destinations of that tenant and no provider.

use std::sync::Arc;

use posthaste_core::channel::Channel;
use posthaste_core::destination::{
    Destination, DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationKind,
    DestinationName, DestinationPut, EVENTS_KEPT, MAX_CONCURRENCY, MAX_EVENTS, SendLimits, StoredDestination,
};
use posthaste_core::notification::Tenant;
use posthaste_core::slots::Gated;
use posthaste_core::time::Timestamp;

use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::journal;
use crate::reads::{ReadError, Reads};
use crate::store::{Audit, DESTINATIONS_LEVEL, FlowsTo, StoreError};

/// How far parked notifications are counted.
pub const PARKED_COUNTED: u64 = 100_000;
/// How often a change is made anew because somebody else was faster.
const MAX_TRIES: usize = 10;
/// How many known destinations are looked through for an id that nothing is kept of, in pages.
const PAGES: usize = 20;
const PAGE: usize = 500;

/// A destination as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationView {
    pub key: DestinationKey,
    /// What is kept of it; the default if there is nothing to say.
    pub value: Destination,
    /// Those in force: what was set by people, else what the configuration says.
    pub limits: SendLimits,
    /// How many due notifications wait because nothing is sent to it at present, counted up to `PARKED_COUNTED`.
    pub parked: u64,
}

impl DestinationView {
    pub fn id(&self) -> DestinationId {
        self.key.id()
    }
}

/// Which destination somebody acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationTarget {
    pub id: DestinationId,
    /// The destination that the caller named besides; needed where nothing is known of the id.
    pub named: Option<DestinationKey>,
}

/// Why nothing was done to a destination.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// Nothing is known of it, or it is another tenant's.
    #[error("there is no destination {0}")]
    NotFound(DestinationId),
    /// The name that was given is that of another one.
    #[error("`{name}` is the destination {named}, not {id}")]
    OtherName { id: DestinationId, name: Arc<str>, named: DestinationId },
    #[error("concurrency must be from 1 to {MAX_CONCURRENCY}; to send nothing, block the destination")]
    BadConcurrency,
    #[error("{0} is blocked already")]
    BlockedAlready(DestinationId),
    #[error("nobody blocks {0}; if its breaker is open, reset closes it")]
    NotBlocked(DestinationId),
    /// Some node would not obey.
    #[error("a node of an older version is alive that would not obey: upgrade all nodes first")]
    OldNodes,
    #[error("{0} keeps changing; ask again")]
    Busy(DestinationId),
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
}

impl Reads {
    /// One destination.
    pub async fn destination(&self, id: DestinationId) -> Result<Option<DestinationView>, ReadError> {
        let shared = self.shared();
        let Some(row) = find(shared, id, self.only()).await? else { return Ok(None) };
        Ok(views(shared, vec![row]).await?.pop())
    }

    /// The destination of a name, also before anything was sent to it.
    pub async fn destination_named(&self, key: DestinationKey) -> Result<Option<DestinationView>, ReadError> {
        if !sees(self.only(), &key) {
            return Ok(None);
        }
        let shared = self.shared();
        Ok(views(shared, kept(shared, vec![key]).await?).await?.pop())
    }

    /// What happened to a destination, the last event first.
    pub async fn destination_history(
        &self,
        key: &DestinationKey,
    ) -> Result<Vec<DestinationEvent>, ReadError> {
        let histories = self.destination_histories(&[key], Timestamp::MIN).await?;
        Ok(histories.into_iter().next().unwrap_or_default())
    }

    /// What happened to each of these destinations since then, the last event first. All are read at once; of what the caller does
    /// not see there is nothing.
    pub async fn destination_histories(
        &self,
        of: &[&DestinationKey],
        since: Timestamp,
    ) -> Result<Vec<Vec<DestinationEvent>>, ReadError> {
        let seen: Vec<DestinationId> =
            of.iter().filter(|key| sees(self.only(), key)).map(|key| key.id()).collect();
        if seen.is_empty() {
            return Ok(vec![vec![]; of.len()]);
        }
        let (shared, now) = (self.shared(), self.shared().node.now());
        let since = since.max(now.earlier(EVENTS_KEPT));
        let mut found = shared.store.destination_events(seen, since, MAX_EVENTS).await?.into_iter();
        let of_key = |key: &&DestinationKey| {
            if sees(self.only(), key) { found.next().unwrap_or_default() } else { vec![] }
        };
        Ok(of.iter().map(of_key).collect())
    }
}

impl Engine {
    /// Sets what may be sent to a destination; without a figure the configuration counts. Returns how it stands then.
    pub async fn limit_destination(
        &self,
        target: DestinationTarget,
        limits: SendLimits,
        actor: &Actor,
    ) -> Result<DestinationView, DestinationError> {
        if limits.concurrency.is_some_and(|most| !(1..=MAX_CONCURRENCY).contains(&most)) {
            return Err(DestinationError::BadConcurrency);
        }
        let by = actor.name.clone();
        let change = move |known: &Destination, _, now| Ok(known.limited(limits, &by, now));
        self.change_destination("limit-destination", target, actor, change).await
    }

    /// Sends nothing to a destination until it is unblocked.
    pub async fn block_destination(
        &self,
        target: DestinationTarget,
        reason: Option<String>,
        actor: &Actor,
    ) -> Result<DestinationView, DestinationError> {
        let by = actor.name.clone();
        let change = move |known: &Destination, id, now| {
            known.blocked(&by, reason.clone(), now).ok_or(DestinationError::BlockedAlready(id))
        };
        self.change_destination("block-destination", target, actor, change).await
    }

    pub async fn unblock_destination(
        &self,
        target: DestinationTarget,
        actor: &Actor,
    ) -> Result<DestinationView, DestinationError> {
        let by = actor.name.clone();
        let change = move |known: &Destination, id, now| {
            known.unblocked(&by, now).ok_or(DestinationError::NotBlocked(id))
        };
        self.change_destination("unblock-destination", target, actor, change).await
    }

    /// Closes the breaker and ends a pause, at full speed. A block stays.
    pub async fn reset_destination(
        &self,
        target: DestinationTarget,
        actor: &Actor,
    ) -> Result<DestinationView, DestinationError> {
        let by = actor.name.clone();
        let change = move |known: &Destination, _, now| Ok(known.reset(&by, now));
        self.change_destination("reset-destination", target, actor, change).await
    }

    async fn change_destination(
        &self,
        action: &'static str,
        target: DestinationTarget,
        actor: &Actor,
        change: impl Fn(
            &Destination,
            DestinationId,
            Timestamp,
        ) -> Result<(Destination, DestinationEvent), DestinationError>
        + Send
        + Sync
        + 'static,
    ) -> Result<DestinationView, DestinationError> {
        if self.cluster_level() < DESTINATIONS_LEVEL {
            return Err(DestinationError::OldNodes);
        }
        let DestinationTarget { id, named } = target;
        if let Some(named) = named.as_ref().filter(|named| named.id() != id) {
            return Err(DestinationError::OtherName { id, name: named.name.clone(), named: named.id() });
        }
        let row = match named {
            Some(named) if sees(actor.tenant.as_ref(), &named) => {
                kept(&self.shared, vec![named]).await?.pop()
            }
            Some(_) => None,
            None => find(&self.shared, id, actor.tenant.as_ref()).await?,
        };
        let row = row.ok_or(DestinationError::NotFound(id))?;
        // Whoever acts, the tenant sees it.
        let tenant = row.key.tenant.clone();
        let audit = Audit { tenant, ..self.audit(actor, action, &id.to_string()) };
        let shared = self.shared.clone();
        let changed = async move { Ok(changed(&shared, row, audit, change).await) };
        let row = self.to_its_end(changed).await??;
        // If it cannot be noted now, the next heartbeat tries again.
        if let Err(error) = super::keep::learn(&self.shared, vec![row.clone()]).await {
            self.shared.store_failed("note a destination", &error);
        }
        journal::set(action, &id.to_string(), actor);
        let mut views = views(&self.shared, vec![row]).await?;
        views.pop().ok_or(DestinationError::NotFound(id))
    }
}

/// Makes the change on the row as it is, again if somebody else was faster.
async fn changed(
    shared: &Arc<Shared>,
    mut row: StoredDestination,
    audit: Audit,
    change: impl Fn(
        &Destination,
        DestinationId,
        Timestamp,
    ) -> Result<(Destination, DestinationEvent), DestinationError>,
) -> Result<StoredDestination, DestinationError> {
    let id = row.key.id();
    for _ in 0..MAX_TRIES {
        let now = shared.node.now();
        let (value, event) = change(&row.value.clone().unwrap_or_default(), id, now)?;
        let value = Some(value).filter(|value| !value.is_over(&shared.settings.breaker, now));
        let put = DestinationChange {
            key: row.key.clone(),
            expected: row.expected(),
            value: value.clone(),
            events: vec![event],
        };
        let put = shared.store.put_destinations(vec![put], Some(audit.clone()), now).await?;
        match put.into_iter().next() {
            Some(DestinationPut::Made(version)) => {
                return Ok(StoredDestination { key: row.key, version, value, changed: now });
            }
            Some(DestinationPut::Conflict(found)) => row = *found,
            None => {}
        }
    }
    Err(DestinationError::Busy(id))
}

/// Whether a caller that sees one tenant, or all, sees the destination.
pub(super) fn sees(only: Option<&Tenant>, key: &DestinationKey) -> bool {
    only.is_none_or(|tenant| key.tenant.as_ref() == Some(tenant))
}

/// The row of an id that the caller sees, or that of a destination that nothing is kept of.
async fn find(
    shared: &Shared,
    id: DestinationId,
    only: Option<&Tenant>,
) -> Result<Option<StoredDestination>, StoreError> {
    if let Some(row) = shared.store.destination(id).await? {
        return Ok(Some(row).filter(|row| sees(only, &row.key)));
    }
    if let Some(key) = provider_keys(shared).find(|key| key.id() == id) {
        return Ok(Some(StoredDestination::absent(key)).filter(|row| sees(only, &row.key)));
    }
    let mut after = None;
    for _ in 0..PAGES {
        let page = shared.store.known_destinations(only.cloned(), None, after, PAGE).await?;
        if let Some(key) = page.rows.into_iter().find(|key| key.id() == id) {
            return Ok(Some(StoredDestination::absent(key)).filter(|row| sees(only, &row.key)));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(None)
}

/// The providers of the configuration.
pub(super) fn provider_keys(shared: &Shared) -> impl Iterator<Item = DestinationKey> {
    shared.pools.all().map(|provider| DestinationKey::provider(&provider.name))
}

/// The rows of keys, in their order; a destination that nothing is kept of has one all the same.
pub(super) async fn kept(
    shared: &Shared,
    keys: Vec<DestinationKey>,
) -> Result<Vec<StoredDestination>, StoreError> {
    let mut rows = vec![];
    let mut found = shared.store.destinations(keys.clone()).await?;
    for key in keys {
        let known = found.iter().position(|row| row.key == key);
        rows.push(known.map_or_else(|| StoredDestination::absent(key), |index| found.swap_remove(index)));
    }
    Ok(rows)
}

pub(super) async fn views(
    shared: &Shared,
    rows: Vec<StoredDestination>,
) -> Result<Vec<DestinationView>, StoreError> {
    let now = shared.node.now();
    let mut views: Vec<DestinationView> = rows
        .into_iter()
        .map(|row| {
            let value = row.value.filter(|value| !value.is_over(&shared.settings.breaker, now));
            let value = value.unwrap_or_default();
            let limits = value.limits.or(shared.settings.file_limits(&row.key));
            DestinationView { key: row.key, value, limits, parked: 0 }
        })
        .collect();
    let shut = views.iter_mut().filter(|view| view.value.is_shut(now));
    let mut asked: Vec<(&mut DestinationView, Vec<FlowsTo>)> =
        shut.map(|view| (flows_to(shared, &view.key), view)).map(|(flows, view)| (view, flows)).collect();
    let flows: Vec<FlowsTo> = asked.iter().flat_map(|(_, flows)| flows.clone()).collect();
    if flows.is_empty() {
        return Ok(views);
    }
    let mut counts = shared.store.parked(flows, PARKED_COUNTED, now).await?.into_iter();
    for (view, flows) in &mut asked {
        view.parked = counts.by_ref().take(flows.len()).sum::<u64>().min(PARKED_COUNTED);
    }
    Ok(views)
}

/// The flows that wait for a destination.
pub(super) fn flows_to(shared: &Shared, key: &DestinationKey) -> Vec<FlowsTo> {
    let of = |tenant: Option<Tenant>, name: String| FlowsTo { tenant, destination: name.into() };
    match key.kind {
        DestinationKind::Webhook | DestinationKind::Subscription => {
            vec![of(key.tenant.clone(), key.name.to_string())]
        }
        DestinationKind::Provider => {
            let provider = shared.pools.all().find(|one| one.name == key.name);
            let pool = provider.map(|one| one.channel).filter(|channel| is_pool_shut(shared, *channel, key));
            let pool = pool.map(|channel| of(None, format!("pool:{channel}")));
            pool.into_iter().chain([of(None, format!("provider:{}", key.name))]).collect()
        }
    }
}

/// Whether nothing is sent to any provider of the channel beside this one.
fn is_pool_shut(shared: &Shared, channel: Channel, but: &DestinationKey) -> bool {
    let now = shared.node.now();
    let others = shared.pools.of(channel).iter().filter(|one| one.name != but.name);
    let keys: Vec<_> = others.map(|one| shared.destinations.key_of(one)).collect();
    let memory = shared.destinations.lock();
    keys.into_iter().all(|key| key.is_some_and(|key| memory.is_shut(Gated::Key(key), now)))
}

impl crate::engine::Settings {
    /// What the configuration says of a destination: the limits of a URL count for each tenant by itself.
    pub(crate) fn file_limits(&self, key: &DestinationKey) -> SendLimits {
        if self.destination_limits.is_empty() {
            return SendLimits::default();
        }
        let name = DestinationName { kind: key.kind, name: key.name.clone() };
        self.destination_limits.get(&name).copied().unwrap_or_default()
    }
}
