//! What an operation acts on, and what a selection means for each action.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Action;
use crate::filter::{BadFilter, Filter, LetterStatus, List};
use crate::notification::Tenant;
use crate::state::State;
use crate::time::Timestamp;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Selection {
    /// What the parameters of a list match. Durations are times by now.
    Filter(BTreeMap<String, String>),
    /// Dead letters and notifications by their ids.
    Ids(Arc<[String]>),
    /// A group of dead letters.
    Group(String),
    All,
}

/// A filter that contradicts the action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{action} acts on {allowed} only, which `{parameter}` does not allow")]
pub struct Contradiction {
    pub parameter: &'static str,
    action: Action,
    allowed: &'static str,
}

const LIVE: [State; 4] = [State::Pending, State::Processing, State::RetryScheduled, State::Retrying];

/// Narrows a filter to what the action acts on. `given` says whether the filter names a status.
pub fn narrow(action: Action, filter: &mut Filter, given: bool) -> Result<(), Contradiction> {
    use LetterStatus::{Deleted, Discarded, Pending};
    match action {
        Action::Requeue | Action::Discard => {
            letters(action, filter, given, &[Pending], "pending dead letters")
        }
        Action::Restore => {
            letters(action, filter, given, &[Discarded, Deleted], "discarded and deleted dead letters")
        }
        Action::RetryNow => live(action, filter, &[State::RetryScheduled], "what waits for a retry"),
        Action::Cancel => live(action, filter, &LIVE, "what is not over yet"),
    }
}

fn letters(
    action: Action,
    filter: &mut Filter,
    given: bool,
    wanted: &[LetterStatus],
    allowed: &'static str,
) -> Result<(), Contradiction> {
    if !given {
        filter.statuses = wanted.to_vec();
    }
    let fits = filter.statuses.iter().all(|status| wanted.contains(status)) && !filter.statuses.is_empty();
    if fits { Ok(()) } else { Err(Contradiction { parameter: "status", action, allowed }) }
}

fn live(
    action: Action,
    filter: &mut Filter,
    wanted: &[State],
    allowed: &'static str,
) -> Result<(), Contradiction> {
    let contradiction = Contradiction { parameter: "status", action, allowed };
    if filter.states.is_empty() {
        filter.states = wanted.to_vec();
        return Ok(());
    }
    if filter.states.iter().any(|state| !LIVE.contains(state)) {
        return Err(contradiction);
    }
    filter.states.retain(|state| wanted.contains(state));
    if filter.states.is_empty() { Err(contradiction) } else { Ok(()) }
}

/// The filter whose list is walked; none where ids were given.
pub fn selected(
    action: Action,
    selection: &Selection,
    tenant: Option<&Tenant>,
    cut_off: Timestamp,
) -> Result<Option<Filter>, BadFilter> {
    let list: List = action.list();
    let mut filter = match selection {
        Selection::Ids(_) => return Ok(None),
        Selection::Filter(parameters) => {
            let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            Filter::parse(list, pairs, cut_off)?
        }
        Selection::Group(group) => Filter::parse(list, [("group", group.as_str())], cut_off)?,
        Selection::All => Filter::default(),
    };
    let given = matches!(selection, Selection::Filter(parameters) if parameters.contains_key("status"));
    if narrow(action, &mut filter, given).is_err() {
        // What is kept was checked when it was asked for.
        let _ = narrow(action, &mut filter, false);
    }
    // Ids carry milliseconds: what died just before the cut-off, in the same one, is selected too.
    let end = Timestamp::from_millis(cut_off.as_millis() + 1);
    filter.until = Some(filter.until.map_or(end, |until| until.min(end)));
    if let Some(tenant) = tenant {
        filter.tenant = Some(tenant.clone());
    }
    Ok(Some(filter))
}
