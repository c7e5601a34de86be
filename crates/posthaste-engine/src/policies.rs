//! The policies in force: a snapshot in memory, so that no decision has to ask the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use posthaste_core::channel::Channel;
use posthaste_core::fields::BadField;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::policy::{BadScope, Policy, PolicyLayer, PolicySet, Scope, Source};

use crate::store::{Result, Settings, Store};

/// What the names of policy settings in the store begin with; the scope follows.
const PREFIX: &str = "policy:";

/// What the names of the policies of every tenant's templates begin with; the template follows, slashes included. Versions
/// before the scopes of single tenants wrote and read them so, and nodes of such a version share these settings.
const TEMPLATE_PREFIX: &str = "policy:template:";

/// What the names of the policies of one tenant's templates begin with; tenant, slash and template follow.
///
/// A node of a version before these scopes ignores the setting: there the template of every tenant and the wider scopes
/// count. Under `policy:` it would take it for the policy of a template with a slash in its name.
const OWN_TEMPLATE_PREFIX: &str = "template-policy:";

/// The name of the setting that holds the policy of a scope.
pub(crate) fn setting_name(scope: &Scope) -> String {
    match scope {
        Scope::Global | Scope::Channel(_) | Scope::Tenant(_) => format!("{PREFIX}{scope}"),
        Scope::Template { tenant: None, name } => format!("{TEMPLATE_PREFIX}{name}"),
        Scope::Template { tenant: Some(tenant), name } => format!("{OWN_TEMPLATE_PREFIX}{tenant}/{name}"),
    }
}

/// The scope whose policy a setting holds; none for a setting of another kind.
fn scope_of(setting: &str) -> Option<std::result::Result<Scope, BadScope>> {
    if let Some(own) = setting.strip_prefix(OWN_TEMPLATE_PREFIX) {
        return Some(format!("template:{own}").parse());
    }
    if let Some(name) = setting.strip_prefix(TEMPLATE_PREFIX) {
        return Some(format!("template:*/{name}").parse());
    }
    setting.strip_prefix(PREFIX).map(str::parse)
}

/// The most resolved policies that are remembered; beyond it all are forgotten and resolved again.
const MOST_RESOLVED: usize = 10_000;

/// The policies of the configuration with those of the store on top.
#[derive(Debug)]
pub struct Policies {
    file: PolicySet,
    current: RwLock<Snapshot>,
}

/// What one version of the settings makes of the policies.
#[derive(Debug)]
struct Snapshot {
    kept: Arc<Settings>,
    set: PolicySet,
    resolved: RwLock<Resolved>,
}

/// Policies that were resolved before, by what they hang on. The maps are nested so that a look clones no name.
#[derive(Debug, Default)]
struct Resolved {
    by_channel: BTreeMap<Channel, HashMap<Tenant, OfTenant>>,
    count: usize,
}

#[derive(Debug, Default)]
struct OfTenant {
    plain: Option<Arc<Policy>>,
    by_template: HashMap<String, Arc<Policy>>,
}

impl Resolved {
    fn of_flow(&self, tenant: &Tenant, channel: Channel) -> Option<&Arc<Policy>> {
        self.by_channel.get(&channel)?.get(tenant)?.plain.as_ref()
    }

    fn get(&self, notification: &Notification) -> Option<&Arc<Policy>> {
        let of_tenant = self.by_channel.get(&notification.channel)?.get(&notification.tenant)?;
        match &notification.template {
            None => of_tenant.plain.as_ref(),
            Some(template) => of_tenant.by_template.get(template),
        }
    }

    fn put(&mut self, notification: &Notification, policy: Arc<Policy>) {
        if self.count >= MOST_RESOLVED {
            *self = Self::default();
        }
        let of_channel = self.by_channel.entry(notification.channel).or_default();
        let of_tenant = of_channel.entry(notification.tenant.clone()).or_default();
        let known = match &notification.template {
            None => of_tenant.plain.replace(policy),
            Some(template) => of_tenant.by_template.insert(template.clone(), policy),
        };
        self.count += usize::from(known.is_none());
    }
}

impl Policies {
    /// Reads what the store has.
    pub(crate) async fn load(file: PolicySet, store: &dyn Store) -> Result<Self> {
        let kept = store.settings(None).await?.unwrap_or_default();
        let current = RwLock::new(Snapshot::new(&file, kept));
        Ok(Self { file, current })
    }

    /// The layers in force.
    pub fn set(&self) -> PolicySet {
        self.snapshot().set.clone()
    }

    /// Checks what a new notification says about itself.
    pub fn check_message(&self, layer: &PolicyLayer) -> std::result::Result<(), BadField> {
        self.file.check_message(layer)
    }

    /// The policy of a notification, as it is now.
    pub fn of(&self, notification: &Notification) -> Arc<Policy> {
        let snapshot = self.snapshot();
        if let Some(message) = &notification.content.policy {
            return Arc::new(snapshot.resolve(notification, Some(message)));
        }
        let known = snapshot.resolved.read().expect("no code panics while it resolves");
        if let Some(policy) = known.get(notification) {
            return policy.clone();
        }
        drop(known);
        let policy = Arc::new(snapshot.resolve(notification, None));
        let mut known = snapshot.resolved.write().expect("no code panics while it resolves");
        known.put(notification, policy.clone());
        policy
    }

    /// The policy of notifications without a policy of their own and without a template, as it is now.
    pub(crate) fn of_flow(&self, tenant: &Tenant, channel: Channel) -> Arc<Policy> {
        let snapshot = self.snapshot();
        let known = snapshot.resolved.read().expect("no code panics while it resolves");
        if let Some(policy) = known.of_flow(tenant, channel) {
            return policy.clone();
        }
        drop(known);
        Arc::new(snapshot.set.resolve(channel, tenant.as_str(), None, None))
    }

    /// The policy of a channel, as it is now, before what tenants, templates and messages say.
    pub(crate) fn of_channel(&self, channel: Channel) -> Policy {
        self.snapshot().set.resolve(channel, "", None, None)
    }

    /// Every setting of the store that these policies were read from.
    pub(crate) fn kept(&self) -> Arc<Settings> {
        self.snapshot().kept.clone()
    }

    /// Takes over what the store has that is new.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<()> {
        let known = self.snapshot().kept.version;
        let Some(kept) = store.settings(Some(known)).await? else { return Ok(()) };
        let fresh = Snapshot::new(&self.file, kept);
        let mut current = self.current.write().expect("no code panics while it replaces the policies");
        // Two refreshes can overtake each other; the older answer must not undo the newer one.
        if current.kept.version < fresh.kept.version {
            *current = fresh;
        }
        Ok(())
    }

    fn snapshot(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.current.read().expect("no code panics while it replaces the policies")
    }
}

impl Snapshot {
    /// A setting that cannot be understood leaves its scope as the file has it: it was checked when it was put, so only
    /// a newer version can have written it.
    fn new(file: &PolicySet, kept: Settings) -> Self {
        let mut set = file.clone();
        for (name, value) in &kept.values {
            let Some(scope) = scope_of(name) else { continue };
            let scope = scope.map_err(|error| error.to_string());
            if let Err(error) = scope.and_then(|scope| put(&mut set, scope, value)) {
                tracing::error!(name, error, "a policy in the store cannot be understood");
            }
        }
        Self { kept: Arc::new(kept), set, resolved: RwLock::default() }
    }

    fn resolve(&self, notification: &Notification, message: Option<&PolicyLayer>) -> Policy {
        let template = notification.template.as_deref();
        self.set.resolve(notification.channel, notification.tenant.as_str(), template, message)
    }
}

fn put(set: &mut PolicySet, scope: Scope, value: &str) -> std::result::Result<(), String> {
    let layer: PolicyLayer = serde_json::from_str(value).map_err(|error| error.to_string())?;
    set.put(Source::Api, scope, layer).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_kept_where_nodes_of_the_version_before_look_for_it() {
        for (scope, setting) in [
            ("global", "policy:global"),
            ("channel:webhook", "policy:channel:webhook"),
            ("tenant:acme", "policy:tenant:acme"),
            ("template:welcome", "policy:template:welcome"),
            ("template:*/order/paid", "policy:template:order/paid"),
            ("template:acme/welcome", "template-policy:acme/welcome"),
            ("template:acme/order/paid", "template-policy:acme/order/paid"),
        ] {
            let scope: Scope = scope.parse().unwrap();
            assert_eq!(setting_name(&scope), setting);
            assert_eq!(scope_of(setting).unwrap().unwrap(), scope, "{setting}");
        }
        assert_eq!(scope_of("key:key_1"), None);
    }
}
