//! Retention in the simulation: jobs with short periods run beside everything that goes wrong, and whatever they remove is
//! checked against the specification, not against the code that chose it.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::attempt::Attempt;
use posthaste_core::dead_letter::DeadLetterStatus;
use posthaste_core::id::{NotificationId, OperationId};
use posthaste_core::job::{Job, Schedule};
use posthaste_core::retention::{Kind, Periods};
use posthaste_core::state::State;
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::Actor;
use posthaste_engine::engine::{Engine, Settings};
use posthaste_engine::jobs::{JobError, JobSettings};
use posthaste_engine::model_store::{Ended, Tables};
use posthaste_engine::store::{DeadLetterView, HistoryEvent, Prune, Pruned};

use super::checks::{Check, hold};
use super::ledger::Number;
use super::world::World;

/// The jobs of these runs. Each is asked for now and then, too.
const JOBS: [Job; 2] = [Job::DeadLetterCleanup, Job::Retention];
/// The longest of the periods below, but for those of counters and figures, which are kept by the hour.
const LONGEST: Duration = Duration::from_secs(20);
/// How often everything that can be removed has to pass before it is gone: resolved dead letters are soft-deleted, then
/// purged, and their notifications go after that.
const ROUNDS: usize = 3;

/// So short that much is removed while a run lasts. In every fourth run pending dead letters are purged too.
fn periods(seed: u64) -> Periods {
    let seconds = Duration::from_secs;
    Periods {
        attempts: seconds(4),
        delivered: seconds(8),
        failed: seconds(10),
        finished: seconds(6),
        dead_letters: seconds(8),
        dead_letters_restorable: seconds(6),
        purge_pending_after: (seed % 4 == 3).then_some(LONGEST),
        audit: LONGEST,
        job_runs: LONGEST,
        counters: seconds(3_600),
        series: seconds(3_600),
        operations: LONGEST,
        operation_items: seconds(5),
    }
}

/// The settings of a process that removes.
pub(super) fn settings(seed: u64, settings: Settings) -> Settings {
    let minutely = || Schedule::parse("* * * * *").ok();
    let schedules = JOBS.map(|job| (job, minutely())).to_vec();
    let jobs = JobSettings { schedules, ..JobSettings::default() };
    Settings { jobs, retention: periods(seed), ..settings }
}

/// Somebody asks for a run of a job.
pub(super) async fn run_a_job(world: &World, engine: &Engine) {
    let job = JOBS[world.draw(|chance| chance.usize(0..JOBS.len()))];
    // It may be running already, and the store may refuse.
    let _ = engine.run_job(job, &Actor::local("simulation", None)).await;
}

/// What was removed, as it was: the promises at rest are about it too.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) ended: BTreeMap<NotificationId, Ended>,
    attempts: BTreeMap<NotificationId, BTreeMap<Number, Attempt>>,
    events: BTreeMap<NotificationId, Vec<HistoryEvent>>,
}

impl Removed {
    /// The attempts of a notification, also those that were removed.
    pub(super) fn attempts(&self, tables: &Tables, id: NotificationId) -> BTreeMap<Number, Attempt> {
        let kept = [self.attempts.get(&id), tables.attempts.get(&id)];
        kept.into_iter().flatten().flatten().map(|(number, attempt)| (*number, attempt.clone())).collect()
    }

    /// The number of the last attempt that was removed.
    pub(super) fn last_attempt(&self, id: NotificationId) -> Option<Number> {
        self.attempts.get(&id)?.last_key_value().map(|(number, _)| *number)
    }

    /// What else happened to a notification, also if it was removed.
    pub(super) fn events<'t>(&'t self, tables: &'t Tables, id: NotificationId) -> &'t [HistoryEvent] {
        let kept = tables.events.get(&id).or_else(|| self.events.get(&id));
        kept.map(Vec::as_slice).unwrap_or_default()
    }

    /// Keeps what the last chunk took away.
    fn note(&mut self, before: &Tables, after: &Tables) {
        for (id, ended) in before.ended.iter().filter(|(id, _)| !after.ended.contains_key(id)) {
            self.ended.insert(*id, ended.clone());
            self.events.extend(before.events.get(id).map(|events| (*id, events.clone())));
        }
        for (id, attempts) in before.attempts.iter().filter(|(id, _)| !after.attempts.contains_key(id)) {
            self.attempts.entry(*id).or_default().extend(attempts.clone());
        }
    }
}

/// What a chunk of a pass may do.
struct Chunk<'t> {
    kind: Kind,
    periods: Periods,
    now: Timestamp,
    before: &'t Tables,
    after: &'t Tables,
}

/// Checks what a chunk has done, and keeps what it took away.
pub(super) fn pruned(world: &World, before: &Tables, prune: Prune, pruned: Pruned) {
    let check = world.model.inspect(|after| {
        let (kind, periods, now) = (prune.kind, periods(world.seed), world.now());
        let made = Chunk { kind, periods, now, before, after }.check(pruned);
        world.ledger.lock().unwrap().removed.note(before, after);
        made
    });
    world.expect(check);
    let drift = world.model.group_drift();
    world.expect(hold(drift.is_none(), || format!("I17: groups after {}: {drift:?}", prune.kind)));
}

impl Chunk<'_> {
    fn check(&self, pruned: Pruned) -> Check {
        hold(self.before.queue == self.after.queue, || format!("{} changed what lives", self.kind))?;
        let notifications = self.notifications()?;
        let attempts = self.attempts()?;
        let letters = self.letters()?;
        self.nothing_is_left_behind()?;
        self.operations()?;
        let told = match self.kind {
            Kind::Delivered | Kind::Failed | Kind::Cancelled | Kind::Expired => notifications,
            Kind::Attempts => attempts,
            Kind::RequeuedLetters | Kind::DiscardedLetters | Kind::DeletedLetters => letters,
            // What it removed is not part of delivery.
            _ => pruned.removed,
        };
        hold(told == pruned.removed, || format!("{} says {pruned:?} of {told}", self.kind))
    }

    /// Only what ended goes: the items first, each operation with all of its batches once it has none.
    fn operations(&self) -> Check {
        let (before, after) = (&self.before.operations, &self.after.operations);
        let is_old = |id: &OperationId, period| {
            let ended = before.operations.get(id).and_then(|operation| operation.standing.finished_at);
            ended.is_some_and(|at| self.is_older(at, period))
        };
        for key @ (id, _) in before.items.keys().filter(|key| !after.items.contains_key(key)) {
            hold(self.kind == Kind::OperationItems && is_old(id, self.periods.operation_items), || {
                format!("{} removed {key:?}", self.kind)
            })?;
        }
        for id in before.operations.keys().filter(|id| !after.operations.contains_key(id)) {
            hold(self.kind == Kind::Operations && is_old(id, self.periods.operations), || {
                format!("{} removed {id}", self.kind)
            })?;
        }
        let lost = after.items.keys().find(|(id, _)| !after.operations.contains_key(id));
        hold(lost.is_none(), || format!("{lost:?} is an item of nothing"))
    }

    fn is_older(&self, since: Timestamp, period: Duration) -> bool {
        since.later(period) < self.now
    }

    fn is_in_operation(&self, id: NotificationId) -> bool {
        let table = &self.before.operations;
        let named = |(of, one): &(_, NotificationId)| *one == id && !table.operations[of].is_finished();
        table.items.keys().any(named)
    }

    /// Returns how many are gone.
    fn notifications(&self) -> Result<u64, String> {
        let mut gone = 0;
        for (id, end) in &self.before.ended {
            if let Some(kept) = self.after.ended.get(id) {
                let same = Ended { dead_letter: end.dead_letter, ..kept.clone() };
                hold(same == *end, || format!("{} changed how {id} ended: {end:?}, {kept:?}", self.kind))?;
                continue;
            }
            gone += 1;
            let (kind, period) = match end.state {
                State::Succeeded => (Kind::Delivered, self.periods.delivered),
                State::Failed => (Kind::Failed, self.periods.failed),
                State::Cancelled => (Kind::Cancelled, self.periods.finished),
                State::Expired => (Kind::Expired, self.periods.finished),
                _ => return Err(format!("{} removed {id}, which is {}", self.kind, end.state)),
            };
            hold(kind == self.kind && self.is_older(end.at, period), || {
                format!("{} removed {id} at {}: {end:?}", self.kind, self.now)
            })?;
            let letter = self.before.dead_letters.values().find(|letter| letter.notification.id == *id);
            hold(letter.is_none(), || format!("{} removed {id}, named by {letter:?}", self.kind))?;
            hold(!self.is_in_operation(*id), || {
                format!("{} removed {id}, named by an operation", self.kind)
            })?;
        }
        Ok(gone)
    }

    /// Returns how many attempts are gone that do not belong to what is gone too.
    fn attempts(&self) -> Result<u64, String> {
        let mut gone = 0;
        for (id, made) in &self.before.attempts {
            if self.after.attempts.get(id) == Some(made) || !self.after.notifications.contains_key(id) {
                continue;
            }
            let old =
                self.before.ended.get(id).is_some_and(|end| self.is_older(end.at, self.periods.attempts));
            let all = !self.after.attempts.contains_key(id);
            hold(self.kind == Kind::Attempts && old && all, || {
                format!("{} removed attempts of {id}: {made:?}", self.kind)
            })?;
            gone += made.len() as u64;
        }
        Ok(gone)
    }

    /// Returns how many were soft-deleted or purged.
    fn letters(&self) -> Result<u64, String> {
        let mut changed = 0;
        for (id, letter) in &self.before.dead_letters {
            let kept = self.after.dead_letters.get(id);
            if kept == Some(letter) {
                continue;
            }
            changed += 1;
            match kept {
                Some(kept) => self.soft_deleted(letter, kept)?,
                None => self.purged(letter)?,
            }
        }
        Ok(changed)
    }

    /// I11: only what is resolved, and was for long enough.
    fn soft_deleted(&self, letter: &DeadLetterView, kept: &DeadLetterView) -> Check {
        let kind = match letter.status {
            DeadLetterStatus::Requeued => Kind::RequeuedLetters,
            DeadLetterStatus::Cancelled => Kind::DiscardedLetters,
            DeadLetterStatus::Pending => {
                return Err(format!("I11: {} deleted {}, which is pending", self.kind, letter.id));
            }
        };
        let since = letter.restored_at.map_or(letter.created_at, |at| at.max(letter.created_at));
        let deleted = DeadLetterView { deleted_at: kept.deleted_at, ..letter.clone() };
        let fits = kind == self.kind && deleted == *kept && letter.deleted_at.is_none();
        hold(fits && self.is_older(since, self.periods.dead_letters), || {
            format!("{} made {kept:?} of {letter:?} at {}", self.kind, self.now)
        })
    }

    /// I11: only what was soft-deleted for long enough, and is not in an operation.
    fn purged(&self, letter: &DeadLetterView) -> Check {
        let old = letter.deleted_at.is_some_and(|at| self.is_older(at, self.periods.dead_letters_restorable));
        let told = letter.status != DeadLetterStatus::Pending || self.periods.purge_pending_after.is_some();
        let dead = self.before.state(letter.notification.id) == Some(State::DeadLetter)
            && self.before.ended[&letter.notification.id].dead_letter == Some(letter.id);
        let free = !self.is_in_operation(letter.notification.id);
        hold(self.kind == Kind::DeletedLetters && old && told && !dead && free, || {
            format!("I11: {} purged {letter:?} at {}", self.kind, self.now)
        })
    }

    /// What belongs to a notification goes with it.
    fn nothing_is_left_behind(&self) -> Check {
        let known = |id: &&NotificationId| !self.after.notifications.contains_key(id);
        let left = self.after.attempts.keys().chain(self.after.events.keys()).chain(self.after.ended.keys());
        let orphan = left.into_iter().find(known);
        hold(orphan.is_none(), || format!("{} left rows of {orphan:?} behind", self.kind))
    }
}

/// Everything has come to rest: after its periods nothing is left but what is to stay. What ended long after its acceptance
/// is among it.
pub(super) async fn levels_off(world: &World, engine: &Engine) -> Check {
    for _ in 0..ROUNDS {
        tokio::time::sleep(LONGEST + Duration::from_secs(1)).await;
        for job in JOBS {
            runs_to_its_end(engine, job).await?;
        }
    }
    let periods = periods(world.seed);
    world.model.inspect(|tables| {
        for letter in tables.dead_letters.values() {
            let pending = letter.status == DeadLetterStatus::Pending && letter.deleted_at.is_none();
            hold(pending && periods.purge_pending_after.is_none(), || format!("{letter:?} stays"))?;
        }
        for (id, end) in &tables.ended {
            let named = tables.dead_letters.values().any(|letter| letter.notification.id == *id);
            hold(named, || format!("{id} stays, which ended at {}: {:?}", end.at, end.state))?;
        }
        let tried = tables.attempts.keys().next();
        hold(tried.is_none(), || format!("the attempts of {tried:?} stay"))?;
        let oldest = world.now().earlier(LONGEST * 2 + Duration::from_secs(2));
        let audit = tables.audit.iter().find(|row| row.audit.at < oldest);
        hold(audit.is_none(), || format!("{audit:?} stays"))?;
        let mut operations = tables.operations.operations.values();
        let ended = operations.find(|one| one.standing.finished_at.is_some_and(|at| at < oldest));
        hold(ended.is_none(), || format!("{ended:?} stays"))
    })
}

/// Runs a job, or waits for the run that is under way.
async fn runs_to_its_end(engine: &Engine, job: Job) -> Check {
    match engine.run_job(job, &Actor::local("simulation", None)).await {
        Ok(_) | Err(JobError::Running(_)) => {}
        Err(error) => return Err(format!("{job} does not run: {error}")),
    }
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let view = engine.job(job).await.map_err(|error| format!("{job} is not shown: {error}"))?;
        if view.running.is_none() {
            return Ok(());
        }
    }
    Err(format!("I16: {job} does not end"))
}
