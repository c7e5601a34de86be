//! What people and programs ask of a notification: look, decide by its state, change it if it is still so.

use posthaste_core::act::{Refused, Restoration, Standing, effect, replaced_by, restoration};
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::fields::BadField;
use posthaste_core::flow::Bucket;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::notification::Tenant;
use posthaste_core::policy::{PolicyLayer, Scope, Source};
use posthaste_core::series::Happened;
use posthaste_core::state::{Lane, State};
use posthaste_core::time::Timestamp;

use crate::engine::{Engine, Shared};
use crate::store::{Act, Audit, Change, Facts, StoreError};
use crate::vault::VaultError;
use crate::{journal, policies, series};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name in the audit.
    pub name: String,
    /// Whose notifications it may touch; none for all.
    pub tenant: Option<Tenant>,
    /// The id of the API key that it used, if it used one.
    pub key_id: Option<String>,
    /// The address that it asks from, if it asks over the network.
    pub address: Option<String>,
}

impl Actor {
    /// Whether it may touch what belongs to the tenant.
    pub(crate) fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// A caller without a key that does not come over the network.
    pub fn local(name: &str, tenant: Option<Tenant>) -> Self {
        Self { name: name.to_owned(), tenant, key_id: None, address: None }
    }
}

/// Why an act was not done.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// There is no such thing, or it is another tenant's.
    #[error("there is no {what} {id}")]
    NotFound {
        /// What kind of thing.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// Its state does not allow it.
    #[error("{id} {}", stays(*state, wanted))]
    Refused {
        /// Which notification.
        id: NotificationId,
        /// Its state.
        state: State,
        /// What was asked.
        wanted: &'static str,
    },
    /// A dead letter was acted on before.
    #[error("{id} {}", stands(*status, wanted, *current))]
    Resolved {
        /// Which dead letter.
        id: DeadLetterId,
        /// How it stands.
        status: DeadLetterStatus,
        /// What was asked.
        wanted: &'static str,
        /// What stands for its notification now.
        current: Current,
    },
    /// It expired, so a new generation would end before its first attempt.
    #[error("{id} has expired (expiresAt {expires_at}) and would not be sent any more")]
    Expired {
        /// Which notification.
        id: NotificationId,
        /// When.
        expires_at: Timestamp,
    },
    /// It changed each time it was looked at.
    #[error("{id} keeps changing; ask again")]
    Busy {
        /// Which notification.
        id: NotificationId,
    },
    /// The engine is stopping.
    #[error("this node is stopping and takes no new notifications")]
    Stopping,
    /// A policy is not in order.
    #[error("the policy is refused")]
    Policy(#[source] BadField),
    /// The store could not do it, or did not say whether it did.
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
    /// Secrets could not be sealed or opened.
    #[error("the sealed headers of the notification cannot be used")]
    Vault(#[source] VaultError),
}

impl From<VaultError> for ActError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => Self::Store(error),
            never => Self::Vault(never),
        }
    }
}

/// What stands for the notification of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Current {
    /// The dead letter itself.
    Itself,
    /// Another one: the notification was sent again and died again.
    Letter(DeadLetterId),
    /// None: the notification was sent again, and is in this state.
    State(NotificationId, State),
    /// Another notification: an edited copy was sent in its place.
    Copy(NotificationId),
}

const REQUEUED: &str = "requeued";
const DISCARDED: &str = "discarded";
const RESTORED: &str = "restored";
pub(crate) const REPLACED: &str = "replaced";
const CANCELLED: &str = "cancelled";

/// How a notification stands that cannot be acted on as asked.
fn stays(state: State, wanted: &str) -> String {
    match state {
        State::Cancelled if wanted == CANCELLED => "is cancelled already".to_owned(),
        state => format!("is {state} and cannot be {wanted}"),
    }
}

/// How a dead letter stands that cannot be acted on as asked, and what can be done. The advice is never what was just asked
/// for: where the notification was sent again since, only what stands for it now can be acted on.
fn stands(status: DeadLetterStatus, wanted: &str, current: Current) -> String {
    let was = match status {
        DeadLetterStatus::Pending => "does not stand for its notification any more",
        DeadLetterStatus::Requeued => "was sent on its way again already",
        DeadLetterStatus::Cancelled => "was discarded, and its notification was retried since",
    };
    match (current, status) {
        (Current::Letter(letter), _) => format!("{was}; it died again: its dead letter is now {letter}"),
        (Current::State(id, state), _) => format!("{was}; {id} is {state}"),
        (Current::Copy(id), _) => format!("was edited and retried: {id} was sent in its place"),
        (Current::Itself, DeadLetterStatus::Pending) if wanted == RESTORED => {
            "is pending already: only a discarded one can be restored".to_owned()
        }
        (Current::Itself, DeadLetterStatus::Cancelled) if wanted == DISCARDED => {
            "was discarded already".to_owned()
        }
        (Current::Itself, DeadLetterStatus::Cancelled) if wanted == REQUEUED || wanted == REPLACED => {
            "was discarded: restore it first".to_owned()
        }
        // It changed between the act and the look at it.
        (Current::Itself, _) => "changed meanwhile; ask again".to_owned(),
    }
}

/// How often an act looks again when its notification changed meanwhile.
pub(crate) const LOOKS: usize = 10;

impl Engine {
    /// Calls a notification off. What waits ends at once; what is in flight ends with its attempt, and a success still
    /// counts. Answers how it stood.
    pub async fn cancel(&self, id: NotificationId, actor: &Actor) -> Result<Facts, ActError> {
        self.act(id, actor, CANCELLED, &|standing| match standing.state {
            State::Processing | State::Retrying => Some(Act::RequestCancel),
            State::Pending
            | State::RetryScheduled
            | State::Succeeded
            | State::Failed
            | State::DeadLetter
            | State::Cancelled
            | State::Expired => Some(Act::Cancel),
        })
        .await
    }

    /// Makes a scheduled retry due at once.
    pub async fn retry_now(&self, id: NotificationId, actor: &Actor) -> Result<Facts, ActError> {
        self.act(id, actor, "retried now", &|_| Some(Act::RetryNow)).await
    }

    /// Opens a new generation of a failed or dead notification; its attempts go on counting.
    pub async fn retry(&self, id: NotificationId, actor: &Actor) -> Result<Facts, ActError> {
        self.act(id, actor, "retried", &|_| Some(Act::Retry)).await
    }

    /// Opens a new generation of a dead letter's notification, attempts from 1.
    pub async fn requeue(&self, id: DeadLetterId, actor: &Actor) -> Result<Facts, ActError> {
        self.act_on_dead_letter(id, actor, REQUEUED, &Act::Requeue).await
    }

    /// Gives a dead letter up for good.
    pub async fn discard(&self, id: DeadLetterId, actor: &Actor) -> Result<Facts, ActError> {
        self.act_on_dead_letter(id, actor, DISCARDED, &Act::Discard).await
    }

    /// Brings a discarded one back among the dead letters, and a soft-deleted one back as it was. Answers how its
    /// notification stood.
    pub async fn restore(&self, id: DeadLetterId, actor: &Actor) -> Result<Facts, ActError> {
        let missing = || ActError::NotFound { what: "dead letter", id: id.to_string() };
        let letter = self.shared.store.dead_letter(id).await?;
        let visible = |tenant: &Tenant| actor.tenant.as_ref().is_none_or(|own| own == tenant);
        let letter = letter.filter(|letter| visible(&letter.notification.tenant)).ok_or_else(missing)?;
        match restoration(letter.status, letter.deleted_at.is_some()) {
            Restoration::Revive => self.act_on_dead_letter(id, actor, RESTORED, &Act::Restore).await,
            Restoration::Show => {
                let facts = self.shared.store.facts(vec![letter.notification.id]).await?.pop();
                let facts = facts.ok_or_else(missing)?;
                let mut audit = self.audit(actor, "restore", &letter.notification.id.to_string());
                audit.tenant = Some(facts.tenant.clone());
                let shared = self.shared.clone();
                let show = async move { shared.store.show_deleted(id, audit).await };
                match self.to_its_end(show).await? {
                    true => Ok(facts),
                    // It was restored or purged meanwhile.
                    false => Err(ActError::Busy { id: facts.id }),
                }
            }
        }
    }

    /// Replaces the policy of a scope, or removes it. It acts on the next decision, here at once and on other nodes
    /// a moment later.
    pub async fn put_policy(
        &self,
        scope: &Scope,
        layer: Option<PolicyLayer>,
        actor: &Actor,
    ) -> Result<(), ActError> {
        let action = if layer.is_some() { "put-policy" } else { "remove-policy" };
        let value = match layer {
            Some(layer) => {
                let mut trial = self.shared.policies.set();
                trial.check_new(scope, &layer).map_err(ActError::Policy)?;
                trial.put(Source::Api, scope.clone(), layer.clone()).map_err(ActError::Policy)?;
                Some(serde_json::to_string(&layer).expect("a policy layer is made of JSON values"))
            }
            None => None,
        };
        let name = policies::setting_name(scope);
        self.put_setting(&name, value, action, &scope.to_string(), actor).await
    }

    async fn act_on_dead_letter(
        &self,
        id: DeadLetterId,
        actor: &Actor,
        wanted: &'static str,
        act: &Act,
    ) -> Result<Facts, ActError> {
        let missing = || ActError::NotFound { what: "dead letter", id: id.to_string() };
        let notification = self.shared.store.notification_of(id).await?.ok_or_else(missing)?;
        // The notification may have died again since: then another dead letter stands for it.
        let is_current = |standing: &Standing| standing.letter().is_some_and(|(current, _)| current == id);
        let fits = |standing: &Standing| is_current(standing).then(|| act.clone());
        match self.act(notification, actor, wanted, &fits).await {
            Err(ActError::NotFound { .. }) => Err(missing()),
            Err(ActError::Refused { .. }) => Err(self.resolved(id, notification, wanted).await?),
            done => done,
        }
    }

    /// Why a dead letter cannot be acted on, with what stands for its notification now.
    pub(crate) async fn resolved(
        &self,
        id: DeadLetterId,
        notification: NotificationId,
        wanted: &'static str,
    ) -> Result<ActError, ActError> {
        let missing = || ActError::NotFound { what: "dead letter", id: id.to_string() };
        let status = self.shared.store.dead_letter(id).await?.ok_or_else(missing)?.status;
        let facts = self.shared.store.facts(vec![notification]).await?.pop().ok_or_else(missing)?;
        let current = match facts.standing.letter() {
            Some((letter, _)) if letter == id => {
                self.copy_of(notification).await?.map_or(Current::Itself, Current::Copy)
            }
            Some((letter, _)) => Current::Letter(letter),
            None => Current::State(notification, facts.standing.state),
        };
        Ok(ActError::Resolved { id, status, wanted, current })
    }

    /// The edited copy that was sent in place of a notification.
    async fn copy_of(&self, id: NotificationId) -> Result<Option<NotificationId>, ActError> {
        let end = self.shared.store.get(id).await?.and_then(|view| view.end);
        Ok(end.and_then(|end| replaced_by(end.reason, end.text.as_deref())))
    }

    /// Looks, decides and changes, again if it changed in between.
    async fn act(
        &self,
        id: NotificationId,
        actor: &Actor,
        wanted: &'static str,
        choose: &(dyn Fn(&Standing) -> Option<Act> + Sync),
    ) -> Result<Facts, ActError> {
        for _ in 0..LOOKS {
            let facts = self.shared.store.facts(vec![id]).await?.pop();
            let Some(facts) = facts.filter(|facts| actor.sees(&facts.tenant)) else {
                return Err(ActError::NotFound { what: "notification", id: id.to_string() });
            };
            let state = facts.standing.state;
            let refused = || ActError::Refused { id, state, wanted };
            let act = choose(&facts.standing).ok_or_else(refused)?;
            effect(&facts.standing, &act, self.now()).map_err(|why| match why {
                Refused::State => refused(),
                Refused::Expired(expires_at) => ActError::Expired { id, expires_at },
            })?;
            let change = Change { id, seen: facts.standing.seen(), act: act.clone() };
            let mut audit = self.audit(actor, act.word().unwrap_or(wanted), &id.to_string());
            audit.tenant = Some(facts.tenant.clone());
            let (shared, now, seen) = (self.shared.clone(), self.now(), facts.clone());
            let by = actor.clone();
            let change = async move {
                let named = shared.acted_on(&seen).await;
                let made =
                    shared.store.transition(vec![change], Some(by.name.clone()), Some(audit), now).await?
                        == [true];
                if made {
                    journal::acted(&shared, &named, &seen, &act, &by);
                    after(&shared, &seen, &act);
                    if act == Act::Cancel {
                        series::ended_waiting(&shared, [(id, Happened::Cancelled)]).await;
                    }
                }
                Ok(made)
            };
            if self.to_its_end(change).await? {
                return Ok(facts);
            }
        }
        Err(ActError::Busy { id })
    }

    pub(crate) fn audit(&self, actor: &Actor, action: &str, target: &str) -> Audit {
        Audit {
            tenant: actor.tenant.clone(),
            actor: actor.name.clone(),
            action: action.to_owned(),
            target: target.to_owned(),
            at: self.now(),
            key_id: actor.key_id.clone(),
            address: actor.address.clone(),
        }
    }
}

/// What became due by the act is announced, and what ended is counted.
pub(crate) fn after(shared: &Shared, facts: &Facts, act: &Act) {
    if *act == Act::Cancel {
        shared.counts.ended(State::Cancelled, 1);
    }
    let lane = match act {
        Act::Requeue | Act::Retry => Lane::Main,
        Act::RetryNow => Lane::Retry,
        Act::Cancel
        | Act::RequestCancel
        | Act::Expire
        | Act::Bury { .. }
        | Act::Discard
        | Act::Delete
        | Act::Replace { .. }
        | Act::Restore => return,
    };
    let bucket = Bucket { lane, ..facts.bucket };
    shared.slots.ready([(&facts.tenant, bucket)]);
    if let Some(expiry) = facts.standing.expires_at {
        shared.expiry.set(expiry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No text advises what was just asked for.
    #[test]
    fn how_a_dead_letter_stands_is_said_with_what_stands_for_its_notification() {
        use DeadLetterStatus::{Cancelled, Pending, Requeued};
        let (letter, id): (DeadLetterId, NotificationId) = (
            "dl_01m7expr1zfr19010cf0bg13yr".parse().unwrap(),
            "ntf_01m7expnsre7j8fn39ecb261ns".parse().unwrap(),
        );
        let live = Current::State(id, State::RetryScheduled);
        for (status, wanted, current, text) in [
            (
                Pending,
                RESTORED,
                Current::Itself,
                "is pending already: only a discarded one can be restored".to_owned(),
            ),
            (Cancelled, DISCARDED, Current::Itself, "was discarded already".to_owned()),
            (Cancelled, REQUEUED, Current::Itself, "was discarded: restore it first".to_owned()),
            (Cancelled, RESTORED, Current::Itself, "changed meanwhile; ask again".to_owned()),
            (
                Cancelled,
                RESTORED,
                Current::Letter(letter),
                format!(
                    "was discarded, and its notification was retried since; it died again: its dead letter is now {letter}"
                ),
            ),
            (
                Cancelled,
                RESTORED,
                live,
                format!(
                    "was discarded, and its notification was retried since; {id} is {}",
                    State::RetryScheduled
                ),
            ),
            (Cancelled, REPLACED, Current::Itself, "was discarded: restore it first".to_owned()),
            (
                Cancelled,
                RESTORED,
                Current::Copy(id),
                format!("was edited and retried: {id} was sent in its place"),
            ),
            (
                Requeued,
                REQUEUED,
                live,
                format!("was sent on its way again already; {id} is {}", State::RetryScheduled),
            ),
        ] {
            assert_eq!(stands(status, wanted, current), text);
        }
        assert_eq!(stays(State::Cancelled, CANCELLED), "is cancelled already");
        assert_eq!(stays(State::Succeeded, CANCELLED), "is succeeded and cannot be cancelled");
    }
}
