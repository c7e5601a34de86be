//! The operations that are running, for the navigation of every page. They are read at most once a second for each tenant.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use posthaste_core::id::OperationId;
use posthaste_core::notification::Tenant;
use posthaste_core::operation::OperationState;
use tokio::time::Instant;

use super::drawing::share;
use super::operations::{is_counted, title};
use super::show::percent;
use super::visitor::Visitor;
use crate::http::Shared;
use crate::http::extract::Authenticated;
use crate::http::query::Query;
use crate::http::retry_operations;
use crate::http::views::OperationView;

/// How old what is shown may be.
const FRESH: Duration = Duration::from_secs(1);
/// How many are shown.
const MOST: usize = 3;
/// The most tenants that are remembered.
const MOST_TENANTS: usize = 256;

/// What is running, as it was read for each tenant.
#[derive(Default)]
pub(super) struct Running(Mutex<HashMap<Option<Tenant>, Read>>);

/// When it was read, and what was running then.
type Read = (Instant, Vec<Going>);

/// An operation that is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Going {
    pub(super) id: OperationId,
    /// What it does.
    pub(super) what: String,
    /// How far it is.
    pub(super) how_far: String,
}

impl Going {
    fn of(one: &OperationView) -> Self {
        let how_far = match one.state {
            OperationState::Paused => "paused".to_owned(),
            _ if is_counted(one) => format!("{} done", percent(&share(one.total - one.remaining, one.total))),
            _ => "being prepared".to_owned(),
        };
        Self { id: one.id, what: title(one), how_far }
    }
}

impl Running {
    fn known(&self, tenant: &Option<Tenant>, now: Instant) -> Option<Vec<Going>> {
        let known = self.0.lock().expect("no code panics while it reads");
        known
            .get(tenant)
            .filter(|(read, _)| now.duration_since(*read) < FRESH)
            .map(|(_, going)| going.clone())
    }

    fn keep(&self, tenant: Option<Tenant>, going: Vec<Going>, now: Instant) {
        let mut known = self.0.lock().expect("no code panics while it writes");
        if known.len() >= MOST_TENANTS {
            known.retain(|_, (read, _)| now.duration_since(*read) < FRESH);
        }
        if known.len() < MOST_TENANTS {
            known.insert(tenant, (now, going));
        }
    }
}

/// What is running, as far as the visitor may see it and the store answers.
pub(super) async fn going(api: &Shared, visitor: &Visitor) -> Vec<Going> {
    if !visitor.may("listRetryOperations") {
        return vec![];
    }
    let (running, tenant) = (&api.dashboard.running, &visitor.caller.tenant);
    if let Some(known) = running.known(tenant, Instant::now()) {
        return known;
    }
    let Ok(query) = Query::parse("/v1/retry-operations", &format!("unfinished=true&limit={MOST}")) else {
        return vec![];
    };
    let caller = Authenticated(visitor.caller.clone());
    let Ok(Json(page)) = retry_operations::list(State(api.clone()), caller, query).await else {
        return vec![];
    };
    let going: Vec<Going> = page.data.iter().map(Going::of).collect();
    running.keep(tenant.clone(), going.clone(), Instant::now());
    going
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_good_for_a_second_and_for_few_tenants() {
        let (running, now) = (Running::default(), Instant::now());
        let one = Going {
            id: OperationId::from_bytes([1; 16]),
            what: "Requeue 7 dead letters".to_owned(),
            how_far: "50.0 % done".to_owned(),
        };
        running.keep(None, vec![one.clone()], now);
        assert_eq!(running.known(&None, now), Some(vec![one]));
        assert_eq!(running.known(&None, now + FRESH), None);
        let tenant = |number: usize| Some(format!("t{number}").parse::<Tenant>().unwrap());
        for number in 0..MOST_TENANTS * 2 {
            running.keep(tenant(number), vec![], now);
        }
        assert_eq!(running.0.lock().unwrap().len(), MOST_TENANTS);
        assert_eq!(running.known(&tenant(0), now), Some(vec![]));
        // Old ones make room.
        running.keep(tenant(MOST_TENANTS * 3), vec![], now + FRESH);
        assert_eq!(running.0.lock().unwrap().len(), 1);
    }
}
