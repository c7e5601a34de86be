//! Inbound limits: before a notification is accepted it reserves a time. Everything that asks while the last reservation is stored
//! is reserved together.

use std::sync::Arc;

use posthaste_core::inbound::{self, Allowances, InboundKey, Reserved, Wanted};
use posthaste_core::notification::Notification;
use posthaste_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::accept::AcceptError;
use crate::engine::{Engine, Shared};
use crate::gather::{More, gather};
use crate::store::StoreError;

/// One caller's notifications on their way to a time.
pub(crate) struct Reservation {
    wanted: Vec<Wanted>,
    answer: oneshot::Sender<Result<Vec<Reserved>, AcceptError>>,
}

impl Engine {
    /// Whether there are inbound limits.
    pub fn has_inbound_limits(&self) -> bool {
        !self.shared.settings.inbound.is_off()
    }

    /// What is left of the inbound limits of these notifications; the least of it where they differ. Reserves nothing.
    pub async fn allowances(
        &self,
        of: impl IntoIterator<Item = &Notification>,
    ) -> Result<Allowances, StoreError> {
        let limits = self.shared.settings.inbound;
        let wanted: Vec<Wanted> = of.into_iter().map(Wanted::whatever_its_priority).collect();
        let keys: Vec<InboundKey> = wanted.iter().flat_map(|one| one.keys(limits)).collect();
        let taken = self.shared.store.inbound_taken(keys).await?;
        let now = self.now();
        let each = wanted.iter().map(|one| inbound::allowances(&taken, one, limits, now));
        Ok(each.fold(Allowances::default(), Allowances::tightest))
    }

    /// The times of these notifications, in their order; none for those that are exempt.
    pub(crate) async fn reserve(&self, of: &[Notification]) -> Result<Vec<Option<Reserved>>, AcceptError> {
        let wanted: Vec<Option<Wanted>> = of.iter().map(Wanted::of).collect();
        let those_that_want: Vec<Wanted> = wanted.iter().flatten().cloned().collect();
        if those_that_want.is_empty() {
            return Ok(vec![None; of.len()]);
        }
        let (answer, answered) = oneshot::channel();
        let reservation = Reservation { wanted: those_that_want, answer };
        self.shared.reservations.send(reservation).await.map_err(|_| AcceptError::Stopping)?;
        // Nothing is stored but the reservation, so there is nothing to be unclear about.
        let mut reserved = answered.await.map_err(|_| AcceptError::Stopping)??.into_iter();
        Ok(wanted.into_iter().map(|one| one.and_then(|_| reserved.next())).collect())
    }
}

/// The loop. A caller that goes away leaves its times unused, which makes the limit stricter for a minute.
pub(crate) async fn run(shared: Arc<Shared>, mut asked: mpsc::Receiver<Reservation>) {
    while let Some(first) = asked.recv().await {
        let mut rows = 0;
        let batch = gather(&mut asked, first, |one| {
            rows += one.wanted.len();
            if rows >= shared.settings.batch { More::No } else { More::IfThere }
        })
        .await;
        let wanted = batch.iter().flat_map(|one| one.wanted.iter().cloned()).collect();
        match shared.store.reserve(wanted, shared.settings.inbound, shared.node.now()).await {
            Ok(reserved) => {
                let mut reserved = reserved.into_iter();
                for one in batch {
                    let theirs = reserved.by_ref().take(one.wanted.len()).collect();
                    let _ = one.answer.send(Ok(theirs));
                }
            }
            Err(error) => {
                shared.counts.store_error();
                let error = Arc::new(error);
                for one in batch {
                    let _ = one.answer.send(Err(AcceptError::Store(error.clone())));
                }
            }
        }
    }
}

/// Until when a limit defers a notification that reserved this. One that starts later by itself is not deferred by the limit.
pub(crate) fn deferral(notification: &Notification, reserved: Option<Reserved>) -> Option<Timestamp> {
    let at = reserved.filter(|reserved| reserved.is_deferred)?.at;
    notification.not_before.is_none_or(|start| start < at).then_some(at)
}
