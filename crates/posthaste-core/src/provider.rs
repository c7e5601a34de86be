//! Providers and pools: who carries the notifications of a channel that does not reach its recipients directly.
//!
//! A notification waits for the pool of its channel, not for a provider: the provider is chosen at each attempt. So its
//! destination is `pool:CHANNEL`, or `provider:NAME` where the sender named one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::channel::Channel;

const POOL: &str = "pool:";
const PINNED: &str = "provider:";

/// What a provider is. Each kind has a table of its own in `classify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderKind {
    /// Prints what it is given, for trying things out.
    Log,
}

impl ProviderKind {
    pub const ALL: [Self; 1] = [Self::Log];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// As the configuration calls it.
    pub name: Arc<str>,
    pub channel: Channel,
    pub kind: ProviderKind,
    /// Its place in the pool of its channel; the lowest comes first.
    pub priority: u32,
}

/// How an attempt leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To the recipient itself.
    Direct,
    Provider(Arc<Provider>),
}

impl Route {
    pub fn provider(&self) -> Option<&Provider> {
        match self {
            Self::Direct => None,
            Self::Provider(provider) => Some(provider),
        }
    }
}

/// The provider that a sender named, if the destination is one.
pub fn pinned(destination: &str) -> Option<&str> {
    destination.strip_prefix(PINNED)
}

/// Why there is no provider for a notification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoProvider {
    #[error("no provider is configured for {0}")]
    Empty(Channel),
    #[error("the provider `{0}` is not configured")]
    Unknown(String),
    #[error("the provider `{name}` is for {channel}")]
    OtherChannel { name: String, channel: Channel },
    #[error("{0} has no providers")]
    Direct(Channel),
}

/// The configured providers: a pool for each channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools(BTreeMap<Channel, Vec<Arc<Provider>>>);

impl Pools {
    /// Orders the providers of each channel by priority, those of one priority by name.
    pub fn new(providers: impl IntoIterator<Item = Provider>) -> Self {
        let mut pools: BTreeMap<Channel, Vec<Arc<Provider>>> = BTreeMap::new();
        for provider in providers {
            pools.entry(provider.channel).or_default().push(Arc::new(provider));
        }
        for pool in pools.values_mut() {
            pool.sort_by(|one, other| (one.priority, &one.name).cmp(&(other.priority, &other.name)));
        }
        Self(pools)
    }

    /// Those of all channels.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.0.values().flatten()
    }

    /// In the order in which they are tried; empty if the channel has none.
    pub fn of(&self, channel: Channel) -> &[Arc<Provider>] {
        self.0.get(&channel).map_or(&[], Vec::as_slice)
    }

    /// The destination of a notification over this channel: its pool, or the provider that the sender named. A provider
    /// that could not take it is an error.
    pub fn destination(&self, channel: Channel, named: Option<&str>) -> Result<String, NoProvider> {
        match named {
            None => self.first(channel).map(|_| format!("{POOL}{channel}")),
            Some(name) => self.named(channel, name).map(|_| format!("{PINNED}{name}")),
        }
    }

    /// The route of an attempt. The first of a pool is taken.
    pub fn route(&self, channel: Channel, destination: &str) -> Result<Route, NoProvider> {
        if !channel.has_providers() {
            return Ok(Route::Direct);
        }
        let chosen = match pinned(destination) {
            None => self.first(channel),
            Some(name) => self.named(channel, name),
        };
        Ok(Route::Provider(chosen?.clone()))
    }

    fn first(&self, channel: Channel) -> Result<&Arc<Provider>, NoProvider> {
        self.of(channel).first().ok_or(NoProvider::Empty(channel))
    }

    fn named(&self, channel: Channel, name: &str) -> Result<&Arc<Provider>, NoProvider> {
        if !channel.has_providers() {
            return Err(NoProvider::Direct(channel));
        }
        let found = self.0.values().flatten().find(|provider| &*provider.name == name);
        let found = found.ok_or_else(|| NoProvider::Unknown(name.to_owned()))?;
        if found.channel != channel {
            return Err(NoProvider::OtherChannel { name: name.to_owned(), channel: found.channel });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(name: &str, channel: Channel, priority: u32) -> Provider {
        Provider { name: name.into(), channel, kind: ProviderKind::Log, priority }
    }

    fn pools() -> Pools {
        Pools::new([
            provider("c", Channel::Sms, 1),
            provider("b", Channel::Sms, 0),
            provider("a", Channel::Sms, 1),
            provider("mail", Channel::Email, 9),
        ])
    }

    fn chosen(channel: Channel, destination: &str) -> Result<Option<String>, NoProvider> {
        let route = pools().route(channel, destination)?;
        Ok(route.provider().map(|provider| provider.name.to_string()))
    }

    #[test]
    fn a_pool_is_ordered_by_priority_and_then_by_name() {
        let names: Vec<String> = pools().of(Channel::Sms).iter().map(|one| one.name.to_string()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert!(pools().of(Channel::Push).is_empty());
    }

    #[test]
    fn a_notification_waits_for_its_pool_or_for_the_provider_that_was_named() {
        let pools = pools();
        assert_eq!(pools.destination(Channel::Sms, None).unwrap(), "pool:sms");
        assert_eq!(pools.destination(Channel::Sms, Some("c")).unwrap(), "provider:c");
        assert_eq!(pools.destination(Channel::Push, None), Err(NoProvider::Empty(Channel::Push)));
        assert_eq!(pools.destination(Channel::Sms, Some("x")), Err(NoProvider::Unknown("x".to_owned())));
        let other = NoProvider::OtherChannel { name: "mail".to_owned(), channel: Channel::Email };
        assert_eq!(pools.destination(Channel::Sms, Some("mail")), Err(other));
        let direct = pools.destination(Channel::Webhook, Some("c"));
        assert_eq!(direct, Err(NoProvider::Direct(Channel::Webhook)));
    }

    #[test]
    fn an_attempt_takes_the_first_of_the_pool_or_the_one_that_was_named() {
        assert_eq!(chosen(Channel::Sms, "pool:sms"), Ok(Some("b".to_owned())));
        assert_eq!(chosen(Channel::Sms, "provider:c"), Ok(Some("c".to_owned())));
        assert_eq!(chosen(Channel::Webhook, "https://a.example:443"), Ok(None));
        assert_eq!(chosen(Channel::Push, "pool:push"), Err(NoProvider::Empty(Channel::Push)));
        // Its provider was removed from the configuration.
        assert_eq!(chosen(Channel::Sms, "provider:x"), Err(NoProvider::Unknown("x".to_owned())));
    }

    #[test]
    fn the_names_of_kinds_lead_back_to_them() {
        for kind in ProviderKind::ALL {
            assert_eq!(ProviderKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ProviderKind::from_name("smtp"), None);
    }
}
