//! What the store keeps beside notifications: settings by their names, as a snapshot in memory.
//!
//! Policies are among them (`policies::setting_name`); API keys and secrets of other rooms are as well.

use std::sync::Arc;

use crate::acts::{ActError, Actor};
use crate::engine::Engine;
use crate::journal;
use crate::store::Settings;

impl Engine {
    /// Every setting, as this node knows it: what it put itself at once, what others put a moment later.
    pub fn settings(&self) -> Arc<Settings> {
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
            shared.store.put_setting(name, value, audit).await?;
            journal::set(&action, &target, &actor);
            shared.policies.refresh(&*shared.store).await
        };
        Ok(self.to_its_end(change).await?)
    }

    /// Replaces the value of a setting, with its audit row, if it is still `from` (`None`: if there is none). Otherwise nothing
    /// changes, and it answers false.
    pub async fn swap_setting(
        &self,
        name: &str,
        (from, to): (Option<String>, String),
        action: &str,
        target: &str,
        actor: &Actor,
    ) -> std::result::Result<bool, ActError> {
        let audit = self.audit(actor, action, target);
        let (shared, name, action) = (self.shared.clone(), name.to_owned(), action.to_owned());
        let (target, actor) = (target.to_owned(), actor.clone());
        let change = async move {
            let swapped = shared.store.swap_setting(name, from, to, audit).await?;
            if swapped {
                journal::set(&action, &target, &actor);
            }
            shared.policies.refresh(&*shared.store).await?;
            Ok(swapped)
        };
        Ok(self.to_its_end(change).await?)
    }
}
