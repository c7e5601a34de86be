//! The sections of the configuration, checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel;
use posthaste_core::job::Schedule;
use posthaste_core::policy::PolicySet;
use posthaste_core::provider::ProviderKind;
use posthaste_core::retention::Periods;
use posthaste_core::sealed::{BadKey, Key};
use posthaste_wire::guard::Subnet;
use posthaste_wire::http::{Proxy, Root, roots_in};
use url::Url;

use super::layers::ConfigValue;
use super::named::{LogFormat, LogLevel, RateAnswer, Secret, StoreUrl, Synchronous};
use super::read::ConfigReader;
use super::secret_text::secret_text;
use super::values::{self, Read};
use super::{Config, jwt};
use crate::listen::ListenAddr;

/// `[server]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    pub listen: ListenAddr,
    /// How people reach the pages.
    pub public_url: Option<Url>,
    /// Limit on open connections.
    pub connections: u32,
    /// Limit on the time to send the head of a request.
    pub header_timeout: Duration,
    /// Limit on the time to send the body of a request.
    pub body_timeout: Duration,
    /// Limit on the time between two requests.
    pub idle_timeout: Duration,
    /// How long shutdown waits for running attempts.
    pub drain_timeout: Duration,
    /// The proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Subnet>,
}

/// `[store]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    pub url: StoreUrl,
    /// Whether to run even if a power cut may lose acknowledged notifications.
    pub unsafe_durability: bool,
    pub synchronous: Synchronous,
    /// Whether a start applies missing schema migrations.
    pub migrate: bool,
    /// Limit on connections to PostgreSQL.
    pub connections: u32,
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
    /// How long a statement may wait for a locked row.
    pub lock_timeout: Duration,
    /// Whether to use prepared statements.
    pub prepared: bool,
    /// A PEM file with certificates to trust instead of the public ones.
    pub root_certificates: Option<PathBuf>,
}

/// `[engine]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// Limit on notifications being sent at the same time.
    pub concurrency: u32,
    /// The node's name, for people. The default is the host name.
    pub name: Option<String>,
    /// Upper bound on the timeout that a message, template or tenant may set.
    pub longest_timeout: Duration,
}

/// `[security]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Private networks to which sending is allowed.
    pub allow_subnets: Vec<Subnet>,
    /// The key that secrets are sealed under, then others that still open.
    pub master_keys: Vec<Key>,
    /// Headers of notifications that hold secrets, beside those that always do.
    pub sensitive_headers: Vec<String>,
}

/// `[webhooks]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhooks {
    /// Certificate authorities to trust, in addition to the public ones.
    pub roots: Vec<Root>,
    /// The proxy that webhooks go through.
    pub proxy: Option<Proxy>,
}

/// `[rate_limit]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Per tenant in a rolling minute; 0 means no limit.
    pub per_tenant_per_minute: u32,
    /// Per module in a rolling minute; 0 means no limit.
    pub per_module_per_minute: u32,
    pub answer: RateAnswer,
}

/// `[queue]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Limit on waiting first attempts; 0 means no limit.
    pub limit: u32,
}

/// `[retention]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    pub periods: Periods,
}

/// `[jobs]`; without a schedule a job runs only when it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jobs {
    /// The safety sweep over due retries.
    pub retry_processor: Option<Schedule>,
    /// Expires notifications and repairs orphans.
    pub retry_expire: Option<Schedule>,
    /// Removes rows that have outlived their period.
    pub retention: Option<Schedule>,
    /// Keeps the failure groups in order.
    pub failure_groups: Option<Schedule>,
    /// Deletes old dead letters.
    pub dead_letter_cleanup: Option<Schedule>,
    /// Expires old failed notifications.
    pub expire_failed: Option<Schedule>,
    /// Minimum age of the failure.
    pub expire_failed_after: Duration,
    /// Disables subscriptions whose deliveries all fail.
    pub block_failing_subscriptions: Option<Schedule>,
}

/// `[alerts]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// An incoming webhook of Slack.
    pub slack_url: Option<Secret>,
    /// An integration key of PagerDuty Events v2.
    pub pagerduty_key: Option<Secret>,
    /// A URL that takes alerts as JSON.
    pub webhook_url: Option<Secret>,
    /// Addresses that get alerts by e-mail.
    pub email: Vec<String>,
    /// Age of the oldest due notification at which a queue counts as behind.
    pub behind_after: Duration,
}

/// `[providers.*]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub channel: Channel,
    /// Such as `smtp` or `twilio`.
    pub kind: String,
    /// The order of a channel's providers; the lowest comes first.
    pub priority: u32,
    /// The URL of a mail server. It may hold a password.
    pub url: Option<Secret>,
    /// The URL of an HTTP provider, if not the default.
    pub base_url: Option<String>,
    /// The sender's address.
    pub from: Option<String>,
    pub account_sid: Option<String>,
    pub auth_token: Option<Secret>,
    pub token: Option<Secret>,
    /// The code with which a provider of the kind `log` fails.
    pub fail: Option<String>,
}

impl Provider {
    /// Its kind, if that is built.
    pub fn built(&self) -> Option<ProviderKind> {
        ProviderKind::from_name(&self.kind)
    }
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Whether `/metrics` requires a key.
    pub require_key: bool,
}

/// `[log]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// Reads the sections with fixed keys.
pub(super) fn read(reader: &mut ConfigReader<'_>) -> Config {
    let engine = engine(reader);
    let config = Config {
        server: server(reader),
        store: store(reader),
        policies: PolicySet::new().with_longest_timeout(engine.longest_timeout),
        engine,
        security: security(reader),
        jwt: jwt::read(reader),
        webhooks: webhooks(reader),
        metrics: Metrics { require_key: reader.read("metrics.require_key", values::flag) },
        log: Log {
            level: reader.read("log.level", values::name(LogLevel::ALL)),
            format: reader.read("log.format", values::name(LogFormat::ALL)),
        },
        breaker: breaker(reader),
        rate_limit: rate_limit(reader),
        queue: queue(reader),
        retention: retention(reader),
        jobs: jobs(reader),
        alerts: alerts(reader),
        overrides: BTreeMap::new(),
        providers: BTreeMap::new(),
        destinations: BTreeMap::new(),
        client_certificates: BTreeMap::new(),
        secret_files: Vec::new(),
        warnings: Vec::new(),
        notices: Vec::new(),
        settings: Vec::new(),
    };
    reader.without_effect_from_here(None);
    config
}

fn server(reader: &mut ConfigReader<'_>) -> ServerSettings {
    ServerSettings {
        listen: reader.read("server.listen", |given| {
            let what = "must be an address and a port such as 127.0.0.1:7780 or localhost:7780, not";
            let address = given.value.as_str().and_then(|text| text.trim().parse().ok());
            address.ok_or_else(|| format!("{what} {}", values::excerpt(&given.value)))
        }),
        public_url: reader.read("server.public_url", values::web_address),
        connections: reader.read("server.connections", values::whole(1..=1_000_000)),
        header_timeout: reader.read("server.header_timeout", values::positive_duration),
        body_timeout: reader.read("server.body_timeout", values::positive_duration),
        idle_timeout: reader.read("server.idle_timeout", values::positive_duration),
        trusted_proxies: reader.read("server.trusted_proxies", subnets),
        drain_timeout: reader.read("server.drain_timeout", values::any_duration),
    }
}

fn store(reader: &mut ConfigReader<'_>) -> StoreSettings {
    // The value may hold a password, so it is not shown.
    let url = reader.read("store.url", |given| {
        let text = given.value.as_str().map(|text| secret_text(text.trim())).transpose()?;
        let url = text.and_then(|text| StoreUrl::parse(text.trim()));
        let what = "must be sqlite:// and a path, such as sqlite://posthaste.db, or a PostgreSQL database, such as \
                    postgres://user:password@host:5432/database, or say where the URL stands: env:NAME or file:PATH";
        url.ok_or_else(|| what.to_owned())
    });
    let is_sqlite = matches!(url, StoreUrl::Sqlite(_));
    let unsafe_durability = reader.read("store.unsafe_durability", values::flag);
    let migrate = reader.read("store.migrate", values::flag);
    reader.without_effect_from_here((!is_sqlite).then_some("it is for SQLite, and the store is PostgreSQL"));
    let synchronous = reader.read("store.synchronous", values::name(Synchronous::ALL));
    reader.without_effect_from_here(is_sqlite.then_some("it is for PostgreSQL, and the store is SQLite"));
    let store = StoreSettings {
        url,
        unsafe_durability,
        synchronous,
        migrate,
        // Reads leave three connections to writes, and there must be one for reads.
        connections: reader.read("store.connections", values::whole(4..=1_000)),
        connect_timeout: reader.read("store.connect_timeout", values::wait),
        statement_timeout: reader.read("store.statement_timeout", values::wait),
        lock_timeout: reader.read("store.lock_timeout", values::wait),
        prepared: reader.read("store.prepared", values::flag),
        root_certificates: reader.read("store.root_certificates", values::optional_text).map(PathBuf::from),
    };
    reader.without_effect_from_here(None);
    if is_sqlite && store.synchronous != Synchronous::Full && !store.unsafe_durability {
        let reason = "must be full: anything less loses acknowledged notifications in a power cut; to accept that, \
                      set store.unsafe_durability = true as well";
        reader.report_key("store.synchronous", reason);
    }
    store
}

fn engine(reader: &mut ConfigReader<'_>) -> EngineSettings {
    EngineSettings {
        concurrency: reader.read("engine.concurrency", values::whole(1..=100_000)),
        name: reader.read("engine.name", values::optional_name),
        longest_timeout: reader.read("engine.longest_timeout", values::max_timeout),
    }
}

fn security(reader: &mut ConfigReader<'_>) -> Security {
    let text = reader.secret("security.master_key");
    let listed = text.as_ref().map(|text| Key::list(text.reveal()));
    // A file with comments alone would be taken for no key, and nothing would be sealed.
    let listed =
        listed.map(|keys| keys.and_then(|keys| if keys.is_empty() { Err(BadKey) } else { Ok(keys) }));
    let master_keys = listed.transpose().unwrap_or_else(|bad| {
        reader.report_key("security.master_key", &bad.to_string());
        None
    });
    let master_keys = master_keys.unwrap_or_default();
    Security {
        allow_subnets: reader.read("security.allow_subnets", subnets),
        master_keys,
        sensitive_headers: reader.read("security.sensitive_headers", header_names),
    }
}

fn header_names(given: &ConfigValue) -> Read<Vec<String>> {
    let names = values::list(given)?;
    let is_name = |name: &&String| ::http::HeaderName::from_bytes(name.as_bytes()).is_err();
    match names.iter().find(is_name) {
        Some(bad) => Err(format!("holds `{}`, which is not the name of a header", bad.escape_debug())),
        None => Ok(names),
    }
}

fn subnets(given: &ConfigValue) -> Read<Vec<Subnet>> {
    let texts = values::list(given)?;
    let parsed =
        texts.iter().map(|text| text.parse().map_err(|error| format!("holds a bad subnet: {error}")));
    parsed.collect()
}

fn webhooks(reader: &mut ConfigReader<'_>) -> Webhooks {
    let roots = reader.read("webhooks.root_certificates", roots);
    let url = reader.secret("webhooks.proxy");
    let password = reader.secret("webhooks.proxy_password");
    let proxy = match (url, password) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(("webhooks.proxy_password", "is set, and webhooks.proxy is not".to_owned())),
        (Some(url), None) => {
            Proxy::parse(url.reveal()).map(Some).map_err(|bad| ("webhooks.proxy", bad.to_string()))
        }
        (Some(url), Some(password)) => Proxy::with_password(url.reveal(), password.reveal())
            .map(Some)
            .map_err(|bad| ("webhooks.proxy", bad.to_string())),
    };
    let proxy = proxy.unwrap_or_else(|(key, reason)| {
        reader.report_key(key, &reason);
        None
    });
    Webhooks { roots, proxy }
}

/// The certificates in PEM files.
pub(super) fn roots(given: &ConfigValue) -> Read<Vec<Root>> {
    let mut roots = vec![];
    for path in values::list(given)? {
        let pem =
            std::fs::read(&path).map_err(|error| format!("names {path}, which cannot be read: {error}"))?;
        roots.extend(roots_in(&pem).map_err(|bad| format!("names {path}, which {bad}"))?);
    }
    Ok(roots)
}

fn breaker(reader: &mut ConfigReader<'_>) -> BreakerSettings {
    reader.without_effect_from_here(None);
    let breaker = BreakerSettings {
        failure_threshold: reader.read("breaker.failure_threshold", values::whole(1..=1_000_000)),
        first_break: reader.read("breaker.first_break", values::positive_duration),
        break_duration: reader.read("breaker.break_duration", values::positive_duration),
        forget_after: reader.read("breaker.forget_after", values::positive_duration),
    };
    if breaker.forget_after < breaker.break_duration {
        reader.report_key("breaker.forget_after", "must be at least breaker.break_duration");
    }
    breaker
}

fn rate_limit(reader: &mut ConfigReader<'_>) -> RateLimit {
    reader.without_effect_from_here(None);
    RateLimit {
        per_tenant_per_minute: reader.read("rate_limit.per_tenant_per_minute", values::whole(0..=u32::MAX)),
        per_module_per_minute: reader.read("rate_limit.per_module_per_minute", values::whole(0..=u32::MAX)),
        answer: reader.read("rate_limit.answer", |given| match given.value.as_u64() {
            Some(202) => Ok(RateAnswer::Accepted),
            Some(429) => Ok(RateAnswer::TooMany),
            _ => values::name(RateAnswer::ALL)(given),
        }),
    }
}

fn queue(reader: &mut ConfigReader<'_>) -> Queue {
    reader.without_effect_from_here(None);
    Queue { limit: reader.read("queue.limit", values::whole(0..=u32::MAX)) }
}

fn retention(reader: &mut ConfigReader<'_>) -> Retention {
    reader.without_effect_from_here(None);
    let periods = Periods {
        dead_letters: reader.read("retention.dead_letters", values::positive_duration),
        dead_letters_restorable: reader.read("retention.dead_letters_restorable", values::any_duration),
        purge_pending_after: reader.read("retention.purge_pending_after", values::duration_or_never),
        finished: reader.read("retention.finished", values::positive_duration),
        attempts: reader.read("retention.attempts", values::positive_duration),
        delivered: reader.read("retention.delivered", values::positive_duration),
        failed: reader.read("retention.failed", values::positive_duration),
        audit: reader.read("retention.audit", values::positive_duration),
        job_runs: reader.read("retention.job_runs", values::positive_duration),
        counters: reader.read("retention.counters", values::positive_duration),
        series: reader.read("retention.series", values::positive_duration),
        operations: reader.read("retention.operations", values::positive_duration),
        operation_items: reader.read("retention.operation_items", values::positive_duration),
    };
    for (key, period) in [("retention.counters", periods.counters), ("retention.series", periods.series)] {
        if period < SHORTEST_COUNTERS {
            reader.report_key(key, "must be at least 2d: figures look back for a day");
        }
    }
    Retention { periods }
}

/// Figures look back for 24 hours.
const SHORTEST_COUNTERS: Duration = Duration::from_secs(2 * 86_400);

fn jobs(reader: &mut ConfigReader<'_>) -> Jobs {
    reader.without_effect_from_here(None);
    let mut job = |key: &str| reader.read(key, values::cron);
    let (retry_processor, retry_expire) = (job("jobs.retry_processor.cron"), job("jobs.retry_expire.cron"));
    let (failure_groups, expire_failed) = (job("jobs.failure_groups.cron"), job("jobs.expire_failed.cron"));
    let (retention, dead_letter_cleanup) = (job("jobs.retention.cron"), job("jobs.dead_letter_cleanup.cron"));
    let expire_failed_after = reader.read("jobs.expire_failed.after", values::positive_duration);
    reader.without_effect_from_here(Some("this job is not built yet"));
    let mut job = |key: &str| reader.read(key, values::cron);
    Jobs {
        retry_processor,
        retry_expire,
        failure_groups,
        retention,
        dead_letter_cleanup,
        expire_failed,
        expire_failed_after,
        block_failing_subscriptions: job("jobs.block_failing_subscriptions.cron"),
    }
}

fn alerts(reader: &mut ConfigReader<'_>) -> Alerts {
    reader.without_effect_from_here(Some("alerts are not built yet"));
    Alerts {
        slack_url: reader.secret("alerts.slack_url"),
        pagerduty_key: reader.secret("alerts.pagerduty_key"),
        webhook_url: reader.secret("alerts.webhook_url"),
        email: reader.read("alerts.email", values::list),
        behind_after: reader.read("alerts.behind_after", values::positive_duration),
    }
}
