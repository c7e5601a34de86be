//! Puts the parts together: the one place that names concrete types.

#[cfg(feature = "planted")]
mod planted;
pub mod store;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::channel::Channel as ChannelName;
use posthaste_engine::acts::{ActError, Actor};
use posthaste_engine::channel::Channel;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::store::{Store, StoreError};
use posthaste_store::postgres::ConnectError;
use posthaste_store::sqlite::OpenError;
use posthaste_store::sqlite::backup::BackupError;
use posthaste_wire::guard::Guard;
use posthaste_wire::webhook::{BadRoot, WebhookChannel, WebhookOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::SystemClock;
use crate::config::Config;
use crate::http::server::{self, Limits};
use crate::http::{Api, ApiParts, cursor, hex};
use crate::keys::{self, BadAdminKey, Keys};

/// How much longer than its body a request may take to be answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How long exchanges may take to end once everything else has.
const GRACE: Duration = Duration::from_secs(2);

/// Why Posthaste cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not free, or not ours.
    #[error(
        "cannot listen on {address}: is another Posthaste running? `--listen` or server.listen names another address"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error beneath.
        #[source]
        source: io::Error,
    },
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There is no copy of the file.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The store does not do as it is told.
    #[error("the store does not serve")]
    Store(#[from] StoreError),
    /// A first setting could not be kept.
    #[error("the store does not serve")]
    First(#[from] ActError),
    /// The admin key is not one.
    #[error(transparent)]
    AdminKey(#[from] BadAdminKey),
    /// The certificate authorities are not in order.
    #[error(transparent)]
    Roots(#[from] BadRoot),
}

/// Why Posthaste did not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The store did not take the node's leave.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part ended while what was under way was waited for.
    #[error("a part of this node ended: {0}")]
    Broken(&'static str),
}

/// A running Posthaste.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// The admin key that was made because there was none: shown once, never again.
    pub made_key: Option<String>,
    api: Arc<Api>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    patience: Duration,
}

impl Server {
    /// Starts everything. Without an admin key, given or kept, one is made.
    pub async fn start(config: &Config, admin: Option<&str>) -> Result<Self, StartError> {
        let keys = Keys::new(admin)?;
        let address = config.server.listen;
        let listen = |source| StartError::Listen { address, source };
        let listener = server::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let guard = Guard::new(config.security.allow_subnets.clone());
        let (store, durability) = store::open(&config.store).await?;
        let engine = engine(config, store.clone(), guard.clone()).await?;
        let made_key = if admin.is_none() { first_admin_key(&engine).await? } else { None };
        let cursor_secret = cursor_secret(&engine).await?;
        let api = Arc::new(Api::new(ApiParts {
            engine,
            store,
            keys,
            guard,
            body_within: config.server.body_timeout,
            metrics_need_key: config.metrics.require_key,
            durability,
            cursor_secret,
        }));
        let limits = Limits {
            connections: config.server.connections as usize,
            head: config.server.header_timeout,
            answer: config.server.body_timeout + ANSWER_WITHIN,
            idle: config.server.idle_timeout,
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listener, api.clone(), limits, stopped, GRACE));
        Ok(Self { address, made_key, api, stop, tasks, patience: config.server.drain_timeout })
    }

    /// Waits until a part has ended that ends only with the process, and returns its name. The node does not keep its leases
    /// any longer by then: the process has to end, so that other nodes take over and a supervisor restarts it.
    pub async fn broken(&mut self) -> &'static str {
        tokio::select! {
            name = self.api.engine.broken() => name,
            _ = self.tasks.join_next() => "connections",
        }
    }

    /// Stops properly: not ready from now on, what is in flight ends or is given back, then the connections close.
    /// Answers how many notifications were still under way; they are delivered after the next start.
    pub async fn stop(mut self) -> Result<u32, StopError> {
        self.api.stop();
        let engine = &self.api.engine;
        let left = tokio::select! {
            left = engine.drain(self.patience) => left.map_err(StopError::Store),
            // What is under way cannot end in order any more.
            name = engine.broken() => Err(StopError::Broken(name)),
        };
        if let Some(name) = engine.failed_loop() {
            return Err(StopError::Broken(name));
        }
        // Nobody listens any more if the loop has ended already.
        let _ = self.stop.send(true);
        while self.tasks.join_next().await.is_some() {}
        left
    }
}

async fn engine(config: &Config, store: Arc<dyn Store>, guard: Guard) -> Result<Engine, StartError> {
    let webhook = WebhookOptions { guard, ..WebhookOptions::default() };
    let webhook: Arc<dyn Channel> = Arc::new(WebhookChannel::new(webhook)?);
    let parts = Parts {
        store,
        channels: BTreeMap::from([(ChannelName::Webhook, webhook)]),
        clock: Arc::new(SystemClock),
        policies: config.policies.clone(),
        overrides: config.overrides.clone(),
        seed: u64::from_be_bytes(keys::random()),
    };
    let mut settings = Settings { concurrency: config.engine.concurrency, ..Settings::default() };
    if let Some(name) = config.engine.name.clone().or_else(host_name) {
        settings.name = name;
    }
    #[cfg(feature = "planted")]
    planted::in_engine(&mut settings);
    Ok(Engine::start(parts, settings).await?)
}

/// What this machine is called: Linux tells in a file, other systems by a command.
fn host_name() -> Option<String> {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| {
        let output = std::process::Command::new("hostname").output().ok()?;
        String::from_utf8(output.stdout).ok()
    })?;
    Some(told.trim().to_owned()).filter(|name| !name.is_empty())
}

/// What Posthaste does by itself.
fn itself() -> Actor {
    Actor::local("posthaste", None)
}

async fn first_admin_key(engine: &Engine) -> Result<Option<String>, StartError> {
    let has_one = keys::all(&engine.settings()).iter().any(|(_, key)| key.tenant.is_none());
    if has_one {
        return Ok(None);
    }
    let made = keys::create(engine, "first admin key", None, &itself()).await?;
    Ok(Some(made.secret))
}

/// The secret of the cursors, made at the first start: a cursor outlives a restart and is good on every node.
async fn cursor_secret(engine: &Engine) -> Result<[u8; 32], StartError> {
    if let Some(secret) = cursor::secret(&engine.settings()) {
        return Ok(secret);
    }
    let secret = keys::random();
    let value = Some(hex(&secret));
    engine.put_setting(cursor::SECRET, value, "make-secret", cursor::SECRET, &itself()).await?;
    Ok(secret)
}
