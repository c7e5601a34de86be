//! Age: what was parked for longer than its policy allows is buried. What is not parked is looked at when it is sent.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::id::{DeadLetterId, NotificationId};
use posthaste_core::policy::{BeforeSend, Decision, decide_before_send};
use posthaste_core::reason::Reason;
use posthaste_core::series::Happened;
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::expire::end;
use crate::store::{Act, Change, DueCursor, Overdue, Result, Seen};
use crate::{journal, series};

/// The pause after a store error.
const PAUSE: Duration = Duration::from_secs(1);
/// The check takes at most one part in so many of the time.
const SHARE: u32 = 5;

/// The loop.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let mut pause = shared.settings.age_check;
        for which in [Which::ByPolicy, Which::ByOwnAge] {
            if let Err(error) = bury_the_old(&shared, which).await {
                shared.store_failed("look for what is too old", &error);
                pause = PAUSE;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// What may be too old.
#[derive(Debug, Clone, Copy)]
enum Which {
    /// What is parked for longer than the shortest age that any policy allows.
    ByPolicy,
    /// What says itself how old it may become.
    ByOwnAge,
}

impl Which {
    async fn page(self, shared: &Shared, after: Option<DueCursor>, now: Timestamp) -> Result<Vec<Overdue>> {
        let (due_before, limit) = (now.earlier(shared.settings.sweep), shared.settings.batch);
        match self {
            Self::ByPolicy => {
                let first_due_before = now.earlier(shared.policies.set().shortest_max_age());
                shared.store.overdue(due_before, first_due_before, after, limit).await
            }
            Self::ByOwnAge => shared.store.overdue_by_own_age(due_before, after, limit).await,
        }
    }
}

async fn bury_the_old(shared: &Shared, which: Which) -> Result<()> {
    let mut after = None;
    loop {
        let (begun, now) = (Instant::now(), shared.node.now());
        let page = which.page(shared, after, now).await?;
        let full = page.len() == shared.settings.batch;
        after = page.last().map(|row| DueCursor { due: row.due, id: row.id });
        let burials: Vec<(&Overdue, Change)> =
            page.iter().filter_map(|row| burial(shared, row, now).map(|change| (row, change))).collect();
        if !burials.is_empty() {
            let named = shared.named(burials.iter().map(|(row, _)| (row.id, &row.tenant))).await;
            let changes = burials.iter().map(|(_, change)| change.clone()).collect();
            let made = end(shared, changes, State::DeadLetter, now).await?;
            let buried = burials.into_iter().zip(made).filter_map(|(burial, made)| made.then_some(burial));
            let buried: Vec<(&Overdue, Change)> = buried.collect();
            journal::buried_unsent(shared, &named, &buried, now);
            series::ended_waiting(shared, buried.iter().filter_map(|(_, change)| died(change))).await;
        }
        if !full {
            return Ok(());
        }
        tokio::time::sleep(begun.elapsed() * (SHARE - 1)).await;
    }
}

fn burial(shared: &Shared, row: &Overdue, now: Timestamp) -> Option<Change> {
    let policy = match &row.notification {
        Some(notification) => shared.policies.of(notification),
        None => shared.policies.of_flow(&row.tenant, row.channel),
    };
    let facts = BeforeSend {
        now,
        first_due: row.first_due,
        expires_at: row.expires_at,
        cancel_requested: false,
        interruptions: 0,
    };
    match decide_before_send(&policy, &facts)? {
        // A waiting row has no arrow to Failed: what is too old is kept where an operator sees it.
        Decision::Bury(reason) | Decision::Fail(reason) => {
            Some(bury(row.id, row.seen, DeadLetterId::new(now, shared.random()), reason))
        }
        Decision::Complete | Decision::Cancel | Decision::Expire | Decision::RetryAt { .. } => None,
    }
}

/// What a burial is counted as.
fn died(change: &Change) -> Option<(NotificationId, Happened)> {
    let Act::Bury { reason, .. } = &change.act else { return None };
    Some((change.id, Happened::DeadLettered(*reason)))
}

fn bury(id: NotificationId, seen: Seen, dead_letter: DeadLetterId, reason: Reason) -> Change {
    Change { id, seen, act: Act::Bury { dead_letter, reason, text: reason.words().to_owned() } }
}
