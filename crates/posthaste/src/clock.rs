//! The clocks of the machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed to all others")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    #[cfg(target_os = "linux")]
    fn slept(&self) -> Duration {
        linux::slept()
    }
}

/// Linux has two monotonic clocks: one includes the time that the machine sleeps, the other does not. On
/// other systems a node that slept relies on the store, which refuses settlements under lost leases.
#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::time::{ClockId, Timespec, clock_gettime};

    use super::Duration;

    /// The time slept, in nanoseconds, as last returned.
    static RETURNED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn slept() -> Duration {
        // In this order, a pause of this thread between the two readings makes the difference smaller, never
        // larger.
        let all = clock_gettime(ClockId::Boottime);
        let awake = clock_gettime(ClockId::Monotonic);
        let seen = nanos(all).saturating_sub(nanos(awake));
        let returned = RETURNED.load(Ordering::Relaxed);
        if !is_sleep(returned, seen) {
            return Duration::from_nanos(returned);
        }
        Duration::from_nanos(RETURNED.fetch_max(seen, Ordering::Relaxed).max(seen))
    }

    /// Whether the difference has grown by more than the two readings can be apart.
    pub(super) fn is_sleep(returned: u64, seen: u64) -> bool {
        seen > returned.saturating_add(20_000_000)
    }

    fn nanos(time: Timespec) -> u64 {
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        secs.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_awake_has_not_slept_more_and_a_jitter_is_no_sleep() {
        let before = SystemClock.slept();
        assert!((0..100_000).all(|_| SystemClock.slept() == before));
        assert!(!linux::is_sleep(5, 5) && !linux::is_sleep(5_000_000, 4_000_000));
        assert!(!linux::is_sleep(0, 20_000_000) && linux::is_sleep(0, 20_000_001));
    }
}
