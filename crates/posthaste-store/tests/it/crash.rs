//! A process that is killed in the middle of its work loses nothing that it acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use posthaste_core::lease::NodeId;
use posthaste_engine::store::{Nodes, Pulse, Queue, Reads};
use posthaste_store::sqlite::{Options, SqliteStore};

use crate::scene::{HOLD, at, id, key, lease, request};

/// Names the file to the child, which is this test run again.
const VARIABLE: &str = "POSTHASTE_TEST_KILLED_CHILD";

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    if let Ok(path) = std::env::var(VARIABLE) {
        return child(&path);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("posthaste.db");
    let mut acknowledged = 0;
    let mut last_node = NodeId(0);
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_killed_process_loses_nothing_acknowledged", "--nocapture"])
            .env(VARIABLE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            // The ledger of this process: what the child was told is stored.
            if let Some(number) = line.strip_prefix("stored ") {
                acknowledged = number.parse().unwrap();
                told += 1;
            }
            if told == 40 + round * 17 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        last_node = check(&path, acknowledged, last_node);
    }
}

/// Everything acknowledged is there, whole, the counters are right, and the dead node's leases can be taken
/// back.
fn check(path: &std::path::Path, acknowledged: u128, last_node: NodeId) -> NodeId {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = SqliteStore::open(path, Options::default()).unwrap();
    runtime.block_on(async {
        for number in 1..=acknowledged {
            assert!(store.get(id(number)).await.unwrap().is_some(), "{number} of {acknowledged}");
        }
        assert_eq!(store.recount().await.unwrap(), None);
        let node = store.join("check".to_owned(), HOLD, at(5)).await.unwrap().node;
        let Pulse::Alive { dead, .. } = store.heartbeat(node, HOLD, at(5)).await.unwrap() else {
            panic!("a node that has just joined is alive");
        };
        assert_eq!(dead.len(), 1, "the killed one");
        assert!(dead[0] > last_node);
        assert!(store.reclaim(dead[0], usize::MAX, at(5)).await.unwrap() > 0);
        store.leave(node).await.unwrap();
        node
    })
}

/// Stores one leased and one waiting notification at a time and says so, until it is killed.
fn child(path: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = SqliteStore::open(path, Options::default()).unwrap();
    runtime.block_on(async {
        let acme = key("acme", "a");
        let flow = store.intern(vec![acme.clone()]).await.unwrap()[0];
        let node = store.join("child".to_owned(), HOLD, at(0)).await.unwrap().node;
        let mut first = 1;
        while store.get(id(first)).await.unwrap().is_some() {
            first += 2;
        }
        for number in (first..).step_by(2) {
            let leased = request(id(number), &acme, flow, Some(lease(node, 1)));
            let waiting = request(id(number + 1), &acme, flow, None);
            store.accept(vec![leased, waiting], at(0)).await.unwrap();
            let mut out = std::io::stdout().lock();
            writeln!(out, "stored {}", number + 1).unwrap();
            out.flush().unwrap();
        }
    });
}
