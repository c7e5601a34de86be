//! The secrets that sign the webhooks of tenants: a bounded cache, filled and kept current by reads of many at a time.
//!
//! A send reads nothing while the tenant's secrets were read in the last seconds, and those of tenants that send are read again
//! before they are older. A secret is made when it is asked for first; of several nodes that make one at a time, one wins.

mod cache;
mod people;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::result::Result as StdResult;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::record::{Expected, Record, RecordChange};
use posthaste_core::sealed::NotOpened;
use posthaste_core::signature::{NEW_SECRET_BYTES, SigningSecret, SigningSecrets};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use self::cache::Cache;
pub use self::people::{SigningError, SigningStanding, SigningView};
use crate::engine::Shared;
use crate::gather::{More, gather};
use crate::log_throttle::LogThrottle;
use crate::store::{Result, StoreError};
use crate::vault::VaultError;

/// How often the secrets of tenants that send are read again.
const REFRESH: Duration = Duration::from_secs(5);
/// The most tenants in one read.
const BATCH: usize = 200;
/// How long a send waits for the secrets of its tenant. The read goes on.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a send whose secrets could not be read keeps its slot before it goes back, so that nothing turns on the spot.
const PAUSE: Duration = Duration::from_millis(250);
/// Limit on tries to make or change a secret if other nodes change it at the same time.
const MAX_TRIES: usize = 5;
/// Where sealed secrets belong: the record and its field.
const PLACE: (&str, &str) = ("signing-secret", "secrets");

/// What signs the webhooks of a tenant; none where nothing does.
pub(crate) type Signer = Option<Arc<SigningSecrets>>;

/// Why it is not known what signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The store could not be asked; ask again.
    Unavailable,
    /// What is kept cannot be read, in words.
    Damaged(String),
}

impl Unknown {
    fn of(error: &VaultError) -> Self {
        let mut text = format!("the secret that signs the webhooks of the tenant cannot be used: {error}");
        let mut beneath = std::error::Error::source(error);
        while let Some(error) = beneath {
            text = format!("{text}: {error}");
            beneath = error.source();
        }
        text.push_str("; if that cannot be mended, `posthaste signing-secret rotate` makes a new one");
        Self::Damaged(text)
    }
}

/// A send that waits for the secrets of its tenant.
pub(crate) struct Ask {
    tenant: Tenant,
    told: oneshot::Sender<StdResult<Signer, Unknown>>,
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

/// The loop: answers sends that wait, many with one read, and reads again what is in use.
pub(crate) async fn run(shared: Arc<Shared>, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let mut refresh = tokio::time::interval(REFRESH);
    refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
    let learned = learn(shared, tenants).await.unwrap_or_default();
    for Ask { tenant, told } in batch {
        let answer = learned.get(&tenant).cloned().unwrap_or(Err(Unknown::Unavailable));
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

type Learned = HashMap<Tenant, StdResult<Signer, Unknown>>;

/// Reads the secrets of tenants, makes those that are missing, and remembers them.
async fn learn(shared: &Shared, tenants: BTreeSet<Tenant>) -> Result<Learned> {
    let asked_at = shared.node.instant();
    let learned = read_each(shared, tenants).await.inspect_err(|error| {
        static FAILED: LogThrottle = LogThrottle::new();
        shared.counts.store_error();
        if let Some(reads) = FAILED.count(asked_at) {
            tracing::warn!(error = error.causes(), reads, "the secrets that sign webhooks could not be read");
        }
    })?;
    let mut cache = shared.signing.cache();
    for (tenant, told) in &learned {
        if let Ok(signer) = told {
            cache.put(tenant, signer.clone(), asked_at);
        }
    }
    Ok(learned)
}

/// Reads many at once. A row that makes no sense to the store spoils that, so then each is read by itself.
async fn read_each(shared: &Shared, tenants: BTreeSet<Tenant>) -> Result<Learned> {
    match read_or_make(shared, tenants.clone()).await {
        Err(StoreError::Corrupt { .. }) => {}
        learned => return learned,
    }
    let mut learned = Learned::new();
    for tenant in tenants {
        match read_or_make(shared, BTreeSet::from([tenant.clone()])).await {
            Ok(one) => learned.extend(one),
            Err(error @ StoreError::Corrupt { .. }) => {
                drop(learned.insert(tenant, Err(Unknown::of(&VaultError::Store(error)))));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(learned)
}

async fn read_or_make(shared: &Shared, mut missing: BTreeSet<Tenant>) -> Result<Learned> {
    let mut learned = Learned::new();
    for _ in 0..MAX_TRIES {
        for (tenant, record) in shared.kept_secrets(&missing).await? {
            missing.remove(&tenant);
            let opened = shared.opened(&tenant, &record).await.map(|secrets| Some(Arc::new(secrets)));
            learned.insert(tenant, known(opened)?);
        }
        let mut changes = vec![];
        for tenant in missing.clone() {
            match known(shared.made(&tenant).await)? {
                Ok(Some(change)) => changes.push(change),
                nothing => {
                    missing.remove(&tenant);
                    learned.insert(tenant, nothing.map(|_| None));
                }
            }
        }
        if changes.is_empty() {
            break;
        }
        // What was made is read like what another node made meanwhile.
        shared.store.put_records(changes, None, shared.node.now()).await?;
    }
    Ok(learned)
}

/// An unavailable store is an error for all tenants; any other error concerns one tenant.
fn known<T>(found: StdResult<T, VaultError>) -> Result<StdResult<T, Unknown>> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(VaultError::Store(error @ StoreError::Unavailable { .. })) => Err(error),
        Err(error) => Ok(Err(Unknown::of(&error))),
    }
}

fn change(tenant: &Tenant, value: String, expected: Expected, number: i64) -> RecordChange {
    RecordChange { key: SigningSecrets::key(tenant), number, value: Some(value), expected }
}

impl Shared {
    /// What signs the tries of an attempt. While the store cannot be asked, the secrets that were read last sign.
    pub(crate) async fn signer(&self, notification: &Notification) -> StdResult<Signer, Unknown> {
        if notification.channel != Channel::Webhook || !self.vault().has_key() {
            return Ok(None);
        }
        let tenant = &notification.tenant;
        let last = self.signing.cache().take(tenant, self.node.instant());
        if let Some((signer, true)) = last {
            return Ok(signer);
        }
        match (self.ask_signer(tenant).await, last) {
            (Err(Unknown::Unavailable), Some((last, _))) => Ok(last),
            (Err(Unknown::Unavailable), None) => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(PAUSE) => {}
                    () = self.draining() => {}
                }
                Err(Unknown::Unavailable)
            }
            (told, _) => told,
        }
    }

    async fn ask_signer(&self, tenant: &Tenant) -> StdResult<Signer, Unknown> {
        let (told, answer) = oneshot::channel();
        // The loop has ended if this fails; so does the wait then.
        let _ = self.signing.asks.send(Ask { tenant: tenant.clone(), told });
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(told)) => told,
            Ok(Err(_)) | Err(_) => Err(Unknown::Unavailable),
        }
    }

    /// The records of these tenants that exist.
    async fn kept_secrets(&self, tenants: &BTreeSet<Tenant>) -> Result<BTreeMap<Tenant, Record>> {
        let found = self.store.records(tenants.iter().map(SigningSecrets::key).collect()).await?;
        Ok(found.into_iter().filter_map(|record| Some((record.key.tenant()?.clone(), record))).collect())
    }

    /// The change that makes the first secret of a tenant; none while nothing can be encrypted.
    async fn made(&self, tenant: &Tenant) -> StdResult<Option<RecordChange>, VaultError> {
        let Some(secret) = self.new_secret() else { return Ok(None) };
        let first = SigningSecrets::first(secret, self.node.now());
        Ok(self.sealed(tenant, &first).await?.map(|value| change(tenant, value, Expected::Absent, 0)))
    }

    /// A new secret; none without a master key.
    fn new_secret(&self) -> Option<SigningSecret> {
        let bytes: [u8; NEW_SECRET_BYTES] = self.vault().random()?;
        Some(SigningSecret::new(&bytes).expect("the length is one that secrets have"))
    }

    /// Secrets as they are kept; none while nothing can be encrypted.
    async fn sealed(
        &self,
        tenant: &Tenant,
        secrets: &SigningSecrets,
    ) -> StdResult<Option<String>, VaultError> {
        self.vault().seal(tenant, PLACE, secrets.to_json().as_bytes()).await
    }

    /// The secrets in a record.
    async fn opened(&self, tenant: &Tenant, record: &Record) -> StdResult<SigningSecrets, VaultError> {
        let plain = self.vault().open(tenant, PLACE, record.value.as_deref().unwrap_or_default()).await?;
        let unreadable = VaultError::NotOpened { what: "the signing secret", why: NotOpened::Form };
        SigningSecrets::from_json(&plain).ok_or(unreadable)
    }
}
