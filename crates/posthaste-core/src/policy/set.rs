//! The snapshot of all policies.
//!
//! The upper bound on a timeout depends on its source. The file, and the API at the global and channel
//! scopes, may set up to [`MAX_TIMEOUT`](super::MAX_TIMEOUT). A message, and the API at a tenant or template
//! scope, may set up to [`PolicySet::longest_timeout`]. A new layer beyond that is refused. A stored layer
//! beyond it is limited to it, and the rest of the layer stays in force.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Policy, PolicyLayer, Preset, Scope, resolve};
use crate::channel::Channel;
use crate::fields::BadField;

/// The source of a layer. The API overrides the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    File,
    Api,
}

/// Default upper bound on the timeout that a message, template or tenant may set.
pub const DEFAULT_LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The layers of all scopes. Each change makes a new version. A copy of an older one stays consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySet {
    version: u64,
    longest_timeout: Duration,
    file: ScopeLayers,
    api: ScopeLayers,
    /// The API's layers merged over the file's, for resolving.
    joined: ScopeLayers,
}

impl Default for PolicySet {
    fn default() -> Self {
        Self {
            version: 0,
            longest_timeout: DEFAULT_LONGEST_TIMEOUT,
            file: ScopeLayers::default(),
            api: ScopeLayers::default(),
            joined: ScopeLayers::default(),
        }
    }
}

impl PolicySet {
    /// Only the built-in policies.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of changes so far.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Upper bound on the timeout that a message, template or tenant may set.
    pub const fn longest_timeout(&self) -> Duration {
        self.longest_timeout
    }

    /// Sets [`PolicySet::longest_timeout`]. The limit applies to layers when they are put, so set it first.
    #[must_use]
    pub fn with_longest_timeout(self, longest_timeout: Duration) -> Self {
        Self { longest_timeout, ..self }
    }

    pub fn check_message(&self, layer: &PolicyLayer) -> Result<(), BadField> {
        layer.check()?;
        layer.check_timeout(self.longest_timeout)
    }

    /// Checks a new layer of the API, in addition to the checks of [`PolicySet::put`].
    pub fn check_new(&self, scope: &Scope, layer: &PolicyLayer) -> Result<(), BadField> {
        match scope {
            Scope::Global | Scope::Channel(_) => Ok(()),
            Scope::Tenant(_) | Scope::Template { .. } => layer.check_timeout(self.longest_timeout),
        }
    }

    /// The effective form of a layer that is stored by the API.
    fn effective<'a>(&self, scope: &Scope, stored: &'a PolicyLayer) -> Cow<'a, PolicyLayer> {
        match scope {
            Scope::Global | Scope::Channel(_) => Cow::Borrowed(stored),
            Scope::Tenant(_) | Scope::Template { .. } => stored.with_timeout_up_to(self.longest_timeout),
        }
    }

    /// Replaces the layer of a source at a scope. A refused layer changes nothing.
    ///
    /// A layer must be valid by itself, because the other source may change, and merged with the other
    /// source.
    pub fn put(&mut self, source: Source, scope: Scope, layer: PolicyLayer) -> Result<(), BadField> {
        scope.to_string().parse::<Scope>().map_err(|bad| BadField::new("scope", bad.reason()))?;
        layer.check_for(&scope)?;
        let (file, api) = match source {
            Source::File => (Some(&layer), self.api.get(&scope)),
            Source::Api => (self.file.get(&scope), Some(&layer)),
        };
        let joined = joined(file, api.map(|api| self.effective(&scope, api)).as_deref());
        joined.check_for(&scope)?;
        self.joined.put(&scope, joined);
        match source {
            Source::File => self.file.put(&scope, layer),
            Source::Api => self.api.put(&scope, layer),
        }
        self.version = self.version.saturating_add(1);
        Ok(())
    }

    /// Removes the API's layer at a scope, so that the file's counts again.
    pub fn remove(&mut self, scope: &Scope) {
        if self.api.remove(scope) {
            match self.file.get(scope).cloned() {
                Some(file) => self.joined.put(scope, file),
                None => drop(self.joined.remove(scope)),
            }
            self.version = self.version.saturating_add(1);
        }
    }

    /// The layer of a scope, file and API merged.
    pub fn layer(&self, scope: &Scope) -> Option<&PolicyLayer> {
        self.joined.get(scope)
    }

    /// The layer of one source at a scope.
    pub fn layer_of(&self, source: Source, scope: &Scope) -> Option<&PolicyLayer> {
        match source {
            Source::File => self.file.get(scope),
            Source::Api => self.api.get(scope),
        }
    }

    /// All scopes that have a layer, the widest first.
    pub fn scopes(&self) -> Vec<Scope> {
        self.joined.scopes()
    }

    /// The policy for one notification: built-in < global < channel < tenant < template < message. A template's own
    /// policy at its tenant is over the one for every tenant.
    pub fn resolve(
        &self,
        channel: Channel,
        tenant: &str,
        template: Option<&str>,
        message: Option<&PolicyLayer>,
    ) -> Policy {
        let message = message.map(|layer| layer.with_timeout_up_to(self.longest_timeout));
        let layers = self.layers(channel, tenant, template).into_iter().chain([message.as_deref()]);
        resolve(Preset::built_in(channel), layers.flatten())
    }

    /// What the scopes of a notification say, from the widest to the narrowest.
    pub(super) fn layers(
        &self,
        channel: Channel,
        tenant: &str,
        template: Option<&str>,
    ) -> [Option<&PolicyLayer>; 5] {
        [
            self.joined.global.as_ref(),
            self.joined.channels.get(&channel),
            self.joined.tenants.get(tenant),
            template.and_then(|template| self.joined.templates.get(template)),
            template.and_then(|template| self.joined.own_templates.get(tenant)?.get(template)),
        ]
    }
}

fn joined(file: Option<&PolicyLayer>, api: Option<&PolicyLayer>) -> PolicyLayer {
    match (file, api) {
        (Some(file), Some(api)) => api.over(file),
        (Some(only), None) | (None, Some(only)) => only.clone(),
        (None, None) => PolicyLayer::default(),
    }
}

/// At most one layer per scope. Lookups by name need no `Scope` value.
#[derive(Debug, Clone, Default, PartialEq)]
struct ScopeLayers {
    global: Option<PolicyLayer>,
    channels: BTreeMap<Channel, PolicyLayer>,
    tenants: BTreeMap<String, PolicyLayer>,
    /// The templates of every tenant.
    templates: BTreeMap<String, PolicyLayer>,
    /// The templates of single tenants, by tenant and name.
    own_templates: BTreeMap<String, BTreeMap<String, PolicyLayer>>,
}

impl ScopeLayers {
    fn get(&self, scope: &Scope) -> Option<&PolicyLayer> {
        match scope {
            Scope::Global => self.global.as_ref(),
            Scope::Channel(channel) => self.channels.get(channel),
            Scope::Tenant(name) => self.tenants.get(name),
            Scope::Template { tenant: None, name } => self.templates.get(name),
            Scope::Template { tenant: Some(tenant), name } => self.own_templates.get(tenant)?.get(name),
        }
    }

    fn put(&mut self, scope: &Scope, layer: PolicyLayer) {
        match scope {
            Scope::Global => drop(self.global.replace(layer)),
            Scope::Channel(channel) => drop(self.channels.insert(*channel, layer)),
            Scope::Tenant(name) => drop(self.tenants.insert(name.clone(), layer)),
            Scope::Template { tenant: None, name } => drop(self.templates.insert(name.clone(), layer)),
            Scope::Template { tenant: Some(tenant), name } => {
                self.own_templates.entry(tenant.clone()).or_default().insert(name.clone(), layer);
            }
        }
    }

    fn remove(&mut self, scope: &Scope) -> bool {
        let removed = match scope {
            Scope::Global => self.global.take(),
            Scope::Channel(channel) => self.channels.remove(channel),
            Scope::Tenant(name) => self.tenants.remove(name),
            Scope::Template { tenant: None, name } => self.templates.remove(name),
            Scope::Template { tenant: Some(tenant), name } => {
                self.own_templates.get_mut(tenant).and_then(|own| own.remove(name))
            }
        };
        removed.is_some()
    }

    fn scopes(&self) -> Vec<Scope> {
        let global = self.global.iter().map(|_| Scope::Global);
        let channels = self.channels.keys().copied().map(Scope::Channel);
        let tenants = self.tenants.keys().cloned().map(Scope::Tenant);
        let templates = self.templates.keys().map(|name| Scope::template(name));
        let own = self.own_templates.iter().flat_map(|(tenant, own)| {
            own.keys().map(|name| Scope::Template { tenant: Some(tenant.clone()), name: name.clone() })
        });
        global.chain(channels).chain(tenants).chain(templates).chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn layer(value: Value) -> PolicyLayer {
        PolicyLayer::from_json(&value).unwrap()
    }

    fn attempts(attempts: u32) -> PolicyLayer {
        PolicyLayer { max_attempts: Some(attempts), ..PolicyLayer::default() }
    }

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn without_layers_the_built_in_policies_are_in_force() {
        let set = PolicySet::new();
        for channel in Channel::ALL {
            let preset = if channel == Channel::Webhook { Preset::Webhook } else { Preset::Standard };
            assert_eq!(set.resolve(channel, "acme", Some("welcome"), None), preset.policy());
        }
    }

    #[test]
    fn the_narrower_scope_wins() {
        let mut set = PolicySet::new();
        let resolved = |set: &PolicySet, message: Option<&PolicyLayer>| {
            set.resolve(Channel::Email, "acme", Some("welcome"), message).max_attempts
        };
        assert_eq!(resolved(&set, None), 5);
        for (text, count) in
            [("global", 11), ("channel:email", 12), ("tenant:acme", 13), ("template:welcome", 4)]
        {
            set.put(Source::File, scope(text), attempts(count)).unwrap();
            assert_eq!(resolved(&set, None), count, "{text}");
        }
        assert_eq!(resolved(&set, Some(&attempts(2))), 2);
        for text in ["channel:sms", "tenant:other", "template:other"] {
            set.put(Source::Api, scope(text), attempts(3)).unwrap();
        }
        assert_eq!(resolved(&set, None), 4);
        assert_eq!(set.resolve(Channel::Email, "acme", None, None).max_attempts, 13);
        assert_eq!(set.resolve(Channel::Push, "nobody", None, None).max_attempts, 11);
        assert_eq!(set.scopes().len(), 7);
    }

    #[test]
    fn a_template_of_a_tenant_is_over_that_of_every_tenant() {
        let mut set = PolicySet::new();
        let both = json!({"maxAttempts": 2, "timeout": "3s"});
        set.put(Source::Api, scope("template:*/welcome"), layer(both)).unwrap();
        set.put(Source::File, scope("template:acme/welcome"), attempts(3)).unwrap();
        set.put(Source::Api, scope("template:other/welcome"), attempts(4)).unwrap();
        let resolved = |set: &PolicySet, tenant: &str, template: &str| {
            let policy = set.resolve(Channel::Email, tenant, Some(template), None);
            (policy.max_attempts, policy.timeout.as_secs())
        };
        for (tenant, template, wanted) in [
            ("acme", "welcome", (3, 3)),
            ("other", "welcome", (4, 3)),
            ("third", "welcome", (2, 3)),
            ("acme", "acme/welcome", (5, 10)),
        ] {
            assert_eq!(resolved(&set, tenant, template), wanted, "{tenant} {template}");
        }
        let scopes: Vec<String> = set.scopes().iter().map(ToString::to_string).collect();
        assert_eq!(scopes, ["template:welcome", "template:acme/welcome", "template:other/welcome"]);
        set.remove(&scope("template:other/welcome"));
        assert_eq!(resolved(&set, "other", "welcome"), (2, 3));
        set.remove(&scope("template:acme/welcome"));
        assert_eq!(resolved(&set, "acme", "welcome"), (3, 3), "the file's stays");
        assert!(set.put(Source::Api, scope("template:acme/welcome"), attempts(6)).is_err());
    }

    #[test]
    fn the_api_goes_over_the_file_and_replaces_only_itself() {
        let mut set = PolicySet::new();
        set.put(Source::File, Scope::Global, layer(json!({"maxAttempts": 3, "timeout": "3s"}))).unwrap();
        set.put(Source::Api, Scope::Global, layer(json!({"maxAttempts": 4, "deadLetter": false}))).unwrap();
        let policy = set.resolve(Channel::Sms, "acme", None, None);
        assert_eq!((policy.max_attempts, policy.timeout.as_secs(), policy.dead_letter), (4, 3, false));
        set.put(Source::Api, Scope::Global, layer(json!({"maxAge": "2d"}))).unwrap();
        let policy = set.resolve(Channel::Sms, "acme", None, None);
        assert_eq!((policy.max_attempts, policy.dead_letter), (3, true));
        set.put(Source::File, Scope::Global, layer(json!({"timeout": "7s"}))).unwrap();
        assert_eq!(set.layer(&Scope::Global), Some(&layer(json!({"timeout": "7s", "maxAge": "2d"}))));
        set.remove(&Scope::Global);
        assert_eq!(set.layer(&Scope::Global), Some(&layer(json!({"timeout": "7s"}))));
        assert_eq!(set.layer_of(Source::Api, &Scope::Global), None);
    }

    #[test]
    fn a_schedule_from_the_api_is_not_switched_off_by_the_file() {
        let mut set = PolicySet::new();
        set.put(Source::File, Scope::Global, layer(json!({"strategy": "fixed"}))).unwrap();
        set.put(Source::Api, Scope::Global, layer(json!({"schedule": ["1m"]}))).unwrap();
        assert_eq!(set.resolve(Channel::Sms, "acme", None, None).max_attempts, 2);
    }

    #[test]
    fn a_bad_policy_is_refused_and_the_old_one_stays() {
        let mut set = PolicySet::new();
        set.put(Source::Api, scope("template:welcome"), attempts(5)).unwrap();
        let before = set.clone();
        assert_eq!(
            set.put(Source::Api, scope("template:welcome"), attempts(6)).unwrap_err().field,
            "maxAttempts"
        );
        assert_eq!(set.put(Source::Api, Scope::Global, attempts(0)).unwrap_err().field, "maxAttempts");
        assert_eq!(set, before);
    }

    #[test]
    fn layers_that_only_together_are_bad_are_refused() {
        let mut set = PolicySet::new();
        set.put(Source::File, Scope::Global, layer(json!({"quick": {"delay": "4s"}}))).unwrap();
        let error = set.put(Source::Api, Scope::Global, layer(json!({"quick": {"tries": 3}}))).unwrap_err();
        assert_eq!(error.field, "quick");
        assert_eq!(set.layer_of(Source::Api, &Scope::Global), None);
    }

    #[test]
    fn a_layer_must_be_good_without_the_other_source() {
        let mut set = PolicySet::new();
        set.put(Source::File, Scope::Global, layer(json!({"quick": {"limit": "16s"}}))).unwrap();
        let mut quick = layer(json!({"quick": {"tries": 5, "delay": "100ms"}}));
        set.put(Source::Api, Scope::Global, quick.clone()).unwrap();
        quick.quick.as_mut().unwrap().delay = Some(std::time::Duration::from_millis(500));
        assert_eq!(set.put(Source::Api, Scope::Global, quick).unwrap_err().field, "quick");
    }

    #[test]
    fn a_preset_from_the_api_leaves_nothing_of_the_file() {
        let mut set = PolicySet::new();
        set.put(Source::File, Scope::Global, layer(json!({"timeout": "3s", "retryOn": {"timeout": false}})))
            .unwrap();
        set.put(Source::Api, Scope::Global, layer(json!({"preset": "story"}))).unwrap();
        assert_eq!(set.resolve(Channel::Sms, "acme", None, None), Preset::Story.policy());
        set.put(Source::File, Scope::Global, layer(json!({"preset": "zgw"}))).unwrap();
        set.put(Source::Api, Scope::Global, layer(json!({"timeout": "3s"}))).unwrap();
        let policy = set.resolve(Channel::Sms, "acme", None, None);
        assert_eq!((policy.timeout.as_secs(), policy.max_attempts), (3, 6));
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Who sets the timeout, for how long, and what comes of it under limits of 60 s and of 20 s.
    #[test]
    fn a_timeout_is_held_to_the_limit_by_the_layer_that_sets_it() {
        let ten_minutes = json!({"timeout": "10m", "maxAttempts": 4});
        let zgw = json!({"preset": "zgw", "maxAttempts": 4});
        let table = [
            (Source::File, "global", &ten_minutes, [600, 600]),
            (Source::File, "channel:email", &ten_minutes, [600, 600]),
            (Source::File, "tenant:acme", &ten_minutes, [600, 600]),
            (Source::File, "template:welcome", &ten_minutes, [600, 600]),
            (Source::Api, "global", &ten_minutes, [600, 600]),
            (Source::Api, "channel:email", &ten_minutes, [600, 600]),
            (Source::Api, "tenant:acme", &ten_minutes, [60, 20]),
            (Source::Api, "template:welcome", &ten_minutes, [60, 20]),
            (Source::File, "tenant:acme", &zgw, [30, 30]),
            (Source::Api, "global", &zgw, [30, 30]),
            (Source::Api, "tenant:acme", &zgw, [30, 20]),
            (Source::Api, "template:welcome", &zgw, [30, 20]),
        ];
        for (source, text, value, timeouts) in table {
            for (limit, timeout) in [60, 20].into_iter().zip(timeouts) {
                let mut set = PolicySet::new().with_longest_timeout(secs(limit));
                set.put(source, scope(text), layer(value.clone())).unwrap();
                let policy = set.resolve(Channel::Email, "acme", Some("welcome"), None);
                assert_eq!((policy.timeout, policy.max_attempts), (secs(timeout), 4), "{source:?} {text}");
                assert_eq!(set.layer_of(source, &scope(text)), Some(&layer(value.clone())));
                let again = set.check_new(&scope(text), set.layer(&scope(text)).unwrap());
                assert_eq!(again.is_ok(), timeout <= limit || !text.starts_with('t'), "{source:?} {text}");
            }
        }
        for (limit, value, timeout) in
            [(60, &ten_minutes, 60), (20, &ten_minutes, 20), (20, &zgw, 20), (60, &zgw, 30)]
        {
            let set = PolicySet::new().with_longest_timeout(secs(limit));
            let own = layer(value.clone());
            let policy = set.resolve(Channel::Email, "acme", None, Some(&own));
            assert_eq!((policy.timeout, policy.max_attempts), (secs(timeout), 4));
            assert_eq!(set.check_message(&own).is_ok(), own.own_timeout() == Some(secs(timeout)));
        }
    }

    #[test]
    fn a_layer_that_sets_no_timeout_leaves_a_longer_one_from_a_wider_scope() {
        let mut set = PolicySet::new();
        set.put(Source::Api, Scope::Global, layer(json!({"timeout": "5m"}))).unwrap();
        set.put(Source::Api, scope("tenant:acme"), attempts(7)).unwrap();
        let policy = set.resolve(Channel::Sms, "acme", None, Some(&attempts(2)));
        assert_eq!((policy.timeout, policy.max_attempts), (secs(300), 2));
        // The built-in timeout was not asked for by a scope.
        let strict = PolicySet::new().with_longest_timeout(secs(1));
        assert_eq!(strict.resolve(Channel::Webhook, "acme", None, Some(&attempts(2))).timeout, secs(10));
    }

    #[test]
    fn a_long_timeout_of_the_file_stays_under_what_the_api_says_about_other_fields() {
        let mut set = PolicySet::new();
        set.put(Source::File, scope("tenant:acme"), layer(json!({"timeout": "5m"}))).unwrap();
        set.put(Source::Api, scope("tenant:acme"), attempts(7)).unwrap();
        let resolved = |set: &PolicySet| set.resolve(Channel::Sms, "acme", None, None);
        assert_eq!((resolved(&set).timeout, resolved(&set).max_attempts), (secs(300), 7));
        set.put(Source::Api, scope("tenant:acme"), layer(json!({"timeout": "4m"}))).unwrap();
        assert_eq!(resolved(&set).timeout, secs(60));
        set.put(Source::File, scope("tenant:acme"), layer(json!({"timeout": "6m"}))).unwrap();
        assert_eq!(resolved(&set).timeout, secs(60));
        set.remove(&scope("tenant:acme"));
        assert_eq!(resolved(&set).timeout, secs(360));
    }

    #[test]
    fn a_new_layer_of_a_tenant_or_template_asks_for_no_longer_timeout_than_the_limit() {
        let set = PolicySet::new();
        let long = layer(json!({"timeout": "61s"}));
        for (text, refused) in
            [("global", false), ("channel:sms", false), ("tenant:acme", true), ("template:welcome", true)]
        {
            let bad = set.check_new(&scope(text), &long).err().map(|bad| bad.field);
            assert_eq!(bad, refused.then(|| "timeout".into()), "{text}");
        }
        assert_eq!(set.check_message(&long).unwrap_err().field, "timeout");
        assert_eq!(set.check_message(&attempts(0)).unwrap_err().field, "maxAttempts");
        assert_eq!(set.check_message(&layer(json!({"timeout": "60s"}))), Ok(()));
    }

    #[test]
    fn every_change_has_its_version() {
        let mut set = PolicySet::new();
        set.put(Source::Api, Scope::Global, attempts(2)).unwrap();
        assert_eq!(set.version(), 1);
        assert!(set.put(Source::Api, Scope::Global, attempts(0)).is_err());
        assert_eq!(set.version(), 1);
        set.remove(&Scope::Global);
        set.remove(&Scope::Global);
        assert_eq!(set.version(), 2);
    }
}
