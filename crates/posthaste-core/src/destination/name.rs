//! How people name a destination: a pasted URL, the id of a subscription, the name of a provider.

use std::sync::Arc;

use super::{DestinationKey, DestinationKind};
use crate::filter::words::origin;
use crate::notification::Tenant;

/// The name of a destination without its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationName {
    pub kind: DestinationKind,
    /// As keys have it: of a URL, its origin.
    pub name: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a URL such as https://hooks.example.com, the id of a subscription or the name of a provider"
)]
pub struct BadName;

/// The most bytes of a name: hosts have at most 253.
const MAX_NAME: usize = 300;

impl DestinationName {
    /// Reads what somebody typed or pasted.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let text = text.trim();
        if text.contains("://") {
            let (origin, _) = origin(text).ok_or(BadName)?;
            return if is_origin(&origin) {
                Ok(Self { kind: DestinationKind::Webhook, name: origin.into() })
            } else {
                Err(BadName)
            };
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
            return Err(BadName);
        }
        let is_subscription = text.starts_with("sub_");
        let kind = if is_subscription { DestinationKind::Subscription } else { DestinationKind::Provider };
        Ok(Self { kind, name: text.into() })
    }

    /// The destination of that name: a tenant's own, or the provider of all. None if it belongs to a tenant and none is named.
    pub fn key(&self, tenant: Option<Tenant>) -> Option<DestinationKey> {
        let tenant = match self.kind {
            DestinationKind::Provider => None,
            DestinationKind::Webhook | DestinationKind::Subscription => Some(tenant?),
        };
        Some(DestinationKey { tenant, kind: self.kind, name: self.name.clone() })
    }
}

/// Whether it has a host and a port, and nothing that no URL has.
fn is_origin(origin: &str) -> bool {
    let behind = origin.split_once("://").map_or("", |(_, rest)| rest);
    let Some((host, port)) = behind.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    let fits = |c: char| !c.is_whitespace() && !c.is_control();
    origin.len() <= MAX_NAME && is_port && !host.is_empty() && host.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_its_origin_and_other_names_are_taken_as_they_are() {
        use DestinationKind::{Provider, Subscription, Webhook};
        for (text, wanted) in [
            ("https://Hooks.Example.com/in?x=1", Some((Webhook, "https://hooks.example.com:443"))),
            (" http://10.0.0.1:8080 ", Some((Webhook, "http://10.0.0.1:8080"))),
            ("https://[::1]:8443/", Some((Webhook, "https://[::1]:8443"))),
            ("sub_01abc", Some((Subscription, "sub_01abc"))),
            ("mail-eu", Some((Provider, "mail-eu"))),
            ("", None),
            ("a b", None),
            ("pool:email", None),
            ("ftp://a.example", None),
            ("https://", None),
            ("https://:443", None),
            ("https://a.example:0", None),
            ("https://a.example:+1", None),
            ("https://a.example:99999", None),
            ("https://a b", None),
        ] {
            let read = DestinationName::parse(text).ok();
            assert_eq!(read.as_ref().map(|name| (name.kind, &*name.name)), wanted, "{text}");
        }
    }

    #[test]
    fn a_provider_belongs_to_all_and_the_rest_to_a_tenant() {
        let key = |text: &str, tenant: Option<&str>| {
            let tenant = tenant.map(|tenant| tenant.parse().unwrap());
            DestinationName::parse(text).unwrap().key(tenant)
        };
        assert_eq!(key("mail", Some("acme")), Some(DestinationKey::provider("mail")));
        assert_eq!(key("https://a.example", None), None);
        let own = key("https://a.example", Some("acme")).unwrap();
        assert_eq!(own.tenant.as_ref().map(Tenant::as_str), Some("acme"));
    }
}
