//! What people see of destinations and do to them: the lists, one, its history; limits, block, unblock, reset.
//!
//! Invariant: a caller of one tenant sees the destinations of that tenant and no provider.

use std::sync::Arc;

use posthaste_core::channel::Channel;
use posthaste_core::destination::{
    Destination, DestinationChange, DestinationEvent, DestinationId, DestinationKey, DestinationKind,
    DestinationName, DestinationPut, MAX_CONCURRENCY, MAX_EVENTS, SendLimits, StoredDestination,
};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;

use crate::acts::Actor;
use crate::engine::{Engine, Shared};
use crate::journal;
use crate::reads::{ReadError, Reads};
use crate::store::{Audit, DESTINATIONS_LEVEL, FlowsTo, Page, StoreError};

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
    #[error("{0} is not blocked")]
    NotBlocked(DestinationId),
    /// Some node would not obey.
    #[error("not before every node of the cluster runs a version that knows of destinations")]
    OldNodes,
    #[error("{0} keeps changing; ask again")]
    Busy(DestinationId),
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
}

impl Reads {
    /// What is unhealthy, blocked, paused or limited by people, in the order of the keys. A page may be short and still have a
    /// next.
    pub async fn destinations(
        &self,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> Result<Page<DestinationView, DestinationKey>, ReadError> {
        let shared = self.shared();
        let page = shared.store.destination_page(self.only().cloned(), after, limit).await?;
        let (settings, now) = (&shared.settings.breaker, shared.node.now());
        // What is over is removed a little later.
        let stands =
            |row: &StoredDestination| row.value.as_ref().is_some_and(|value| !value.is_over(settings, now));
        let rows = page.rows.into_iter().filter(stands).collect();
        Ok(Page { rows: views(shared, rows).await?, next: page.next })
    }

    /// Every destination that notifications were sent to directly, in the order of the keys; of one name only, if it is given. A
    /// page may be short and still have a next.
    pub async fn known_destinations(
        &self,
        name: Option<Arc<str>>,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> Result<Page<DestinationView, DestinationKey>, ReadError> {
        let shared = self.shared();
        let page = shared.store.known_destinations(self.only().cloned(), name, after, limit).await?;
        Ok(Page { rows: views(shared, kept(shared, page.rows).await?).await?, next: page.next })
    }

    /// The providers of the configuration, for a caller that sees all tenants.
    pub async fn provider_destinations(&self) -> Result<Vec<DestinationView>, ReadError> {
        if self.only().is_some() {
            return Ok(vec![]);
        }
        let shared = self.shared();
        let pools = Channel::ALL.into_iter().flat_map(|channel| shared.pools.of(channel));
        let keys = pools.map(|provider| DestinationKey::provider(&provider.name)).collect();
        Ok(views(shared, kept(shared, keys).await?).await?)
    }

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
        if !sees(self.only(), key) {
            return Ok(vec![]);
        }
        let (shared, now) = (self.shared(), self.shared().node.now());
        Ok(shared.store.destination_events(key.id(), MAX_EVENTS, now).await?)
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
        let audit = self.audit(actor, action, &id.to_string());
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
fn sees(only: Option<&Tenant>, key: &DestinationKey) -> bool {
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
    let providers = Channel::ALL.into_iter().flat_map(|channel| shared.pools.of(channel));
    let mut providers = providers.map(|provider| DestinationKey::provider(&provider.name));
    if let Some(key) = providers.find(|key| key.id() == id) {
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

/// The rows of keys, in their order; a destination that nothing is kept of has one all the same.
async fn kept(shared: &Shared, keys: Vec<DestinationKey>) -> Result<Vec<StoredDestination>, StoreError> {
    let mut rows = vec![];
    let mut found = shared.store.destinations(keys.clone()).await?;
    for key in keys {
        let known = found.iter().position(|row| row.key == key);
        rows.push(known.map_or_else(|| StoredDestination::absent(key), |index| found.swap_remove(index)));
    }
    Ok(rows)
}

async fn views(shared: &Shared, rows: Vec<StoredDestination>) -> Result<Vec<DestinationView>, StoreError> {
    let now = shared.node.now();
    let mut views: Vec<DestinationView> = rows
        .into_iter()
        .map(|row| {
            let value = row.value.unwrap_or_default();
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
fn flows_to(shared: &Shared, key: &DestinationKey) -> Vec<FlowsTo> {
    match key.kind {
        DestinationKind::Webhook | DestinationKind::Subscription => {
            vec![FlowsTo { tenant: key.tenant.clone(), destination: key.name.clone() }]
        }
        DestinationKind::Provider => {
            let is_in = |channel: &Channel| shared.pools.of(*channel).iter().any(|one| one.name == key.name);
            let channel = Channel::ALL.into_iter().find(is_in);
            let pool = channel.map(|channel| format!("pool:{channel}"));
            let names = pool.into_iter().chain([format!("provider:{}", key.name)]);
            names.map(|name| FlowsTo { tenant: None, destination: name.into() }).collect()
        }
    }
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
