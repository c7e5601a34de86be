//! The script of a response: the path, and `delay` and `retry-after` in the query.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};
use posthaste_core::duration;

/// The response to an unknown path.
pub const PATHS: &str = "\
This is the sink of Posthaste. The path says how it answers:

  /ok                        200
  /status/503                that status
  /sequence/503,reset,200    one after the other for each webhook-id, then the last for ever
  /flaky/30                  503 for 30 % of the requests, 200 for the rest; /flaky/30/reset: reset for 30 %
  /delay/500ms               200 after a while
  /hang                      never an answer
  /reset                     the connection is reset
  /retry-after/429/5         that status with `retry-after: 5`

Where a status stands, `hang` and `reset` may stand. Any of them can be followed by ?delay=500ms and ?retry-after=5.
GET /arrivals shows what arrived, DELETE /arrivals forgets it.
";

const MAX_DELAY: Duration = Duration::from_secs(3_600);
/// Lower bound on remembered positions in sequences; at most twice as many are kept.
const POSITIONS: usize = 100_000;

/// The response to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Status(StatusCode),
    Hang,
    Reset,
}

impl Action {
    const OK: Self = Self::Status(StatusCode::OK);

    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "hang" => Some(Self::Hang),
            "reset" => Some(Self::Reset),
            status => {
                let status = status.parse().ok().filter(|status| (200..=599).contains(status))?;
                StatusCode::from_u16(status).ok().map(Self::Status)
            }
        }
    }

    pub(super) fn status(self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.as_u16()),
            Self::Hang | Self::Reset => None,
        }
    }
}

/// How an action is chosen.
#[derive(Debug, Clone, PartialEq)]
enum Choice {
    Always(Action),
    /// One after the other; never empty.
    Sequence(Vec<Action>),
    /// The action for that percentage of the requests, 200 for the rest.
    Flaky(f64, Action),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    choice: Choice,
    pub(super) delay: Option<Duration>,
    pub(super) retry_after: Option<HeaderValue>,
}

impl Script {
    /// Parses the script; `None` if the path is unknown.
    pub(super) fn read(uri: &Uri) -> Option<Self> {
        let mut script = Self { choice: Choice::Always(Action::OK), delay: None, retry_after: None };
        let path = uri.path().strip_prefix('/')?;
        match path.split_once('/') {
            None if path == "ok" => {}
            None => {
                script.choice = Choice::Always(Action::read(path).filter(|action| action.status().is_none())?)
            }
            Some(("status", action)) => script.choice = Choice::Always(Action::read(action)?),
            Some(("sequence", actions)) => {
                script.choice =
                    Choice::Sequence(actions.split(',').map(Action::read).collect::<Option<_>>()?);
            }
            Some(("flaky", rest)) => {
                let (percent, action) = rest.split_once('/').unwrap_or((rest, "503"));
                let percent = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
                script.choice = Choice::Flaky(percent, Action::read(action)?);
            }
            Some(("delay", delay)) => script.delay = Some(read_delay(delay)?),
            Some(("retry-after", rest)) => {
                let (status, value) = rest.split_once('/')?;
                script.choice = Choice::Always(Action::read(status)?);
                script.retry_after = Some(HeaderValue::from_str(value).ok()?);
            }
            Some(_) => return None,
        }
        for (key, value) in uri.query().into_iter().flat_map(|query| query.split('&')).map(pair) {
            match key {
                "delay" => script.delay = Some(read_delay(value)?),
                "retry-after" => script.retry_after = Some(HeaderValue::from_str(value).ok()?),
                // Other parameters are the receiver's own.
                _ => {}
            }
        }
        Some(script)
    }

    /// The action for the next request to this path with this `webhook-id`.
    pub(super) fn action(&self, sequences: &Sequences, path: &str, id: Option<&str>) -> Action {
        match &self.choice {
            Choice::Always(action) => *action,
            Choice::Sequence(actions) => {
                let position = sequences.next(path, id);
                actions.get(position).or(actions.last()).copied().unwrap_or(Action::OK)
            }
            Choice::Flaky(percent, action) if sequences.draw() * 100.0 < *percent => *action,
            Choice::Flaky(..) => Action::OK,
        }
    }
}

fn pair(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, ""))
}

pub(super) fn read_delay(text: &str) -> Option<Duration> {
    duration::parse(text).ok().filter(|delay| *delay <= MAX_DELAY)
}

/// The positions in sequences, and the state of the random numbers.
pub(super) struct Sequences {
    seed: u64,
    drawn: AtomicU64,
    positions: Mutex<Positions>,
}

/// Two generations, so that old positions are dropped without a search.
#[derive(Default)]
struct Positions {
    young: HashMap<u64, usize>,
    old: HashMap<u64, usize>,
}

impl Sequences {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0), positions: Mutex::default() }
    }

    pub(super) fn clear(&self) {
        *self.positions.lock().expect("no code panics while it holds the positions") = Positions::default();
    }

    /// The number of earlier requests for this path with this id.
    fn next(&self, path: &str, id: Option<&str>) -> usize {
        let mut hasher = DefaultHasher::new();
        (path, id).hash(&mut hasher);
        let key = hasher.finish();
        let mut positions = self.positions.lock().expect("no code panics while it holds the positions");
        let position = positions.young.get(&key).or_else(|| positions.old.get(&key)).copied().unwrap_or(0);
        if positions.young.len() >= POSITIONS {
            positions.old = std::mem::take(&mut positions.young);
        }
        positions.young.insert(key, position.saturating_add(1));
        position
    }

    /// The next random number in `0.0..1.0`, determined by the seed (splitmix64).
    fn draw(&self) -> f64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut bits = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Option<Script> {
        Script::read(&text.parse().unwrap())
    }

    fn actions(text: &str, sequences: &Sequences, id: &str, count: usize) -> Vec<Option<u16>> {
        let script = script(text).unwrap();
        (0..count).map(|_| script.action(sequences, text, Some(id)).status()).collect()
    }

    #[test]
    fn a_sequence_is_told_to_each_id_from_its_start() {
        let sequences = Sequences::new(0);
        let text = "/sequence/503,reset,200";
        assert_eq!(actions(text, &sequences, "a", 2), [Some(503), None]);
        assert_eq!(actions(text, &sequences, "b", 1), [Some(503)]);
        assert_eq!(actions(text, &sequences, "a", 3), [Some(200); 3]);
        sequences.clear();
        assert_eq!(actions(text, &sequences, "a", 1), [Some(503)]);
    }

    #[test]
    fn places_in_sequences_are_bounded_and_the_latest_are_kept() {
        let sequences = Sequences::new(0);
        for id in 0..POSITIONS * 3 {
            sequences.next("/", Some(&id.to_string()));
        }
        let latest = (POSITIONS * 3 - 1).to_string();
        assert_eq!(sequences.next("/", Some(&latest)), 1);
        assert_eq!(sequences.next("/", Some("0")), 0);
        let positions = sequences.positions.lock().unwrap();
        assert!(positions.young.len() + positions.old.len() <= POSITIONS * 2);
    }

    #[test]
    fn a_flaky_path_fails_about_as_often_as_told_and_the_seed_repeats_it() {
        let failures = |path: &str, seed| {
            let told = actions(path, &Sequences::new(seed), "a", 10_000);
            told.iter().filter(|status| **status != Some(200)).count()
        };
        assert!((2_800..3_200).contains(&failures("/flaky/30", 7)));
        assert_eq!(failures("/flaky/30", 7), failures("/flaky/30", 7));
        assert_eq!(failures("/flaky/0", 7), 0);
        assert_eq!(failures("/flaky/100", 7), 10_000);
    }

    #[test]
    fn delay_and_retry_after_go_with_every_path() {
        let both = script("/sequence/429,200?delay=50ms&retry-after=2&x=y").unwrap();
        assert_eq!(both.delay, Some(Duration::from_millis(50)));
        assert_eq!(both.retry_after, Some(HeaderValue::from_static("2")));
        assert_eq!(script("/delay/2s").unwrap().delay, Some(Duration::from_secs(2)));
        assert_eq!(script("/retry-after/503/9").unwrap().retry_after, Some(HeaderValue::from_static("9")));
    }

    #[test]
    fn a_path_that_says_nothing_has_no_script() {
        for text in [
            "/",
            "/nothing",
            "/503",
            "/ok/",
            "/status",
            "/status/",
            "/status/100",
            "/status/600",
            "/status/abc",
            "/sequence/",
            "/sequence/503,",
            "/sequence/503,x",
            "/flaky/101",
            "/flaky/-1",
            "/flaky/nan",
            "/flaky/30/x",
            "/delay/soon",
            "/delay/2h",
            "/retry-after/429",
            "/ok?delay=soon",
        ] {
            assert_eq!(script(text), None, "{text}");
        }
    }
}
