//! How old a notification becomes at least before its policy gives it up, whatever it is.

use std::time::Duration;

use super::{DEFAULT_MIN_MAX_AGE, PolicySet};

impl PolicySet {
    /// No notification is given up sooner, unless its message says itself how old it may become.
    pub fn shortest_max_age(&self) -> Duration {
        let named = self.scopes().into_iter().filter_map(|scope| self.layer(&scope)?.max_age);
        named.min().unwrap_or(DEFAULT_MIN_MAX_AGE).min(DEFAULT_MIN_MAX_AGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use crate::policy::{PolicyLayer, Preset, Source};

    fn layer(hours: u64) -> PolicyLayer {
        PolicyLayer { max_age: Some(Duration::from_secs(hours * 3_600)), ..PolicyLayer::default() }
    }

    #[test]
    fn it_is_a_day_unless_a_scope_says_less() {
        let mut set = PolicySet::new();
        let day = Duration::from_secs(86_400);
        assert_eq!(set.shortest_max_age(), day);
        set.put(Source::File, "global".parse().unwrap(), layer(48)).unwrap();
        assert_eq!(set.shortest_max_age(), day);
        for (scope, hours) in
            [("channel:email", 20), ("tenant:acme", 19), ("template:*/hello", 18), ("template:acme/bye", 17)]
        {
            set.put(Source::Api, scope.parse().unwrap(), layer(hours)).unwrap();
            assert_eq!(set.shortest_max_age(), Duration::from_secs(hours * 3_600), "{scope}");
        }
        set.remove(&"template:acme/bye".parse().unwrap());
        assert_eq!(set.shortest_max_age(), Duration::from_secs(18 * 3_600));
    }

    #[test]
    fn no_policy_gives_up_sooner() {
        let scopes = ["global", "channel:email", "tenant:acme", "template:*/hello", "template:acme/hello"];
        for some in 0u32..32 {
            let mut set = PolicySet::new();
            for (place, scope) in scopes.iter().enumerate().filter(|(place, _)| some & (1 << place) != 0) {
                set.put(Source::Api, scope.parse().unwrap(), layer(30 - 7 * place as u64 % 5)).unwrap();
            }
            let preset = PolicyLayer { preset: Some(Preset::Notify), ..PolicyLayer::default() };
            for message in [None, Some(&preset)] {
                for (channel, tenant) in [(Channel::Email, "acme"), (Channel::Webhook, "other")] {
                    for template in [None, Some("hello"), Some("other")] {
                        let policy = set.resolve(channel, tenant, template, message);
                        assert!(
                            !policy.is_exceeded_by(set.shortest_max_age()),
                            "{some:b} {tenant} {template:?}"
                        );
                    }
                }
            }
        }
    }
}
