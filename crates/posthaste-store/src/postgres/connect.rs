//! Connections to the server: the pool, and the settings of each session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::durability::{self, Scope};
use super::notices::NotifyChannel;
use super::planted::Planted;
use super::refusal::{ConnectError, chain, refused};
use super::servers::Servers;
use super::tls;
use super::tx::TxOptions;

#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Maximum number of open connections.
    pub connections: usize,
    /// Timeout for a connection, new or from the pool.
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
    /// Timeout for a row that another transaction has locked.
    pub lock_timeout: Duration,
    /// Time without a statement after which the server ends a transaction.
    pub idle_timeout: Duration,
    /// Whether connections keep prepared statements and settings. Use false behind a pooler that gives each
    /// transaction another connection, such as PgBouncer in transaction mode.
    pub prepared: bool,
    pub application_name: String,
    /// PEM file with root certificates that replace the public ones. The certificate of the server is then
    /// always checked, and a server without TLS is refused, unless the URL says `sslmode=disable`.
    pub root_certificates: Option<PathBuf>,
    /// Whether to apply missing migration steps. If not, a database that lacks some is refused.
    pub migrate: bool,
    /// Whether to run even if a crash may lose acknowledged notifications.
    pub unsafe_durability: bool,
    /// Which clock is the time of the cluster.
    pub time: Time,
    #[cfg(feature = "planted")]
    pub planted: Option<Planted>,
}

/// Which clock is the time of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The clock of the server.
    Database,
    /// The clock of the caller, for tests that control the time.
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
    fn bug(&self) -> Option<Planted> {
        #[cfg(feature = "planted")]
        return self.planted;
        #[cfg(not(feature = "planted"))]
        None
    }

    /// Settings of each session or, with a transaction pooler, of each transaction.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let millis = |time: Duration| time.as_millis().to_string();
        let mut all = vec![
            ("statement_timeout", millis(self.statement_timeout)),
            ("lock_timeout", millis(self.lock_timeout)),
            ("idle_in_transaction_session_timeout", millis(self.idle_timeout)),
        ];
        // All statements should use an index. The statistics of a queue table are always out of date: after a
        // burst the planner may take a full table for an empty one, and read all of it for every claim. For
        // the same reason statements join tables by `= any(array[..])` and `is not distinct from`: with a
        // plain `=` the planner may, once it has seen the table empty, walk the whole index and search the
        // list of requested rows for each entry. A bitmap scan is no better: it collects all matching rows
        // before a limit can stop it.
        for plan in ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"] {
            all.push((plan, "off".to_owned()));
        }
        // Starting parallel workers takes longer than these small queries, and planning a claim takes as long
        // as running it.
        all.push(("max_parallel_workers_per_gather", "0".to_owned()));
        all.push(("plan_cache_mode", "force_generic_plan".to_owned()));
        all
    }

    /// How long the durability settings last that are demanded of a server; `None` if any durability is
    /// accepted.
    fn demand(&self) -> Option<Scope> {
        let scope = if self.prepared { Scope::Session } else { Scope::Transaction };
        (!self.unsafe_durability).then_some(scope)
    }

    pub(super) fn tx_options(&self) -> Arc<TxOptions> {
        let set = if self.prepared {
            String::new()
        } else {
            self.settings().iter().map(|(name, value)| format!("set local {name} = {value};")).collect()
        };
        // Without sessions, each transaction may run on another server.
        let demand = self.demand().filter(|scope| *scope == Scope::Transaction);
        let demand = demand.map(durability::demand).unwrap_or_default();
        Arc::new(TxOptions { prepared: self.prepared, set, demand, bug: self.bug() })
    }
}

pub(super) struct Connected {
    pub(super) pool: Pool,
    /// One connection for heartbeats.
    pub(super) heartbeat_pool: Pool,
    pub(super) servers: Servers,
    /// The address for messages, without the password.
    pub(super) tried: String,
}

impl Connected {
    /// The channel for notices. Each schema has its own, because a database may hold several.
    pub(super) async fn notify(
        &self,
        client: &Object,
        connect_timeout: Duration,
    ) -> Result<NotifyChannel, ConnectError> {
        let sql = "select 'posthaste_' || current_schema()::regnamespace::oid";
        let rows = client.query_typed(sql, &[]).await?;
        let channel: String =
            rows.first().map_or_else(|| Ok("posthaste".to_owned()), |row| row.try_get(0))?;
        Ok(NotifyChannel { servers: self.servers.clone(), channel: channel.into(), connect_timeout })
    }
}

/// Parses the URL and opens the first connection.
pub(super) async fn connect(
    url: &str,
    options: &PostgresOptions,
) -> Result<(Connected, Object), ConnectError> {
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
    let (pool, heartbeat_pool) = (pool(options.connections.max(1))?, pool(1)?);
    match pool.get().await {
        Ok(client) => Ok((Connected { pool, heartbeat_pool, servers, tried }, client)),
        Err(error) => Err(refused(&error, tried, database)),
    }
}

fn config(url: &str, options: &PostgresOptions) -> Result<Config, ConnectError> {
    let bad = |what: String| ConnectError::BadUrl { given: without_password(url), what };
    if !url.contains("://") && !url.contains('=') {
        return Err(bad("it has no scheme".to_owned()));
    }
    let encoded = "write @ in a password as %40, and / : ? & % as %2F %3A %3F %26 %25";
    if !ends_userinfo_clearly(url) {
        return Err(bad(format!("it has more than one @, or one at a wrong place; {encoded}")));
    }
    // `require` checks the certificate and its name, as these two modes ask.
    let plain =
        url.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
    let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| bad(chain(&error)))?;
    // The text after an @ may be the rest of a password.
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
        // A connection is given up if the server sends nothing for this long, as after a power cut of its
        // machine.
        .tcp_user_timeout(options.connect_timeout * 3)
        // In whole seconds; the system refuses 0 and very large values.
        .keepalives_idle(options.connect_timeout.clamp(Duration::from_secs(1), Duration::from_secs(3_600)));
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        // After a failover the old name may lead to a read-only server.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if options.root_certificates.is_some() && config.get_ssl_mode() == SslMode::Prefer {
        // Otherwise a man in the middle could claim that the server has no TLS, and there would be no
        // certificate to check.
        config.ssl_mode(SslMode::Require);
    }
    if options.prepared {
        let mut given = config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
        for (name, value) in options.settings() {
            given.push_str(&format!("-c {name}={value} "));
        }
        // For statements outside of explicit transactions. The default of the server may be stricter;
        // concurrent updates of a row would then fail instead of waiting.
        given.push_str("-c default_transaction_isolation=read\\ committed");
        config.options(given);
    }
    Ok(config)
}

/// Whether the end of user and password is unambiguous: the first @ ends them.
fn ends_userinfo_clearly(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return true };
    let Some((credentials, rest)) = rest.split_once('@') else { return true };
    let user = credentials.split(':').next().unwrap_or_default();
    !rest.contains('@') && !user.contains(['/', '?']) && !credentials.contains("password=")
}

/// Describes a server without the password.
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
    let (user, database) =
        (config.get_user().unwrap_or("(no user)"), config.get_dbname().unwrap_or_default());
    let tls = match config.get_ssl_mode() {
        SslMode::Disable => "without TLS",
        SslMode::Require => "with TLS",
        _ => "with TLS if it has it",
    };
    format!("{} as {user} (database {database}, {tls})", hosts.join(" and "))
}

/// The URL for messages.
pub fn without_password(url: &str) -> String {
    let Some(start) = url.find("://").map(|at| at + 3) else {
        // A quoted value may contain anything, so nothing after it is shown.
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

/// Refuses a server that is too old or has an encoding other than UTF-8.
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
            // Characters that are not percent-encoded, so that the rest of the password is parsed as
            // something else.
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
        assert!(options.tx_options().set.contains("set local statement_timeout = 10000;"));
        let options = PostgresOptions::default();
        assert!(options.tx_options().set.is_empty());
    }
}
