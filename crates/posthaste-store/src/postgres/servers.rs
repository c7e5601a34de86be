//! The servers of a URL, tried in turn until one is writable and durable.
//!
//! Each server gets its share of the connect timeout, for the connection and all checks. So a machine
//! that is gone, or that accepts connections and does not respond, does not keep the others from being tried.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Connect;
use futures_util::future::BoxFuture;
use posthaste_engine::store::{Durability, DurabilityLevel as Level};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::durability::{self, Scope};

/// A connection that is not polled yet.
type Open = (Client, Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>);

#[derive(Clone)]
pub(super) struct Servers(Arc<Each>);

struct Each {
    configs: Vec<Config>,
    tls: MakeRustlsConnect,
    /// Timeout of one server while there are others.
    timeout_each: Duration,
    /// The last server that was usable. It is tried first.
    last_good: AtomicUsize,
    /// The durability check before a server is used; `None` if any durability is accepted.
    demand: Option<Scope>,
    durability: Durability,
}

impl Servers {
    /// `within` is the timeout for all of them together.
    pub(super) fn of(
        config: &Config,
        tls: MakeRustlsConnect,
        within: Duration,
        demand: Option<Scope>,
    ) -> Self {
        let configs: Vec<Config> = match config.get_hosts() {
            [_] => vec![config.clone()],
            hosts => (0..hosts.len()).map(|index| of_one_host(config, index)).collect(),
        };
        let timeout_each = within / u32::try_from(configs.len().max(1)).unwrap_or(u32::MAX);
        let (last_good, durability) = (AtomicUsize::new(0), Durability::new(Level::Full));
        Self(Arc::new(Each { configs, tls, timeout_each, last_good, demand, durability }))
    }

    /// Of the server that was connected last.
    pub(super) fn durability(&self) -> &Durability {
        &self.0.durability
    }

    /// Connects to the first usable server. The caller has its own timeout; the last server may use all that
    /// is left of it.
    pub(super) async fn open(&self) -> Result<Open, Error> {
        let Each { configs, timeout_each, last_good, durability, .. } = &*self.0;
        let first = last_good.load(Ordering::Relaxed);
        let mut told = None;
        for turn in 1..=configs.len() {
            let index = (first + turn - 1) % configs.len();
            let opening = self.open_one(&configs[index]);
            let opened = if turn == configs.len() {
                opening.await
            } else {
                let Ok(opened) = tokio::time::timeout(*timeout_each, opening).await else { continue };
                opened
            };
            match opened {
                Ok((open, level)) => {
                    last_good.store(index, Ordering::Relaxed);
                    durability.note(level);
                    return Ok(open);
                }
                // The error of a server that responded is more helpful than that of an unreachable one.
                Err(error) if error.code().is_some() || told.is_none() => told = Some(error),
                Err(_) => {}
            }
        }
        let told = told.expect("the last server is not passed over");
        if durability::refusal(&told).is_some() {
            durability.note(Level::Refused);
        }
        Err(told)
    }

    /// Connects to one server and checks its durability.
    async fn open_one(&self, config: &Config) -> Result<(Open, Level), Error> {
        let Each { tls, demand, .. } = &*self.0;
        let (client, mut connection) = config.connect(tls.clone()).await?;
        let asked = async {
            match demand {
                None => Ok(durability::level(&durability::settings(&client).await?)),
                Some(scope) => {
                    client.batch_execute(&durability::demand(*scope)).await?;
                    Ok(Level::Full)
                }
            }
        };
        // The connection has to be polled here. If it ends, the query fails as well, with the reason.
        let level = {
            let (mut asked, mut running) = (pin!(asked), pin!(&mut connection));
            tokio::select! {
                biased;
                level = &mut asked => level?,
                ended = &mut running => {
                    ended?;
                    asked.await?
                }
            }
        };
        Ok(((client, connection), level))
    }
}

/// The configuration of one server.
fn of_one_host(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match &config.get_hosts()[index] {
        Host::Tcp(name) => one.host(name),
        Host::Unix(path) => one.host_path(path),
    };
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    if let Some(port) = config.get_ports().get(index).or(config.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(database) = config.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs());
    one
}

impl Connect for Servers {
    #[expect(
        clippy::disallowed_methods,
        reason = "the pool asks for the task, and ends it with its connection"
    )]
    fn connect(&self, _config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        Box::pin(async {
            let (client, connection) = self.open().await?;
            let running = tokio::spawn(async {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to PostgreSQL has ended");
                }
            });
            Ok((client, running))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_asked_for_in_the_same_way() {
        let url = "postgres://ada:secret@one:1,two:2,three:3/d?application_name=a&keepalives_retries=4&sslmode=require\
            &target_session_attrs=read-write&connect_timeout=7&tcp_user_timeout=9&keepalives_interval=3&options=-c%20a%3Db";
        let config: Config = url.parse().unwrap();
        for (index, name) in ["one", "two", "three"].into_iter().enumerate() {
            let only = url.replace("one:1,two:2,three:3", &format!("{name}:{}", index + 1));
            assert_eq!(of_one_host(&config, index), only.parse().unwrap(), "{name}");
        }
        let config: Config = "postgres://one,two:5433/d".parse().unwrap();
        assert_eq!(of_one_host(&config, 0).get_ports(), [5432]);
        assert_eq!(of_one_host(&config, 1).get_ports(), [5433]);
        let config: Config = "host=one,two port=7 dbname=d".parse().unwrap();
        assert_eq!(of_one_host(&config, 1).get_ports(), [7]);
    }
}
