//! The figures of the bench: a value per round, and what it is compared with.

use std::time::Duration;

use serde::Serialize;

/// What a figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Machine,
    Sqlite,
    Postgres,
    /// The filled store: on PostgreSQL if that is measured, otherwise on SQLite.
    Filled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    /// Requests or notifications per second.
    #[serde(rename = "1/s")]
    Rate,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "ratio")]
    Ratio,
}

impl Unit {
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{value:.0}"),
            Self::Millis => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Bytes => format!("{:.0} MB", value / 1e6),
            Self::Ratio => format!("{value:.3}"),
        }
    }
}

/// Name in JSON, name in the table, unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figure(pub(super) &'static str, pub(super) &'static str, pub(super) Unit);

pub(super) const BARE: Figure = Figure("bare", "bare: sender to sink, requests/s", Unit::Rate);
pub(super) const SINGLE: Figure = Figure("single", "single sends, notifications/s", Unit::Rate);
pub(super) const BATCH: Figure = Figure("batch", "batches, notifications/s", Unit::Rate);
/// Median, 99th percentile and maximum.
pub(super) const ACCEPT: [Figure; 3] = [
    Figure("acceptP50", "accept at full load, p50", Unit::Millis),
    Figure("acceptP99", "accept at full load, p99", Unit::Millis),
    Figure("acceptMax", "accept at full load, max", Unit::Millis),
];
pub(super) const HALF_LOAD: Figure = Figure("halfLoad", "half load, notifications/s", Unit::Rate);
pub(super) const ACCEPT_HALF: [Figure; 3] = [
    Figure("acceptHalfP50", "accept at half load, p50", Unit::Millis),
    Figure("acceptHalfP99", "accept at half load, p99", Unit::Millis),
    Figure("acceptHalfMax", "accept at half load, max", Unit::Millis),
];
pub(super) const START: Figure = Figure("start", "start until ready", Unit::Seconds);
pub(super) const PEAK_MEMORY: Figure = Figure("peakMemory", "peak memory (VmHWM)", Unit::Bytes);

/// Values of the rounds, in the order in which the figures were first taken.
#[derive(Default)]
pub(super) struct Figures(pub(super) Vec<(Subject, Figure, Vec<f64>)>);

impl Figures {
    /// Adds a value of this round.
    pub(super) fn note(&mut self, subject: Subject, figure: Figure, value: f64) {
        match self.0.iter_mut().find(|(of, what, _)| (*of, *what) == (subject, figure)) {
            Some((_, _, values)) => values.push(value),
            None => self.0.push((subject, figure, vec![value])),
        }
    }

    /// Adds median, 99th percentile and maximum of this round's times.
    pub(super) fn note_times(&mut self, subject: Subject, figures: [Figure; 3], mut times: Vec<Duration>) {
        times.sort_unstable();
        for (figure, share) in figures.into_iter().zip([0.5, 0.99, 1.0]) {
            // The nearest rank.
            let rank = (share * times.len() as f64).ceil() as usize;
            if let Some(time) = times.get(rank.saturating_sub(1)) {
                self.note(subject, figure, time.as_secs_f64() * 1e3);
            }
        }
    }

    pub(super) fn spread(&self, subject: Subject, figure: Figure) -> Option<Spread> {
        Spread::of(self.values(subject, figure)?.to_vec())
    }

    /// The ratios to the bare rate of the same round.
    pub(super) fn to_bare(&self, subject: Subject, figure: Figure) -> Option<Spread> {
        self.ratios(self.values(subject, figure)?, self.values(Subject::Machine, BARE)?, figure)
    }

    /// The ratios of the filled store to the empty one in the same round.
    pub(super) fn to_empty(&self, subject: Subject, figure: Figure) -> Option<Spread> {
        let filled = self.values(subject, figure).filter(|_| subject == Subject::Filled)?;
        let empty = self.values(Subject::Postgres, figure).or_else(|| self.values(Subject::Sqlite, figure));
        self.ratios(filled, empty?, figure)
    }

    /// Only rates are compared.
    fn ratios(&self, values: &[f64], base: &[f64], figure: Figure) -> Option<Spread> {
        let ratios = values.iter().zip(base).map(|(value, base)| value / base);
        if [SINGLE, BATCH].contains(&figure) { Spread::of(ratios.collect()) } else { None }
    }

    fn values(&self, subject: Subject, figure: Figure) -> Option<&[f64]> {
        let found = self.0.iter().find(|(of, what, _)| (*of, *what) == (subject, figure));
        found.map(|(_, _, values)| &values[..])
    }
}

/// Median, minimum and maximum of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max, middle) = (*values.first()?, *values.last()?, values.len() / 2);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[middle]);
        Some(Self { median, min, max })
    }

    pub(super) fn show(&self, unit: Unit) -> String {
        format!("{}..{}", unit.show(self.min), unit.show(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        for (count, wanted) in [(100, [50.0, 99.0, 100.0]), (1, [1.0; 3])] {
            let mut figures = Figures::default();
            let times = (1..=count).rev().map(Duration::from_millis).collect();
            figures.note_times(Subject::Sqlite, ACCEPT, times);
            assert_eq!(ACCEPT.map(|figure| figures.values(Subject::Sqlite, figure).unwrap()[0]), wanted);
        }
    }

    #[test]
    fn ratios_are_those_of_their_own_round() {
        let mut figures = Figures::default();
        for (bare, single, filled) in [(100.0, 10.0, 5.0), (50.0, 10.0, 10.0), (100.0, 30.0, 60.0)] {
            figures.note(Subject::Machine, BARE, bare);
            figures.note(Subject::Sqlite, SINGLE, single);
            figures.note(Subject::Filled, SINGLE, filled);
        }
        let seen = figures.to_bare(Subject::Sqlite, SINGLE).unwrap();
        assert_eq!(seen, Spread { median: 0.2, min: 0.1, max: 0.3 });
        let seen = figures.to_empty(Subject::Filled, SINGLE).unwrap();
        assert_eq!(seen, Spread { median: 1.0, min: 0.5, max: 2.0 });
        assert_eq!(figures.to_empty(Subject::Sqlite, SINGLE), None);
    }
}
