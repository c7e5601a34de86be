//! The sections of the configuration, checked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::policy::PolicySet;
use posthaste_wire::guard::Subnet;

use super::Config;
use super::layers::Given;
use super::named::{LogFormat, LogLevel, RateAnswer, Secret, StoreUrl, Synchronous};
use super::read::Reader;
use super::values::{self, Read};

/// `[server]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The address that it listens at.
    pub listen: SocketAddr,
    /// The most connections at once.
    pub connections: u32,
    /// How long a caller may take for the head of a request.
    pub header_timeout: Duration,
    /// How long a caller may take for the body of a request.
    pub body_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// How long the program waits at its end for what is under way.
    pub drain_timeout: Duration,
}

/// `[store]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Where it is.
    pub url: StoreUrl,
    /// Whether to run even if an acknowledged notification may be lost in a power cut.
    pub unsafe_durability: bool,
    /// When SQLite waits for the disk.
    pub synchronous: Synchronous,
    /// Whether to take the steps of the schema that the store lacks.
    pub migrate: bool,
    /// The most connections to PostgreSQL at once.
    pub connections: u32,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a row that somebody else is changing.
    pub lock_timeout: Duration,
    /// Whether connections keep statements that they have prepared.
    pub prepared: bool,
    /// The certificates to trust instead of those of the web, as a PEM file.
    pub root_certificates: Option<PathBuf>,
}

/// `[engine]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// The most notifications in the node's hands at once.
    pub concurrency: u32,
    /// The node's name, for people; without one it is the host's.
    pub name: Option<String>,
    /// The longest timeout that a message, template or tenant may ask for.
    pub longest_timeout: Duration,
}

/// `[security]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Private networks that may be sent to all the same.
    pub allow_subnets: Vec<Subnet>,
}

/// `[breaker]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    /// After how many failed attempts in a row it opens.
    pub failure_threshold: u32,
    /// The longest that it stays open before a probe.
    pub break_duration: Duration,
    /// After how long without a call it is forgotten.
    pub forget_after: Duration,
}

/// `[rate_limit]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// The most notifications of a tenant in a rolling minute; 0 is no limit.
    pub per_tenant_per_minute: u32,
    /// The most notifications of a module in a rolling minute; 0 is no limit.
    pub per_module_per_minute: u32,
    /// What a caller over the limit is answered.
    pub answer: RateAnswer,
}

/// `[queue]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The most first attempts that may wait; 0 is no limit.
    pub limit: u32,
}

/// `[retention]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// How long after its death a resolved dead letter is kept.
    pub dead_letters: Duration,
    /// How long it can be restored after that.
    pub dead_letters_restorable: Duration,
    /// When a dead letter that nobody resolved is purged; none is never.
    pub purge_pending_after: Option<Duration>,
    /// How long finished retry rows are kept.
    pub finished: Duration,
    /// How long attempts are kept after the end of their notification.
    pub attempts: Duration,
    /// How long the history of what was delivered is kept.
    pub delivered: Duration,
    /// How long the history of what failed is kept.
    pub failed: Duration,
}

/// `[jobs]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jobs {
    /// The safety sweep over due retries.
    pub retry_processor: Job,
    /// Expiry and the repair of orphans.
    pub retry_expire: Job,
    /// The clearing of dead letters.
    pub dead_letter_cleanup: Job,
    /// The clearing of what failed long ago.
    pub expire_failed: Job,
    /// How long ago it must have failed.
    pub expire_failed_after: Duration,
    /// The disabling of subscriptions that only fail.
    pub block_failing_subscriptions: Job,
}

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Five cron fields, in UTC; none is never.
    pub cron: Option<String>,
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
    /// Addresses that get them as mail.
    pub email: Vec<String>,
    /// A queue has fallen behind when its oldest due notification waits this long.
    pub behind_after: Duration,
}

/// `[providers.*]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// The channel that it carries.
    pub channel: Channel,
    /// What it is, such as `smtp` or `twilio`.
    pub kind: String,
    /// Its place among the providers of the channel; the lowest comes first.
    pub priority: u32,
    /// Where a mail server is; it may hold a password.
    pub url: Option<Secret>,
    /// Where an HTTP provider is, if not at its usual place.
    pub base_url: Option<String>,
    /// Who a message says it is from.
    pub from: Option<String>,
    /// The account at the provider.
    pub account_sid: Option<String>,
    /// The account's password.
    pub auth_token: Option<Secret>,
    /// The key of a bot.
    pub token: Option<Secret>,
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Whether `/metrics` asks for a key.
    pub require_key: bool,
}

/// `[log]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// How much.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

/// Reads the sections whose keys are known in advance.
pub(super) fn read(reader: &mut Reader<'_>) -> Config {
    let engine = engine(reader);
    let config = Config {
        server: server(reader),
        store: store(reader),
        policies: PolicySet::new().with_longest_timeout(engine.longest_timeout),
        engine,
        security: Security { allow_subnets: reader.read("security.allow_subnets", subnets) },
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
        warnings: Vec::new(),
    };
    reader.idle(None);
    config
}

fn server(reader: &mut Reader<'_>) -> Server {
    Server {
        listen: reader.read("server.listen", |given| {
            let what = "must be an address and a port such as 127.0.0.1:7780, not";
            let address = given.value.as_str().and_then(|text| text.trim().parse().ok());
            address.ok_or_else(|| format!("{what} {}", values::excerpt(&given.value)))
        }),
        connections: reader.read("server.connections", values::whole(1..=1_000_000)),
        header_timeout: reader.read("server.header_timeout", values::some_length),
        body_timeout: reader.read("server.body_timeout", values::some_length),
        idle_timeout: reader.read("server.idle_timeout", values::some_length),
        drain_timeout: reader.read("server.drain_timeout", values::length),
    }
}

fn store(reader: &mut Reader<'_>) -> Store {
    // The value may hold a password, so it is not shown.
    let url = reader.read("store.url", |given| {
        let url = given.value.as_str().and_then(|text| StoreUrl::parse(text.trim()));
        let what = "must be sqlite:// and a path, such as sqlite://posthaste.db, or a PostgreSQL database, such as \
                    postgres://user:password@host:5432/database";
        url.ok_or_else(|| what.to_owned())
    });
    let is_sqlite = matches!(url, StoreUrl::Sqlite(_));
    let unsafe_durability = reader.read("store.unsafe_durability", values::flag);
    let migrate = reader.read("store.migrate", values::flag);
    reader.idle((!is_sqlite).then_some("the store is PostgreSQL, and this is for SQLite"));
    let synchronous = reader.read("store.synchronous", values::name(Synchronous::ALL));
    reader.idle(is_sqlite.then_some("the store is SQLite, and this is for PostgreSQL"));
    let store = Store {
        url,
        unsafe_durability,
        synchronous,
        migrate,
        // Whoever only looks leaves three to the others, and one is for those who look.
        connections: reader.read("store.connections", values::whole(4..=1_000)),
        connect_timeout: reader.read("store.connect_timeout", values::wait),
        statement_timeout: reader.read("store.statement_timeout", values::wait),
        lock_timeout: reader.read("store.lock_timeout", values::wait),
        prepared: reader.read("store.prepared", values::flag),
        root_certificates: reader.read("store.root_certificates", values::optional_text).map(PathBuf::from),
    };
    reader.idle(None);
    if is_sqlite && store.synchronous != Synchronous::Full && !store.unsafe_durability {
        let reason = "must be full: anything less loses acknowledged notifications in a power cut; to accept that, \
                      set store.unsafe_durability = true as well";
        reader.complain_about("store.synchronous", reason);
    }
    store
}

fn engine(reader: &mut Reader<'_>) -> EngineSettings {
    EngineSettings {
        concurrency: reader.read("engine.concurrency", values::whole(1..=100_000)),
        name: reader.read("engine.name", values::optional_name),
        longest_timeout: reader.read("engine.longest_timeout", values::asked_timeout),
    }
}

fn subnets(given: &Given) -> Read<Vec<Subnet>> {
    let texts = values::list(given)?;
    let parsed =
        texts.iter().map(|text| text.parse().map_err(|error| format!("holds a bad subnet: {error}")));
    parsed.collect()
}

fn breaker(reader: &mut Reader<'_>) -> Breaker {
    reader.idle(Some("the circuit breaker is not built yet"));
    let breaker = Breaker {
        failure_threshold: reader.read("breaker.failure_threshold", values::whole(1..=1_000_000)),
        break_duration: reader.read("breaker.break_duration", values::some_length),
        forget_after: reader.read("breaker.forget_after", values::some_length),
    };
    if breaker.forget_after < breaker.break_duration {
        reader.complain_about("breaker.forget_after", "must be at least breaker.break_duration");
    }
    breaker
}

fn rate_limit(reader: &mut Reader<'_>) -> RateLimit {
    reader.idle(Some("rate limits are not built yet"));
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

fn queue(reader: &mut Reader<'_>) -> Queue {
    reader.idle(Some("the queue limit is not built yet"));
    Queue { limit: reader.read("queue.limit", values::whole(0..=u32::MAX)) }
}

fn retention(reader: &mut Reader<'_>) -> Retention {
    reader.idle(Some("retention is not built yet"));
    Retention {
        dead_letters: reader.read("retention.dead_letters", values::some_length),
        dead_letters_restorable: reader.read("retention.dead_letters_restorable", values::length),
        purge_pending_after: reader.read("retention.purge_pending_after", values::length_or_never),
        finished: reader.read("retention.finished", values::some_length),
        attempts: reader.read("retention.attempts", values::some_length),
        delivered: reader.read("retention.delivered", values::some_length),
        failed: reader.read("retention.failed", values::some_length),
    }
}

fn jobs(reader: &mut Reader<'_>) -> Jobs {
    reader.idle(Some("jobs are not built yet"));
    let mut job = |key: &str| Job { cron: reader.read(key, values::cron) };
    Jobs {
        retry_processor: job("jobs.retry_processor.cron"),
        retry_expire: job("jobs.retry_expire.cron"),
        dead_letter_cleanup: job("jobs.dead_letter_cleanup.cron"),
        expire_failed: job("jobs.expire_failed.cron"),
        block_failing_subscriptions: job("jobs.block_failing_subscriptions.cron"),
        expire_failed_after: reader.read("jobs.expire_failed.after", values::some_length),
    }
}

fn alerts(reader: &mut Reader<'_>) -> Alerts {
    reader.idle(Some("alerts are not built yet"));
    Alerts {
        slack_url: reader.read("alerts.slack_url", values::secret),
        pagerduty_key: reader.read("alerts.pagerduty_key", values::secret),
        webhook_url: reader.read("alerts.webhook_url", values::secret),
        email: reader.read("alerts.email", values::list),
        behind_after: reader.read("alerts.behind_after", values::some_length),
    }
}
