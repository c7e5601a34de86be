//! Jobs: each node watches their times, and the first node to start a run runs it. Other nodes see the run and wait for the next
//! time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::job::{self, Job, RunOutcome, Schedule};
use posthaste_core::lease::NodeId;
use posthaste_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::acts::Actor;
use crate::catch_panic::CatchPanic;
use crate::engine::{Engine, Shared};
use crate::store::{Act, Audit, Begun, JobPlan, JobStart, JobView, Result, StoreError, Why};
use crate::{expire, groups, reclaim, retention};

/// The longest pause between two looks at the times. Another node may have paused a job or run it.
const LOOK: Duration = Duration::from_secs(30);
/// The pause after a store error.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a run that gets no further waits for a store that does not serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// When each job runs, by the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobSettings {
    /// Each job with its schedule; without one it runs only when it is asked for.
    pub schedules: Vec<(Job, Option<Schedule>)>,
    /// How old a pending dead letter gets before `expire-failed` discards it.
    pub expire_failed_after: Duration,
}

/// Why a job was not run, paused or resumed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is no such job.
    #[error("there is no job {0}")]
    Unknown(String),
    /// It is under way.
    #[error("{0} is running already")]
    Running(Job),
    /// The store could not do it, or did not say whether it did.
    #[error("the change could not be stored")]
    Store(#[from] StoreError),
}

/// A run that has started and is to be worked on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    job: Job,
    run: i64,
    /// The id of this node when it began. Another one means that it was taken for dead.
    node: NodeId,
}

/// The runs that this node knows of.
///
/// A start that was answered as an error may have happened, or happen later. Its run would never end, and the job would not run
/// again while the node lives. So a run of this node that it does not know of is worked on like one that it started.
#[derive(Default)]
pub(crate) struct KnownRuns(Mutex<BTreeMap<Job, Known>>);

#[derive(Default)]
struct Known {
    /// Starts that are under way.
    beginning: u32,
    /// The last run that was started. Numbers count up.
    last: i64,
}

impl KnownRuns {
    fn of<T>(&self, job: Job, change: impl FnOnce(&mut Known) -> T) -> T {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(job).or_default())
    }

    /// Takes on a run of this node that it does not know of.
    fn take_on(&self, job: Job, run: i64, node: NodeId) -> Option<Started> {
        self.of(job, |known| {
            let is_unknown = known.beginning == 0 && run > known.last;
            is_unknown.then(|| {
                known.last = run;
                Started { job, run, node }
            })
        })
    }
}

/// Starts a run in the store, if that is possible.
async fn begin(
    shared: &Shared,
    job: Job,
    why: Why,
    audit: Option<Audit>,
    now: Timestamp,
) -> Result<(Begun, NodeId)> {
    shared.runs.of(job, |known| known.beginning += 1);
    let start = shared.job_start(job, why);
    let node = start.node;
    let begun = shared.store.begin_job(start, audit, now).await;
    shared.runs.of(job, |known| {
        known.beginning -= 1;
        if let Ok(Begun::Started { run }) = begun {
            known.last = known.last.max(run);
        }
    });
    Ok((begun?, node))
}

/// The loop. Runs are its tasks: they end with it.
pub(crate) async fn run(shared: Arc<Shared>, mut asked: mpsc::UnboundedReceiver<Started>) {
    let mut running = JoinSet::new();
    loop {
        let wait = match start_due(&shared).await {
            Ok(begun) => {
                for started in begun.started {
                    running.spawn(work(shared.clone(), started));
                }
                begun.next.map_or(LOOK, |next| next.since(shared.node.now()).min(LOOK))
            }
            Err(error) => {
                shared.store_failed("start jobs", &error);
                PAUSE
            }
        };
        let sleep = tokio::time::sleep(wait);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                biased;
                () = &mut sleep => break,
                Some(_) = running.join_next(), if !running.is_empty() => {}
                started = asked.recv() => match started {
                    Some(started) => drop(running.spawn(work(shared.clone(), started))),
                    None => return,
                },
            }
        }
    }
}

/// Makes the jobs of the configuration known. The engine does it before its start is over: a caller who is answered sees them all.
pub(crate) async fn plan(shared: &Shared) -> Result<()> {
    let now = shared.node.now();
    let plan = |(job, schedule): &(Job, Option<Schedule>)| JobPlan {
        name: job.name().to_owned(),
        cron: schedule.as_ref().map(|schedule| schedule.as_str().to_owned()),
        next_run: schedule.as_ref().and_then(|schedule| schedule.next_after(now)),
    };
    let plans = shared.settings.jobs.schedules.iter().map(plan).collect();
    shared.store.plan_jobs(plans).await
}

/// What one look at the times has led to.
#[derive(Default)]
struct Look {
    started: Vec<Started>,
    /// The earliest time of a job that was not due.
    next: Option<Timestamp>,
}

async fn start_due(shared: &Shared) -> Result<Look> {
    let mut look = Look::default();
    if !shared.may_take_work() {
        return Ok(look);
    }
    let now = shared.node.now();
    for view in shared.store.jobs(now).await? {
        // A job of a newer version is left to nodes that know it.
        let Some(job) = Job::from_name(&view.name) else { continue };
        let running = view.running.as_ref().map(|running| &running.run);
        if let Some(run) = running.filter(|run| run.node == shared.node.id()) {
            look.started.extend(shared.runs.take_on(job, run.number, run.node));
        }
        let next = match job::due(&view.standing()) {
            Some(due) if due <= now => match start(shared, job, &view, now).await {
                Ok(started) => {
                    look.started.extend(started);
                    continue;
                }
                // What was started before it is not lost.
                Err(error) => {
                    shared.store_failed("start a job", &error);
                    now.later(PAUSE)
                }
            },
            Some(due) => due,
            None => continue,
        };
        look.next = Some(look.next.map_or(next, |before| before.min(next)));
    }
    Ok(look)
}

async fn start(shared: &Shared, job: Job, view: &JobView, now: Timestamp) -> Result<Option<Started>> {
    let why = Why::Time { seen: view.next_run, next_run: next_run(view, now) };
    match begin(shared, job, why, None, now).await? {
        (Begun::Started { run }, node) => Ok(Some(Started { job, run, node })),
        (Begun::Running | Begun::NotDue | Begun::Unknown, _) => Ok(None),
    }
}

/// The next time by the schedule that is stored. It may be another than that of this node's configuration: the node that
/// started last decides.
fn next_run(view: &JobView, now: Timestamp) -> Option<Timestamp> {
    let schedule = Schedule::parse(view.cron.as_deref()?).ok()?;
    schedule.next_after(now)
}

impl Shared {
    fn job_start(&self, job: Job, why: Why) -> JobStart {
        let node_name = self.settings.name.clone();
        JobStart { name: job.name().to_owned(), node: self.node.id(), node_name, why }
    }
}

/// Works on a run and records its end. While the store does not serve, the record is asked for again.
///
/// A node that was taken for dead drops the run where it is: it is repeated by one that lives, and recorded as interrupted.
async fn work(shared: Arc<Shared>, Started { job, run, node }: Started) {
    tracing::info!(%job, run, "job started");
    let mut count = 0;
    let made = tokio::select! {
        biased;
        () = shared.node.succeeded(node) => None,
        made = CatchPanic(Box::pin(make_to_the_end(&shared, job, &mut count))) => Some(made),
    };
    let outcome = match made {
        Some(Ok(Ok(()))) => RunOutcome::Done { count },
        Some(Ok(Err(error))) => RunOutcome::failed(count, &error.causes()),
        Some(Err(_)) => RunOutcome::failed(count, "the job broke down: this is a bug"),
        None => {
            tracing::warn!(%job, run, count, "job dropped: its node was taken for dead");
            return;
        }
    };
    match &outcome {
        RunOutcome::Done { .. } | RunOutcome::Interrupted => tracing::info!(%job, run, count, "job done"),
        RunOutcome::Failed { error, .. } => tracing::error!(%job, run, count, %error, "job failed"),
    }
    shared.counts.job_ended(job, &outcome);
    while let Err(error) = shared.store.finish_job(run, outcome.clone(), shared.node.now()).await {
        shared.store_failed("record the end of a job", &error);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Makes the run, and begins it again where the store did not serve for a moment: the next time by the schedule may be a day away,
/// and a job that has none would not run again by itself. What is done already is not found again.
async fn make_to_the_end(shared: &Shared, job: Job, count: &mut u64) -> Result<()> {
    let mut failing: Option<(Instant, u64)> = None;
    loop {
        let error = match make(shared, job, count).await {
            Err(error @ StoreError::Unavailable { .. }) => error,
            ended => return ended,
        };
        let since = match failing {
            Some((since, at)) if at == *count => since,
            // It got further since.
            Some(_) | None => Instant::now(),
        };
        if since.elapsed() >= PATIENCE {
            return Err(error);
        }
        failing = Some((since, *count));
        shared.store_failed("run a job", &error);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Does what the job is for; `count` grows with each thing done, so that a run that fails says how far it came.
async fn make(shared: &Shared, job: Job, count: &mut u64) -> Result<()> {
    match job {
        Job::RetryProcessor => {
            shared.sweep.ask();
            Ok(())
        }
        Job::RetryExpire => {
            expire::expire(shared, count).await?;
            take_back(shared, count).await
        }
        Job::FailureGroups => groups::tidy(shared, count).await,
        Job::ExpireFailed => discard_old(shared, count).await,
        Job::DeadLetterCleanup => retention::clean_dead_letters(shared, count).await,
        Job::Retention => retention::remove_rows(shared, count).await,
    }
}

/// Takes back the leases of dead nodes.
async fn take_back(shared: &Shared, count: &mut u64) -> Result<()> {
    let dead = shared.store.nodes(shared.node.now()).await?.into_iter().filter(|node| !node.alive);
    for node in dead {
        *count += reclaim::take_back(shared, node.id).await?;
    }
    Ok(())
}

/// Discards pending dead letters that are older than the configured age.
async fn discard_old(shared: &Shared, count: &mut u64) -> Result<()> {
    let died_before = shared.node.now().earlier(shared.settings.jobs.expire_failed_after);
    retention::act_on_pending(shared, died_before, &Act::Discard, Job::ExpireFailed.name(), count).await
}

/// An audit row for what a job does by itself.
pub(crate) fn itself(action: &str, target: &str, at: Timestamp) -> Audit {
    Audit {
        tenant: None,
        actor: Audit::ITSELF.to_owned(),
        action: action.to_owned(),
        target: target.to_owned(),
        at,
        key_id: None,
        address: None,
    }
}

impl Engine {
    /// Every known job, by name.
    pub async fn jobs(&self) -> Result<Vec<JobView>> {
        self.shared.store.jobs(self.now()).await
    }

    /// Starts a run on this node, also of a paused job. Returns its number.
    pub async fn run_job(&self, job: Job, actor: &Actor) -> std::result::Result<i64, JobError> {
        let why = Why::Asked { by: actor.name.clone() };
        let (shared, audit) = (self.shared.clone(), self.job_audit("run-job", job, actor));
        let begin = async move {
            let (begun, node) = begin(&shared, job, why, Some(audit), shared.node.now()).await?;
            if let Begun::Started { run } = begun {
                // A loop that has ended ends the process, and then the run is interrupted.
                let _ = shared.jobs.send(Started { job, run, node });
            }
            Ok(begun)
        };
        match self.to_its_end(begin).await? {
            Begun::Started { run } => Ok(run),
            Begun::Running => Err(JobError::Running(job)),
            Begun::NotDue | Begun::Unknown => Err(JobError::Unknown(job.name().to_owned())),
        }
    }

    /// Keeps a job from running by itself. A run that is under way goes on.
    pub async fn pause_job(&self, job: Job, actor: &Actor) -> std::result::Result<JobView, JobError> {
        self.set_paused(job, true, actor).await
    }

    /// Lets a job run by itself again, from its next time on. Times that passed meanwhile are not made up for.
    pub async fn resume_job(&self, job: Job, actor: &Actor) -> std::result::Result<JobView, JobError> {
        self.set_paused(job, false, actor).await
    }

    async fn set_paused(
        &self,
        job: Job,
        paused: bool,
        actor: &Actor,
    ) -> std::result::Result<JobView, JobError> {
        let view = self.job(job).await?;
        let next = if paused { view.next_run } else { next_run(&view, self.now()) };
        let audit = self.job_audit(if paused { "pause-job" } else { "resume-job" }, job, actor);
        self.shared.store.pause_job(view.name, paused, next, audit).await?;
        self.job(job).await
    }

    /// The job as it stands.
    pub async fn job(&self, job: Job) -> std::result::Result<JobView, JobError> {
        let mut all = self.jobs().await?.into_iter();
        all.find(|view| view.name == job.name()).ok_or_else(|| JobError::Unknown(job.name().to_owned()))
    }

    fn job_audit(&self, action: &str, job: Job, actor: &Actor) -> Audit {
        Audit {
            actor: actor.name.clone(),
            key_id: actor.key_id.clone(),
            address: actor.address.clone(),
            ..itself(action, job.name(), self.now())
        }
    }
}
