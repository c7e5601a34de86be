//! The dial: what the sink answers in place of what a path says, for so many requests.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::script::{Action, read_delay};

/// The most requests that a dial may be set for.
const MOST: u32 = 1_000_000;

/// How requests are answered while it is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dial {
    /// None: as the path says.
    action: Option<Action>,
    delay: Option<Duration>,
    /// For how many more requests; none for ever.
    left: Option<u32>,
}

/// A dial that cannot be set so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadDial {
    #[error("the answer must be a status from 200 to 599, reset, hang or path, not something else")]
    Answer,
    #[error("the delay must be a duration of at most an hour, such as 500ms or 5s")]
    Delay,
    #[error("how often must be a number from 1 to 1,000,000")]
    Times,
}

impl Dial {
    /// From texts. The answer is a status, `reset`, `hang`, or `path` for what the path says.
    pub fn read(answer: &str, delay: Option<&str>, times: Option<&str>) -> Result<Self, BadDial> {
        let action = match answer {
            "path" => None,
            other => Some(Action::read(other).ok_or(BadDial::Answer)?),
        };
        let delay = delay.map(|delay| read_delay(delay).ok_or(BadDial::Delay)).transpose()?;
        let number = |times: &str| times.parse().ok().filter(|times| (1..=MOST).contains(times));
        let left = times.map(|times| number(times).ok_or(BadDial::Times)).transpose()?;
        Ok(Self { action, delay, left })
    }

    pub(super) fn action(&self) -> Option<Action> {
        self.action
    }

    pub(super) fn delay(&self) -> Option<Duration> {
        self.delay
    }
}

/// `503 after 2 s, for 3 more requests`.
impl fmt::Display for Dial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            None => out.write_str("what the path says")?,
            Some(Action::Status(status)) => write!(out, "{}", status.as_u16())?,
            Some(Action::Reset) => out.write_str("a reset connection")?,
            Some(Action::Hang) => out.write_str("no answer at all")?,
        }
        if let Some(delay) = self.delay {
            write!(out, " after {} ms", delay.as_millis())?;
        }
        match self.left {
            None => Ok(()),
            Some(1) => out.write_str(", for one more request"),
            Some(left) => write!(out, ", for {left} more requests"),
        }
    }
}

/// The dial of a sink.
#[derive(Default)]
pub(super) struct Dials(Mutex<Option<Dial>>);

impl Dials {
    pub(super) fn set(&self, dial: Option<Dial>) {
        *self.lock() = dial;
    }

    pub(super) fn get(&self) -> Option<Dial> {
        *self.lock()
    }

    /// The dial for the next request, which uses it once.
    pub(super) fn take(&self) -> Option<Dial> {
        let mut set = self.lock();
        let dial = (*set)?;
        match dial.left {
            Some(0 | 1) => *set = None,
            Some(left) => *set = Some(Dial { left: Some(left - 1), ..dial }),
            None => {}
        }
        Some(dial)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Dial>> {
        self.0.lock().expect("no code panics while it holds the dial")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dial_holds_for_so_many_requests() {
        let dials = Dials::default();
        assert_eq!(dials.take(), None);
        dials.set(Some(Dial::read("503", Some("2s"), Some("2")).unwrap()));
        assert_eq!(dials.get().unwrap().to_string(), "503 after 2000 ms, for 2 more requests");
        let taken = [dials.take(), dials.take(), dials.take()];
        assert_eq!(
            taken.map(|dial| dial.and_then(|dial| dial.action()?.status())),
            [Some(503), Some(503), None]
        );
        dials.set(Some(Dial::read("reset", None, None).unwrap()));
        assert!((0..10).all(|_| dials.take().is_some()));
        assert_eq!(dials.get().unwrap().to_string(), "a reset connection");
    }

    #[test]
    fn what_no_dial_can_be_set_to_is_said() {
        for (answer, delay, times, wanted) in [
            ("600", None, None, BadDial::Answer),
            ("", None, None, BadDial::Answer),
            ("503", Some("2h"), None, BadDial::Delay),
            ("503", Some("soon"), None, BadDial::Delay),
            ("503", None, Some("0"), BadDial::Times),
            ("path", None, Some("-1"), BadDial::Times),
        ] {
            assert_eq!(Dial::read(answer, delay, times), Err(wanted), "{answer} {delay:?} {times:?}");
        }
        assert!(Dial::read("path", Some("1s"), Some("1000000")).is_ok());
    }
}
