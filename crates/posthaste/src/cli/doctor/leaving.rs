//! The checks of `posthaste doctor` on what leaves: the proxy of webhooks, and the providers of the other channels.

use std::time::Duration;

use tokio::net::TcpStream;

use super::Finding;
use crate::config::Config;

/// How long to wait for the proxy.
const PROXY_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let mut found = vec![];
    if let Some(proxy) = &config.webhooks.proxy {
        let connected = tokio::time::timeout(PROXY_TIMEOUT, TcpStream::connect(proxy.host_and_port())).await;
        found.push(match connected {
            Ok(Ok(_)) => Finding::ok("proxy", format!("{proxy} takes connections")),
            Ok(Err(error)) => Finding::fail("proxy", format!("cannot connect to {proxy}: {error}")),
            Err(_) => Finding::fail("proxy", format!("{proxy} does not answer within {PROXY_TIMEOUT:?}")),
        });
    }
    for (name, provider) in &config.providers {
        let text = format!("{name} carries {} (kind {})", provider.channel, provider.kind);
        found.push(match provider.built() {
            Some(_) => Finding::ok("provider", text),
            None => {
                Finding::warn("provider", format!("{text}: this kind is not built yet, it has no effect"))
            }
        });
    }
    found
}
