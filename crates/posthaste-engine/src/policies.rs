//! The policies in force: a snapshot in memory, so that no decision has to ask the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use posthaste_core::channel::Channel;
use posthaste_core::notification::{Notification, Tenant};
use posthaste_core::policy::{Policy, PolicyLayer, PolicySet, Scope, Source};

use crate::store::{Result, Store};

/// What the names of policy settings in the store begin with; the scope follows.
pub const PREFIX: &str = "policy:";

/// The most resolved policies that are remembered; beyond it all are forgotten and resolved again.
const MOST_RESOLVED: usize = 10_000;

/// The policies of the configuration with those of the store on top.
#[derive(Debug)]
pub struct Policies {
    file: PolicySet,
    current: RwLock<Arc<Snapshot>>,
}

type Key = (Channel, Tenant, Option<String>);

#[derive(Debug)]
struct Snapshot {
    version: Option<i64>,
    set: PolicySet,
    resolved: Mutex<HashMap<Key, Arc<Policy>>>,
}

impl Snapshot {
    fn new(version: Option<i64>, set: PolicySet) -> Arc<Self> {
        Arc::new(Self { version, set, resolved: Mutex::default() })
    }
}

impl Policies {
    pub(crate) fn new(file: PolicySet) -> Self {
        Self { current: RwLock::new(Snapshot::new(None, file.clone())), file }
    }

    /// The layers in force.
    pub fn set(&self) -> PolicySet {
        self.snapshot().set.clone()
    }

    /// The policy of a notification, as it is now.
    pub fn of(&self, notification: &Notification) -> Arc<Policy> {
        let snapshot = self.snapshot();
        if let Some(message) = &notification.content.policy {
            return Arc::new(snapshot.resolve(notification, Some(message)));
        }
        let key = (notification.channel, notification.tenant.clone(), notification.template.clone());
        let mut resolved = snapshot.resolved.lock().expect("no code panics while it resolves");
        if let Some(policy) = resolved.get(&key) {
            return policy.clone();
        }
        if resolved.len() >= MOST_RESOLVED {
            resolved.clear();
        }
        let policy = Arc::new(snapshot.resolve(notification, None));
        resolved.insert(key, policy.clone());
        policy
    }

    /// Takes over what the store has that is new. A setting that cannot be understood leaves its scope as the file has
    /// it: it was checked when it was put, so only a newer version can have written it.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<()> {
        let known = self.snapshot().version;
        let Some((version, settings)) = store.settings(known).await? else { return Ok(()) };
        let mut set = self.file.clone();
        for (name, value) in settings {
            let Some(scope) = name.strip_prefix(PREFIX) else { continue };
            if let Err(error) = put(&mut set, scope, &value) {
                tracing::error!(name, error, "a policy in the store cannot be understood");
            }
        }
        *self.current.write().expect("no code panics while it replaces the policies") =
            Snapshot::new(Some(version), set);
        Ok(())
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().expect("no code panics while it replaces the policies").clone()
    }
}

impl Snapshot {
    fn resolve(&self, notification: &Notification, message: Option<&PolicyLayer>) -> Policy {
        let template = notification.template.as_deref();
        self.set.resolve(notification.channel, notification.tenant.as_str(), template, message)
    }
}

fn put(set: &mut PolicySet, scope: &str, value: &str) -> std::result::Result<(), String> {
    let scope: Scope = scope.parse().map_err(|error| format!("{error}"))?;
    let layer: PolicyLayer = serde_json::from_str(value).map_err(|error| error.to_string())?;
    set.put(Source::Api, scope, layer).map_err(|error| error.to_string())
}
