//! Marking: the walk over what an operation selects, stretch by stretch.

use std::collections::BTreeMap;

use posthaste_core::filter::{Filter, List};
use posthaste_core::id::NotificationId;
use posthaste_core::operation::{Operation, Selected, Selection, selected};

use super::ids;
use crate::engine::Shared;
use crate::store::{Result, StoreError, Walk};

/// The next stretch of what the operation selects.
pub(super) async fn walk(shared: &Shared, operation: &Operation) -> Result<Walk> {
    let Operation { action, selection, tenant, cut_off, .. } = operation;
    let corrupt = |what: String| StoreError::Corrupt { what };
    let filter = selected(*action, selection, tenant.as_ref(), *cut_off);
    match (filter.map_err(|bad| corrupt(bad.to_string()))?, selection) {
        (Some(filter), _) => walk_list(shared, operation, filter).await,
        (None, Selection::Ids(ids)) => walk_ids(shared, operation, ids).await,
        (None, Selection::Filter(_) | Selection::Group(_) | Selection::All) => {
            Err(corrupt(format!("{} selects nothing", operation.id)))
        }
    }
}

async fn walk_list(shared: &Shared, operation: &Operation, filter: Filter) -> Result<Walk> {
    let from = operation.standing.cursor.clone();
    let limit = (operation.room_in_batch() as usize).min(shared.settings.batch);
    let bad = |_| StoreError::Corrupt { what: format!("the cursor of {}", operation.id) };
    let (found, next) = match operation.action.list() {
        List::DeadLetters => {
            let before = from.as_deref().map(str::parse).transpose().map_err(bad)?;
            let page = shared.store.dead_letters(filter, before, limit).await?;
            let select = page.rows.iter().map(|letter| Selected {
                notification: letter.notification.id,
                dead_letter: Some(letter.id),
            });
            (select.collect(), page.next.map(|next| next.to_string()))
        }
        List::Notifications | List::Failed | List::RetryQueue => {
            let before = from.as_deref().map(str::parse).transpose().map_err(bad)?;
            let page = shared.store.page(filter, before, limit).await?;
            let select = page
                .rows
                .iter()
                .map(|view| Selected { notification: view.notification.id, dead_letter: None });
            (select.collect(), page.next.map(|next| next.to_string()))
        }
    };
    Ok(Walk { from, found: latest(found), next })
}

async fn walk_ids(shared: &Shared, operation: &Operation, ids: &[String]) -> Result<Walk> {
    let from = operation.standing.cursor.clone();
    let start: usize = from.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
    let room = (operation.room_in_batch() as usize).min(shared.settings.batch).min(ids::PAGE);
    let end = ids.len().min(start + room);
    let found = shared.named_by(&ids[start.min(end)..end]).await?.into_iter().flatten().collect();
    let next = (end < ids.len()).then(|| end.to_string());
    Ok(Walk { from, found: latest(found), next })
}

/// Each notification once.
fn latest(found: Vec<Selected>) -> Vec<Selected> {
    let mut latest: BTreeMap<NotificationId, Selected> = BTreeMap::new();
    for one in found {
        let kept = latest.entry(one.notification).or_insert(one);
        if ids::rank(one) > ids::rank(*kept) {
            *kept = one;
        }
    }
    latest.into_values().collect()
}

#[cfg(test)]
mod tests {
    use posthaste_core::id::DeadLetterId;
    use posthaste_core::time::Timestamp;

    use super::*;

    #[test]
    fn of_two_dead_letters_of_a_notification_the_later_one_is_selected_in_any_order() {
        let at = Timestamp::from_millis;
        let [one, two] = [1, 2].map(|number| NotificationId::new(at(1), number));
        let select = |notification, letter| Selected {
            notification,
            dead_letter: Some(DeadLetterId::new(at(letter), 1)),
        };
        let (old, new, other) = (select(one, 10), select(one, 20), select(two, 5));
        assert_eq!(latest(vec![old, other, new]), [new, other]);
        assert_eq!(latest(vec![new, old]), [new]);
        // The notification itself is named, as whatever it stands.
        let itself = Selected { dead_letter: None, ..new };
        assert_eq!(latest(vec![new, itself, old]), [itself]);
    }
}
