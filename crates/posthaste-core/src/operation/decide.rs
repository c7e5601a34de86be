//! What an operation does to one item as it stands.

use super::{Action, Decision, Selected, Skip};
use crate::act::{Act, Effect, Refused, Seen, Standing, effect};
use crate::dead_letter::DeadLetterStatus;
use crate::flow::FlowId;
use crate::id::DeadLetterId;
use crate::time::Timestamp;

/// Decides about an item: whether its act would change it as it stands.
pub fn decide(
    action: Action,
    selected: Selected,
    found: Option<(FlowId, &Standing)>,
    now: Timestamp,
) -> Decision {
    let Some((flow, standing)) = found else { return Decision::Skip(Skip::ChangedMeanwhile) };
    // The notification was sent again and died again since: another dead letter stands for it.
    let other = |letter: DeadLetterId| standing.letter().is_none_or(|(current, _)| current != letter);
    if selected.dead_letter.is_some_and(other) {
        return Decision::Skip(Skip::AlreadyResolved);
    }
    match effect(standing, &action.act(standing.state), now) {
        Ok(Effect::Reopen { .. })
            if standing.letter().map(|(_, status)| status) != Some(DeadLetterStatus::Pending) =>
        {
            Decision::Skip(Skip::AlreadyResolved)
        }
        Ok(_) => Decision::Stage { flow, seen: standing.seen() },
        Err(Refused::Expired(_)) => Decision::Skip(Skip::Expired),
        Err(Refused::State) => Decision::Skip(Skip::AlreadyResolved),
    }
}

/// Whether the act of a staged item may be done: it is as it was seen, and the act would change it. Else why it is left out.
pub fn forwardable(
    action: Action,
    seen: Seen,
    standing: Option<&Standing>,
    now: Timestamp,
) -> Result<Act, Skip> {
    let standing = standing.filter(|standing| standing.seen() == seen).ok_or(Skip::ChangedMeanwhile)?;
    let act = action.act(seen.state);
    match effect(standing, &act, now) {
        Ok(_) => Ok(act),
        Err(Refused::Expired(_)) => Err(Skip::Expired),
        Err(Refused::State) => Err(Skip::ChangedMeanwhile),
    }
}
