//! Lists of destinations, and what keeps one notification waiting.
//!
//! Invariant: a caller of one tenant sees the destinations of that tenant and no provider.

use std::collections::BTreeSet;

use posthaste_core::destination::{
    Destination, DestinationId, DestinationKey, DestinationKind, DestinationName, StoredDestination,
    pinned_provider,
};
use posthaste_core::flow::FlowKey;
use posthaste_core::notification::Notification;
use posthaste_core::time::Timestamp;

use super::people::{DestinationView, kept, provider_keys, sees, views};
use crate::reads::{ReadError, Reads};
use crate::store::{Page, View};

/// Why a notification that is due is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedBehind {
    /// The destination; of a pool, the provider that may be sent to first.
    pub key: DestinationKey,
    /// None if the caller does not see the destination: a tenant learns of a provider only that it waits for it.
    pub id: Option<DestinationId>,
    /// When the next probe may be sent, or a pause ends. None while a person blocks it.
    pub until: Option<Timestamp>,
    /// None if the caller does not see the destination.
    pub blocked_by: Option<String>,
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
        // What is over is removed a little later.
        let rows = page.rows.into_iter().filter(|row| self.stands(row)).collect();
        Ok(Page { rows: views(shared, rows).await?, next: page.next })
    }

    /// Every destination that is known: what notifications were sent to directly, what has something kept of it, and the
    /// providers of the configuration for a caller that sees all tenants. In the order of the keys; a page may be short and
    /// still have a next.
    pub async fn all_destinations(
        &self,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> Result<Page<DestinationView, DestinationKey>, ReadError> {
        let (shared, only) = (self.shared(), self.only().cloned());
        let stored = shared.store.destination_page(only.clone(), after.clone(), limit).await?;
        let sent_to = shared.store.known_destinations(only, None, after.clone(), limit).await?;
        let is_next = |key: &DestinationKey| after.as_ref().is_none_or(|after| key > after);
        let providers = provider_keys(shared).filter(|_| self.only().is_none()).filter(is_next);
        let stands = stored.rows.into_iter().filter(|row| self.stands(row)).map(|row| row.key);
        // Behind the place where one source ends, another has keys that come earlier.
        let read_to = [&stored.next, &sent_to.next].into_iter().flatten().min().cloned();
        let keys: BTreeSet<DestinationKey> = providers.chain(stands).chain(sent_to.rows).collect();
        let is_complete = |key: &DestinationKey| read_to.as_ref().is_none_or(|end| key <= end);
        let mut keys: Vec<DestinationKey> = keys.into_iter().filter(is_complete).collect();
        let has_more = keys.len() > limit;
        keys.truncate(limit);
        let next = if has_more { keys.last().cloned() } else { read_to };
        Ok(Page { rows: views(shared, kept(shared, keys).await?).await?, next })
    }

    /// The destinations of a name. A caller that sees one tenant finds the origin of webhooks also before anything was sent
    /// there, and so its id.
    pub async fn destinations_named(
        &self,
        name: DestinationName,
        after: Option<DestinationKey>,
        limit: usize,
    ) -> Result<Page<DestinationView, DestinationKey>, ReadError> {
        let shared = self.shared();
        let page = match (name.kind, self.only()) {
            (DestinationKind::Provider, Some(_)) => Page { rows: vec![], next: None },
            (DestinationKind::Provider, None) => {
                let key = DestinationKey::provider(&name.name);
                let is_configured = provider_keys(shared).any(|known| known == key);
                let is_known =
                    is_configured || !shared.store.destinations(vec![key.clone()]).await?.is_empty();
                Page { rows: Vec::from_iter(is_known.then_some(key)), next: None }
            }
            (DestinationKind::Webhook, Some(tenant)) => {
                Page { rows: Vec::from_iter(name.key(Some(tenant.clone()))), next: None }
            }
            (DestinationKind::Subscription, _) | (DestinationKind::Webhook, None) => {
                let only = self.only().cloned();
                shared.store.known_destinations(only, Some(name.name), after.clone(), limit).await?
            }
        };
        let is_next = |key: &DestinationKey| after.as_ref().is_none_or(|after| key > after);
        let keys = page.rows.into_iter().filter(is_next).collect();
        Ok(Page { rows: views(shared, kept(shared, keys).await?).await?, next: page.next })
    }

    /// What keeps a notification waiting that is due: the breaker of its destination, a block or a pause.
    pub async fn parked_behind(&self, view: &View) -> Result<Option<ParkedBehind>, ReadError> {
        let (shared, now) = (self.shared(), self.shared().node.now());
        let waits = view.due.is_some_and(|due| due <= now) && !view.state.is_leased() && !view.state.is_end();
        if !waits || !shared.destinations.is_any() {
            return Ok(None);
        }
        let keys = self.ways_of(&view.notification);
        let rows = shared.store.destinations(keys.clone()).await?;
        let shut = rows.into_iter().filter_map(|row| parked_by(row, now));
        let shut: Vec<ParkedBehind> = shut.collect();
        // While one provider of a pool can be sent to, nothing is parked.
        let all_shut = shut.len() == keys.len();
        let first = shut.into_iter().min_by_key(|one| one.until.unwrap_or(Timestamp::MAX));
        Ok(first.filter(|_| all_shut).map(|parked| self.shown(parked)))
    }

    fn shown(&self, parked: ParkedBehind) -> ParkedBehind {
        if sees(self.only(), &parked.key) {
            return parked;
        }
        ParkedBehind { id: None, blocked_by: None, ..parked }
    }

    /// The destinations that a notification can leave by.
    fn ways_of(&self, notification: &Notification) -> Vec<DestinationKey> {
        let flow = FlowKey::of(notification);
        let pool = self.shared().pools.of(notification.channel).iter();
        match (DestinationKey::of_flow(&flow), pinned_provider(&flow)) {
            (Some(own), _) => vec![own],
            (None, Some(pinned)) => vec![pinned],
            (None, None) => pool.map(|provider| DestinationKey::provider(&provider.name)).collect(),
        }
    }

    fn stands(&self, row: &StoredDestination) -> bool {
        let (settings, now) = (&self.shared().settings.breaker, self.shared().node.now());
        row.value.as_ref().is_some_and(|value| !value.is_over(settings, now))
    }
}

fn parked_by(row: StoredDestination, now: Timestamp) -> Option<ParkedBehind> {
    let value: Destination = row.value.filter(|value| value.is_shut(now))?;
    let until = match value.block {
        Some(_) => None,
        None => value.standing(now).blocked_until.max(value.paused(now)),
    };
    let id = Some(row.key.id());
    Some(ParkedBehind { key: row.key, id, until, blocked_by: value.block.map(|block| block.by) })
}
