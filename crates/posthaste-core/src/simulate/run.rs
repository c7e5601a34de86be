//! The course of a simulation: one event after the other, each at its time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use super::Scenario;
use super::answers::Answers;
use super::arrivals::Arrivals;
use super::bucket::Load;
use super::counts::{Counts, Outage};
use super::draws::Draws;
use super::outcome::Simulation;
use super::target::Target;
use crate::breaker::Health;
use crate::classify::Verdict;
use crate::policy::quick::{self, SoFar, max_wait_for_slot};
use crate::policy::{BeforeSend, Decision, Policy, Situation, decide, decide_before_send, silence_until};
use crate::reason::Reason;
use crate::slots::lane_turn;
use crate::state::Lane;
use crate::time::{Timestamp, micros};

/// How often a quick try without a slot looks for one.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A notification that was attempted and waits for its next attempt. Small, for there may be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    first_due: Timestamp,
    /// In milliseconds.
    previous_delay: u32,
    /// The number of the next attempt.
    attempt: u16,
}

/// A notification that is being attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    notification: Waiting,
    began_at: Timestamp,
    lane: Lane,
    is_probe: bool,
    repeats: u32,
    /// In microseconds.
    waited: i64,
    /// What the last try is answered, or was.
    answer: u16,
    next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// The try comes back.
    Answer,
    /// The wait for a quick try is over; how long it may wait for a slot.
    TryAgain { until: Timestamp },
}

/// The kinds of events; of several at one time the first goes first.
#[derive(Debug, Clone, Copy)]
enum Event {
    StepEnds,
    OutageEnds,
    UnderWay,
    Due,
    Arrival,
    /// There may be room.
    Room,
}

pub(super) struct Run<'s> {
    scenario: &'s Scenario,
    /// Its policy with every field that would be computed each time.
    policy: Policy,
    stands_for: u64,
    draws: Draws,
    answers: Answers,
    target: Target,
    now: Timestamp,
    ends: Timestamp,
    arrivals: Arrivals,
    under_way: BinaryHeap<Reverse<(Timestamp, UnderWay)>>,
    scheduled: BinaryHeap<Reverse<(Timestamp, Waiting)>>,
    /// Due and not attempted yet, by their time of acceptance.
    new: VecDeque<Timestamp>,
    /// Due again.
    again: VecDeque<Waiting>,
    credit: [i64; 2],
    looks_at: Option<Timestamp>,
    counts: Counts,
    load: Load,
    outage: Outage,
}

impl<'s> Run<'s> {
    pub(super) fn new(scenario: &'s Scenario, stands_for: u64) -> Self {
        let named_max_age = Some(scenario.policy.max_age());
        let policy = Policy { named_max_age, ..scenario.policy.clone() };
        let mut draws = Draws::new(scenario.seed);
        let ends = Timestamp::EPOCH.later(scenario.duration);
        let answers = Answers::new(scenario, stands_for);
        let outage_ends = answers.outage_ends().filter(|at| *at < ends);
        let per_second = scenario.rate.as_per_second() / stands_for as f64;
        Self {
            arrivals: Arrivals::new(per_second, scenario.duration, &mut draws),
            target: Target::new(scenario, stands_for),
            load: Load::new(scenario.duration),
            outage: Outage { ends: outage_ends, ..Outage::default() },
            now: Timestamp::EPOCH,
            under_way: BinaryHeap::new(),
            scheduled: BinaryHeap::new(),
            new: VecDeque::new(),
            again: VecDeque::new(),
            credit: [0; 2],
            looks_at: None,
            counts: Counts::default(),
            scenario,
            policy,
            stands_for,
            draws,
            answers,
            ends,
        }
    }

    /// Runs to the end, or to so many sends: then it says how far it came, of 1.
    pub(super) fn whole(mut self, most_sends: u64) -> Result<Simulation, f64> {
        while let Some((at, event)) = self.next_event() {
            self.now = at;
            self.happen(event);
            self.target.pass(self.now);
            self.send_what_may_go();
            self.look_whether_it_drained();
            self.load.waits(self.parked(), self.counts.live, self.now);
            if self.counts.attempts + self.counts.quick_tries > most_sends {
                let done = self.now.since(Timestamp::EPOCH).as_secs_f64();
                return Err(done / self.scenario.duration.as_secs_f64());
            }
        }
        Ok(self.finish())
    }

    fn next_event(&self) -> Option<(Timestamp, Event)> {
        let outage = self.outage.ends.filter(|_| !self.outage.is_over).unwrap_or(Timestamp::MAX);
        let under_way = self.under_way.peek().map_or(Timestamp::MAX, |Reverse((at, _))| *at);
        let due = self.scheduled.peek().map_or(Timestamp::MAX, |Reverse((at, _))| *at);
        let mut next = (self.load.step_ends(), Event::StepEnds);
        for (at, event) in [
            (outage, Event::OutageEnds),
            (under_way, Event::UnderWay),
            (due, Event::Due),
            (self.arrivals.next, Event::Arrival),
            (self.looks_at.unwrap_or(Timestamp::MAX), Event::Room),
        ] {
            if at < next.0 {
                next = (at, event);
            }
        }
        // The last step may end with the end.
        let is_in_time = next.0 < self.ends || (next.0 == self.ends && matches!(next.1, Event::StepEnds));
        is_in_time.then_some(next)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::StepEnds => {
                self.end_the_old();
                self.load.end_step(self.parked(), self.counts.live);
            }
            Event::OutageEnds => {
                self.outage.over(self.counts.live, self.now);
            }
            Event::UnderWay => {
                if let Some(Reverse((_, one))) = self.under_way.pop() {
                    self.go_on(one);
                }
            }
            Event::Due => {
                if let Some(Reverse((_, one))) = self.scheduled.pop() {
                    self.again.push_back(one);
                }
            }
            Event::Arrival => {
                self.new.push_back(self.now);
                self.arrivals.plan(&mut self.draws);
                self.counts.arrived += 1;
                self.counts.live += 1;
                self.load.arrived();
            }
            Event::Room => self.looks_at = None,
        }
    }

    fn parked(&self) -> u64 {
        (self.new.len() + self.again.len()) as u64
    }

    fn expires_at(&self, one: &Waiting) -> Option<Timestamp> {
        self.scenario.expires_after.map(|after| one.first_due.later(after))
    }

    /// Sends while there is room, the lanes in turns.
    fn send_what_may_go(&mut self) {
        while !(self.new.is_empty() && self.again.is_empty()) {
            let open = [
                !self.new.is_empty() && self.target.room(Lane::Main, self.now) > 0,
                !self.again.is_empty() && self.target.room(Lane::Retry, self.now) > 0,
            ];
            let Some(lane) = lane_turn(&mut self.credit, open) else {
                self.wait_for_room();
                return;
            };
            let next = match lane {
                Lane::Main => {
                    self.new.pop_front().map(|first_due| Waiting { first_due, previous_delay: 0, attempt: 1 })
                }
                Lane::Retry => self.again.pop_front(),
            };
            if let Some(next) = next {
                self.begin(next, lane);
            }
        }
    }

    fn wait_for_room(&mut self) {
        let main = self.target.reopens_at(Lane::Main, self.now).filter(|_| !self.new.is_empty());
        let retry = self.target.reopens_at(Lane::Retry, self.now).filter(|_| !self.again.is_empty());
        let at = main.into_iter().chain(retry).min();
        // A look in vain must not be repeated at the same time.
        self.looks_at = at.map(|at| at.max(self.now.later(Duration::from_millis(1))));
    }

    fn before_send(&self, one: &Waiting) -> Option<Decision> {
        let facts = BeforeSend {
            now: self.now,
            first_due: one.first_due,
            expires_at: self.expires_at(one),
            cancel_requested: false,
            interruptions: 0,
        };
        decide_before_send(&self.policy, &facts)
    }

    fn begin(&mut self, notification: Waiting, lane: Lane) {
        if let Some(end) = self.before_send(&notification) {
            self.end(&notification, end);
            return;
        }
        let is_probe = self.target.take(lane, self.policy.timeout, self.now);
        self.counts.attempts += 1;
        self.counts.retries += u64::from(notification.attempt > 1);
        self.make_try(UnderWay {
            notification,
            began_at: self.now,
            lane,
            is_probe,
            repeats: 0,
            waited: 0,
            answer: 0,
            next: Next::Answer,
        });
    }

    fn make_try(&mut self, one: UnderWay) {
        self.load.sent(self.now);
        let answer = self.answers.pick(self.now, &mut self.draws);
        let comes_back = self.now.later(self.answers.get(answer).takes);
        self.under_way.push(Reverse((comes_back, UnderWay { answer, next: Next::Answer, ..one })));
    }

    fn go_on(&mut self, one: UnderWay) {
        match one.next {
            Next::Answer => self.answered(one),
            Next::TryAgain { until } => self.try_again(one, until),
        }
    }

    fn answered(&mut self, one: UnderWay) {
        self.target.give_back();
        let answer = self.answers.get(one.answer);
        if answer.verdict != Verdict::Delivered {
            self.load.failed();
            if !one.is_probe
                && let Some(wait) = self.quick_wait(&one)
            {
                // Silence that was asked for begins at once.
                let pause = self.pause_asked(one.answer);
                self.target.seen(Health::Unknown, one.began_at, pause, false, self.now);
                if self.target.is_well(self.now) {
                    let at = self.now.later(wait);
                    let until = at.later(max_wait_for_slot(at, self.expires_at(&one.notification)));
                    let waited = one.waited.saturating_add(micros(wait));
                    let again = UnderWay { waited, next: Next::TryAgain { until }, ..one };
                    self.under_way.push(Reverse((at, again)));
                    return;
                }
            }
        }
        self.attempt_ends(one);
    }

    fn quick_wait(&mut self, one: &UnderWay) -> Option<Duration> {
        let so_far = SoFar {
            repeats: one.repeats,
            waited: Duration::from_micros(u64::try_from(one.waited).unwrap_or(0)),
            now: self.now,
            expires_at: self.expires_at(&one.notification),
        };
        let draw = self.draws.next();
        quick::next(&self.policy.quick, &self.answers.get(one.answer).reply, &so_far, draw)
    }

    /// The wait for a quick try is over.
    fn try_again(&mut self, one: UnderWay, until: Timestamp) {
        self.target.pass(self.now);
        if !self.target.is_well(self.now) || self.target.is_paused(self.now) {
            return self.attempt_ends(one);
        }
        if self.target.room(one.lane, self.now) > 0 {
            self.target.take_again(one.lane, self.now);
            self.counts.quick_tries += 1;
            return self.make_try(UnderWay { repeats: one.repeats + 1, ..one });
        }
        if self.now >= until {
            return self.attempt_ends(one);
        }
        let looks_at = until.min(self.now.later(BETWEEN_LOOKS));
        self.under_way.push(Reverse((looks_at, one)));
    }

    fn pause_asked(&self, answer: u16) -> Option<Timestamp> {
        silence_until(&self.policy, &self.answers.get(answer).verdict, self.now)
    }

    fn attempt_ends(&mut self, one: UnderWay) {
        let pause = self.pause_asked(one.answer);
        let answer = self.answers.get(one.answer);
        self.target.seen(answer.health, one.began_at, pause, one.is_probe, self.now);
        let situation = Situation {
            attempt: u32::from(one.notification.attempt),
            now: self.now,
            first_due: one.notification.first_due,
            expires_at: self.expires_at(&one.notification),
            cancel_requested: false,
            previous_delay: Duration::from_millis(u64::from(one.notification.previous_delay)),
            draw: if answer.verdict == Verdict::Delivered { 0.0 } else { self.draws.next() },
        };
        let decision = decide(&self.policy, &situation, &answer.verdict);
        self.end(&one.notification, decision);
    }

    /// What was decided happens.
    fn end(&mut self, one: &Waiting, decision: Decision) {
        match decision {
            Decision::RetryAt { due, delay } => {
                let again = Waiting {
                    previous_delay: u32::try_from(delay.as_millis()).unwrap_or(u32::MAX),
                    attempt: one.attempt.saturating_add(1),
                    ..*one
                };
                // What expires before is ended at that time.
                let wakes = self.expires_at(one).map_or(due, |expiry| expiry.min(due));
                self.scheduled.push(Reverse((wakes, again)));
                return;
            }
            Decision::Complete => {
                self.counts.delivered += 1;
                self.counts.slowest = self.counts.slowest.max(Some(self.now.since(one.first_due)));
            }
            Decision::Bury(reason) => *self.counts.dead.entry(reason).or_default() += 1,
            Decision::Fail(_) => self.counts.failed += 1,
            // Nothing is cancelled.
            Decision::Expire | Decision::Cancel => self.counts.expired += 1,
        }
        self.counts.live -= 1;
        self.outage.one_ended(one.first_due, self.now);
    }

    /// Ends what is parked for too long.
    fn end_the_old(&mut self) {
        let is_old = |run: &Self, one: &Waiting| run.before_send(one);
        while let Some(first_due) = self.new.front().copied() {
            let one = Waiting { first_due, previous_delay: 0, attempt: 1 };
            let Some(end) = is_old(self, &one) else { break };
            self.new.pop_front();
            self.end(&one, end);
        }
        for _ in 0..self.again.len() {
            let Some(one) = self.again.pop_front() else { break };
            match is_old(self, &one) {
                Some(end) => self.end(&one, end),
                None => self.again.push_back(one),
            }
        }
    }

    fn look_whether_it_drained(&mut self) {
        let is_open = self.outage.is_over && self.outage.drained.is_none();
        if is_open && self.parked() == 0 && !self.target.is_shut(self.now) {
            self.outage.drained = Some(self.now);
        }
    }

    fn finish(mut self) -> Simulation {
        self.now = self.ends;
        // The last step may be a short one.
        if self.load.has_begun(self.ends) {
            self.load.end_step(self.parked(), self.counts.live);
        }
        let times = self.stands_for;
        let (counts, outage) = (&self.counts, &self.outage);
        let dead: BTreeMap<Reason, u64> =
            counts.dead.iter().map(|(reason, count)| (*reason, count * times)).collect();
        let (drained_after, settled_after) = (outage.since(outage.drained), outage.since(outage.settled));
        let (step, load, [most_parked, most_waiting, busiest_second]) = self.load.finish(times);
        Simulation {
            arrived: counts.arrived * times,
            delivered: counts.delivered * times,
            dead: dead.values().sum(),
            dead_by_reason: dead,
            failed: counts.failed * times,
            expired: counts.expired * times,
            waiting: counts.live * times,
            attempts: counts.attempts * times,
            retries: counts.retries * times,
            quick_tries: counts.quick_tries * times,
            duration: self.scenario.duration,
            outage_ended_at: outage.ends.map(|at| at.since(Timestamp::EPOCH)),
            drained_after,
            settled_after,
            slowest_delivery: counts.slowest,
            most_parked,
            most_waiting,
            busiest_second,
            breaker: self.target.finish(self.ends),
            stands_for: times,
            step,
            load,
        }
    }
}
