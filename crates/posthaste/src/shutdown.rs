//! The signals that stop the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The first signal asks for a clean stop, the second one stops at once.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on these signals no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal and returns its name. Signals of one kind that arrive before the wait count
    /// as one.
    pub async fn next(&mut self) -> &'static str {
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
        assert_eq!(signals.next().await, "SIGTERM");
        send("INT");
        assert_eq!(signals.next().await, "SIGINT");
        send("TERM");
        assert_eq!(signals.next().await, "SIGTERM");
    }
}
