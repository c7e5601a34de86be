//! The provider of the kind `log`: prints what it is given, for trying things out. It can be told to fail.
//!
//! Invariant: nothing is printed but through the writer that the wiring gives. Logs hold no address and no payload; this
//! output does, and is kept apart from them.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::thread;

use async_trait::async_trait;
use posthaste_core::notification::{Body, Notification};
use posthaste_core::reply::{Fault, Reply};
use posthaste_engine::channel::{Channel, Delivery};
use tokio::sync::{mpsc, oneshot};

use crate::printable::printable;

/// How many texts may wait for the writer.
const MAX_WAITING: usize = 64;

/// Writes texts one after the other, on a thread of its own: the writer may block, such as a pipe that nobody reads.
#[derive(Clone)]
pub struct Printer {
    queue: mpsc::Sender<Print>,
}

struct Print {
    text: String,
    done: oneshot::Sender<io::Result<()>>,
}

impl Printer {
    /// Starts the thread. It ends with the last clone of the printer.
    pub fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, mut waiting) = mpsc::channel::<Print>(MAX_WAITING);
        let print = move || {
            while let Some(Print { text, done }) = waiting.blocking_recv() {
                let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                // Whoever asked may have stopped waiting.
                let _ = done.send(printed);
            }
        };
        thread::Builder::new().name("printer".to_owned()).spawn(print)?;
        Ok(Self { queue })
    }

    async fn print(&self, text: String) -> io::Result<()> {
        let (done, is_done) = oneshot::channel();
        let ended = || io::Error::other("the printer has ended");
        self.queue.send(Print { text, done }).await.map_err(|_| ended())?;
        is_done.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// A provider that prints.
pub struct LogProvider {
    printer: Printer,
    /// The code with which it refuses everything.
    fail: Option<String>,
}

impl LogProvider {
    pub const fn new(printer: Printer, fail: Option<String>) -> Self {
        Self { printer, fail }
    }
}

#[async_trait]
impl Channel for LogProvider {
    async fn send(&self, delivery: Delivery) -> Reply {
        let text = shown(&delivery, self.fail.as_deref());
        if let Err(error) = self.printer.print(text).await {
            return Reply::fault(Fault::Reset, format!("cannot print: {error}"));
        }
        match &self.fail {
            None => Reply::taken(format!("log-{}-{}", delivery.notification.id, delivery.attempt)),
            Some(code) => Reply::refused(code.clone(), "this provider was told to fail"),
        }
    }
}

/// The notification as it is printed: a line with where it goes, then its content, indented. No control character of the
/// sender gets to a terminal.
fn shown(delivery: &Delivery, fail: Option<&str>) -> String {
    let Notification { id, channel, to, subject, content, .. } = &*delivery.notification;
    let provider = delivery.route.provider().map_or("log", |provider| &provider.name);
    let refused = fail.map(|code| format!(", refused: {code}")).unwrap_or_default();
    let to = one_line(to);
    let mut text = format!("[{provider}] {channel} to {to} ({id}, attempt {}{refused})\n", delivery.attempt);
    if let Some(subject) = subject {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  subject: {}", one_line(subject));
    }
    let (Body::Text(body) | Body::Json(body)) = &content.body;
    for line in printable(body.as_bytes()).lines() {
        let _ = writeln!(text, "  {}", one_line(line));
    }
    text
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
