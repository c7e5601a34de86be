//! Connects the parts. The only place that names concrete types.

mod certificates;
mod first_key;
mod master_key;
#[cfg(feature = "planted")]
mod planted;
pub mod store;

pub use self::first_key::{BadKeyFile, FirstKey, KEY_FILE};

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::channel::Channel as ChannelName;
use posthaste_core::inbound::InboundLimits;
use posthaste_core::job::Job;
use posthaste_core::lease::NodeId;
use posthaste_core::master_key::BadFit;
use posthaste_core::provider::ProviderKind;
use posthaste_engine::acts::{ActError, Actor};
use posthaste_engine::channel::Channel;
use posthaste_engine::engine::{Engine, Parts, Settings};
use posthaste_engine::jobs::JobSettings;
use posthaste_engine::store::{Store, StoreError};
use posthaste_engine::vault::{NotStarted, VaultError, VaultSettings};
use posthaste_store::postgres::ConnectError;
use posthaste_store::sqlite::OpenError;
use posthaste_store::sqlite::backup::BackupError;
use posthaste_store::sqlite::vacuum::VacuumError;
use posthaste_wire::guard::Guard;
use posthaste_wire::http::{BadRoot, HttpOptions};
use posthaste_wire::listener;
use posthaste_wire::log_provider::{LogProvider, Printer};
use posthaste_wire::provider_pool::ProviderPool;
use posthaste_wire::sink::Inbox;
use posthaste_wire::webhook::WebhookChannel;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::SystemClock;
use crate::config::{Config, Jobs, Webhooks};
use crate::http::admission::Admission;
use crate::http::server::{self, Limits};
use crate::http::{Api, ApiParts, cursor, hex};
use crate::keys::{self, BadAdminKey, Keys, last_used};
use crate::listen::ListenAddr;
use crate::master_key::KeyFileError;
use crate::tokens::Tokens;

/// Time to answer a request, in addition to the time for its body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for open exchanges to end after everything else has stopped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why Posthaste cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot listen on {address}: is another Posthaste running? `--listen` or server.listen names another address"
    )]
    Listen {
        address: ListenAddr,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot listen on {address}: the name cannot be looked up; give an address such as 127.0.0.1:7780"
    )]
    Name {
        address: ListenAddr,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Vacuum(#[from] VacuumError),
    #[error("the store does not work")]
    Store(#[from] StoreError),
    /// A setting of the first start could not be stored.
    #[error("the store does not work")]
    First(#[from] ActError),
    #[error(transparent)]
    AdminKey(#[from] BadAdminKey),
    #[error(transparent)]
    FirstKey(#[from] BadKeyFile),
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The master keys are not those of the store.
    #[error(transparent)]
    MasterKey(BadFit),
    #[error("the master key of the store cannot be checked")]
    Vault(#[source] VaultError),
    #[error("webhooks.root_certificates holds a certificate that cannot be used")]
    Roots(#[from] BadRoot),
    #[error("auth.jwt.root_certificates holds a certificate that cannot be used")]
    TokenRoots(#[source] BadRoot),
    #[error("cannot start the thread that prints for providers of the kind `log`")]
    Printer(#[source] io::Error),
}

/// Why Posthaste did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The node could not sign off from the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part ended during shutdown.
    #[error("a part of this node ended: {0}")]
    Broken(&'static str),
}

/// A running Posthaste.
pub struct Server {
    pub address: SocketAddr,
    /// The id of this node in the store.
    pub node: NodeId,
    /// The admin key that was created because there was none. It is shown once.
    pub new_key: Option<FirstKey>,
    api: Arc<Api>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    drain_timeout: Duration,
}

impl Server {
    /// Starts everything. Creates an admin key if there is none.
    pub async fn start(config: &Config, admin: Option<&str>) -> Result<Self, StartError> {
        let keys = Keys::new(admin)?;
        let tokens =
            config.jwt.as_ref().map(Tokens::new).transpose().map_err(StartError::TokenRoots)?.map(Arc::new);
        let asked = &config.server.listen;
        let unknown = |source| StartError::Name { address: asked.clone(), source };
        let taken = |source| StartError::Listen { address: asked.clone(), source };
        let address = asked.resolve().await.map_err(unknown)?;
        let listener = listener::bind(address).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        let guard = guard(config);
        let (store, durability) = store::open(&config.store).await?;
        let webhooks = webhooks(config, guard.clone())?;
        let (vault, key_source) = master_key::find(config, &*store).await?;
        let engine = engine(config, store.clone(), webhooks.clone(), vault).await?;
        engine.learn_level().await?;
        let node = engine.node_id();
        let new_key = match admin {
            None => first_key::make(&engine, &first_key::place(&config.store.url)).await?,
            Some(_) => None,
        };
        let cursor_secret = cursor_secret(&engine).await?;
        let api = Arc::new(Api::new(ApiParts {
            engine,
            store,
            keys,
            tokens: tokens.clone(),
            guard,
            public_url: config.server.public_url.clone(),
            trusted_proxies: config.server.trusted_proxies.clone(),
            body_timeout: config.server.body_timeout,
            connections: config.server.connections as usize,
            rate_answer: config.rate_limit.answer,
            metrics_need_key: config.metrics.require_key,
            durability,
            settings: config.settings.clone(),
            key_source,
            cursor_secret,
        }));
        let limits = Limits {
            connections: config.server.connections as usize,
            head: config.server.header_timeout,
            answer: config.server.body_timeout + ANSWER_TIMEOUT,
            idle: config.server.idle_timeout,
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(last_used::keep(api.clone(), stopped.clone()));
        let certificates = config.client_certificates.clone();
        tasks.spawn(certificates::keep_current(certificates, webhooks, stopped.clone()));
        if let Some(tokens) = tokens.filter(|tokens| tokens.are_read()) {
            let stopped = stopped.clone();
            tasks.spawn(async move { tokens.keep(stopped).await });
        }
        tasks.spawn(server::serve(listener, Admission::new(api.clone()), limits, stopped, CLOSE_TIMEOUT));
        Ok(Self { address, node, new_key, api, stop, tasks, drain_timeout: config.server.drain_timeout })
    }

    /// A path that logs in at the dashboard with this key, once.
    pub fn login_once(&self, key: &str) -> String {
        self.api.dashboard.login_once(key)
    }

    /// Shows a test receiver at the dashboard, with a dial.
    pub fn show_sink(&self, inbox: Inbox) {
        self.api.dashboard.show_sink(inbox);
    }

    /// Waits until a part fails that should run as long as the process, and returns its name. The node has
    /// given up its leases by then. The process must end, so that other nodes take over and a supervisor
    /// restarts it.
    pub async fn broken(&mut self) -> &'static str {
        tokio::select! {
            name = self.api.engine.broken() => name,
            // The other tasks end only at the stop, or by a panic.
            _ = self.tasks.join_next() => "connections",
        }
    }

    /// Stops cleanly: reports not ready, finishes or gives back what is in flight, then closes the
    /// connections. Returns the number of notifications that were still being sent; they are delivered after
    /// the next start.
    pub async fn stop(mut self) -> Result<u32, StopError> {
        self.api.stop();
        let engine = &self.api.engine;
        let left = tokio::select! {
            left = engine.drain(self.drain_timeout) => left.map_err(StopError::Store),
            // A clean stop is no longer possible.
            name = engine.broken() => Err(StopError::Broken(name)),
        };
        if let Some(name) = engine.failed_loop() {
            return Err(StopError::Broken(name));
        }
        // The send fails only if the loop has ended already.
        let _ = self.stop.send(true);
        while self.tasks.join_next().await.is_some() {}
        left
    }
}

fn webhooks(config: &Config, guard: Guard) -> Result<Arc<WebhookChannel>, StartError> {
    let Webhooks { roots, proxy } = config.webhooks.clone();
    let certificates = config.client_certificates.iter();
    let certificates = certificates.map(|(origin, source)| (origin.clone(), source.read.clone())).collect();
    let options = HttpOptions { guard: Some(guard), roots, proxy, certificates, ..HttpOptions::default() };
    Ok(Arc::new(WebhookChannel::new(options)?))
}

async fn engine(
    config: &Config,
    store: Arc<dyn Store>,
    webhooks: Arc<WebhookChannel>,
    vault: VaultSettings,
) -> Result<Engine, StartError> {
    let mut channels = providers(config)?;
    channels.insert(ChannelName::Webhook, webhooks);
    let parts = Parts {
        store,
        channels,
        pools: config.pools(),
        clock: Arc::new(SystemClock),
        policies: config.policies.clone(),
        overrides: config.overrides.clone(),
        seed: u64::from_be_bytes(keys::random()),
    };
    let mut settings = Settings {
        concurrency: config.engine.concurrency,
        jobs: jobs(&config.jobs),
        retention: config.retention.periods,
        breaker: config.breaker,
        destination_limits: config.destinations.clone(),
        inbound: InboundLimits {
            per_tenant: config.rate_limit.per_tenant_per_minute,
            per_module: config.rate_limit.per_module_per_minute,
        },
        queue_limit: config.queue.limit,
        vault,
        ..Settings::default()
    };
    if let Some(name) = config.engine.name.clone().or_else(host_name) {
        settings.name = name;
    }
    #[cfg(feature = "planted")]
    planted::in_engine(&mut settings);
    Engine::start(parts, settings).await.map_err(|refused| match refused {
        NotStarted::Store(error) => error.into(),
        NotStarted::Keys(error) => StartError::MasterKey(error),
        NotStarted::Vault(error) => StartError::Vault(error),
    })
}

fn guard(config: &Config) -> Guard {
    let guard = Guard::new(config.security.allow_subnets.clone());
    if config.webhooks.proxy.is_some() { guard.behind_proxy() } else { guard }
}

/// The channels that have providers. Those of the kind `log` print to the standard output.
fn providers(config: &Config) -> Result<BTreeMap<ChannelName, Arc<dyn Channel>>, StartError> {
    let mut pools: BTreeMap<ChannelName, ProviderPool> = BTreeMap::new();
    let mut printer: Option<Printer> = None;
    for (name, provider) in &config.providers {
        let Some(kind) = provider.built() else { continue };
        let pool = pools.entry(provider.channel).or_default();
        match kind {
            ProviderKind::Log => {
                let shared = match printer.take() {
                    Some(running) => running,
                    None => Printer::start(io::stdout()).map_err(StartError::Printer)?,
                };
                printer = Some(shared.clone());
                pool.add(name.as_str().into(), LogProvider::new(shared, provider.fail.clone()));
            }
        }
    }
    Ok(pools.into_iter().map(|(channel, pool)| (channel, Arc::new(pool) as Arc<dyn Channel>)).collect())
}

fn jobs(config: &Jobs) -> JobSettings {
    let schedule = |job: Job| match job {
        Job::DeadLetterCleanup => config.dead_letter_cleanup.clone(),
        Job::ExpireFailed => config.expire_failed.clone(),
        Job::Retention => config.retention.clone(),
        Job::FailureGroups => config.failure_groups.clone(),
        Job::RetryExpire => config.retry_expire.clone(),
        Job::RetryProcessor => config.retry_processor.clone(),
    };
    JobSettings {
        schedules: Job::ALL.map(|job| (job, schedule(job))).into(),
        expire_failed_after: config.expire_failed_after,
    }
}

/// The host name: from a file on Linux, from a command on other systems.
fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| {
        let output = std::process::Command::new("hostname").output().ok()?;
        String::from_utf8(output.stdout).ok()
    })?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The actor of automatic acts.
fn own_actor() -> Actor {
    Actor::local("posthaste", None)
}

/// The secret of the cursors, created at the first start. It is stored, so that a cursor stays valid after a
/// restart and on every node.
async fn cursor_secret(engine: &Engine) -> Result<[u8; 32], StartError> {
    if let Some(secret) = cursor::secret(&engine.settings()) {
        return Ok(secret);
    }
    let secret = keys::random();
    let value = Some(hex(&secret));
    engine.put_setting(cursor::SECRET, value, "make-secret", cursor::SECRET, &own_actor()).await?;
    Ok(secret)
}
