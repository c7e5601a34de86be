//! Lists and figures: a bounded number at a time for each tenant, so that no tenant keeps the others from
//! reading.
//!
//! A read that has begun runs to its end and keeps its slot until then, even if the caller disconnects: the
//! store does not stop it either, and a caller that asks and disconnects at once would otherwise have any
//! number of reads running.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use posthaste_core::notification::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use super::problem::{Kind, Problem, Result};
use crate::keys::Caller;

/// The most reads of one reader at a time. SQLite has two threads for lists, so another reader waits for one
/// read on each at most.
const SLOTS: usize = 2;
/// The most reads of one reader that wait for a slot.
const MOST_WAITING: usize = 64;
/// Upper bound on the wait for a slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(2);

/// Whose slots a read takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Reader {
    /// The keys of one tenant.
    Tenant(Tenant),
    /// The keys for all tenants.
    All,
    /// `/metrics`, which may need no key.
    Metrics,
}

impl Reader {
    pub(super) fn of(caller: &Caller) -> Self {
        caller.tenant.clone().map_or(Self::All, Self::Tenant)
    }
}

/// The reads that are under way or wait.
#[derive(Debug, Default)]
pub(super) struct ReadSlots {
    lines: Arc<Lines>,
    running: Mutex<JoinSet<()>>,
}

/// One line for each reader that has a read under way, so there are no more of them than connections.
#[derive(Debug, Default)]
struct Lines(Mutex<HashMap<Reader, Line>>);

#[derive(Debug)]
struct Line {
    slots: Arc<Semaphore>,
    /// How many reads are in it, those that wait included.
    reads: usize,
}

/// A read in its line, which it leaves when this is dropped.
struct Queued {
    lines: Arc<Lines>,
    reader: Reader,
    slots: Arc<Semaphore>,
}

impl ReadSlots {
    /// Runs a read once it has a slot.
    pub(super) async fn run<T: Send + 'static, E: Send + 'static>(
        &self,
        reader: Reader,
        read: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T>
    where
        Problem: From<E>,
    {
        let slot = self.lines.slot(reader).await?;
        let (answer, answered) = oneshot::channel();
        let task = async move {
            let read = read.await;
            drop(slot);
            // The caller may have gone away.
            let _ = answer.send(read);
        };
        {
            let mut running = self.running.lock().expect("no code panics while it starts a read");
            // Those that have ended are let go here, so that they do not pile up.
            while running.try_join_next().is_some() {}
            running.spawn(task);
        }
        let broken = |_| Problem::new(Kind::Internal, "the read broke down; the log of the server says more");
        answered.await.map_err(broken)?.map_err(Problem::from)
    }
}

impl Lines {
    /// A slot of a reader, which is free again when the answer is dropped.
    async fn slot(self: &Arc<Self>, reader: Reader) -> Result<(OwnedSemaphorePermit, Queued)> {
        let queued = self.queue(reader).ok_or_else(too_many_reads)?;
        let permit = tokio::time::timeout(SLOT_TIMEOUT, queued.slots.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(std::result::Result::ok).ok_or_else(too_many_reads)?;
        Ok((permit, queued))
    }

    /// The end of the line of a reader, if there is room.
    fn queue(self: &Arc<Self>, reader: Reader) -> Option<Queued> {
        let mut lines = self.lock();
        let new = || Line { slots: Arc::new(Semaphore::new(SLOTS)), reads: 0 };
        let line = lines.entry(reader.clone()).or_insert_with(new);
        if line.reads == SLOTS + MOST_WAITING {
            return None;
        }
        line.reads += 1;
        Some(Queued { lines: self.clone(), reader, slots: line.slots.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Reader, Line>> {
        self.0.lock().expect("no code panics while it counts the reads")
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.reader) else { return };
        line.reads -= 1;
        if line.reads == 0 {
            lines.remove(&self.reader);
        }
    }
}

fn too_many_reads() -> Problem {
    let detail = format!(
        "{SLOTS} lists or figures of this tenant are being read, and more wait: ask for fewer at a time, and ask again"
    );
    Problem::new(Kind::TooManyReads, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Reader {
        Reader::Tenant(name.parse().unwrap())
    }

    /// Reads that hang until they are told to end.
    #[derive(Clone)]
    struct Hanging {
        begun: Arc<Semaphore>,
        end: Arc<Semaphore>,
    }

    impl Hanging {
        fn new() -> Self {
            Self { begun: Arc::new(Semaphore::new(0)), end: Arc::new(Semaphore::new(0)) }
        }

        fn read(&self) -> impl Future<Output = Result<u32>> + Send + 'static {
            let Self { begun, end } = self.clone();
            async move {
                begun.add_permits(1);
                end.acquire().await.unwrap().forget();
                Ok(7)
            }
        }

        /// Waits until so many have begun.
        async fn begun(&self, count: u32) {
            self.begun.acquire_many(count).await.unwrap().forget();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_takes_its_own_slots_and_no_others() {
        let (reads, hanging) = (Arc::new(ReadSlots::default()), Hanging::new());
        let mut asked = JoinSet::new();
        for _ in 0..SLOTS + MOST_WAITING {
            let (reads, read) = (reads.clone(), hanging.read());
            asked.spawn(async move { reads.run(tenant("a"), read).await });
        }
        hanging.begun(2).await;
        for other in [tenant("b"), Reader::All, Reader::Metrics] {
            assert_eq!(reads.run(other, async { Ok::<_, Problem>(1) }).await.unwrap(), 1);
        }
        // The line is full: one more is not even let in.
        assert!(reads.lines.queue(tenant("a")).is_none());
        let refused = reads.run(tenant("a"), async { Ok::<_, Problem>(1) }).await.unwrap_err();
        assert_eq!(refused.kind, Kind::TooManyReads);
        // As one ends, the next begins.
        hanging.end.add_permits(1);
        hanging.begun(1).await;
        assert_eq!(hanging.begun.available_permits(), 0, "only {SLOTS} at a time");
        tokio::time::sleep(SLOT_TIMEOUT).await;
        hanging.end.add_permits(2);
        let (mut read, mut refused) = (0, 0);
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap() {
                Ok(_) => read += 1,
                Err(problem) => {
                    assert_eq!(problem.kind, Kind::TooManyReads);
                    refused += 1;
                }
            }
        }
        assert_eq!((read, refused), (3, SLOTS + MOST_WAITING - 3));
        assert!(reads.lines.lock().is_empty(), "no line is kept for a tenant that does not read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_whose_caller_went_away_keeps_its_slot_until_it_ends() {
        let (reads, hanging) = (ReadSlots::default(), Hanging::new());
        for _ in 0..SLOTS {
            let asked = reads.run(tenant("a"), hanging.read());
            assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err());
        }
        hanging.begun(2).await;
        let next = reads.run(tenant("a"), async { Ok::<_, Problem>(1) }).await;
        assert_eq!(next.unwrap_err().kind, Kind::TooManyReads);
        hanging.end.add_permits(1);
        assert_eq!(reads.run(tenant("a"), async { Ok::<_, Problem>(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_read_that_breaks_down_gives_its_slot_back() {
        let reads = ReadSlots::default();
        for _ in 0..=SLOTS {
            let broken = reads.run::<u32, Problem>(Reader::All, async { panic!("the test breaks it") }).await;
            assert_eq!(broken.unwrap_err().kind, Kind::Internal);
        }
    }
}
