//! The hot path. Each verb has its own file.

use async_trait::async_trait;
use posthaste_core::flow::{FlowId, FlowKey, Quota};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    Acceptance, ClaimResult, FirstAnswer, Held, KnownFlow, Queue, Request, Result, Settled, Settlement,
};

use super::{PostgresStore, accept, claim, idempotency, look, settle, transact};

#[async_trait]
impl Queue for PostgresStore {
    async fn intern(&self, flows: Vec<FlowKey>) -> Result<Vec<FlowId>> {
        if let Some(known) = self.flows.numbers(&flows) {
            return Ok(known);
        }
        Ok(transact!(self, tx => self.flows.intern(&tx, &flows))?)
    }

    async fn flows(&self, flows: Vec<FlowId>) -> Result<Vec<KnownFlow>> {
        if let Some(known) = self.flows.remembered(&flows) {
            return Ok(known);
        }
        let found = transact!(self, tx => self.flows.keys(&tx, flows.iter().copied()))?;
        let mut found: Vec<KnownFlow> =
            found.into_iter().map(|(id, key)| KnownFlow { id, key: (*key).clone() }).collect();
        found.sort_unstable_by_key(|flow| flow.id);
        Ok(found)
    }

    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        let keyed = requests.iter().any(|request| request.idempotency.is_some());
        if keyed && !self.days.ready(now) {
            transact!(self, tx => self.days.turn(&tx, now))?;
        }
        Ok(transact!(self, tx => accept::accept(&tx, &self.flows, &self.days, &requests, now))?)
    }

    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<ClaimResult> {
        let (mut all, mut quotas) = (ClaimResult::default(), quotas);
        // Other rows are claimed in place of damaged ones: a short result would mean that nothing else is
        // due. Damaged rows are leased by then, so each turn meets fewer of them.
        while !quotas.is_empty() {
            let (claimed, lost) = transact!(self, tx => claim::claim(&tx, &self.flows, &quotas, lease, now))?;
            all.claimed.extend(claimed.claimed);
            all.set_aside.extend(claimed.set_aside);
            quotas = lost;
        }
        Ok(all)
    }

    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        Ok(transact!(self, tx => settle::settle(&tx, &batch, now))?)
    }

    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        Ok(transact!(self, tx => claim::release(&tx, lease, only.as_deref()))?)
    }

    async fn held(&self, node: NodeId, after: Option<NotificationId>, limit: usize) -> Result<Vec<Held>> {
        Ok(transact!(self, tx => claim::held(&tx, node, after, limit))?)
    }

    async fn idempotent(&self, tenant: Tenant, key: String, now: Timestamp) -> Result<Option<FirstAnswer>> {
        Ok(look!(self, tx => idempotency::known(&tx, tenant.as_str(), &key, now))?)
    }
}
