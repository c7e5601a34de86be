//! Wrong keys are answered slower and slower, by address, and nobody else is.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use posthaste::config::Config;

use super::running::{Caller, Running, StoreKind};

/// How many wrong keys were answered at once, after a wait, and with 429.
pub(super) async fn failed_authentications(running: &Running) -> [u64; 3] {
    let figures = running.caller(None).ask(Method::GET, "/metrics", &[], "").await;
    let figures = String::from_utf8(figures.bytes.to_vec()).unwrap();
    ["at_once", "delayed", "refused"].map(|answer| {
        let name = format!("posthaste_failed_authentications_total{{answer=\"{answer}\"}} ");
        figures.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    })
}

fn behind_a_proxy(config: &mut Config) {
    config.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
}

/// The status of one call from an address.
async fn from(caller: &Caller, address: &str) -> u16 {
    caller.ask(Method::GET, "/v1/stats", &[("x-forwarded-for", address)], "").await.status.as_u16()
}

async fn a_right_key_passes_at_once_beside_many_wrong_ones(on: StoreKind) {
    let running = Running::start(on).await;
    let wrong = running.caller(Some("wrong"));
    let attack = join_all((0..200).map(|_| wrong.ask(Method::GET, "/v1/stats", &[], "")));
    let work = async {
        // They are counted, so some are being held back from here on.
        while failed_authentications(&running).await.iter().sum::<u64>() < 200 {}
        let started = Instant::now();
        for _ in 0..5 {
            running.admin.get("/v1/stats").await;
        }
        started.elapsed()
    };
    let (answers, took) = tokio::join!(attack, work);
    // A wrong key would wait for 4 s, or get 429.
    assert!(took < Duration::from_secs(3), "{took:?}");
    let (mut refused, mut answered) = (0, 0);
    for told in &answers {
        match told.status.as_u16() {
            401 => answered += 1,
            429 => {
                told.problem(429, "TOO_MANY_WRONG_KEYS");
                let seconds: u64 = told.headers["retry-after"].to_str().unwrap().parse().unwrap();
                assert!((1..=240).contains(&seconds), "{seconds}");
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    // Five at once, four held back, and those that came after one of these was answered.
    assert!(answered >= 9 && refused > 100, "{answered} {refused}");
    let [at_once, delayed, counted] = failed_authentications(&running).await;
    assert_eq!((at_once, at_once + delayed, counted), (5, answered, refused));
    running.stop().await;
}

async fn each_address_counts_by_itself_if_a_trusted_proxy_says_so(on: StoreKind) {
    let running = Running::with(on, behind_a_proxy).await;
    let wrong = running.caller(Some("wrong"));
    for address in ["192.0.2.1", "192.0.2.2", "2001:db8::1"] {
        for _ in 0..5 {
            assert_eq!(from(&wrong, address).await, 401);
        }
    }
    assert_eq!(failed_authentications(&running).await, [15, 0, 0]);
    // The same network of IPv6, and an address that the proxy did not see: what stands before it is made up.
    for address in ["2001:db8::ffff", "198.51.100.1, 192.0.2.1"] {
        assert_eq!(from(&wrong, address).await, 401);
    }
    assert_eq!(failed_authentications(&running).await, [15, 2, 0]);
    // No key and a key that is right are no failures.
    assert_eq!(from(&running.caller(None), "192.0.2.1").await, 401);
    assert_eq!(from(&running.admin, "192.0.2.1").await, 200);
    assert_eq!(failed_authentications(&running).await, [15, 2, 0]);
    running.stop().await;
    // Whoever is not trusted cannot say where they are.
    let running = Running::start(on).await;
    let wrong = running.caller(Some("wrong"));
    for number in 0..6 {
        assert_eq!(from(&wrong, &format!("192.0.2.{number}")).await, 401);
    }
    assert_eq!(failed_authentications(&running).await, [5, 1, 0]);
    running.stop().await;
}

async fn a_stop_ends_the_wait(on: StoreKind) {
    let running = Running::start(on).await;
    let wrong = running.caller(Some("wrong"));
    // So many that the next one waits for four seconds.
    join_all((0..20).map(|_| wrong.ask(Method::GET, "/v1/stats", &[], ""))).await;
    let delayed = failed_authentications(&running).await[1];
    let waiting = wrong.ask(Method::GET, "/v1/stats", &[], "");
    let stop = async {
        while failed_authentications(&running).await[1] == delayed {}
        running.stop().await;
    };
    // Connections that are still busy two seconds after the stop are closed without an answer.
    let (told, ()) = tokio::join!(waiting, stop);
    told.problem(401, "UNAUTHORIZED");
}

on_each_store! {
    a_right_key_passes_at_once_beside_many_wrong_ones;
    each_address_counts_by_itself_if_a_trusted_proxy_says_so;
    a_stop_ends_the_wait;
}
