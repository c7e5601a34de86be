//! The report: figures and goals, as text and as JSON.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Map, Value, json};

use super::Settings;
use super::figure::{Figure, Unit};
use super::load::Failures;
use super::machine::Machine;
use super::place::Whose;
use super::{UNDER_WAY, letter};

/// A value per round for each figure.
#[derive(Default)]
pub(super) struct Figures(BTreeMap<(Whose, Figure), Vec<f64>>);

impl Figures {
    /// Adds a value of this round.
    pub(super) fn note(&mut self, whose: Whose, figure: Figure, value: f64) {
        self.0.entry((whose, figure)).or_default().push(value);
    }

    /// Adds median, 99th percentile and maximum of this round's values.
    pub(super) fn note_spread(
        &mut self,
        whose: Whose,
        figures: [Figure; 3],
        mut values: Vec<f64>,
    ) -> anyhow::Result<()> {
        ensure!(!values.is_empty(), "no values for {}", figures[0].described().1);
        values.sort_by(f64::total_cmp);
        for (figure, share) in figures.into_iter().zip([0.5, 0.99, 1.0]) {
            self.note(whose, figure, quantile(&values, share));
        }
        Ok(())
    }

    fn spread(&self, whose: Whose, figure: Figure) -> Option<Spread> {
        Spread::of(self.0.get(&(whose, figure))?)
    }

    /// The shares of the bare rate of the same round.
    fn against_bare(&self, whose: Whose, figure: Figure) -> Option<Spread> {
        let (values, bare) = (self.0.get(&(whose, figure))?, self.0.get(&(Whose::Machine, Figure::Bare))?);
        let shares: Vec<f64> = values.iter().zip(bare).map(|(value, bare)| value / bare).collect();
        Spread::of(&shares)
    }
}

/// The quantile by the nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Median, minimum and maximum of the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, min, max })
    }

    fn json(self) -> Map<String, Value> {
        let fields = [("median", self.median), ("min", self.min), ("max", self.max)];
        fields.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    AtLeast(f64),
    Below(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::Below(most) => value < most,
        }
    }

    fn show(self, unit: Unit) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {}", unit.show(least)),
            Self::Below(most) => format!("below {}", unit.show(most)),
        }
    }
}

/// A goal and the measured value.
struct Target {
    name: String,
    unit: Unit,
    value: f64,
    goal: Goal,
}

pub(crate) struct Report {
    pub(super) machine: Machine,
    /// Version and settings of PostgreSQL.
    pub(super) postgres: Option<String>,
    pub(super) settings: Settings,
    pub(super) figures: Figures,
    pub(super) failures: Failures,
}

impl Report {
    pub(crate) fn json(&self) -> Value {
        let mut figures = Map::new();
        for (whose, figure) in self.figures.0.keys().copied() {
            let Some(spread) = self.figures.spread(whose, figure) else { continue };
            let (name, _, unit) = figure.described();
            let mut shown = spread.json();
            shown.insert("unit".to_owned(), json!(unit.name()));
            if let Some(shares) = self.shares(whose, figure) {
                shown.insert("ratioToBare".to_owned(), Value::Object(shares.json()));
            }
            figures.insert(whose.key(name), Value::Object(shown));
        }
        let targets = self.targets().into_iter().map(|target| {
            let goal = match target.goal {
                Goal::AtLeast(least) => json!({"atLeast": least}),
                Goal::Below(most) => json!({"below": most}),
            };
            let met = target.goal.is_met(target.value);
            json!({
                "name": target.name, "unit": target.unit.name(), "value": target.value, "goal": goal, "met": met,
            })
        });
        let (settings, failures) = (&self.settings, &self.failures);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "profile": PROFILE,
            "machine": self.machine.json(),
            "postgres": self.postgres,
            "settings": {
                "seconds": settings.time.as_secs(), "rounds": settings.rounds, "rows": settings.rows,
                "connections": settings.connections, "batch": settings.batch,
                "batchConnections": settings.batch_connections(), "mostUnderWay": UNDER_WAY,
                "bodyBytes": letter::BODY.len(), "fsync": true,
            },
            "figures": figures,
            "failedRequests": {
                "notAccepted": failures.refused, "brokenOff": failures.broken, "first": failures.first,
            },
            "targets": targets.collect::<Vec<_>>(),
        })
    }

    /// Rows of name, median, spread and share of the bare rate.
    pub(crate) fn figures(&self) -> Vec<[String; 4]> {
        let line = |(whose, figure): (Whose, Figure)| {
            let spread = self.figures.spread(whose, figure)?;
            let (_, name, unit) = figure.described();
            let share = self.shares(whose, figure);
            let share = share.map(|s| format!("{:.3} ({:.3}..{:.3})", s.median, s.min, s.max));
            let (min, max) = (unit.show(spread.min), unit.show(spread.max));
            Some([
                self.named(whose, name),
                unit.show(spread.median),
                format!("{min}..{max}"),
                share.unwrap_or_default(),
            ])
        };
        self.figures.0.keys().copied().filter_map(line).collect()
    }

    /// Rows of goal, demanded value, measured value, and whether it is met.
    pub(crate) fn goals(&self) -> Vec<[String; 4]> {
        let line = |target: Target| {
            let met = if target.goal.is_met(target.value) { "met" } else { "NOT MET" };
            [target.name, target.goal.show(target.unit), target.unit.show(target.value), met.to_owned()]
        };
        self.targets().into_iter().map(line).collect()
    }

    /// Warnings about the run.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![];
        let failed = self.failures.refused + self.failures.broken;
        if failed > 0 {
            let first = self.failures.first.as_deref().unwrap_or("");
            remarks.push(format!("{failed} requests failed; the first: {first}"));
        }
        if !self.machine.has_disk() {
            let kind = &self.machine.filesystem;
            remarks.push(format!(
                "the store was on {kind}, where fsync costs nothing: use `--store` with a file on a disk"
            ));
        }
        if PROFILE != "release" {
            remarks.push("this is a debug build: measure one of `cargo build --release`".to_owned());
        }
        remarks
    }

    pub(crate) fn machine(&self) -> String {
        let Machine { cores, processor, kernel, filesystem } = &self.machine;
        let mut text = format!("{cores} cores, {processor}, Linux {kernel}, {filesystem}");
        if let Some(postgres) = &self.postgres {
            text.push_str(&format!("\n{postgres}"));
        }
        text
    }

    /// Adds the subject if both stores are measured.
    fn named(&self, whose: Whose, name: &str) -> String {
        let word = if self.postgres.is_some() { whose.word() } else { "" };
        format!("{word}{name}")
    }

    fn shares(&self, whose: Whose, figure: Figure) -> Option<Spread> {
        if figure.is_against_bare() { self.figures.against_bare(whose, figure) } else { None }
    }

    fn targets(&self) -> Vec<Target> {
        let own = [(Whose::Sqlite, SQLITE_GOALS), (Whose::Postgres, POSTGRES_GOALS)];
        let goals = own.into_iter().flat_map(|(whose, goals)| {
            goals.iter().chain(COMMON_GOALS).map(move |(figure, goal)| (whose, *figure, *goal))
        });
        let seen = goals.filter_map(|(whose, figure, goal)| {
            let (_, name, unit) = figure.described();
            let name = self.named(whose, name);
            Some(match self.shares(whose, figure) {
                Some(shares) => {
                    Target { name: format!("{name} to bare"), unit: Unit::Share, value: shares.median, goal }
                }
                None => Target { name, unit, value: self.figures.spread(whose, figure)?.median, goal },
            })
        });
        seen.collect()
    }
}

/// Goals for rates are shares of the bare rate.
const SQLITE_GOALS: &[(Figure, Goal)] =
    &[(Figure::Single, Goal::AtLeast(0.15)), (Figure::Batch, Goal::AtLeast(0.30))];

const POSTGRES_GOALS: &[(Figure, Goal)] = &[
    (Figure::Single, Goal::AtLeast(0.08)),
    (Figure::Batch, Goal::AtLeast(0.15)),
    (Figure::TwoToOneSingle, Goal::AtLeast(0.95)),
    (Figure::TwoToOneBatch, Goal::AtLeast(0.95)),
];

const COMMON_GOALS: &[(Figure, Goal)] = &[
    (Figure::LateP99, Goal::Below(100.0)),
    (Figure::Start, Goal::Below(2.0)),
    (Figure::PeakMemory, Goal::Below(200e6)),
    (Figure::FilledToEmptySingle, Goal::AtLeast(0.80)),
    (Figure::FilledToEmptyBatch, Goal::AtLeast(0.80)),
    (Figure::FilledStart, Goal::Below(2.0)),
    (Figure::FilledPeakMemory, Goal::Below(200e6)),
];

const PROFILE: &str = if cfg!(debug_assertions) { "dev" } else { "release" };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_seen() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| quantile(&hundred, share)), [50.0, 99.0, 100.0]);
        assert_eq!([0.5, 0.99, 1.0].map(|share| quantile(&[7.0], share)), [7.0; 3]);
    }

    #[test]
    fn shares_are_those_of_their_own_round() {
        let mut figures = Figures::default();
        for (bare, single) in [(100.0, 10.0), (50.0, 10.0), (100.0, 30.0)] {
            figures.note(Whose::Machine, Figure::Bare, bare);
            figures.note(Whose::Sqlite, Figure::Single, single);
        }
        let shares = figures.against_bare(Whose::Sqlite, Figure::Single).unwrap();
        assert_eq!(shares, Spread { median: 0.2, min: 0.1, max: 0.3 });
    }

    #[test]
    fn a_goal_is_met_from_its_bound_on_or_below_it() {
        assert!(Goal::AtLeast(0.15).is_met(0.15) && !Goal::AtLeast(0.15).is_met(0.149));
        assert!(Goal::Below(2.0).is_met(1.9) && !Goal::Below(2.0).is_met(2.0));
    }
}
