//! Everything that a store shows.

use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::failure::FailureType;
use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;

use super::Answer;
use super::operation::{Operation, Place, Read};
use crate::store::{DeadLetterFilter, Filter, Result, Store};

/// Before every row.
const START: Place = (Timestamp::MIN, NotificationId::FIRST);

/// What a store showed, part by part.
pub(super) struct Dump {
    parts: Vec<(Operation, Option<Answer>)>,
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
    for read in questions(store, ids, now).await? {
        let question = Operation::Read(read);
        let answer = question.apply(store, now).await;
        parts.push((question, answer));
    }
    Ok(Dump { parts })
}

async fn questions(store: &dyn Store, ids: Vec<NotificationId>, now: Timestamp) -> Result<Vec<Read>> {
    let mut all = vec![
        Read::Wakes { after: START, until: now, limit: usize::from(u16::MAX) },
        Read::Wakes { after: START, until: Timestamp::MAX, limit: usize::from(u16::MAX) },
        Read::Expiring { until: Timestamp::MAX, limit: usize::from(u16::MAX) },
        Read::Buckets { after: None, limit: usize::from(u16::MAX) },
        Read::Settings { known: None },
        Read::Stats { tenant: None, now },
        Read::Nodes { now },
        Read::Facts { ids: ids.clone() },
    ];
    let limit = usize::from(u16::MAX);
    all.push(Read::Overdue { due: Timestamp::MAX, first_due: Timestamp::MAX, after: None, limit });
    all.push(Read::RetryQueue { tenant: None, after: None, limit });
    all.push(Read::Audit { tenant: None, before: None, limit });
    for node in store.nodes(now).await? {
        all.push(Read::Held { node: node.id, after: None, limit });
    }
    for tenant in super::generator::TENANTS {
        let tenant = super::generator::tenant(tenant);
        all.push(Read::Stats { tenant: Some(tenant.clone()), now });
        all.push(Read::RetryQueue { tenant: Some(tenant.clone()), after: None, limit });
        all.push(Read::Audit { tenant: Some(tenant), before: None, limit });
    }
    for state in State::ALL {
        let filter = Filter { states: vec![state], ..Filter::default() };
        all.push(Read::Page { filter, before: None, limit });
    }
    for failure_type in FailureType::ALL.map(Some) {
        let filter = Filter { failure_type, ..Filter::default() };
        all.push(Read::Page { filter, before: None, limit });
        let filter = DeadLetterFilter { failure_type, ..DeadLetterFilter::default() };
        all.push(Read::DeadLetters { filter, before: None, limit });
    }
    for status in [DeadLetterStatus::Pending, DeadLetterStatus::Requeued, DeadLetterStatus::Cancelled] {
        let filter = DeadLetterFilter { status: Some(status), ..DeadLetterFilter::default() };
        all.push(Read::DeadLetters { filter, before: None, limit });
    }
    let letters = store.dead_letters(DeadLetterFilter::default(), None, limit).await?;
    for dead in letters.rows {
        all.push(Read::DeadLetter { id: dead.id });
        all.push(Read::NotificationOf { dead_letter: dead.id });
    }
    for id in ids {
        all.push(Read::Get { id });
        all.push(Read::History { id });
    }
    Ok(all)
}
