//! The secrets that sign the webhooks of tenants: a bounded cache, filled and kept current by reads of many at a time.
//!
//! A send reads nothing while the tenant's secrets were read in the last seconds, and those of tenants that send are read again
//! before they are older. A secret is made when it is asked for first; of several nodes that make one at a time, one wins.

mod cache;
mod people;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::record::{Expected, Record, RecordChange};
use posthaste_core::signature::{NEW_SECRET_BYTES, SigningSecret, SigningSecrets};
use tokio::sync::{mpsc, oneshot};

use self::cache::Cache;
pub use self::people::{SigningError, SigningStanding, SigningView};
use crate::engine::Shared;
use crate::gather::{More, gather};
use crate::store::{Result, StoreError};

/// How often the secrets of tenants that send are read again.
const REFRESH: Duration = Duration::from_secs(5);
/// The most tenants in one read.
const BATCH: usize = 500;
/// How long a send waits for the secrets of its tenant. The read goes on.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a send whose secrets could not be read keeps its slot before it goes back, so that nothing turns on the spot.
const PAUSE: Duration = Duration::from_millis(250);
/// How often a secret is made while others make it too.
const MAX_TRIES: usize = 5;

/// What signs the webhooks of a tenant; none where nothing does.
pub(crate) type Signer = Option<Arc<SigningSecrets>>;

/// Why it is not known what signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The store could not be asked; ask again.
    Unavailable,
    /// What is kept cannot be read.
    Damaged(String),
}

/// A send that waits for the secrets of its tenant.
pub(crate) struct Ask {
    tenant: Tenant,
    told: oneshot::Sender<std::result::Result<Signer, Unknown>>,
}

/// The secrets that this node knows.
pub(crate) struct Signing {
    cache: Mutex<Cache>,
    asks: mpsc::UnboundedSender<Ask>,
}

impl Signing {
    /// The other end of the channel is the loop's.
    pub(crate) fn new(asks: mpsc::UnboundedSender<Ask>) -> Self {
        Self { cache: Mutex::default(), asks }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// What signs the tries of an attempt. While the store cannot be asked, the secrets that were read last sign.
    pub(crate) async fn signer(&self, notification: &Notification) -> std::result::Result<Signer, Unknown> {
        if notification.channel != Channel::Webhook || !self.vault.is_on() {
            return Ok(None);
        }
        let tenant = &notification.tenant;
        let known = self.signing.cache().take(tenant, self.node.instant());
        if let Some((signer, true)) = known {
            return Ok(Some(signer));
        }
        match (self.ask_signer(tenant).await, known) {
            (Err(Unknown::Unavailable), Some((last, _))) => Ok(Some(last)),
            (Err(Unknown::Unavailable), None) => {
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = self.draining() => {}
                }
                Err(Unknown::Unavailable)
            }
            (told, _) => told,
        }
    }

    async fn ask_signer(&self, tenant: &Tenant) -> std::result::Result<Signer, Unknown> {
        let (told, answer) = oneshot::channel();
        let _ = self.signing.asks.send(Ask { tenant: tenant.clone(), told });
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(told)) => told,
            Ok(Err(_)) | Err(_) => Err(Unknown::Unavailable),
        }
    }
}

/// The loop: answers sends that wait, many with one read, and reads again what is in use.
pub(crate) async fn run(shared: Arc<Shared>, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let mut refresh = tokio::time::interval(REFRESH);
    refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = refresh.tick() => renew(&shared).await,
            first = asks.recv() => match first {
                Some(first) => answer(&shared, &mut asks, first).await,
                None => return,
            },
        }
    }
}

async fn answer(shared: &Shared, asks: &mut mpsc::UnboundedReceiver<Ask>, first: Ask) {
    let mut count = 0;
    let more = |_: &Ask| {
        count += 1;
        if count < BATCH { More::IfThere } else { More::No }
    };
    let batch = gather(asks, first, more).await;
    let tenants: BTreeSet<Tenant> = batch.iter().map(|ask| ask.tenant.clone()).collect();
    let learned = learn(shared, tenants).await;
    for Ask { tenant, told } in batch {
        let answer = match &learned {
            Ok(learned) => learned.get(&tenant).cloned().unwrap_or(Err(Unknown::Unavailable)),
            Err(_) => Err(Unknown::Unavailable),
        };
        // The send may have stopped waiting.
        let _ = told.send(answer);
    }
}

/// Reads again what signed something since the last time.
async fn renew(shared: &Shared) {
    let used = shared.signing.cache().used();
    for some in used.chunks(BATCH) {
        if learn(shared, some.iter().cloned().collect()).await.is_err() {
            return;
        }
    }
}

type Learned = HashMap<Tenant, std::result::Result<Signer, Unknown>>;

/// Reads the secrets of tenants, makes those that are missing, and remembers them.
async fn learn(shared: &Shared, tenants: BTreeSet<Tenant>) -> Result<Learned> {
    let asked_at = shared.node.instant();
    let learned = read_or_make(shared, tenants).await.inspect_err(|error| {
        shared.counts.store_error();
        tracing::warn!(error = error.causes(), "the secrets that sign webhooks could not be read");
    })?;
    let mut cache = shared.signing.cache();
    for (tenant, told) in &learned {
        if let Ok(Some(signer)) = told {
            cache.put(tenant, signer.clone(), asked_at);
        }
    }
    Ok(learned)
}

async fn read_or_make(shared: &Shared, mut open: BTreeSet<Tenant>) -> Result<Learned> {
    let mut learned = Learned::new();
    for _ in 0..MAX_TRIES {
        let kept = shared.kept_secrets(&open).await?;
        for (tenant, record) in &kept {
            open.remove(tenant);
            learned.insert(
                tenant.clone(),
                shared.opened(tenant, record).await?.map(|secrets| Some(Arc::new(secrets))),
            );
        }
        if open.is_empty() {
            break;
        }
        let mut changes = vec![];
        for tenant in open.clone() {
            let first = SigningSecrets::first(shared.new_secret(), shared.node.now());
            match shared.sealed(&tenant, &first).await? {
                Some(value) => changes.push(change(&tenant, value, Expected::Absent, 0)),
                None => {
                    open.remove(&tenant);
                    learned.insert(tenant, Ok(None));
                }
            }
        }
        // What was made is read like what another node made meanwhile.
        if !changes.is_empty() {
            shared.store.put_records(changes, None, shared.node.now()).await?;
        }
    }
    Ok(learned)
}

fn change(tenant: &Tenant, value: String, expected: Expected, number: i64) -> RecordChange {
    RecordChange { key: SigningSecrets::key(tenant), number, value: Some(value), expected }
}

impl Shared {
    /// The records of these tenants that exist.
    async fn kept_secrets(&self, tenants: &BTreeSet<Tenant>) -> Result<BTreeMap<Tenant, Record>> {
        let found = self.store.records(tenants.iter().map(SigningSecrets::key).collect()).await?;
        Ok(found.into_iter().filter_map(|record| Some((record.key.tenant()?.clone(), record))).collect())
    }
}
