//! `stats`: one tenant with very many destinations asks for its figures, or searches, without a pause; others must not feel
//! it.

use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use posthaste::client::Client;
use posthaste::clock::SystemClock;
use posthaste_engine::clock::Clock as _;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Setting;
use super::fill::{FAR, Waiting};
use super::neighbour::{Neighbour, Pace};
use super::server::{Readiness, Server};
use super::verdict::{Times, Verdict, shown};

/// How many connections of a ask at a time.
const ASKING: usize = 32;
const GOAL: Duration = Duration::from_millis(100);
/// 20 retries a second, for as long as is asked.
const PACE: Pace = Pace { count: 200, over: Duration::from_secs(10) };
/// The dearest reads that a tenant can ask for: its figures, and a list in which nothing is found.
const DEAR: [(&str, &str); 2] =
    [("figures", "/v1/stats"), ("search", "/v1/notifications?q=nothing-is-called-so")];

/// Measures what another tenant sees meanwhile.
pub(crate) async fn run(setting: &Setting) -> anyhow::Result<Verdict> {
    let flows = setting.size.unwrap_or(100_000);
    let (place, mut verdict) = (setting.place().await?, Verdict::default());
    let due = SystemClock.now().later(FAR);
    Waiting { tenant: "a", flows, rows: flows, due, to: "http://127.0.0.1:9/" }.write(&place)?;
    let server = setting.serve(&place).await?;
    let (a, neighbour) = (server.key_for("a").await?, Neighbour::of(&server).await?);
    // Something to look at.
    neighbour.sends(Pace { count: 100, over: Duration::ZERO }).await?;
    let list: Value = neighbour.client().get("/v1/notifications").await?.json()?;
    let id = list["data"][0]["notificationId"].as_str().context("a list with nothing in it")?;
    for (name, path) in DEAR {
        let once = Instant::now();
        server.client(&a)?.get(path).await?;
        verdict.note(format!("{name} of a with {flows} destinations: once"), shown(once.elapsed()));
        one(&server, &a, path, (&neighbour, id), name, &mut verdict).await?;
    }
    Ok(verdict)
}

async fn one(
    server: &Server,
    a: &str,
    dear: &str,
    (neighbour, id): (&Neighbour, &str),
    name: &str,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let (readiness, mut asking, mut looking) = (Readiness::watch(server)?, JoinSet::new(), JoinSet::new());
    for _ in 0..ASKING {
        asking.spawn(ask(server.client(a)?, dear.to_owned(), Duration::ZERO));
    }
    for path in [format!("/v1/notifications/{id}"), "/v1/notifications?limit=50".to_owned()] {
        looking.spawn(ask(server.client(neighbour.key())?, path, Duration::from_millis(20)));
    }
    let retried = neighbour.retries(PACE).await?;
    if let Some(asked) = asking.join_all().await.into_iter().reduce(Asked::and) {
        let refused = asked.refused.len();
        let answered = Times::of(asked.answered, asked.unanswered);
        let seen = format!("{refused} refused, else {}", answered.described());
        verdict.note(format!("{name} of a: over {ASKING} connections"), seen);
    }
    for asked in looking.join_all().await {
        let what =
            if asked.path.contains('?') { "slowest GET of b's list" } else { "slowest GET of one of b's" };
        verdict.below(format!("{name} of a: {what}"), &asked.times(), GOAL);
    }
    verdict.below(format!("{name} of a: latest retry of b"), &retried.late, GOAL);
    let (asked, not) = readiness.seen();
    verdict.wanted(format!("{name} of a: /readyz not 200"), format!("{not} of {asked}"), "never", not == 0);
    Ok(())
}

/// What one connection saw.
struct Asked {
    path: String,
    answered: Vec<Duration>,
    refused: Vec<Duration>,
    unanswered: Vec<Duration>,
}

impl Asked {
    fn and(mut self, other: Self) -> Self {
        self.answered.extend(other.answered);
        self.refused.extend(other.refused);
        self.unanswered.extend(other.unanswered);
        self
    }

    /// For a caller who does nothing unusual: whatever is not answered is a fault.
    fn times(self) -> Times {
        let mut not = self.refused;
        not.extend(self.unanswered);
        Times::of(self.answered, not)
    }
}

/// Asks one thing after the other for as long as is measured.
async fn ask(client: Client, path: String, pause: Duration) -> Asked {
    let begun = Instant::now();
    let mut asked = Asked { path, answered: vec![], refused: vec![], unanswered: vec![] };
    while begun.elapsed() < PACE.over {
        let from = Instant::now();
        match client.get(&asked.path).await {
            Ok(answer) if answer.status == StatusCode::OK => asked.answered.push(from.elapsed()),
            Ok(_) => {
                asked.refused.push(from.elapsed());
                // As somebody would who was told to come back later.
                sleep(Duration::from_millis(10)).await;
            }
            Err(_) => asked.unanswered.push(from.elapsed()),
        }
        sleep(pause).await;
    }
    asked
}
