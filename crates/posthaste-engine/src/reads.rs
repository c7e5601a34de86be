//! Reads for one caller. What belongs to another tenant does not exist in them, so no handler filters by tenant.

use std::sync::Arc;

use posthaste_core::filter::{AuditFilter, Filter};
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::policy::{PolicyLayer, Scope};

use crate::engine::{Engine, Shared};
use crate::store::{AuditRow, DeadLetterView, DueCursor, History, KeyUse, Page, Stats, StoreError, View};

/// What one caller can read.
#[derive(Clone)]
pub struct Reads {
    shared: Arc<Shared>,
    /// `None` for all tenants.
    tenant: Option<Tenant>,
}

/// Why a read was not made.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The caller named a tenant that it cannot see.
    #[error("this key sees only its own tenant")]
    OtherTenant,
    /// The store could not serve.
    #[error("the store could not be read")]
    Store(#[from] StoreError),
}

type Result<T, E = ReadError> = std::result::Result<T, E>;

impl Engine {
    /// Reads for a caller that sees one tenant, or all of them.
    pub fn reads(&self, tenant: Option<Tenant>) -> Reads {
        Reads { shared: self.shared.clone(), tenant }
    }
}

impl Reads {
    /// A notification as it stands, without its history.
    pub async fn notification(&self, id: NotificationId) -> Result<Option<View>> {
        let found = self.shared.store.get(id).await?;
        Ok(found.filter(|view| self.sees(&view.notification.tenant)))
    }

    /// A notification with its history.
    pub async fn notification_with_history(&self, id: NotificationId) -> Result<Option<(View, History)>> {
        let Some(view) = self.notification(id).await? else { return Ok(None) };
        let history = self.shared.store.history(id).await?;
        Ok(Some((view, history)))
    }

    /// Notifications, newest first.
    pub async fn notifications(
        &self,
        filter: Filter,
        before: Option<NotificationId>,
        limit: usize,
    ) -> Result<Page<View, NotificationId>> {
        Ok(self.shared.store.page(self.narrow(filter)?, before, limit).await?)
    }

    /// What waits for a retry, soonest first.
    pub async fn retry_queue(
        &self,
        filter: Filter,
        after: Option<DueCursor>,
        limit: usize,
    ) -> Result<Page<View, DueCursor>> {
        Ok(self.shared.store.retry_queue(self.narrow(filter)?, after, limit).await?)
    }

    /// Dead letters, newest first.
    pub async fn dead_letters(
        &self,
        filter: Filter,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Page<DeadLetterView, DeadLetterId>> {
        Ok(self.shared.store.dead_letters(self.narrow(filter)?, before, limit).await?)
    }

    /// A dead letter with its payload and attempts.
    pub async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetterView>> {
        let found = self.shared.store.dead_letter(id).await?;
        Ok(found.filter(|view| self.sees(&view.notification.tenant)))
    }

    /// Who did what, newest first.
    pub async fn audit(
        &self,
        filter: AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRow, i64>> {
        let filter = AuditFilter { tenant: self.tenant(filter.tenant.clone())?, ..filter };
        Ok(self.shared.store.audit(filter, before, limit).await?)
    }

    /// The tenants that have ever sent something, by name, this one and those after it. Only for those who see all.
    pub async fn tenants(&self, from: Option<Tenant>, limit: usize) -> Result<Vec<Tenant>> {
        match self.tenant {
            Some(_) => Err(ReadError::OtherTenant),
            None => Ok(self.shared.store.tenants(from, limit).await?),
        }
    }

    /// The last use of each key, of all tenants: a use does not say whose key it is. The caller chooses the keys to show.
    pub async fn key_uses(&self) -> Result<Vec<KeyUse>> {
        Ok(self.shared.store.key_uses().await?)
    }

    /// The kept counters.
    pub async fn stats(&self, tenant: Option<Tenant>) -> Result<Stats> {
        Ok(self.shared.store.stats(self.tenant(tenant)?, self.shared.node.now()).await?)
    }

    /// The scopes that have a policy and that the caller can see.
    pub fn policies(&self) -> Vec<(Scope, Option<PolicyLayer>)> {
        let set = self.shared.policies.set();
        let seen = set.scopes().into_iter().filter(|scope| self.sees_scope(scope));
        seen.map(|scope| {
            let layer = set.layer(&scope).cloned();
            (scope, layer)
        })
        .collect()
    }

    /// Whether the caller can see the policy of a scope.
    pub fn sees_scope(&self, scope: &Scope) -> bool {
        match (scope, &self.tenant) {
            (Scope::Tenant(of), Some(own)) => of == own.as_str(),
            // The name of a template that holds for every tenant may come from another tenant.
            (Scope::Template { tenant, .. }, Some(own)) => tenant.as_deref() == Some(own.as_str()),
            (Scope::Global | Scope::Channel(_), Some(_)) | (_, None) => true,
        }
    }

    fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// Whose rows are read: the caller's own, or those of the tenant that it names and can see.
    fn tenant(&self, named: Option<Tenant>) -> Result<Option<Tenant>> {
        match (&self.tenant, named) {
            (None, named) => Ok(named),
            (Some(own), None) => Ok(Some(own.clone())),
            (Some(own), Some(named)) if *own == named => Ok(Some(named)),
            (Some(_), Some(_)) => Err(ReadError::OtherTenant),
        }
    }

    fn narrow(&self, filter: Filter) -> Result<Filter> {
        Ok(Filter { tenant: self.tenant(filter.tenant)?, ..filter })
    }
}
