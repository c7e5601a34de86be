//! The `process_*` figures, read from `/proc` at each scrape. What a system does not tell is left out.

use std::fs;
use std::sync::OnceLock;

use rustix::param::{clock_ticks_per_second, page_size};

/// One figure with its description.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    pub(super) value: f64,
}

pub(super) fn figures() -> Vec<Figure> {
    let stat = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text));
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    let most = fs::read_to_string("/proc/self/limits").ok().and_then(|text| max_files(&text));
    let gauge =
        |name, help, value: Option<f64>| value.map(|value| Figure { name, kind: "gauge", help, value });
    let cpu = stat.map(|stat| Figure {
        name: "process_cpu_seconds_total",
        kind: "counter",
        help: "Processor time of this process",
        value: stat.cpu_ticks / ticks(),
    });
    let resident = stat.map(|stat| stat.resident_pages * whole(page_size() as u64));
    [
        cpu,
        gauge("process_resident_memory_bytes", "Memory of this process that is in RAM", resident),
        gauge("process_open_fds", "Open files and sockets", open.map(|count| whole(count as u64))),
        gauge("process_max_fds", "How many files and sockets may be open", most),
        gauge("process_start_time_seconds", "Start of this process, since 1970", start_time(stat)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The fields of `/proc/self/stat` that are shown.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    /// Since the start of the system.
    start_ticks: f64,
    resident_pages: f64,
}

impl Stat {
    /// The name of the program comes second, in brackets, and may contain anything. The field after it is the
    /// third.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, start_ticks: field(22)?, resident_pages: field(24)? })
    }
}

/// The soft limit; `unlimited` is no number.
fn max_files(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// It does not change, and `/proc/stat` is long on a machine with many processors.
fn start_time(stat: Option<Stat>) -> Option<f64> {
    static START: OnceLock<Option<f64>> = OnceLock::new();
    *START.get_or_init(|| {
        let booted = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text))?;
        Some(booted + stat?.start_ticks / ticks())
    })
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn ticks() -> f64 {
    whole(clock_ticks_per_second()).max(1.0)
}

/// Exact up to 2^53, which no figure here comes near.
#[expect(clippy::cast_precision_loss, reason = "the figures are far below 2^53")]
const fn whole(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let rest = (3..=52).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let wanted = Stat { cpu_ticks: 29.0, start_ticks: 22.0, resident_pages: 24.0 };
        for name in ["posthaste", "a b", ") 1 2 (", ""] {
            assert_eq!(Stat::parse(&format!("17 ({name}) {rest}\n")), Some(wanted), "{name}");
        }
        assert_eq!((Stat::parse(""), Stat::parse("1 (a) S 2")), (None, None));
    }

    #[test]
    fn limits_and_the_start_of_the_system_are_found_in_their_lines() {
        assert_eq!(
            max_files("Max cpu time  1 2 s\nMax open files            1024   4096  files\n"),
            Some(1024.0)
        );
        assert_eq!(max_files("Max open files            unlimited   unlimited  files\n"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1750000000\nprocesses 5\n"), Some(1_750_000_000.0));
        assert_eq!(boot_time("cpu 1 2\n"), None);
    }

    #[test]
    fn the_figures_of_this_process_can_be_true() {
        let all = figures();
        let value =
            |name: &str| all.iter().find(|figure| figure.name == name).map_or(0.0, |figure| figure.value);
        assert_eq!(all.len(), 5, "{all:?}");
        assert!(value("process_resident_memory_bytes") > 100_000.0, "{all:?}");
        assert!(
            value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"),
            "{all:?}"
        );
        assert!(value("process_start_time_seconds") > 1_700_000_000.0, "{all:?}");
    }
}
