//! Reads for one caller. What belongs to another tenant does not exist in them, so no handler filters by tenant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::channel::Channel;
use posthaste_core::filter::{AuditFilter, Filter};
use posthaste_core::id::{DeadLetterId, NotificationId, OperationId};
use posthaste_core::job::Job;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::Operation;
use posthaste_core::policy::{PolicyLayer, Scope};
use posthaste_core::series::{Figures, Points, Span};
use posthaste_core::time::Timestamp;

use crate::engine::{Engine, Shared};
use crate::live::{Listener, Start, Topic};
use crate::store::{
    self, AuditRow, DeadLetterView, DueCursor, History, JobRun, KeyUse, Page, RetryLoad, SeriesRow,
    StoreError, View,
};

/// What one caller can read.
#[derive(Clone)]
pub struct Reads {
    pub(crate) shared: Arc<Shared>,
    /// `None` for all tenants.
    tenant: Option<Tenant>,
}

/// The kept counters, and the figures of the last 24 hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The counters.
    pub kept: store::Stats,
    /// What happened over each channel.
    pub day: BTreeMap<Channel, Figures>,
}

const DAY: Duration = Duration::from_secs(86_400);

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

    /// An operation as it stands.
    pub async fn operation(&self, id: OperationId) -> Result<Option<Operation>, StoreError> {
        let found = self.shared.store.operation(id).await?;
        let sees = |operation: &Operation| self.tenant.is_none() || operation.tenant == self.tenant;
        Ok(found.filter(sees))
    }

    /// Operations, newest first.
    pub async fn operations(
        &self,
        before: Option<OperationId>,
        limit: usize,
    ) -> Result<Page<Operation, OperationId>> {
        Ok(self.shared.store.operations(self.tenant.clone(), before, limit).await?)
    }

    /// The operations that hold these notifications.
    pub async fn held_by(&self, ids: Vec<NotificationId>) -> Result<BTreeMap<NotificationId, OperationId>> {
        Ok(self.shared.store.held_by(ids).await?.into_iter().collect())
    }

    /// Who did what, newest first. Acts on a dead letter name its notification, so the id of a dead letter finds those.
    pub async fn audit(
        &self,
        filter: AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRow, i64>> {
        let mut filter = AuditFilter { tenant: self.tenant(filter.tenant.clone())?, ..filter };
        let letter: Option<DeadLetterId> = filter.target.as_ref().and_then(|target| target.parse().ok());
        if let Some(letter) = letter
            && let Some(notification) = self.shared.store.notification_of(letter).await?
        {
            filter.target = Some(notification.to_string());
        }
        Ok(self.shared.store.audit(filter, before, limit).await?)
    }

    /// The tenants that have ever sent something, by name, this one and those after it. Only for those who see all.
    pub async fn tenants(&self, from: Option<Tenant>, limit: usize) -> Result<Vec<Tenant>> {
        match self.tenant {
            Some(_) => Err(ReadError::OtherTenant),
            None => Ok(self.shared.store.tenants(from, limit).await?),
        }
    }

    /// The runs of a job, newest first; `before` is the number of the last run seen. Jobs belong to no tenant.
    pub async fn job_runs(&self, job: Job, before: Option<i64>, limit: usize) -> Result<Page<JobRun, i64>> {
        Ok(self.shared.store.job_runs(job.name().to_owned(), before, limit).await?)
    }

    /// The last use of each key, of all tenants: a use does not say whose key it is. The caller chooses the keys to show.
    pub async fn key_uses(&self) -> Result<Vec<KeyUse>> {
        Ok(self.shared.store.key_uses().await?)
    }

    /// The kept counters, and the figures of the last 24 hours.
    pub async fn stats(&self, tenant: Option<Tenant>) -> Result<Stats> {
        let (tenant, now) = (self.tenant(tenant)?, self.shared.node.now());
        let kept = self.shared.store.stats(tenant.clone(), now).await?;
        // By whole hours, as the counters are.
        let first = Span::Hour.start(now.earlier(DAY - Span::Hour.length()));
        let rows = self.rows(tenant, Span::Hour, (first, now.later(Span::Hour.length()))).await?;
        let mut day: BTreeMap<Channel, Figures> = BTreeMap::new();
        for row in &rows {
            day.entry(row.channel).or_default().merge(&row.figures);
        }
        Ok(Stats { kept, day })
    }

    /// What happened at each point of time, over one channel or over all.
    pub async fn series(
        &self,
        tenant: Option<Tenant>,
        channel: Option<Channel>,
        points: &Points,
        span: Span,
    ) -> Result<Vec<Figures>> {
        let rows = self.rows(self.tenant(tenant)?, span, (points.first(), points.end())).await?;
        let asked = rows.iter().filter(|row| channel.is_none_or(|channel| channel == row.channel));
        Ok(points.gather(asked.map(|row| (row.at, &row.figures))))
    }

    /// What happened to a destination in each of the points, from the hours in which it was among the busiest of the tenant, or
    /// of all tenants.
    pub async fn series_of(
        &self,
        destination: &Arc<str>,
        tenant: Option<Tenant>,
        channel: Option<Channel>,
        points: &Points,
    ) -> Result<Vec<Figures>> {
        let (tenant, time) = (self.tenant(tenant)?, (points.first(), points.end()));
        let store = &self.shared.store;
        let mut rows = store.destination_hours(tenant.clone(), destination.clone(), time.0, time.1).await?;
        self.shared.rollups.renew_hours(&mut rows, tenant.as_ref(), destination, time);
        let asked = rows.iter().filter(|row| channel.is_none_or(|channel| channel == row.channel));
        Ok(points.gather(asked.map(|row| (row.at, &row.figures))))
    }

    /// How many retries are due at each point of time, from at most `limit` rows.
    pub async fn retry_load(
        &self,
        tenant: Option<Tenant>,
        points: Points,
        limit: usize,
    ) -> Result<RetryLoad> {
        Ok(self.shared.store.retry_load(self.tenant(tenant)?, points, limit).await?)
    }

    async fn rows(
        &self,
        tenant: Option<Tenant>,
        span: Span,
        (from, until): (Timestamp, Timestamp),
    ) -> Result<Vec<SeriesRow>> {
        let mut rows = self.shared.store.series(tenant.clone(), span, from, until).await?;
        self.shared.rollups.renew(&mut rows, tenant.as_ref(), span, (from, until));
        Ok(rows)
    }

    /// The changes that this node makes and that match, as they happen. Operations are those of the tenant of the filter.
    pub fn listen(&self, topics: &[Topic], filter: Filter, start: Start) -> Result<Listener> {
        Ok(Listener::new(self.shared.clone(), topics.to_vec(), self.narrow(filter)?, start))
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

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The only tenant that the caller sees; `None` if it sees all.
    pub(crate) fn only(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// The same, of the tenant that the caller names and can see.
    pub fn of(self, named: Option<Tenant>) -> Result<Self> {
        Ok(Self { tenant: self.tenant(named)?, ..self })
    }

    /// Whose rows are read: the caller's own, or those of the tenant that it names and can see.
    pub fn tenant(&self, named: Option<Tenant>) -> Result<Option<Tenant>> {
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
