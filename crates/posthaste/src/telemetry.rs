//! Logs: one line per event, on standard error.
//!
//! Invariant: payloads, addresses and secrets are not logged. The settings here only select lines and their
//! format.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging, once per process. A second call changes nothing.
pub fn start(log: &Log) {
    let colours = if io::stderr().is_terminal() { Colours::On } else { Colours::Off };
    // It fails if logging has started already: tests start many servers in one process.
    let _ = tracing::subscriber::set_global_default(lines(log, colours, io::stderr));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colours {
    On,
    Off,
}

fn lines<W>(log: &Log, colours: Colours, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_max_level(level(log.level)).with_writer(writer);
    match log.format {
        LogFormat::Text => Box::new(lines.with_ansi(colours == Colours::On).finish().with(without_pool())),
        LogFormat::Json => {
            Box::new(lines.json().flatten_event(true).with_ansi(false).finish().with(without_pool()))
        }
    }
}

/// The pool logs every connection that ends. Ours is one line for all of them.
fn without_pool<S: Subscriber>() -> impl Layer<S> {
    filter_fn(|event| !event.target().starts_with("deadpool"))
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(log: Log) -> String {
        let page = Page::default();
        let writer = page.clone();
        tracing::subscriber::with_default(lines(&log, Colours::Off, move || writer.clone()), || {
            tracing::debug!("why");
            tracing::info!(node = 7, "joined");
            tracing::error!("broken");
            tracing::error!(target: "deadpool.postgres", "a connection ended");
        });
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_level_picks_the_lines() {
        let lines = |level| written(Log { level, format: LogFormat::Text }).lines().count();
        assert_eq!(lines(LogLevel::Error), 1);
        assert_eq!(lines(LogLevel::Info), 2);
        assert_eq!(lines(LogLevel::Trace), 3);
        assert!(!written(Log { level: LogLevel::Info, format: LogFormat::Text }).contains('\u{1b}'));
    }

    #[test]
    fn json_is_one_object_a_line_with_the_fields_of_the_event() {
        let text = written(Log { level: LogLevel::Info, format: LogFormat::Json });
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["message"], &first["level"], &first["node"]),
            (&"joined".into(), &"INFO".into(), &7.into())
        );
    }

    #[test]
    fn starting_twice_is_no_mistake() {
        let log = Log { level: LogLevel::Error, format: LogFormat::Text };
        start(&log);
        start(&log);
    }
}
