//! Everything that a store shows.

use posthaste_core::destination::{DestinationKey, EVENTS_KEPT};
use posthaste_core::failure::FailureType;
use posthaste_core::filter::{AuditFilter, Filter, LetterStatus};
use posthaste_core::group::GroupBy;
use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::record::RecordKind;
use posthaste_core::series::Span;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::generator::{AUDITED, DESTINATIONS, JOBS, TENANTS, destination_keys, inbound_keys, tenant};
use crate::store::slice::{Answer, Call};
use crate::store::{
    DueCursor, Result, Store, acts, destinations, groups, inbound, jobs, key_uses, nodes, operations, queue,
    reads, records, series, settings, waking,
};

/// What a store showed, part by part.
pub(super) struct Dump {
    parts: Vec<(Call, Option<Answer>)>,
}

impl Dump {
    /// Each question with its answer, in an order that is the same for every store.
    pub(super) fn parts(&self) -> Vec<(String, Option<&Answer>)> {
        self.parts.iter().map(|(question, answer)| (format!("{question:?}"), answer.as_ref())).collect()
    }
}

/// Asks the store for everything.
pub(super) async fn dump(store: &dyn Store, ids: Vec<NotificationId>, now: Timestamp) -> Result<Dump> {
    let mut parts = vec![];
    for question in questions(store, ids, now).await? {
        let answer = question.clone().apply(store).await.ok();
        parts.push((question, answer));
    }
    Ok(Dump { parts })
}

async fn questions(store: &dyn Store, ids: Vec<NotificationId>, now: Timestamp) -> Result<Vec<Call>> {
    let limit = usize::from(u16::MAX);
    let (after, until) = (DueCursor::START, Timestamp::MAX);
    let mut all: Vec<Call> = vec![
        waking::Call::Wakes { after, until: now, limit }.into(),
        waking::Call::Wakes { after, until, limit }.into(),
        waking::Call::Expiring { until, limit }.into(),
        waking::Call::Buckets { after: None, limit }.into(),
        waking::Call::Overdue { due_before: until, first_due_before: until, after: None, limit }.into(),
        waking::Call::OwnAges { due_before: until, after: None, limit }.into(),
        settings::Call::Get { known: None }.into(),
        key_uses::Call::All {}.into(),
        jobs::Call::List { now }.into(),
        operations::Call::List { tenant: None, before: None, limit }.into(),
        operations::Call::List { tenant: Some(tenant(TENANTS[0])), before: None, limit }.into(),
        operations::Call::Unfinished { limit, now }.into(),
        operations::Call::HeldBy { ids: ids.clone() }.into(),
        jobs::Call::Runs { name: JOBS[0].to_owned(), before: None, limit }.into(),
        reads::Call::Tenants { from: None, limit }.into(),
        records::Call::Since { kind: RecordKind::Template, version: 0, limit }.into(),
        records::Call::Since { kind: RecordKind::Contact, version: 0, limit }.into(),
        destinations::Call::Since { version: 0, limit }.into(),
        destinations::Call::Known { tenant: None, name: None, after: None, limit }.into(),
        inbound::Call::Taken { keys: inbound_keys() }.into(),
        inbound::Call::MainLane {}.into(),
        nodes::Call::List { now }.into(),
        acts::Call::Facts { ids: ids.clone() }.into(),
    ];
    let (of, since) = (destination_keys().iter().map(DestinationKey::id).collect(), now.earlier(EVENTS_KEPT));
    all.push(destinations::Call::Events { of, since, limit }.into());
    for span in Span::ALL {
        for tenant in TENANTS.map(|name| Some(tenant(name))).into_iter().chain([None]) {
            all.push(series::Call::Get { tenant, span, from: Timestamp::MIN, until }.into());
        }
    }
    for destination in DESTINATIONS {
        for tenant in TENANTS.map(|name| Some(tenant(name))).into_iter().chain([None]) {
            let (destination, from) = (destination.into(), Timestamp::MIN);
            all.push(series::Call::GetDestination { tenant, destination, from, until }.into());
        }
    }
    for node in store.nodes(now).await? {
        all.push(queue::Call::Held { node: node.id, after: None, limit }.into());
    }
    let letters = store.dead_letters(Filter::default(), None, limit).await?;
    let letters: Vec<DeadLetterId> = letters.rows.iter().map(|dead| dead.id).collect();
    all.extend(letters.iter().map(|id| acts::Call::NotificationOf { dead_letter: *id }.into()));
    all.extend(lists(now).into_iter().map(Call::from));
    for by in GroupBy::ALL {
        for tenant in TENANTS.map(|name| Some(tenant(name))).into_iter().chain([None]) {
            all.push(groups::Call::List { by, tenant, after: None, limit, now }.into());
        }
    }
    all.extend(letters.into_iter().map(|id| reads::Call::DeadLetter { id }.into()));
    for id in ids {
        all.push(reads::Call::Get { id }.into());
        all.push(reads::Call::History { id }.into());
    }
    Ok(all)
}

/// Every list, for each tenant and by each value of a filter.
fn lists(now: Timestamp) -> Vec<reads::Call> {
    let limit = usize::from(u16::MAX);
    let mut all = vec![];
    for tenant in TENANTS.map(|name| Some(tenant(name))).into_iter().chain([None]) {
        all.push(reads::Call::Stats { tenant: tenant.clone(), now });
        let filter = Filter { tenant: tenant.clone(), ..Filter::default() };
        all.push(reads::Call::RetryQueue { filter: filter.clone(), after: None, limit });
        all.push(reads::Call::Page { filter: filter.clone(), before: None, limit });
        all.push(reads::Call::DeadLetters { filter, before: None, limit });
        all.push(reads::Call::Audit { filter: AuditFilter::of(tenant), before: None, limit });
    }
    for action in AUDITED {
        let filter = AuditFilter { actions: vec![action.to_owned()], ..AuditFilter::default() };
        all.push(reads::Call::Audit { filter, before: None, limit });
    }
    for state in State::ALL {
        let filter = Filter { states: vec![state], ..Filter::default() };
        all.push(reads::Call::Page { filter, before: None, limit });
    }
    for failure_type in FailureType::ALL {
        let filter = Filter { failure_types: vec![failure_type], ..Filter::default() };
        all.push(reads::Call::Page { filter: filter.clone(), before: None, limit });
        all.push(reads::Call::DeadLetters { filter, before: None, limit });
    }
    for status in LetterStatus::ALL {
        let filter = Filter { statuses: vec![status], ..Filter::default() };
        all.push(reads::Call::DeadLetters { filter, before: None, limit });
    }
    all
}
