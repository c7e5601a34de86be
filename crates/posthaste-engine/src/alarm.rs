//! An alarm: the time at which a loop has to look next. Any task that knows of an earlier time can set it.

use std::sync::Mutex;
use std::time::Duration;

use posthaste_core::time::Timestamp;
use tokio::sync::Notify;

/// The time at which a loop has to look next.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    at: Mutex<Option<Timestamp>>,
    bell: Notify,
}

impl Alarm {
    /// Something happens then.
    pub(crate) fn set(&self, time: Timestamp) {
        let mut at = self.at.lock().expect("no code panics while it sets the alarm");
        if at.is_none_or(|known| time < known) {
            *at = Some(time);
            self.bell.notify_one();
        }
    }

    /// Something may happen at a time that nobody knows: the loop has to look.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// A look begins. What was set before is seen by it; what is set during it rings again.
    pub(crate) fn clear(&self) {
        *self.at.lock().expect("no code panics while it sets the alarm") = None;
    }

    /// Sleeps until `next`, until the earliest time that is set, or for `longest`. A later time that is set meanwhile does
    /// not end the sleep.
    pub(crate) async fn sleep(&self, now: Timestamp, next: Option<Timestamp>, longest: Duration) {
        let earliest = {
            let mut at = self.at.lock().expect("no code panics while it sets the alarm");
            *at = [*at, next].into_iter().flatten().min();
            *at
        };
        let wait = earliest.map_or(longest, |time| longest.min(time.since(now)));
        let _ = tokio::time::timeout(wait, self.bell.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const LONGEST: Duration = Duration::from_secs(5);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000 + millis)
    }

    async fn slept(alarm: &Alarm, next: Option<Timestamp>) -> u128 {
        let begun = Instant::now();
        alarm.sleep(NOW, next, LONGEST).await;
        begun.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn it_sleeps_until_the_time_that_the_look_found_and_no_longer_than_it_may() {
        for (next, millis) in [(None, 5_000), (Some(300), 300), (Some(-10), 0), (Some(60_000), 5_000)] {
            assert_eq!(slept(&Alarm::default(), next.map(at)).await, millis, "{next:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_time_that_is_set_meanwhile_ends_the_sleep_and_a_later_one_does_not() {
        for (set, millis) in [(100, 50), (999, 50), (1_000, 1_000), (2_000, 1_000)] {
            let alarm = Alarm::default();
            let (slept, ()) = tokio::join!(slept(&alarm, Some(at(1_000))), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                alarm.set(at(set));
            });
            assert_eq!(slept, millis, "{set}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_set_during_a_look_makes_the_loop_look_again() {
        let alarm = Alarm::default();
        alarm.clear();
        alarm.set(at(100));
        assert_eq!(slept(&alarm, Some(at(1_000))).await, 0);
        alarm.ring();
        assert_eq!(slept(&alarm, None).await, 0);
    }
}
