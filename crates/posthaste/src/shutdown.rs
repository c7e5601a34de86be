//! What asks the program to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for an end: the first one for an orderly end, the second for an end at once.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen; from here on these signals no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for a signal that nobody has been told of yet, and answers its name. Signals of one kind that arrive
    /// before anyone waits count as one.
    pub async fn first(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use super::*;

    fn send(signal: &str) {
        let kill = format!("kill -{signal} {}", id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    #[tokio::test]
    async fn the_first_signal_and_the_second_are_both_heard() {
        let mut signals = Signals::listen().unwrap();
        send("TERM");
        assert_eq!(signals.first().await, "SIGTERM");
        send("INT");
        assert_eq!(signals.first().await, "SIGINT");
        send("TERM");
        assert_eq!(signals.first().await, "SIGTERM");
    }
}
