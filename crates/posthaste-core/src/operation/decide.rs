//! What an operation does to one item as it stands.

use super::{Action, Decision, Selected, Skip};
use crate::act::{Act, Effect, Refused, Restoration, Seen, Standing, effect, restoration};
use crate::dead_letter::DeadLetterStatus;
use crate::flow::FlowId;
use crate::id::DeadLetterId;
use crate::time::Timestamp;

/// An item as it is found.
#[derive(Debug, Clone, Copy)]
pub struct Looked<'s> {
    pub flow: FlowId,
    pub standing: &'s Standing,
    /// Whether the dead letter that was selected is soft-deleted, and does not stand for the notification any more.
    pub hidden: bool,
}

/// What is done to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Act(Act),
    /// A soft-deleted dead letter that is resolved is shown in lists again. Its notification stays as it is.
    Show(DeadLetterId),
}

/// Decides about an item: whether its act would change it as it stands.
pub fn decide(action: Action, selected: Selected, found: Option<Looked<'_>>, now: Timestamp) -> Decision {
    let Some(Looked { flow, standing, hidden }) = found else {
        return Decision::Skip(Skip::ChangedMeanwhile);
    };
    let stage = Decision::Stage { flow, seen: standing.seen() };
    let act = match deed(action, selected.dead_letter, standing) {
        Deed::Act(act) => act,
        Deed::Show(letter) if hidden || is_current(standing, letter) => return stage,
        Deed::Show(_) => return Decision::Skip(Skip::AlreadyResolved),
    };
    // The notification was sent again and died again since: another dead letter stands for it.
    if selected.dead_letter.is_some_and(|letter| !is_current(standing, letter)) {
        return Decision::Skip(Skip::AlreadyResolved);
    }
    match effect(standing, &act, now) {
        Ok(Effect::Reopen { .. })
            if standing.letter().map(|(_, status)| status) != Some(DeadLetterStatus::Pending) =>
        {
            Decision::Skip(Skip::AlreadyResolved)
        }
        Ok(_) => stage,
        Err(Refused::Expired(_)) => Decision::Skip(Skip::Expired),
        Err(Refused::State) => Decision::Skip(Skip::AlreadyResolved),
    }
}

/// What may be done to a staged item: it is as it was seen, and the act would change it. Else why it is left out. Whether a
/// dead letter is still to be shown is seen when it is done, for it does not depend on its notification.
pub fn forwardable(
    action: Action,
    letter: Option<DeadLetterId>,
    seen: Seen,
    standing: Option<&Standing>,
    now: Timestamp,
) -> Result<Deed, Skip> {
    let standing = standing.ok_or(Skip::ChangedMeanwhile)?;
    let act = match deed(action, letter, standing) {
        show @ Deed::Show(_) => return Ok(show),
        Deed::Act(act) => act,
    };
    if standing.seen() != seen {
        return Err(Skip::ChangedMeanwhile);
    }
    match effect(standing, &act, now) {
        Ok(_) => Ok(Deed::Act(act)),
        Err(Refused::Expired(_)) => Err(Skip::Expired),
        Err(Refused::State) => Err(Skip::ChangedMeanwhile),
    }
}

/// What the action means for an item: a soft-deleted dead letter comes back as it was.
fn deed(action: Action, selected: Option<DeadLetterId>, standing: &Standing) -> Deed {
    if action != Action::Restore {
        return Deed::Act(action.act(standing.state));
    }
    match (selected, &standing.dead_letter) {
        (Some(selected), _) if !is_current(standing, selected) => Deed::Show(selected),
        (_, Some(letter)) if restoration(letter.status, letter.deleted) == Restoration::Show => {
            Deed::Show(letter.id)
        }
        (_, Some(_) | None) => Deed::Act(Act::Restore),
    }
}

/// Whether the dead letter stands for the notification.
fn is_current(standing: &Standing, letter: DeadLetterId) -> bool {
    standing.letter().is_some_and(|(current, _)| current == letter)
}
