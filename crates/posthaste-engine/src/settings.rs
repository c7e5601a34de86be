//! What the store keeps beside notifications: settings by their names, as a snapshot in memory.
//!
//! Policies are among them (`policies::PREFIX`); API keys and secrets of other rooms are as well.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::acts::{ActError, Actor};
use crate::engine::Engine;
use crate::journal;
use crate::store::{Result, Store};

/// Every setting of the store, as it was at one version.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// Grows with each change.
    pub version: i64,
    /// The values by their names.
    pub values: BTreeMap<String, String>,
}

impl Kept {
    /// What the store has, unless its version is the known one.
    pub(crate) async fn read(store: &dyn Store, known: Option<i64>) -> Result<Option<Self>> {
        let found = store.settings(known).await?;
        Ok(found.map(|(version, all)| Self { version, values: all.into_iter().collect() }))
    }
}

/// Names only: a value may be a secret, which belongs in no log.
impl fmt::Debug for Kept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.values.keys().collect();
        out.debug_struct("Kept").field("version", &self.version).field("names", &names).finish()
    }
}

impl Engine {
    /// Every setting, as this node knows it: what it put itself at once, what others put a moment later.
    pub fn settings(&self) -> Arc<Kept> {
        self.shared.policies.kept()
    }

    /// Sets (or, without a value, removes) a setting, with its audit row. When this answers, `settings` of this engine
    /// shows it. A policy is put with `put_policy`, which checks it.
    pub async fn put_setting(
        &self,
        name: &str,
        value: Option<String>,
        action: &str,
        target: &str,
        actor: &Actor,
    ) -> std::result::Result<(), ActError> {
        let audit = self.audit(actor, action, target);
        let (shared, name, action) = (self.shared.clone(), name.to_owned(), action.to_owned());
        let (target, actor) = (target.to_owned(), actor.clone());
        let change = async move {
            shared.store.put_setting(&name, value, audit).await?;
            journal::set(&action, &target, &actor);
            shared.policies.refresh(&*shared.store).await
        };
        Ok(self.to_its_end(change).await?)
    }
}
