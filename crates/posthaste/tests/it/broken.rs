//! A loop of the engine or a thread of the store that ends by a panic: the process ends with it, and does not drain.
//!
//! The binary under test has the feature `planted`, by which a variable switches such a bug on.

use http::StatusCode;
use serde_json::json;

use super::program::{Home, PATIENCE, Program};

/// Longer than a test waits: a process that drains or waits for its connections does not end in time.
const DRAIN: &str = "server.drain_timeout=10m";

/// Sends a notification; the answer may be an error, or get lost with the process.
async fn send(program: &Program) -> Option<StatusCode> {
    let body = json!({"channel": "webhook", "to": "http://127.0.0.1:9/", "body": 1});
    program.client().post("/v1/notifications", &body).await.ok().map(|answer| answer.status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_ends_with_code_1_when_a_loop_or_the_writer_ends() {
    for (bug, part) in [("loop", "accept"), ("writer", "store")] {
        let home = Home::new(&[DRAIN]).with_variables(vec![("POSTHASTE_PLANTED", bug.to_owned())]);
        let mut program = home.start().await;
        let answered = send(&program).await;
        assert!(answered.is_none_or(|status| status == StatusCode::SERVICE_UNAVAILABLE), "{answered:?}");
        let status = program.ended(PATIENCE).await;
        let log = program.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let said: Vec<&str> = log.lines().filter(|line| line.contains("exit code 1")).collect();
        assert_eq!(said.len(), 1, "{log}");
        assert!(said[0].contains(" ERROR ") && said[0].contains(&format!("part=\"{part}\"")), "{log}");
        drop(program);
        // It was neither a fault of the file nor of the settings: the next start serves.
        let home = home.with_variables(vec![]);
        let program = home.start().await;
        assert_eq!(send(&program).await, Some(StatusCode::ACCEPTED));
        program.kill();
    }
}

/// The drain hands in an empty request behind all others, at which the loop panics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_ends_while_the_process_drains_ends_it_with_code_1() {
    let home = Home::new(&[DRAIN]).with_variables(vec![("POSTHASTE_PLANTED", "loop".to_owned())]);
    let mut program = home.start().await;
    program.signal("TERM");
    let status = program.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(1), "{}", program.log());
    program.says("part=\"accept\"").await;
}
