//! Gathering: a batch is what is there, and, where that pays, what comes in a short while.
//!
//! A transaction has a price of its own, so one for many costs less than many. Whether it pays to wait depends on who waits:
//! the loops say so for each item that they take.

use tokio::sync::mpsc;
use tokio::time::Instant;

/// What a loop takes into its batch next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// Nothing: the batch is full.
    No,
    /// What is there already.
    IfThere,
    /// What is there, or comes until then.
    Until(Instant),
}

/// Where items come from.
pub(crate) trait Source<T> {
    /// One that is there already.
    fn take(&mut self) -> Option<T>;

    /// The next one; none if there will be no more.
    async fn next(&mut self) -> Option<T>;
}

impl<T> Source<T> for mpsc::Receiver<T> {
    fn take(&mut self) -> Option<T> {
        self.try_recv().ok()
    }

    async fn next(&mut self) -> Option<T> {
        self.recv().await
    }
}

impl<T> Source<T> for mpsc::UnboundedReceiver<T> {
    fn take(&mut self) -> Option<T> {
        self.try_recv().ok()
    }

    async fn next(&mut self) -> Option<T> {
        self.recv().await
    }
}

/// The batch that begins with `first`. `more` is asked after each item that is taken.
pub(crate) async fn gather<T>(
    source: &mut impl Source<T>,
    first: T,
    mut more: impl FnMut(&T) -> More,
) -> Vec<T> {
    let mut batch = Vec::new();
    let mut next = Some(first);
    while let Some(item) = next {
        let wanted = more(&item);
        batch.push(item);
        next = match (wanted, if wanted == More::No { None } else { source.take() }) {
            (More::Until(time), None) => tokio::time::timeout_at(time, source.next()).await.ok().flatten(),
            (_, taken) => taken,
        };
    }
    batch
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(5);

    /// Hands in one item now and one after each wait.
    fn coming(waits: &'static [u64]) -> mpsc::UnboundedReceiver<usize> {
        let (sender, receiver) = mpsc::unbounded_channel();
        sender.send(0).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the task ends with the test")]
        tokio::spawn(async move {
            for (number, wait) in waits.iter().enumerate() {
                tokio::time::sleep(Duration::from_millis(*wait)).await;
                sender.send(number + 1).unwrap();
            }
            std::future::pending::<()>().await;
        });
        receiver
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_until_the_time_is_taken_and_the_next_is_left() {
        let mut source = coming(&[2, 2, 2]);
        let (begun, first) = (Instant::now(), source.recv().await.unwrap());
        assert_eq!(gather(&mut source, first, |_| More::Until(begun + MOMENT)).await, [0, 1, 2]);
        assert_eq!(begun.elapsed(), MOMENT);
        assert_eq!(source.recv().await, Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_does_not_wait() {
        let mut source = coming(&[2, 2, 2]);
        let (begun, first) = (Instant::now(), source.recv().await.unwrap());
        let more = |item: &usize| if *item == 1 { More::No } else { More::Until(begun + MOMENT) };
        assert_eq!(gather(&mut source, first, more).await, [0, 1]);
        assert_eq!(begun.elapsed(), Duration::from_millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_is_past_is_no_wait() {
        let mut source = coming(&[2]);
        let (begun, first) = (Instant::now(), source.recv().await.unwrap());
        assert_eq!(gather(&mut source, first, |_| More::Until(begun)).await, [0]);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn everything_is_taken_once_in_its_order_and_no_batch_is_too_large(count in 1usize..60, most in 1usize..10) {
            let (sender, mut source) = mpsc::unbounded_channel();
            (0..count).for_each(|number| sender.send(number).unwrap());
            drop(sender);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (mut all, mut batches) = (vec![], 0);
            runtime.block_on(async {
                while let Some(first) = source.recv().await {
                    let mut taken = 0;
                    let batch = gather(&mut source, first, |_| {
                        taken += 1;
                        if taken >= most { More::No } else { More::IfThere }
                    })
                    .await;
                    assert!(batch.len() <= most);
                    all.extend(batch);
                    batches += 1;
                }
            });
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            prop_assert_eq!(batches, count.div_ceil(most));
        }
    }
}
