//! What the bench measures by: time, and what Linux says of this process.

use std::time::{Duration, Instant};

/// What time is measured by.
#[derive(Clone, Copy)]
pub enum Watch {
    /// What a caller waits.
    Wall,
    /// What the threads of this process were on a core: for comparing layouts on a machine that others use as
    /// well.
    Cpu,
}

/// A moment by either watch.
pub struct Moment(Instant, Duration);

impl Watch {
    /// A watch is started.
    pub fn start(self) -> Moment {
        let cpu = match self {
            Self::Wall => Duration::ZERO,
            Self::Cpu => on_core(),
        };
        Moment(Instant::now(), cpu)
    }

    /// What passed since then.
    pub fn since(self, start: Moment) -> Duration {
        match self {
            Self::Wall => start.0.elapsed(),
            Self::Cpu => on_core().saturating_sub(start.1),
        }
    }
}

/// How long the threads of this process were on a core, as Linux says.
fn on_core() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// A line of what Linux says of this process, in KiB; 0 elsewhere.
pub(crate) fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    found.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
