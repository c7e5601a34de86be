//! What the ids name that an operation is given.

use std::collections::HashMap;
use std::sync::Arc;

use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::operation::Selected;

use super::{OperationError, OperationResult};
use crate::acts::Actor;
use crate::engine::Shared;
use crate::store::{Facts, StoreError};

/// How many ids are looked up together.
pub(super) const PAGE: usize = 500;

/// An id of either kind.
enum ItemId {
    Letter(DeadLetterId),
    Notification(NotificationId),
}

impl ItemId {
    fn parse(text: &str) -> Option<Self> {
        let letter = || text.parse().ok().map(Self::Letter);
        text.parse().ok().map(Self::Notification).or_else(letter)
    }

    const fn letter(&self) -> Option<DeadLetterId> {
        match self {
            Self::Letter(id) => Some(*id),
            Self::Notification(_) => None,
        }
    }
}

impl Shared {
    /// What these ids name, in one read; none for an id that names nothing.
    pub(super) async fn named_by(&self, ids: &[String]) -> Result<Vec<Option<Selected>>, StoreError> {
        let parsed: Vec<Option<ItemId>> = ids.iter().map(|id| ItemId::parse(id)).collect();
        let letters: Vec<DeadLetterId> = parsed.iter().filter_map(|id| id.as_ref()?.letter()).collect();
        let of_letters = if letters.is_empty() { vec![] } else { self.store.letter_facts(letters).await? };
        let mut of_letters = of_letters.into_iter();
        let named = |id: Option<ItemId>| match id? {
            ItemId::Notification(notification) => Some(Selected { notification, dead_letter: None }),
            ItemId::Letter(letter) => {
                let notification = of_letters.next().flatten()?.notification;
                Some(Selected { notification, dead_letter: Some(letter) })
            }
        };
        Ok(parsed.into_iter().map(named).collect())
    }

    /// The ids, each notification once. All of them have to name something that the actor can see.
    pub(super) async fn checked_ids(&self, ids: &[String], actor: &Actor) -> OperationResult<Arc<[String]>> {
        let mut kept: HashMap<NotificationId, (Selected, usize)> = HashMap::with_capacity(ids.len());
        for (chunk, part) in ids.chunks(PAGE).enumerate() {
            let named = self.named_by(part).await?;
            let facts =
                self.store.facts(named.iter().flatten().map(|one| one.notification).collect()).await?;
            let is_own = |facts: &&Facts| actor.tenant.as_ref().is_none_or(|own| *own == facts.tenant);
            let seen: Vec<NotificationId> = facts.iter().filter(is_own).map(|facts| facts.id).collect();
            let seen: std::collections::HashSet<NotificationId> = seen.into_iter().collect();
            for (place, one) in named.into_iter().enumerate() {
                let place = chunk * PAGE + place;
                let Some(one) = one.filter(|one| seen.contains(&one.notification)) else {
                    return Err(OperationError::UnknownId { place, id: ids[place].clone() });
                };
                let before = kept.entry(one.notification).or_insert((one, place));
                if rank(one) > rank(before.0) {
                    *before = (one, place);
                }
            }
        }
        let mut places: Vec<usize> = kept.into_values().map(|(_, place)| place).collect();
        places.sort_unstable();
        Ok(places.into_iter().map(|place| ids[place].clone()).collect())
    }
}

/// Which of two counts that select the same notification: the notification itself, as whatever it stands, else the later
/// dead letter, for an earlier one is resolved already.
pub(super) fn rank(selected: Selected) -> (bool, Option<DeadLetterId>) {
    (selected.dead_letter.is_none(), selected.dead_letter)
}
