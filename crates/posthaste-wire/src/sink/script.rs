//! How the sink is told to answer: by the path, and by `delay` and `retry-after` in the query.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};
use posthaste_core::duration;

/// What the sink says to a path that it does not know.
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

/// The longest delay that is waited.
const LONGEST_DELAY: Duration = Duration::from_secs(3_600);
/// How many places in sequences are remembered at least; at most twice as many are.
const PLACES: usize = 100_000;

/// What is done about one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Status(StatusCode),
    Hang,
    Reset,
}

impl Step {
    const OK: Self = Self::Status(StatusCode::OK);

    fn read(text: &str) -> Option<Self> {
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

/// How a step is chosen.
#[derive(Debug, Clone, PartialEq)]
enum Choice {
    Always(Step),
    /// One after the other; never empty.
    Sequence(Vec<Step>),
    /// The step for that share of the requests, 200 for the rest.
    Flaky(f64, Step),
}

/// How a request is answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    choice: Choice,
    pub(super) delay: Option<Duration>,
    pub(super) retry_after: Option<HeaderValue>,
}

impl Script {
    /// Reads the script; `None` if there is none in it.
    pub(super) fn read(uri: &Uri) -> Option<Self> {
        let mut script = Self { choice: Choice::Always(Step::OK), delay: None, retry_after: None };
        let path = uri.path().strip_prefix('/')?;
        match path.split_once('/') {
            None if path == "ok" => {}
            None => script.choice = Choice::Always(Step::read(path).filter(|step| step.status().is_none())?),
            Some(("status", step)) => script.choice = Choice::Always(Step::read(step)?),
            Some(("sequence", steps)) => {
                script.choice = Choice::Sequence(steps.split(',').map(Step::read).collect::<Option<_>>()?);
            }
            Some(("flaky", rest)) => {
                let (percent, step) = rest.split_once('/').unwrap_or((rest, "503"));
                let percent = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
                script.choice = Choice::Flaky(percent, Step::read(step)?);
            }
            Some(("delay", delay)) => script.delay = Some(read_delay(delay)?),
            Some(("retry-after", rest)) => {
                let (status, value) = rest.split_once('/')?;
                script.choice = Choice::Always(Step::read(status)?);
                script.retry_after = Some(HeaderValue::from_str(value).ok()?);
            }
            Some(_) => return None,
        }
        for (key, value) in uri.query().into_iter().flat_map(|query| query.split('&')).map(pair) {
            match key {
                "delay" => script.delay = Some(read_delay(value)?),
                "retry-after" => script.retry_after = Some(HeaderValue::from_str(value).ok()?),
                // A URL may carry what its receiver would want; it is not for us.
                _ => {}
            }
        }
        Some(script)
    }

    /// What is done about the next request for this path with this `webhook-id`.
    pub(super) fn step(&self, turns: &Turns, path: &str, id: Option<&str>) -> Step {
        match &self.choice {
            Choice::Always(step) => *step,
            Choice::Sequence(steps) => {
                let turn = turns.next(path, id);
                steps.get(turn).or(steps.last()).copied().unwrap_or(Step::OK)
            }
            Choice::Flaky(percent, step) if turns.draw() * 100.0 < *percent => *step,
            Choice::Flaky(..) => Step::OK,
        }
    }
}

fn pair(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, ""))
}

fn read_delay(text: &str) -> Option<Duration> {
    duration::parse(text).ok().filter(|delay| *delay <= LONGEST_DELAY)
}

/// What the sink must remember to answer as told: whose turn it is, and the draws.
pub(super) struct Turns {
    seed: u64,
    drawn: AtomicU64,
    places: Mutex<Places>,
}

/// Two maps that take turns, so that the places of long ago are forgotten at once and without a search.
#[derive(Default)]
struct Places {
    young: HashMap<u64, usize>,
    old: HashMap<u64, usize>,
}

impl Turns {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0), places: Mutex::default() }
    }

    pub(super) fn clear(&self) {
        *self.places.lock().expect("no code panics while it holds the places") = Places::default();
    }

    /// How many requests came before for this path with this id.
    fn next(&self, path: &str, id: Option<&str>) -> usize {
        let mut hasher = DefaultHasher::new();
        (path, id).hash(&mut hasher);
        let key = hasher.finish();
        let mut places = self.places.lock().expect("no code panics while it holds the places");
        let turn = places.young.get(&key).or_else(|| places.old.get(&key)).copied().unwrap_or(0);
        if places.young.len() >= PLACES {
            places.old = std::mem::take(&mut places.young);
        }
        places.young.insert(key, turn.saturating_add(1));
        turn
    }

    /// A number from 0 to 1, never 1: the next of a row that the seed decides (splitmix64).
    fn draw(&self) -> f64 {
        let place = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut bits = self.seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
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

    fn steps(text: &str, turns: &Turns, id: &str, count: usize) -> Vec<Option<u16>> {
        let script = script(text).unwrap();
        (0..count).map(|_| script.step(turns, text, Some(id)).status()).collect()
    }

    #[test]
    fn a_sequence_is_told_to_each_id_from_its_start() {
        let turns = Turns::new(0);
        let text = "/sequence/503,reset,200";
        assert_eq!(steps(text, &turns, "a", 2), [Some(503), None]);
        assert_eq!(steps(text, &turns, "b", 1), [Some(503)]);
        assert_eq!(steps(text, &turns, "a", 3), [Some(200); 3]);
        turns.clear();
        assert_eq!(steps(text, &turns, "a", 1), [Some(503)]);
    }

    #[test]
    fn places_in_sequences_are_bounded_and_the_latest_are_kept() {
        let turns = Turns::new(0);
        for id in 0..PLACES * 3 {
            turns.next("/", Some(&id.to_string()));
        }
        let latest = (PLACES * 3 - 1).to_string();
        assert_eq!(turns.next("/", Some(&latest)), 1);
        assert_eq!(turns.next("/", Some("0")), 0);
        let places = turns.places.lock().unwrap();
        assert!(places.young.len() + places.old.len() <= PLACES * 2);
    }

    #[test]
    fn a_flaky_path_fails_about_as_often_as_told_and_the_seed_repeats_it() {
        let failures = |path: &str, seed| {
            let told = steps(path, &Turns::new(seed), "a", 10_000);
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
