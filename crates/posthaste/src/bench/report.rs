//! The report: figures and goals. What is printed as JSON and as a table is the same.

use std::path::Path;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Settings;
use super::figures::{BATCH, Figure, Figures, PEAK_MEMORY, SINGLE, START, Spread, Subject, Unit};
use super::load::{BODY, Failures, UNDER_WAY};

const PROFILE: &str = if cfg!(debug_assertions) { "dev" } else { "release" };

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    version: &'static str,
    profile: &'static str,
    machine: Machine,
    /// Version and settings of PostgreSQL.
    postgres: Option<String>,
    settings: Value,
    #[serde(serialize_with = "by_key")]
    figures: Vec<Row>,
    failed_requests: Failures,
    targets: Vec<Target>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    /// Whether the SQLite files are in memory, where fsync costs nothing.
    in_memory: bool,
}

impl Machine {
    pub(super) fn look(directory: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()));
        // The magic numbers of tmpfs and ramfs (statfs(2)).
        let in_memory = rustix::fs::statfs(directory)
            .is_ok_and(|system| [0x0102_1994, 0x8584_58f6].contains(&(system.f_type as u64)));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor.unwrap_or_else(|| "unknown".to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            in_memory,
        }
    }
}

/// A figure of all rounds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(skip)]
    key: String,
    #[serde(skip)]
    name: String,
    #[serde(flatten)]
    spread: Spread,
    unit: Unit,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_bare: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_empty: Option<Spread>,
}

fn by_key<S: Serializer>(rows: &[Row], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().map(|row| (&row.key, row)))
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
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
}

/// Goals of rates are ratios: of the filled store to the empty one, of the others to the bare rate.
const GOALS: &[(Subject, Figure, Goal)] = &[
    (Subject::Sqlite, SINGLE, Goal::AtLeast(0.15)),
    (Subject::Sqlite, BATCH, Goal::AtLeast(0.30)),
    (Subject::Sqlite, START, Goal::Below(2.0)),
    (Subject::Sqlite, PEAK_MEMORY, Goal::Below(200e6)),
    (Subject::Postgres, SINGLE, Goal::AtLeast(0.08)),
    (Subject::Postgres, BATCH, Goal::AtLeast(0.15)),
    (Subject::Postgres, START, Goal::Below(2.0)),
    (Subject::Postgres, PEAK_MEMORY, Goal::Below(200e6)),
    (Subject::Filled, SINGLE, Goal::AtLeast(0.80)),
    (Subject::Filled, BATCH, Goal::AtLeast(0.80)),
    (Subject::Filled, START, Goal::Below(2.0)),
    (Subject::Filled, PEAK_MEMORY, Goal::Below(200e6)),
];

/// A goal and the measured value.
#[derive(Serialize)]
struct Target {
    name: String,
    unit: Unit,
    value: f64,
    goal: Goal,
    met: bool,
}

impl Target {
    /// `None` if the figure was not measured.
    fn of(figures: &Figures, (subject, figure, goal): (Subject, Figure, Goal)) -> Option<Self> {
        let (to_bare, to_empty) = (figures.to_bare(subject, figure), figures.to_empty(subject, figure));
        let (more, unit, spread) = match (to_empty, to_bare) {
            (Some(spread), _) => (" to empty", Unit::Ratio, spread),
            (None, Some(spread)) => (" to bare", Unit::Ratio, spread),
            (None, None) => ("", figure.2, figures.spread(subject, figure)?),
        };
        let (name, value) = (format!("{}{more}", named(subject, figure)), spread.median);
        Some(Self { name, unit, value, goal, met: goal.is_met(value) })
    }
}

fn named(subject: Subject, figure: Figure) -> String {
    let word = match subject {
        Subject::Machine | Subject::Sqlite => "",
        Subject::Postgres => "PostgreSQL: ",
        Subject::Filled => "filled store: ",
    };
    format!("{word}{}", figure.1)
}

/// The key of a figure in JSON.
fn key(subject: Subject, name: &str) -> String {
    let prefix = match subject {
        Subject::Machine | Subject::Sqlite => return name.to_owned(),
        Subject::Postgres => "postgres",
        Subject::Filled => "filled",
    };
    format!("{prefix}{}{}", name[..1].to_uppercase(), &name[1..])
}

impl Report {
    pub(super) fn new(
        settings: &Settings,
        machine: Machine,
        postgres: Option<String>,
        mut figures: Figures,
        failed_requests: Failures,
    ) -> Self {
        figures.0.sort_by_key(|(subject, _, _)| *subject);
        let row = |(subject, figure, _): &(Subject, Figure, Vec<f64>)| {
            Some(Row {
                key: key(*subject, figure.0),
                name: named(*subject, *figure),
                spread: figures.spread(*subject, *figure)?,
                unit: figure.2,
                ratio_to_bare: figures.to_bare(*subject, *figure),
                ratio_to_empty: figures.to_empty(*subject, *figure),
            })
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            profile: PROFILE,
            machine,
            postgres,
            settings: json!({
                "seconds": settings.time.as_secs(), "rounds": settings.rounds, "rows": settings.rows,
                "connections": settings.connections, "batch": settings.batch,
                "batchConnections": settings.batch_connections(), "mostUnderWay": UNDER_WAY,
                "bodyBytes": BODY.len(), "fsync": true,
            }),
            targets: GOALS.iter().filter_map(|goal| Target::of(&figures, *goal)).collect(),
            figures: figures.0.iter().filter_map(row).collect(),
            failed_requests,
        }
    }

    /// Rows of name, median, spread, ratio to the bare rate and ratio to the empty store.
    pub(crate) fn figures(&self) -> Vec<[String; 5]> {
        let ratio = |ratio: &Option<Spread>| {
            let shown = ratio.map(|ratio| format!("{:.3} ({})", ratio.median, ratio.show(Unit::Ratio)));
            shown.unwrap_or_default()
        };
        let line = |Row { name, spread, unit, ratio_to_bare, ratio_to_empty, .. }: &Row| {
            let (median, spread) = (unit.show(spread.median), spread.show(*unit));
            [name.clone(), median, spread, ratio(ratio_to_bare), ratio(ratio_to_empty)]
        };
        self.figures.iter().map(line).collect()
    }

    /// Rows of goal, demanded value, measured value, and whether it is met.
    pub(crate) fn goals(&self) -> Vec<[String; 4]> {
        let line = |Target { name, unit, value, goal, met }: &Target| {
            let demanded = match goal {
                Goal::AtLeast(least) => format!("at least {}", unit.show(*least)),
                Goal::Below(most) => format!("below {}", unit.show(*most)),
            };
            let met = if *met { "met" } else { "NOT MET" };
            [name.clone(), demanded, unit.show(*value), met.to_owned()]
        };
        self.targets.iter().map(line).collect()
    }

    /// Warnings about the run.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let slow =
            "the SQLite files were in memory, where fsync costs nothing: use `--directory` with a disk";
        let debug = "this is a debug build: measure one of `cargo build --release`";
        let warnings = [(self.machine.in_memory, slow), (PROFILE != "release", debug)];
        let warnings = warnings.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text.to_owned());
        self.failed_requests.text().into_iter().chain(warnings).collect()
    }

    pub(crate) fn machine(&self) -> String {
        let Machine { cores, processor, kernel, .. } = &self.machine;
        let text = format!("{cores} cores, {processor}, Linux {kernel}");
        self.postgres.iter().fold(text, |text, postgres| format!("{text}\n{postgres}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_from_its_bound_on_or_below_it() {
        assert!(Goal::AtLeast(0.15).is_met(0.15) && !Goal::AtLeast(0.15).is_met(0.149));
        assert!(Goal::Below(2.0).is_met(1.9) && !Goal::Below(2.0).is_met(2.0));
    }
}
