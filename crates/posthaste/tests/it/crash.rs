//! kill -9, again and again, under load: nothing that was acknowledged is lost.
//!
//! The ledger is kept by the clients, in another process than the one that is killed. `POSTHASTE_CRASH_ROUNDS` makes
//! more rounds, `POSTHASTE_SEED` repeats the draws (not the moments: the machine decides about those too).

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use super::kept::Kept;
use super::load::{Aim, Ledger, Load};
use super::program::{Home, sink};

/// How often the program is killed unless the variable says otherwise.
const ROUNDS: u32 = 20;
/// How many are sent at once.
const CONCURRENCY: u32 = 32;
/// The most work in flight, which bounds the duplicates of a crash: as many more wait for their outcome to be recorded.
const IN_FLIGHT: u32 = 2 * CONCURRENCY;
/// Receivers that are well, that fail now and then in two ways, that are slow, and that refuse for good.
const PATHS: &[&str] =
    &["/ok", "/ok", "/ok", "/flaky/20", "/flaky/20", "/flaky/20/reset", "/delay/15ms", "/status/400"];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("the variable is a number"))
}

fn home() -> Home {
    Home::new(&[&format!("engine.concurrency={CONCURRENCY}")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_it_loses_nothing_that_it_acknowledged() {
    let rounds = number("POSTHASTE_CRASH_ROUNDS").map_or(ROUNDS, |rounds| u32::try_from(rounds).unwrap());
    let seed = number("POSTHASTE_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("crash: POSTHASTE_SEED={seed}, {rounds} rounds");
    let mut rng = Rng::with_seed(seed);
    let (home, sink, mut ledger) = (home(), sink().await, Ledger::default());
    for round in 0..rounds {
        let mut program = home.spawn();
        if round % 5 == 4 {
            // Somewhere in its start, while it takes back what the last one held.
            sleep(Duration::from_millis(rng.u64(..60))).await;
            program.kill();
            continue;
        }
        program.ready().await;
        ledger.repeat(&program.client(), &mut rng).await;
        let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 100 }, &mut rng);
        sleep(Duration::from_millis(rng.u64(20..250))).await;
        program.kill();
        ledger.add(load.ended().await);
    }
    let program = home.start().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    program.stop().await;

    let kept = Kept::read(home.file());
    kept.check(&ledger);
    let duplicates = kept.duplicates(&sink);
    eprintln!(
        "crash: {} acknowledged, {} kept, {} arrivals, {} interruptions, {duplicates} duplicates",
        ledger.acknowledged.len(),
        kept.all.len(),
        sink.received(),
        kept.interruptions(),
    );
    assert!(duplicates <= rounds * IN_FLIGHT, "I8: {duplicates} duplicates after {rounds} crashes");
    assert!(ledger.acknowledged.len() > rounds as usize, "there was load");
    assert!(kept.interruptions() > 0, "some work was under way at some crash");
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_crash_nothing_is_sent_twice() {
    let mut rng = Rng::new();
    let (home, sink) = (home(), sink().await);
    let program = home.start().await;
    let load = Load::start(&program, Aim { sink: sink.url(""), paths: PATHS, bytes: 100 }, &mut rng);
    sleep(Duration::from_millis(500)).await;
    let mut ledger = load.stop().await;
    ledger.repeat(&program.client(), &mut rng).await;
    program.rest().await;
    program.stop().await;

    let kept = Kept::read(home.file());
    kept.check(&ledger);
    assert_eq!((kept.duplicates(&sink), kept.interruptions()), (0, 0), "I8");
    assert_eq!(kept.all.len(), ledger.acknowledged.len(), "what was answered is what is kept");
    sink.stop().await;
}
