//! Lookups of names, shared by all tries.
//!
//! A lookup may take long and cannot be called off, so it holds a place until it is done, and the tenants share the
//! places. One name is looked up once at a time; whoever else needs it waits for the same answer. An answer, also that there is
//! none, is kept for a moment.
//!
//! Invariant: the names of one tenant cannot keep another tenant from looking up its own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use posthaste_core::notification::Tenant;
use posthaste_core::recent::Recent;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::places::Places;
use super::resolve::Resolve;

/// The most lookups at a time. Each may block a thread.
const PLACES: usize = 128;
/// How long an answer counts. It is less than the first scheduled delay of the preset `webhook`, so that a retry asks anew.
const KEPT_FOR: Duration = Duration::from_secs(3);
/// The most answers that are kept.
const MOST_KEPT: usize = 2_048;
/// How long a try waits for a place.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// From so many waiting names on, those that nobody waits for any more are looked for.
const MANY_WAITING: usize = 1_024;

/// The addresses of a name, or why there are none.
pub(super) type Answer = Result<Vec<IpAddr>, String>;

/// How far a lookup has come.
#[derive(Debug, Clone)]
enum Progress {
    /// It waits for a place.
    Waiting,
    Running,
    Answered(Answer),
}

/// The lookups of a channel.
pub(super) struct Lookups {
    resolver: Arc<dyn Resolve>,
    state: Mutex<State>,
}

struct State {
    places: Places<String>,
    /// The names that wait for a place or are being looked up.
    open: HashMap<String, Open>,
    kept: Recent<String, (Instant, Answer)>,
    running: JoinSet<()>,
    /// How many waiting names cause the next search for those that nobody waits for.
    many: usize,
}

/// A name without an answer yet.
struct Open {
    progress: watch::Sender<Progress>,
    /// The tenants for which it waits for a place.
    waits_for: Vec<Tenant>,
}

impl Open {
    fn is_wanted(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Waiting) && self.progress.receiver_count() > 0
    }
}

/// No place became free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoPlace;

/// A lookup that has begun.
pub(super) struct Lookup(watch::Receiver<Progress>);

impl Lookup {
    /// Waits for the answer. The lookup goes on if nobody does.
    pub(super) async fn answer(mut self) -> Answer {
        let given_up = || Err("the lookup was given up".to_owned());
        match self.0.wait_for(|progress| matches!(progress, Progress::Answered(_))).await.as_deref() {
            Ok(Progress::Answered(answer)) => answer.clone(),
            Ok(Progress::Waiting | Progress::Running) | Err(_) => given_up(),
        }
    }
}

impl Lookups {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Arc<Self> {
        let state = State {
            places: Places::new(PLACES),
            open: HashMap::new(),
            kept: Recent::new(MOST_KEPT),
            running: JoinSet::new(),
            many: MANY_WAITING,
        };
        Arc::new(Self { resolver, state: Mutex::new(state) })
    }

    /// Begins to look up a name for a tenant: waits for a place, unless the answer is known or on its way.
    pub(super) async fn begin(self: &Arc<Self>, tenant: &Tenant, name: &str) -> Result<Lookup, NoPlace> {
        let mut progress = self.ask(tenant, name);
        let begun = progress.wait_for(|progress| !matches!(progress, Progress::Waiting));
        let in_time = tokio::time::timeout(LONGEST_WAIT, begun).await.is_ok();
        if in_time { Ok(Lookup(progress)) } else { Err(NoPlace) }
    }

    fn ask(self: &Arc<Self>, tenant: &Tenant, name: &str) -> watch::Receiver<Progress> {
        let mut state = self.lock();
        if let Some((until, answer)) = state.kept.peek(name)
            && *until > Instant::now()
        {
            return watch::channel(Progress::Answered(answer.clone())).1;
        }
        let open = state
            .open
            .entry(name.to_owned())
            .or_insert_with(|| Open { progress: watch::channel(Progress::Waiting).0, waits_for: Vec::new() });
        let progress = open.progress.subscribe();
        if matches!(*progress.borrow(), Progress::Waiting) && !open.waits_for.contains(tenant) {
            open.waits_for.push(tenant.clone());
            state.places.wait(tenant, name.to_owned());
            state.forget_unwanted();
            self.start(&mut state);
        }
        progress
    }

    /// Starts what there are places for.
    fn start(self: &Arc<Self>, state: &mut State) {
        // Those that have ended are let go here, so that they do not pile up.
        while state.running.try_join_next().is_some() {}
        while let Some((tenant, name)) = state.places.take() {
            match state.open.get(&name) {
                Some(open) if open.is_wanted() => {
                    open.progress.send_replace(Progress::Running);
                    state.running.spawn(look_up(Arc::downgrade(self), self.resolver.clone(), tenant, name));
                }
                // Another tenant's place took it, or nobody waits for it any more.
                Some(open) if matches!(*open.progress.borrow(), Progress::Waiting) => {
                    state.open.remove(&name);
                    state.places.give_back(&tenant);
                }
                Some(_) | None => state.places.give_back(&tenant),
            }
        }
    }

    /// Gives the answer to everybody who waits for it, keeps it, and passes the place on.
    fn finish(self: &Arc<Self>, tenant: &Tenant, name: &str, answer: Answer) {
        let mut state = self.lock();
        if let Some(open) = state.open.remove(name) {
            open.progress.send_replace(Progress::Answered(answer.clone()));
        }
        state.kept.insert(name.to_owned(), (Instant::now() + KEPT_FOR, answer));
        state.places.give_back(tenant);
        self.start(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lookups")
    }
}

impl State {
    /// Forgets names that wait for a place and that nobody waits for any more, now and then.
    fn forget_unwanted(&mut self) {
        if self.places.waiting() < self.many {
            return;
        }
        self.open.retain(|_, open| open.is_wanted() || !matches!(*open.progress.borrow(), Progress::Waiting));
        let open = &self.open;
        self.places.retain(|name| open.get(name).is_some_and(Open::is_wanted));
        self.many = self.places.waiting().saturating_mul(2).max(MANY_WAITING);
    }
}

/// One lookup. It ends for those who wait for it however the resolver ends.
async fn look_up(lookups: Weak<Lookups>, resolver: Arc<dyn Resolve>, tenant: Tenant, name: String) {
    let mut running = Running { lookups, tenant, name, answer: Err("the lookup broke down".to_owned()) };
    running.answer = resolver.resolve(&running.name).await.map_err(|error| error.to_string());
}

/// A lookup under way; when it is dropped, it is over.
struct Running {
    lookups: Weak<Lookups>,
    tenant: Tenant,
    name: String,
    answer: Answer,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(lookups) = self.lookups.upgrade() {
            let answer = std::mem::replace(&mut self.answer, Ok(Vec::new()));
            lookups.finish(&self.tenant, &self.name, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hanging;

    #[async_trait::async_trait]
    impl Resolve for Hanging {
        async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_nobody_waits_for_any_more_do_not_pile_up() {
        let lookups = Lookups::new(Arc::new(Hanging));
        let tenant: Tenant = "a".parse().unwrap();
        let wanted = lookups.ask(&tenant, "wanted");
        for number in 0..5 * MANY_WAITING {
            let name = format!("{number}");
            let _ = tokio::time::timeout(Duration::ZERO, lookups.begin(&tenant, &name)).await;
            let state = lookups.lock();
            assert!(state.places.waiting() <= MANY_WAITING && state.open.len() <= MANY_WAITING + PLACES);
        }
        assert!(lookups.lock().open.contains_key("wanted"));
        drop(wanted);
    }
}
