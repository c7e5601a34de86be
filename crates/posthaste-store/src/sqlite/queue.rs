//! The hot path, in the files of its verbs.

use async_trait::async_trait;
use posthaste_core::flow::{FlowId, FlowKey, Quota};
use posthaste_core::id::NotificationId;
use posthaste_core::lease::{Lease, NodeId};
use posthaste_core::notification::Tenant;
use posthaste_core::time::Timestamp;
use posthaste_engine::store::{
    Acceptance, ClaimResult, FirstAnswer, Held, KnownFlow, Queue, Request, Result, Settled, Settlement,
};

use super::accept::Incoming;
use super::writer::Tx;
use super::{SqliteStore, accept, claim, fault, idempotency, settle};

#[async_trait]
impl Queue for SqliteStore {
    async fn intern(&self, flows: Vec<FlowKey>) -> Result<Vec<FlowId>> {
        let intern =
            move |tx: &mut Tx<'_>| flows.iter().map(|key| tx.flows.intern(tx.conn, key.clone())).collect();
        self.write(1, intern).await
    }

    async fn flows(&self, flows: Vec<FlowId>) -> Result<Vec<KnownFlow>> {
        self.read(move |reader| reader.flows.known(&reader.conn, flows)).await
    }

    async fn accept(&self, requests: Vec<Request>, now: Timestamp) -> Result<Acceptance> {
        let requests = requests.into_iter().map(Incoming::new).collect::<fault::Result<Vec<_>>>()?;
        let rows = requests.iter().map(Incoming::rows).sum();
        self.write(rows, move |tx| accept::accept(tx, &requests, now)).await
    }

    async fn claim(&self, quotas: Vec<Quota>, lease: Lease, now: Timestamp) -> Result<ClaimResult> {
        let (mut all, mut quotas) = (ClaimResult::default(), quotas);
        // Places that went to damaged rows are filled again: a short answer would mean that nothing else is due. Those
        // rows are leased by then, so each turn has fewer of them.
        while !quotas.is_empty() {
            let rows = quotas.iter().fold(0, |rows: usize, quota| rows.saturating_add(quota.limit as usize));
            let leased = self.write(rows, move |tx| claim::claim(tx, &quotas, lease, now)).await?;
            quotas = claim::add(leased, &mut all)?;
        }
        Ok(all)
    }

    async fn settle(&self, batch: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        self.write(batch.len(), move |tx| settle::settle(tx, &batch, now)).await
    }

    async fn release(&self, lease: Lease, only: Option<Vec<NotificationId>>) -> Result<usize> {
        let rows = only.as_ref().map_or(1, Vec::len);
        self.write(rows, move |tx| claim::release(tx, lease, only.as_deref())).await
    }

    async fn held(&self, node: NodeId, after: Option<NotificationId>, limit: usize) -> Result<Vec<Held>> {
        self.read(move |reader| claim::held(&reader.conn, node, after, limit)).await
    }

    async fn idempotent(&self, tenant: Tenant, key: String, now: Timestamp) -> Result<Option<FirstAnswer>> {
        self.find(move |reader| idempotency::idempotent(&reader.conn, &tenant, &key, now)).await
    }
}
