//! Reaching the server: the pool, and what each session is set to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::durability::{self, Scope};
use super::news::Way;
use super::planted::Planted;
use super::refusal::{ConnectError, chain, refused};
use super::servers::Servers;
use super::tls;
use super::tx::Manner;

/// How the server is used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The most connections at once.
    pub connections: usize,
    /// How long to wait for a connection, new or free.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a row that somebody else is changing.
    pub lock_timeout: Duration,
    /// How long a transaction may do nothing before the server ends it.
    pub idle_timeout: Duration,
    /// Whether connections keep statements that they have prepared, and settings. Say no behind a pooler that gives each
    /// transaction another connection, such as PgBouncer in transaction mode.
    pub prepared: bool,
    /// What the server calls us in its lists.
    pub application_name: String,
    /// Certificates to trust instead of those of the web, as a PEM file. The server's certificate is then always checked, and
    /// a server without TLS refused, unless the URL says `sslmode=disable`.
    pub root_certificates: Option<PathBuf>,
    /// Whether to take the steps of the schema that the database lacks. If not, such a database is refused.
    pub migrate: bool,
    /// Whether to run even if an acknowledged notification may be lost in a crash.
    pub unsafe_durability: bool,
    /// Whose clock nodes live by.
    pub time: Time,
    /// A bug to switch on.
    #[cfg(feature = "planted")]
    pub planted: Option<Planted>,
}

/// Whose clock nodes live by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// That of the server: the one clock of a cluster.
    Database,
    /// That of the caller, for tests that bring their own time.
    #[cfg(feature = "planted")]
    Caller,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 10,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(10),
            prepared: true,
            application_name: "posthaste".to_owned(),
            root_certificates: None,
            migrate: true,
            unsafe_durability: false,
            time: Time::Database,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

impl PostgresOptions {
    /// The bug that is switched on; none in a product.
    fn bug(&self) -> Option<Planted> {
        #[cfg(feature = "planted")]
        return self.planted;
        #[cfg(not(feature = "planted"))]
        None
    }

    /// What each session, or each transaction where there is no session, is set to.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let millis = |time: Duration| time.as_millis().to_string();
        let mut all = vec![
            ("statement_timeout", millis(self.statement_timeout)),
            ("lock_timeout", millis(self.lock_timeout)),
            ("idle_in_transaction_session_timeout", millis(self.idle_timeout)),
        ];
        // Every statement is meant to go by an index. What the planner knows of a queue is always late: after a burst it
        // may take a full table for an empty one, and read all of it at every claim. For the same reason statements join
        // a table by `= any(array[..])` and `is not distinct from`: with a plain `=` the planner may walk the whole table
        // in the order of its index, once it has seen it empty, and look for each row among those that were asked for.
        // A bitmap is no better: it collects every row that matches before a limit can stop it.
        for plan in ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"] {
            all.push((plan, "off".to_owned()));
        }
        // Starting helpers takes longer than any of the small answers, and planning a claim as long as making it.
        all.push(("max_parallel_workers_per_gather", "0".to_owned()));
        all.push(("plan_cache_mode", "force_generic_plan".to_owned()));
        all
    }

    /// How long the durability that is asked of a server lasts; none if any server is good enough.
    fn demand(&self) -> Option<Scope> {
        let scope = if self.prepared { Scope::Session } else { Scope::Transaction };
        (!self.unsafe_durability).then_some(scope)
    }

    /// How transactions are begun and statements sent.
    pub(super) fn manner(&self) -> Arc<Manner> {
        let set = if self.prepared {
            String::new()
        } else {
            self.settings().iter().map(|(name, value)| format!("set local {name} = {value};")).collect()
        };
        // Where there is no session, each transaction may be on another server.
        let demand = self.demand().filter(|scope| *scope == Scope::Transaction);
        let demand = demand.map(durability::demand).unwrap_or_default();
        Arc::new(Manner { prepared: self.prepared, set, demand, bug: self.bug() })
    }
}

/// A server that was reached.
pub(super) struct Reached {
    /// The connections.
    pub(super) pool: Pool,
    /// One more, for heartbeats.
    pub(super) pulse: Pool,
    /// How one more connection is made.
    pub(super) servers: Servers,
    /// Where they lead, for people; without the password.
    pub(super) tried: String,
}

impl Reached {
    /// Where news are told. Each schema has a channel of its own, for a database may hold several.
    pub(super) async fn way(&self, client: &Object, patience: Duration) -> Result<Way, ConnectError> {
        let sql = "select 'posthaste_' || current_schema()::regnamespace::oid";
        let rows = client.query_typed(sql, &[]).await?;
        let channel: String =
            rows.first().map_or_else(|| Ok("posthaste".to_owned()), |row| row.try_get(0))?;
        Ok(Way { servers: self.servers.clone(), channel: channel.into(), patience })
    }
}

/// Finds out where the URL leads, and connects once.
pub(super) async fn reach(url: &str, options: &PostgresOptions) -> Result<(Reached, Object), ConnectError> {
    let config = config(url, options)?;
    let (tried, database) = (shown(&config), config.get_dbname().unwrap_or_default().to_owned());
    let tls = tls::connector(config.get_ssl_mode(), options.root_certificates.as_deref())?;
    let servers = Servers::of(&config, tls, options.connect_timeout, options.demand());
    let pool = |size: usize| {
        let recycling_method = RecyclingMethod::Fast;
        let manager =
            Manager::from_connect(config.clone(), servers.clone(), ManagerConfig { recycling_method });
        Pool::builder(manager)
            .max_size(size)
            .wait_timeout(Some(options.connect_timeout))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| ConnectError::Tls { what: error.to_string() })
    };
    let (pool, pulse) = (pool(options.connections.max(1))?, pool(1)?);
    match pool.get().await {
        Ok(client) => Ok((Reached { pool, pulse, servers, tried }, client)),
        Err(error) => Err(refused(&error, tried, database)),
    }
}

fn config(url: &str, options: &PostgresOptions) -> Result<Config, ConnectError> {
    let bad = |what: String| ConnectError::BadUrl { given: without_password(url), what };
    if !url.contains("://") && !url.contains('=') {
        return Err(bad("it has no scheme".to_owned()));
    }
    let encoded = "write @ in a password as %40, and / : ? & % as %2F %3A %3F %26 %25";
    if !is_parted(url) {
        return Err(bad(format!("it has more than one @, or one at a wrong place; {encoded}")));
    }
    // `require` checks the certificate and its name, which is what these words ask for.
    let plain =
        url.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
    let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| bad(chain(&error)))?;
    // What follows an @ may be the rest of a password.
    let strange = |host: &Host| match host {
        Host::Tcp(name) => name.contains('@'),
        Host::Unix(path) => path.to_string_lossy().contains('@'),
    };
    if config.get_hosts().iter().any(strange) {
        return Err(bad(format!("its host holds an @; {encoded}")));
    }
    if config.get_hosts().is_empty() {
        return Err(bad("it names no host".to_owned()));
    }
    if config.get_dbname().is_none_or(str::is_empty) {
        return Err(bad("it names no database".to_owned()));
    }
    config
        .application_name(&options.application_name)
        .connect_timeout(options.connect_timeout)
        // A server whose machine is gone says nothing: it is given up when it does not answer for this long.
        .tcp_user_timeout(options.connect_timeout * 3)
        // In whole seconds, of which the system takes neither none nor very many.
        .keepalives_idle(options.connect_timeout.clamp(Duration::from_secs(1), Duration::from_secs(3_600)));
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        // After a failover the old name may lead to a server that only reads.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if options.root_certificates.is_some() && config.get_ssl_mode() == SslMode::Prefer {
        // Else whoever stands in between could say that the server has no TLS, and there would be nothing to check.
        config.ssl_mode(SslMode::Require);
    }
    if options.prepared {
        let mut given = config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
        for (name, value) in options.settings() {
            given.push_str(&format!("-c {name}={value} "));
        }
        // Of statements that are a transaction by themselves; the others say it. A server may be set to something stricter,
        // under which those that meet at a row would fail instead of waiting.
        given.push_str("-c default_transaction_isolation=read\\ committed");
        config.options(given);
    }
    Ok(config)
}

/// Whether it is plain where user and password end: the first @ ends them, wherever it stands.
fn is_parted(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return true };
    let Some((credentials, rest)) = rest.split_once('@') else { return true };
    let user = credentials.split(':').next().unwrap_or_default();
    !rest.contains('@') && !user.contains(['/', '?']) && !credentials.contains("password=")
}

/// Where a configuration leads, without the password.
fn shown(config: &Config) -> String {
    let port = |index: usize| {
        let ports = config.get_ports();
        ports.get(index).or(ports.first()).copied().unwrap_or(5432)
    };
    let host = |(index, host): (usize, &Host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        Host::Unix(path) => format!("{}/.s.PGSQL.{}", path.display(), port(index)),
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let (user, database) = (config.get_user().unwrap_or("(nobody)"), config.get_dbname().unwrap_or_default());
    let tls = match config.get_ssl_mode() {
        SslMode::Disable => "without TLS",
        SslMode::Require => "with TLS",
        _ => "with TLS if it has it",
    };
    format!("{} as {user} (database {database}, {tls})", hosts.join(" and "))
}

/// The URL as it can be shown to people.
pub fn without_password(url: &str) -> String {
    let Some(start) = url.find("://").map(|at| at + 3) else {
        // A value may be quoted and hold anything, so nothing that follows is shown.
        return url
            .find("password")
            .map_or_else(|| url.to_owned(), |at| format!("{}password=***", &url[..at]));
    };
    let (mut shown, mut from) = (url.to_owned(), start);
    while let Some(value) = shown[from..].find("password=").map(|at| at + from + 9) {
        let end = shown[value..].find('&').map_or(shown.len(), |at| at + value);
        shown.replace_range(value..end, "***");
        from = value;
    }
    if let Some(end) = shown[start..].rfind('@').map(|at| at + start)
        && let Some(colon) = shown[start..end].find(':').map(|at| at + start)
    {
        shown.replace_range(colon + 1..end, "***");
    }
    shown
}

/// Refuses a server that is too old or cannot hold every text.
pub(super) async fn check(client: &Object, tried: &str) -> Result<(), ConnectError> {
    let sql = "
        select current_setting('server_version_num')::integer, current_setting('server_version'),
            current_setting('server_encoding')";
    let rows = client.query_typed(sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (version, found): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if version < 130_000 {
        return Err(ConnectError::TooOld { tried: tried.to_owned(), found });
    }
    let encoding: String = row.try_get(2)?;
    if encoding != "UTF8" {
        return Err(ConnectError::NotUtf8 { tried: tried.to_owned(), found: encoding });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://ada:secret@db.example:5432/posthaste",
            "postgres://ada:sec:ret@db.example/posthaste?sslmode=require",
            "postgres://db.example/posthaste?password=secret&user=ada",
            "host=db.example user=ada password=secret dbname=posthaste",
            "postgres://ada:secret@db.example:port/posthaste",
            // Signs that were not encoded, after which the rest of the password is taken for something else.
            "postgres://ada:se@cret@db.example/posthaste",
            "postgres://ada:se@cret/ret@db.example/posthaste",
            "postgres://ada:se@cret?ret@db.example/posthaste",
            "postgres://ada:se@cret:ret@db.example/posthaste",
            "postgres://db.example:5432/posthaste?password=se@cret",
            "postgres://db.example/posthaste?password=other&password=secret",
            "host=db.example dbname=posthaste password = 'sec ret'",
        ] {
            let options = PostgresOptions::default();
            let said = match config(url, &options) {
                Ok(config) => shown(&config),
                Err(error) => error.to_string(),
            };
            assert!(said.contains("db.example") && !said.contains("ret"), "{said}");
            assert!(!without_password(url).contains("ret"), "{}", without_password(url));
        }
    }

    #[test]
    fn a_sign_that_is_not_encoded_is_told_with_how_to_write_it() {
        for url in ["postgres://ada:p@ss@db/x", "postgres://db/x?password=p@ss", "host=p@ss dbname=x"] {
            let said = config(url, &PostgresOptions::default()).unwrap_err().to_string();
            assert!(said.contains("%40"), "{said}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_a_sample() {
        for bad in ["", "db.example", "postgres://", "postgres://u@h", "postgres://u@h/d?colour=red"] {
            let said = config(bad, &PostgresOptions::default()).unwrap_err().to_string();
            assert!(said.contains("postgres://user:password@host:5432/database"), "{said}");
        }
    }

    #[test]
    fn behind_a_pooler_nothing_is_left_to_the_session() {
        let options = PostgresOptions { prepared: false, ..PostgresOptions::default() };
        let config = config("postgres://u@h/d", &options).unwrap();
        assert_eq!(config.get_options(), None);
        assert!(options.manner().set.contains("set local statement_timeout = 10000;"));
        let options = PostgresOptions::default();
        assert!(options.manner().set.is_empty());
    }
}
