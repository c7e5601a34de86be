//! The log: each state change is one event with its ids, and nothing of what is sent is in it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};

use posthaste_core::state::State;
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

use super::PLAIN;
use crate::rig::{Rig, Script, ada, http, notification, pass, secs, send};

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Listens until the guard is dropped. While there is only one listener, a place in the code that logs for the first
    /// time on another thread, where nobody listens, counts as one that nobody listens to anywhere; so there are two.
    fn listen(level: Level) -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()));
        let guard = tracing::subscriber::set_default(subscriber);
        tracing::callsite::rebuild_interest_cache();
        (lines, guard)
    }

    /// The lines that hold all of these.
    fn with(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let holds = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(holds).map(str::to_owned).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn each_state_change_is_one_event_with_its_ids() {
    let (lines, _listening) = Lines::listen(Level::DEBUG);
    let rig = Rig::new();
    rig.script("dead-address", [Script::Answer(http(503)), Script::Answer(http(400))]);
    let engine = rig.start().await;
    tracing::callsite::rebuild_interest_cache();
    let dead = send(&engine, notification(&engine, "dead-address", PLAIN)).await;
    let good = send(&engine, notification(&engine, "good-address", PLAIN)).await;
    let mut old = notification(&engine, "old-address", PLAIN);
    old.not_before = Some(engine.now().later(secs(900)));
    old.expires_at = Some(engine.now().later(secs(100)));
    let old = send(&engine, old).await;
    pass(secs(200)).await;
    assert_eq!(rig.state(dead).await, State::DeadLetter);
    let letter = rig.dead_letter(dead).await.id;
    engine.requeue(letter, &ada()).await.unwrap();
    let (dead, good, old, letter) =
        (format!("id={dead}"), format!("id={good}"), format!("id={old}"), letter.to_string());
    let whose = ["tenant=default", "channel=webhook"];
    for (level, word, id, more) in [
        ("DEBUG", ": accepted ", &dead, vec![]),
        ("DEBUG", ": accepted ", &good, whose.to_vec()),
        ("DEBUG", ": delivered ", &good, [&whose[..], &["attempts=1"]].concat()),
        ("DEBUG", ": retry scheduled ", &dead, vec!["attempts=1", "due=20"]),
        ("DEBUG", ": expired ", &old, vec![]),
        (
            "INFO",
            ": dead letter ",
            &dead,
            [&whose[..], &[&letter, "reason=\"PERMANENT_FAILURE\"", "attempts=2"]].concat(),
        ),
        ("INFO", ": acted on ", &dead, vec!["actor=\"ada\"", "act=\"requeue\"", "was=\"deadLetter\""]),
    ] {
        let found = lines.with(&[&[level, word, id.as_str()], &more[..]].concat());
        assert_eq!(found.len(), 1, "{level} {word} {id} {more:?}: {:#?}", lines.with(&[]));
    }
    assert_eq!(lines.with(&["address"]), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_goes_well_says_nothing_at_the_level_of_every_day() {
    let (lines, _listening) = Lines::listen(Level::INFO);
    let rig = Rig::new();
    rig.script("a", [Script::Answer(http(503))]);
    let engine = rig.start().await;
    tracing::callsite::rebuild_interest_cache();
    let id = send(&engine, notification(&engine, "a", PLAIN)).await;
    pass(secs(200)).await;
    assert_eq!(rig.state(id).await, State::Succeeded);
    assert_eq!(lines.with(&[]), [""; 0]);
}
