//! Edit and retry: an edited copy is sent in place of a dead letter.

use std::sync::Arc;

use posthaste_core::act::{Act, Refused, effect};
use posthaste_core::flow::{Bucket, FlowKey};
use posthaste_core::id::DeadLetterId;
use posthaste_core::notification::Notification;
use posthaste_core::policy::is_past;
use posthaste_core::state::Lane;

use crate::accept::accepted_one;
use crate::acts::{ActError, Actor, LOOKS, REPLACED};
use crate::engine::{Engine, Shared};
use crate::journal;
use crate::store::{Accepted, Arrival, Idempotency, Replacement};

impl Engine {
    /// Stores `copy` in place of a pending dead letter, whose notification has failed then. Both are durable when this
    /// answers `New`. A repeat under the same key gets the first answer.
    pub async fn edit_and_retry(
        &self,
        id: DeadLetterId,
        mut copy: Notification,
        idempotency: Option<Idempotency>,
        actor: &Actor,
    ) -> Result<Accepted, ActError> {
        if self.shared.is_draining() {
            return Err(ActError::Stopping);
        }
        if let Some(policy) = &copy.content.policy {
            self.shared
                .policies
                .check_message(policy)
                .map_err(|bad| ActError::Policy(bad.under("policy")))?;
        }
        let missing = || ActError::NotFound { what: "dead letter", id: id.to_string() };
        let original = self.shared.store.notification_of(id).await?.ok_or_else(missing)?;
        self.vault().seal_headers(&mut copy).await?;
        let copy = Arc::new(copy);
        for _ in 0..LOOKS {
            let facts = self.shared.store.facts(vec![original]).await?.pop();
            let facts = facts.filter(|facts| actor.sees(&facts.tenant)).ok_or_else(missing)?;
            let now = self.now();
            let is_current = facts.standing.letter().is_some_and(|(current, _)| current == id);
            let act = Act::Replace { by: copy.id };
            match effect(&facts.standing, &act, now) {
                Ok(_) if is_current => {}
                Ok(_) | Err(Refused::State) => return Err(self.resolved(id, original, REPLACED).await?),
                Err(Refused::Expired(expires_at)) => {
                    return Err(ActError::Expired { id: original, expires_at });
                }
            }
            // An expiry that was left as it was may have passed.
            if let Some(expires_at) = copy.expires_at.filter(|at| is_past(Some(*at), now)) {
                return Err(ActError::Expired { id: original, expires_at });
            }
            let flow = self.shared.store.intern(vec![FlowKey::of(&copy)]).await?;
            let flow = flow.first().copied().expect("a flow is given a number");
            let arrival = Arrival { notification: copy.clone(), flow, due: copy.first_due(now), lease: None };
            let seen = facts.standing.seen();
            let replacement =
                Replacement { id: original, seen, copy: arrival, idempotency: idempotency.clone() };
            let mut audit = self.audit(actor, act.word().unwrap_or(REPLACED), &original.to_string());
            audit.tenant = Some(facts.tenant.clone());
            let (shared, by) = (self.shared.clone(), actor.clone());
            let change = async move {
                let arrival = replacement.copy.clone();
                let named = shared.acted_on(&facts).await;
                let accepted =
                    shared.store.replace(replacement, Some(by.name.clone()), Some(audit), now).await?;
                if accepted == Some(Accepted::New) {
                    journal::acted(&shared, &named, &facts, &act, &by);
                    after(&shared, &arrival);
                }
                Ok(accepted)
            };
            if let Some(accepted) = self.to_its_end(change).await? {
                return Ok(accepted);
            }
        }
        Err(ActError::Busy { id: original })
    }
}

/// The copy is counted as accepted, and announced.
fn after(shared: &Shared, copy: &Arrival) {
    shared.counts.accepted(1);
    shared.rollups.add(shared.node.now(), [accepted_one(copy)]);
    journal::accepted(shared, std::iter::once(copy));
    let bucket = Bucket { flow: copy.flow, lane: Lane::Main, priority: copy.notification.priority };
    shared.announce(&copy.notification, bucket, copy.due);
}
