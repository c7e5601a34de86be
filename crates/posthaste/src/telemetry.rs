//! Logs: one line an event, on standard error.
//!
//! Invariant: no payload, address or secret is logged. What is set here only picks lines and their look.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging, once for the process; a second call changes nothing.
pub fn start(log: &Log) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(level(log.level))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // Whoever was first keeps the floor: tests start many servers in one process.
    let _ = match log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().with_ansi(false).try_init(),
    };
}

const fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
