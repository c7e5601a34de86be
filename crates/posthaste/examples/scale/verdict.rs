//! What was seen beside what was wanted.

use std::fmt::Write as _;
use std::time::Duration;

/// The figures of a scenario, in the order in which they were taken.
#[derive(Default)]
pub(crate) struct Verdict {
    rows: Vec<Row>,
}

struct Row {
    what: String,
    seen: String,
    goal: String,
    met: Option<bool>,
}

impl Verdict {
    /// Times of which each must stay below a goal.
    pub(crate) fn below(&mut self, what: impl Into<String>, seen: &Times, goal: Duration) {
        let met = seen.is_complete() && seen.longest() < goal;
        self.wanted(what, seen.described(), format!("under {}", shown(goal)), met);
    }

    /// A figure with a goal in words.
    pub(crate) fn wanted(
        &mut self,
        what: impl Into<String>,
        seen: impl Into<String>,
        goal: impl Into<String>,
        met: bool,
    ) {
        self.add(Row { what: what.into(), seen: seen.into(), goal: goal.into(), met: Some(met) });
    }

    /// A figure that has no goal.
    pub(crate) fn note(&mut self, what: impl Into<String>, seen: impl Into<String>) {
        self.add(Row { what: what.into(), seen: seen.into(), goal: String::new(), met: None });
    }

    /// Shown at once, so that a run that is interrupted leaves what it saw so far.
    fn add(&mut self, row: Row) {
        eprintln!("  {}: {}", row.what, row.seen);
        self.rows.push(row);
    }

    /// Whether no goal is missed.
    pub(crate) fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let width =
            |of: fn(&Row) -> &str| self.rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
        let (what, seen, goal) =
            (width(|row| &row.what), width(|row| &row.seen).max(4), width(|row| &row.goal).max(4));
        let mut text = format!("\n{:what$}  {:seen$}  {:goal$}\n", "FIGURE", "SEEN", "GOAL");
        for row in &self.rows {
            let met = row.met.map_or("", |met| if met { "met" } else { "MISSED" });
            let line = format!("{:what$}  {:seen$}  {:goal$}  {met}", row.what, row.seen, row.goal);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        println!("{text}");
    }
}

/// A time in the unit that suits it.
pub(crate) fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1_000.0) } else { format!("{seconds:.1} s") }
}

/// Times of the same kind.
#[derive(Default)]
pub(crate) struct Times {
    sorted: Vec<Duration>,
    /// How many had not come to their end when the measurement ended. Each is among the times with what it had taken by then.
    open: usize,
}

impl Times {
    /// Times that came to their end, and those that had not.
    pub(crate) fn of(ended: Vec<Duration>, open: Vec<Duration>) -> Self {
        let count = open.len();
        let mut sorted = ended;
        sorted.extend(open);
        sorted.sort_unstable();
        Self { sorted, open: count }
    }

    /// Whether there is any, and all came to their end.
    pub(crate) fn is_complete(&self) -> bool {
        !self.sorted.is_empty() && self.open == 0
    }

    /// The longest; zero if there is none.
    pub(crate) fn longest(&self) -> Duration {
        self.sorted.last().copied().unwrap_or_default()
    }

    /// The time that this share of them does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let place = (self.sorted.len() as f64 * share) as usize;
        self.sorted.get(place.min(self.sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// The longest and the usual ones.
    pub(crate) fn described(&self) -> String {
        let [longest, median, late] = [self.longest(), self.quantile(0.5), self.quantile(0.99)].map(shown);
        let open = if self.open == 0 { String::new() } else { format!(", {} not at all", self.open) };
        format!("{longest} (of {}, median {median}, p99 {late}{open})", self.sorted.len())
    }
}

/// The same figure of several rounds.
pub(crate) struct Spread {
    rounds: usize,
    least: f64,
    pub(crate) median: f64,
    most: f64,
}

impl Spread {
    pub(crate) fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_unstable_by(f64::total_cmp);
        let [least, median, most] = [0, rounds.len() / 2, rounds.len() - 1].map(|place| rounds[place]);
        Self { rounds: rounds.len(), least, median, most }
    }

    pub(crate) fn shown(&self, digits: usize) -> String {
        let Self { rounds, least, median, most } = self;
        format!("{median:.digits$} (median of {rounds}, {least:.digits$} to {most:.digits$})")
    }
}
