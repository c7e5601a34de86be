//! What is leased and waits in memory for a place: it came in while every place of its flow was taken, or was claimed
//! ahead. It saves claims, each of which is a commit, and most of the writing.
//!
//! Only flows that move have room here, as much as they sent in the last moments. So nothing waits for long, and a flow
//! that hangs keeps its rows in the store, where others can have them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use posthaste_core::flow::{Bucket, FlowId};
use tokio::time::Instant;

use crate::store::Job;

/// How many may wait for each that may be sent at once; a flow has half of it at most.
const WAITING: u32 = 16;
/// The most bytes that wait.
const MOST_BYTES: usize = 64 << 20;
/// The stretch of time in which the sends of a flow are counted.
const WINDOW: Duration = Duration::from_millis(250);
/// How long one may wait before it goes back to the store.
const LONGEST: Duration = Duration::from_secs(2);
/// The most flows whose sends are counted; beyond it all are forgotten and counted anew.
const MOST_FLOWS: usize = 10_000;

/// What waits, and how fast each flow moves.
#[derive(Debug)]
pub(super) struct Hand {
    most: u32,
    began: Instant,
    queues: HashMap<Bucket, VecDeque<(Instant, Job)>>,
    /// What came while rows of its bucket were in the store; it waits until those are claimed.
    behind: HashMap<Bucket, VecDeque<(Instant, Job)>>,
    /// Places kept in it, filled or not yet.
    total: u32,
    by_flow: HashMap<FlowId, u32>,
    bytes: usize,
    moves: HashMap<FlowId, Moves>,
}

/// The sends of a flow in one stretch of time, and in the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Moves {
    window: u128,
    now: u32,
    before: u32,
    /// How large the last one was: so the next ones may be, too.
    bytes: usize,
}

impl Hand {
    pub(super) fn new(sends: u32) -> Self {
        Self {
            most: sends.saturating_mul(WAITING),
            began: Instant::now(),
            queues: HashMap::new(),
            behind: HashMap::new(),
            total: 0,
            by_flow: HashMap::new(),
            bytes: 0,
            moves: HashMap::new(),
        }
    }

    /// How many it holds, or has promised to.
    pub(super) const fn len(&self) -> u32 {
        self.total
    }

    /// Whether anything of the bucket waits.
    pub(super) fn holds(&self, bucket: Bucket) -> bool {
        self.queues.contains_key(&bucket)
    }

    /// Keeps room for one more, if its flow moves and there is some.
    pub(super) fn reserve(&mut self, flow: FlowId, bytes: usize) -> bool {
        let room = self.room(flow) > 0 && self.bytes.saturating_add(bytes) <= MOST_BYTES;
        if room {
            self.keep(flow, 1);
            self.bytes += bytes;
        }
        room
    }

    /// The same for one that comes while rows of its bucket are in the store: those may be claimed ahead, so most of the room
    /// is theirs.
    pub(super) fn reserve_behind(&mut self, flow: FlowId, bytes: usize) -> bool {
        let in_flow = self.by_flow.get(&flow).copied().unwrap_or(0);
        in_flow < self.share(flow) / 4 && self.reserve(flow, bytes)
    }

    /// Keeps room for rows that are claimed ahead, once the flow has used up half of what it had; answers for how many.
    pub(super) fn reserve_ahead(&mut self, flow: FlowId, most: u32) -> u32 {
        let room = self.room(flow);
        if room <= self.share(flow) / 2 {
            return 0;
        }
        let by_bytes = MOST_BYTES.saturating_sub(self.bytes) / self.moves(flow).bytes.max(1);
        let count = room.min(most).min(u32::try_from(by_bytes).unwrap_or(u32::MAX));
        self.keep(flow, count);
        count
    }

    /// Fills room that was reserved before the size of the row was known. Returns the job if it is too large: it
    /// has to go back to the store, and as few are claimed ahead from now on as fit if all are like it.
    #[must_use]
    pub(super) fn push_ahead(&mut self, job: Job) -> Option<Job> {
        let bytes = job.bytes();
        if self.bytes.saturating_add(bytes) > MOST_BYTES {
            if let Some(moves) = self.moves.get_mut(&job.flow) {
                moves.bytes = moves.bytes.max(bytes);
            }
            self.forgo(job.flow, 0);
            return Some(job);
        }
        self.bytes += bytes;
        self.push(job);
        None
    }

    fn room(&self, flow: FlowId) -> u32 {
        let in_flow = self.by_flow.get(&flow).copied().unwrap_or(0);
        self.share(flow).saturating_sub(in_flow).min(self.most.saturating_sub(self.total))
    }

    /// How many of a flow may wait: as many as it sent in a short while.
    fn share(&self, flow: FlowId) -> u32 {
        self.moves(flow).moved().min(self.most / 2)
    }

    fn keep(&mut self, flow: FlowId, count: u32) {
        if count > 0 {
            self.total += count;
            *self.by_flow.entry(flow).or_default() += count;
        }
    }

    /// Gives back room that was kept.
    pub(super) fn forgo(&mut self, flow: FlowId, bytes: usize) {
        self.total = self.total.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(count) = self.by_flow.get_mut(&flow) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_flow.remove(&flow);
            }
        }
    }

    /// Fills room that was kept.
    pub(super) fn push(&mut self, job: Job) {
        self.queues.entry(job.bucket()).or_default().push_back((Instant::now(), job));
    }

    /// Fills room that was kept behind rows in the store.
    pub(super) fn push_behind(&mut self, job: Job) {
        self.behind.entry(job.bucket()).or_default().push_back((Instant::now(), job));
    }

    /// Lets what waited behind rows in the store wait with the others.
    pub(super) fn join(&mut self, bucket: Bucket) {
        if let Some(mut more) = self.behind.remove(&bucket) {
            self.queues.entry(bucket).or_default().append(&mut more);
        }
    }

    /// Takes out up to `limit` of a bucket, the oldest first.
    pub(super) fn pop(&mut self, bucket: Bucket, limit: u32) -> Vec<Job> {
        let jobs = take_out(&mut self.queues, bucket, limit as usize);
        for job in &jobs {
            self.forgo(job.flow, job.bytes());
        }
        jobs
    }

    /// Takes out what has waited too long.
    pub(super) fn stale(&mut self, now: Instant) -> Vec<Job> {
        self.take_first(|queue| queue.partition_point(|(since, _)| *since + LONGEST <= now))
    }

    /// Takes out everything.
    pub(super) fn empty(&mut self) -> Vec<Job> {
        self.take_first(VecDeque::len)
    }

    /// Takes out the first of each queue, as many as `count` says.
    fn take_first(&mut self, count: impl Fn(&VecDeque<(Instant, Job)>) -> usize) -> Vec<Job> {
        let mut jobs = vec![];
        for queues in [&mut self.queues, &mut self.behind] {
            let mut buckets: Vec<(Bucket, usize)> =
                queues.iter().map(|(bucket, queue)| (*bucket, count(queue))).collect();
            // In their own order, so that a simulated run can be replayed.
            buckets.sort_unstable();
            for (bucket, count) in buckets {
                jobs.extend(take_out(queues, bucket, count));
            }
        }
        for job in &jobs {
            self.forgo(job.flow, job.bytes());
        }
        jobs
    }

    /// Notes that a send of the flow is over.
    pub(super) fn note(&mut self, flow: FlowId, bytes: usize) {
        if self.moves.len() >= MOST_FLOWS {
            self.moves.clear();
        }
        let window = self.window();
        let moves = self.moves.entry(flow).or_default();
        *moves = moves.at(window);
        moves.now = moves.now.saturating_add(1);
        moves.bytes = bytes;
    }

    fn moves(&self, flow: FlowId) -> Moves {
        self.moves.get(&flow).copied().unwrap_or_default().at(self.window())
    }

    fn window(&self) -> u128 {
        self.began.elapsed().as_millis() / WINDOW.as_millis()
    }
}

/// Takes out the first of a bucket's queue, at most so many.
fn take_out(
    queues: &mut HashMap<Bucket, VecDeque<(Instant, Job)>>,
    bucket: Bucket,
    limit: usize,
) -> Vec<Job> {
    let Some(queue) = queues.get_mut(&bucket) else { return vec![] };
    let count = queue.len().min(limit);
    let jobs = queue.drain(..count).map(|(_, job)| job).collect();
    if queue.is_empty() {
        queues.remove(&bucket);
    }
    jobs
}

impl Moves {
    /// The same, seen in a later stretch of time.
    fn at(self, window: u128) -> Self {
        match window.saturating_sub(self.window) {
            0 => self,
            1 => Self { window, now: 0, before: self.now, ..self },
            _ => Self { window, now: 0, before: 0, ..self },
        }
    }

    /// How many sends were over in a short while.
    fn moved(self) -> u32 {
        self.now.max(self.before)
    }
}

impl Job {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.notification.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FlowId = FlowId(1);

    fn moved(count: u32) -> Hand {
        let mut hand = Hand::new(256);
        (0..count).for_each(|_| hand.note(ONE, 1_000));
        hand
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_has_as_much_room_as_it_moved_in_a_short_while() {
        let mut hand = moved(3);
        assert!((0..3).all(|_| hand.reserve(ONE, 10)) && !hand.reserve(ONE, 10));
        assert!(!hand.reserve(FlowId(2), 10), "this one has not moved");
        hand.forgo(ONE, 10);
        tokio::time::advance(WINDOW).await;
        assert!(hand.reserve(ONE, 10), "the stretch before still counts");
        hand.forgo(ONE, 10);
        tokio::time::advance(WINDOW).await;
        assert!(!hand.reserve(ONE, 10), "it has stopped to move");
        assert_eq!((hand.len(), hand.bytes), (2, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn one_flow_has_half_at_most_and_bytes_are_bounded() {
        let mut hand = moved(100_000);
        assert_eq!(hand.reserve_ahead(ONE, 100_000), 2_048);
        assert_eq!(hand.reserve_ahead(ONE, 100_000), 0);
        let mut hand = moved(100_000);
        assert!(!hand.reserve(ONE, MOST_BYTES + 1) && hand.reserve(ONE, MOST_BYTES));
        assert_eq!(hand.reserve_ahead(ONE, 100), 0, "no bytes are left");
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_claimed_ahead_once_half_of_the_room_is_free() {
        let mut hand = moved(100);
        assert_eq!(hand.reserve_ahead(ONE, 500), 100);
        (0..50).for_each(|_| hand.forgo(ONE, 0));
        assert_eq!(hand.reserve_ahead(ONE, 500), 0);
        hand.forgo(ONE, 0);
        assert_eq!(hand.reserve_ahead(ONE, 500), 51);
    }
}
