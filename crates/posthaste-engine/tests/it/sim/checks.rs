//! The promises: those that hold after every step, and those that hold when all has come to rest.

use std::collections::BTreeMap;

use posthaste_core::attempt::Outcome;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::NotificationId;
use posthaste_core::state::State;
use posthaste_engine::model_store::{Ended, ModelStore, Row, Tables};
use posthaste_engine::store::{Act, Change, Seen, Settled, Settlement};

use super::ledger::{Ledger, Number};
use super::retention::Removed;
use super::world::World;

pub(super) type Check = Result<(), String>;

pub(super) fn hold(true_now: bool, broken: impl FnOnce() -> String) -> Check {
    if true_now { Ok(()) } else { Err(broken()) }
}

/// What the last step left behind, to be compared with what the next one does.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    ended: BTreeMap<NotificationId, (State, u32)>,
}

impl Shadow {
    /// Looks at everything after one call to the store.
    pub(super) fn check(&mut self, model: &ModelStore, ledger: &Ledger, what: &str) -> Check {
        model.inspect(|tables| {
            self.ends_stay(tables, what)?;
            nothing_is_lost(tables)?;
            leases_have_holders(tables)?;
            dead_letters_match(tables)?;
            super::operations::add_up(tables)?;
            attempts_are_dense(tables, &ledger.removed)
        })?;
        match model.drift() {
            Some((kept, counted)) => Err(format!("I17: kept {kept:?}, counted {counted:?}")),
            None => Ok(()),
        }
    }

    /// I2: an end is left only by an act. What retention removes is checked where it does.
    fn ends_stay(&mut self, tables: &Tables, what: &str) -> Check {
        let acts = matches!(what, "transition" | "forward" | "prune");
        if !acts {
            for (id, (state, generation)) in &self.ended {
                let now = tables.seen(*id).map(|seen| (seen.state, seen.generation));
                hold(now == Some((*state, *generation)), || format!("I2: {id} was {state}, is {now:?}"))?;
            }
        }
        if acts || tables.ended.len() != self.ended.len() {
            let ends = tables.ended.iter();
            self.ended = ends.map(|(id, end)| (*id, (end.state, end.progress.generation))).collect();
        }
        Ok(())
    }
}

/// I1: what was acknowledged is there, or was removed when its time was over.
pub(super) fn acknowledged_are_there(model: &ModelStore, ledger: &Ledger) -> Check {
    model.inspect(|tables| {
        let gone = ledger.acknowledged.iter().find(|id| !is_known(tables, ledger, id));
        hold(gone.is_none(), || format!("I1: {gone:?} was acknowledged and is gone"))
    })
}

fn is_known(tables: &Tables, ledger: &Ledger, id: &NotificationId) -> bool {
    tables.notifications.contains_key(id) || ledger.removed.ended.contains_key(id)
}

/// The rows that the outcomes are about.
pub(super) fn rows(model: &ModelStore, batch: &[Settlement]) -> Vec<Option<Row>> {
    model.inspect(|tables| batch.iter().map(|one| tables.queue.get(&one.id).cloned()).collect())
}

/// I5: whoever does not hold the row at the moment of the commit changes nothing.
pub(super) fn stale_outcomes_change_nothing(
    asked: &[Settlement],
    settled: &[Settled],
    before: &[Option<Row>],
    after: &[Option<Row>],
) -> Check {
    for (index, one) in asked.iter().enumerate() {
        let held = before[index].as_ref().is_some_and(|row| row.lease == Some(one.lease));
        let lost = settled[index] == Settled::LeaseLost;
        hold(held != lost, || {
            format!("I5: {} was settled as {:?} while held was {held}", one.id, settled[index])
        })?;
        // A node that lost a lease and got another may hand in the outcomes of both together.
        let mut batch = asked.iter().zip(settled);
        let settled_too = batch.any(|(other, settled)| other.id == one.id && *settled == Settled::Applied);
        hold(!lost || settled_too || before[index] == after[index], || {
            format!("I5: {} changed by a stale outcome", one.id)
        })?;
    }
    Ok(())
}

/// How the notifications of the changes stand.
pub(super) fn standings(model: &ModelStore, changes: &[Change]) -> Vec<Option<Seen>> {
    model.inspect(|tables| changes.iter().map(|change| tables.seen(change.id)).collect())
}

/// I2, I12: a change is made only while its notification stands as it was seen, and follows an arrow; what is not made
/// changes nothing. So of many that retry the same one, one wins.
pub(super) fn acts_follow_arrows(
    asked: &[Change],
    made: &[bool],
    before: &[Option<Seen>],
    after: &[Option<Seen>],
) -> Check {
    for (index, change) in asked.iter().enumerate() {
        let (was, is) = (before[index], after[index]);
        let Change { id, seen, act } = change;
        if !made[index] {
            hold(was == is, || format!("I2: {id} was refused {act:?} and went from {was:?} to {is:?}"))?;
            continue;
        }
        hold(was == Some(*seen), || format!("I12: {act:?} was made on {id} as {was:?}, seen as {seen:?}"))?;
        let wanted = act.event().map_or(Ok(seen.state), |event| seen.state.next(event)).ok();
        hold(is.map(|is| is.state) == wanted, || format!("I2: {act:?} took {id} from {was:?} to {is:?}"))?;
        let opened = is.is_some_and(|is| is.generation == seen.generation + 1);
        let opens = matches!(act, Act::Requeue | Act::Retry);
        hold(opened == opens, || format!("I12: {act:?} took {id} from {was:?} to {is:?}"))?;
    }
    Ok(())
}

/// I10: live + terminal = accepted, and nothing is both.
fn nothing_is_lost(tables: &Tables) -> Check {
    let (live, ended, accepted) = (tables.queue.len(), tables.ended.len(), tables.notifications.len());
    hold(live + ended == accepted, || format!("I10: {live} live + {ended} ended, {accepted} accepted"))?;
    let both = tables.queue.keys().find(|id| tables.ended.contains_key(id));
    hold(both.is_none(), || format!("I10: {both:?} is live and ended"))
}

/// I4: a lease belongs to a node that is known, else nobody would ever take it back.
fn leases_have_holders(tables: &Tables) -> Check {
    for (id, row) in &tables.queue {
        if let Some(lease) = row.lease {
            hold(tables.nodes.contains_key(&lease.node), || {
                format!("I4: {id} is held by {lease:?}, who is gone")
            })?;
        }
    }
    Ok(())
}

/// I10: a dead letter and the end of its notification are one.
fn dead_letters_match(tables: &Tables) -> Check {
    for (id, end) in tables.ended.iter().filter(|(_, end)| end.state == State::DeadLetter) {
        let letter = end.dead_letter.and_then(|letter| tables.dead_letters.get(&letter));
        let status = letter.filter(|letter| letter.deleted_at.is_none()).map(|letter| letter.status);
        hold(status == Some(DeadLetterStatus::Pending), || {
            format!("I10: {id} is dead, its letter is {status:?}")
        })?;
    }
    for (letter, view) in tables
        .dead_letters
        .iter()
        .filter(|(_, view)| view.status == DeadLetterStatus::Pending && view.deleted_at.is_none())
    {
        let end = tables.ended.get(&view.notification.id);
        let matches =
            end.is_some_and(|end| end.state == State::DeadLetter && end.dead_letter == Some(*letter));
        hold(matches, || format!("I10: {letter} is pending, its notification is not dead by it"))?;
    }
    Ok(())
}

/// I3: numbers are dense and unique in a generation, and no more than the policy allows.
fn attempts_are_dense(tables: &Tables, removed: &Removed) -> Check {
    for (id, attempts) in &tables.attempts {
        let policy = tables.notifications[id].notification.content.policy.as_ref();
        let most = policy.and_then(|policy| policy.max_attempts).unwrap_or(u32::MAX);
        let mut last: Option<Number> = removed.last_attempt(*id);
        let mut count = 0;
        for number in attempts.keys() {
            let follows = match last {
                Some((generation, before)) if generation == number.0 => number.1 == before + 1,
                // A generation begins at 1, or goes on from the last number of all.
                Some((_, before)) => number.1 == 1 || number.1 == before + 1,
                None => number.1 == 1,
            };
            count = if last.is_some_and(|(generation, _)| generation == number.0) { count + 1 } else { 1 };
            hold(follows, || format!("I3: {id} has attempt {number:?} after {last:?}"))?;
            hold(count <= most, || format!("I3: {id} has {count} attempts of {most}"))?;
            last = Some(*number);
        }
    }
    Ok(())
}

/// What can be told of a run that has come to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) duplicates: u64,
    pub(super) interruptions: u64,
}

/// The promises that hold at rest.
pub(super) fn at_rest(world: &World) -> Result<Tally, String> {
    let ledger = world.ledger.lock().unwrap();
    world.model.inspect(|tables| {
        keys_hold(tables, &ledger)?;
        super::operations::all_ended(tables)?;
        let mut tally = Tally::default();
        for id in tables.notifications.keys().chain(ledger.removed.ended.keys()) {
            one_at_rest(tables, &ledger, *id, &mut tally)?;
        }
        Ok(tally)
    })
}

/// I9: whatever happened on the way, one try under a key was stored, and clients were told its answer.
fn keys_hold(tables: &Tables, ledger: &Ledger) -> Check {
    for (key, keyed) in &ledger.keys {
        let there = |ids: &&Vec<NotificationId>| ids.iter().any(|id| is_known(tables, ledger, id));
        let stored: Vec<_> = keyed.offers.iter().filter(there).collect();
        hold(stored.len() <= 1, || format!("I9: {} tries under {key} were stored", stored.len()))?;
        if let Some(answer) = &keyed.answer {
            let told = stored.first().map(|ids| super::clients::answer(ids));
            hold(told.as_ref() == Some(answer), || {
                format!("I9: {key} was answered with what is not stored")
            })?;
        }
    }
    Ok(())
}

fn one_at_rest(tables: &Tables, ledger: &Ledger, id: NotificationId, tally: &mut Tally) -> Check {
    let removed = ledger.removed.ended.get(&id).map(Ended::seen);
    let seen = tables.seen(id).or(removed).ok_or_else(|| format!("I10: {id} is nowhere"))?;
    hold(seen.state.is_end(), || {
        let (row, destinations) = (tables.queue.get(&id), &tables.destinations);
        format!("I16: {id} is still {} ({row:?}, {destinations:?})", seen.state)
    })?;
    let opened = ledger.opened.get(&id).copied().unwrap_or(0);
    hold(seen.generation == 1 + opened, || {
        format!("I12: {id} has generation {}, opened {opened} times", seen.generation)
    })?;
    let called_off = ledger.cancel_requested.get(&id).is_some_and(|during| during.0 == seen.generation);
    let fits = matches!(seen.state, State::Succeeded | State::Cancelled | State::Expired);
    hold(fits || !called_off, || format!("I15: {id} was called off in flight and ended as {}", seen.state))?;
    tally.accepted += 1;
    tally.delivered += u64::from(seen.state == State::Succeeded);
    let interruptions = interruptions(tables, ledger, id);
    tally.interruptions += interruptions.values().map(|count| u64::from(*count)).sum::<u64>();
    arrivals_are_recorded(tables, ledger, id, &interruptions)?;
    tally.duplicates += duplicates(ledger, id, &interruptions)?;
    retry_after_was_kept(tables, ledger, id)
}

fn interruptions(tables: &Tables, ledger: &Ledger, id: NotificationId) -> BTreeMap<Number, u32> {
    let mut counts = BTreeMap::new();
    let events = ledger.removed.events(tables, id);
    for event in events.iter().filter(|event| event.word == "interrupted") {
        *counts.entry((event.generation, event.attempt)).or_default() += 1;
    }
    counts
}

/// I7: every arrival has its attempt row or an `interrupted` event; every success row has its arrival.
fn arrivals_are_recorded(
    tables: &Tables,
    ledger: &Ledger,
    id: NotificationId,
    interruptions: &BTreeMap<Number, u32>,
) -> Check {
    let attempts = ledger.removed.attempts(tables, id);
    let tries = ledger.tries.get(&id).map(Vec::as_slice).unwrap_or_default();
    for one in tries.iter().filter(|one| one.arrived) {
        let known = attempts.contains_key(&one.number) || interruptions.contains_key(&one.number);
        hold(known, || format!("I7: {id} arrived as {:?} and left no trace", one.number))?;
    }
    for (number, attempt) in &attempts {
        let taken = tries.iter().any(|one| one.took && one.number == *number);
        let delivered = attempt.outcome == Outcome::Delivered;
        hold(!delivered || taken, || format!("I7: {id} has a success {number:?} that never arrived"))?;
    }
    Ok(())
}

/// I8: what a sink took twice in one generation is no more than what it was left in doubt about, or interrupted in.
fn duplicates(
    ledger: &Ledger,
    id: NotificationId,
    interruptions: &BTreeMap<Number, u32>,
) -> Result<u64, String> {
    let mut taken: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for one in ledger.tries.get(&id).into_iter().flatten().filter(|one| one.took) {
        let (took, unclear) = taken.entry(one.number.0).or_default();
        *took += 1;
        *unclear += u32::from(one.unclear);
    }
    let mut duplicates = 0;
    for (generation, (took, unclear)) in taken {
        let of_generation = interruptions.iter().filter(|((of, _), _)| *of == generation);
        let bound = 1 + unclear + of_generation.map(|(_, count)| count).sum::<u32>();
        hold(took <= bound, || {
            format!("I8: {id} was taken {took} times in generation {generation}, bound {bound}")
        })?;
        duplicates += u64::from(took - 1);
    }
    Ok(duplicates)
}

/// I6: no attempt before the `Retry-After` of the one before it, unless somebody hurried it.
fn retry_after_was_kept(tables: &Tables, ledger: &Ledger, id: NotificationId) -> Check {
    let tries = ledger.tries.get(&id).map(Vec::as_slice).unwrap_or_default();
    for ((generation, number), attempt) in ledger.removed.attempts(tables, id) {
        let Some((at, wait)) = ledger.retry_after.get(&(id, (generation, number))) else { continue };
        let next = tries.iter().find(|one| one.number == (generation, number + 1));
        if attempt.status_code != Some(429) || ledger.hurried.contains(&(id, generation)) {
            continue;
        }
        let earliest = at.later(*wait);
        hold(next.is_none_or(|next| next.began >= earliest), || {
            format!("I6: {id} was tried again at {:?}, not before {earliest}", next.map(|next| next.began))
        })?;
    }
    Ok(())
}
