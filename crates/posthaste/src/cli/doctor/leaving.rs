//! The checks of `posthaste doctor` on what leaves: the proxy and the client certificates of webhooks, and the providers of the
//! other channels.

use std::time::Duration;

use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use tokio::net::TcpStream;

use super::Finding;
use crate::clock::SystemClock;
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
    found.extend(certificates(config, SystemClock.now()));
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

/// Until when each client certificate is good. One that cannot be read is an error of the settings.
fn certificates(config: &Config, now: Timestamp) -> Vec<Finding> {
    let one = |(origin, source): (&String, &crate::config::CertificateSource)| match source.end_is_near(now) {
        Some(trouble) => {
            Finding::warn("certificate", format!("the client certificate for {origin} {trouble}"))
        }
        None => {
            let end = source.read.expires_at().map(|end| format!(", good until {end}")).unwrap_or_default();
            Finding::ok("certificate", format!("{origin} is shown a client certificate{end}"))
        }
    };
    config.client_certificates.iter().map(one).collect()
}
