//! As many connections as there may be: those with a valid key are served on, those without one keep nobody out.

use std::time::Duration;

use tokio::time::timeout;

use super::{Line, get};
use crate::program::{Home, PATIENCE, Program};

/// Longer than a test waits, so that no connection is closed because of its time.
const LONG: [&str; 3] = ["server.header_timeout=10m", "server.body_timeout=10m", "server.idle_timeout=10m"];

async fn start(connections: u32) -> (Home, Program) {
    let connections = format!("server.connections={connections}");
    let home = Home::new(&[&[connections.as_str()], &LONG[..]].concat());
    let program = home.start().await;
    (home, program)
}

/// The same request without a key.
fn keyless(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

/// A connection on which something was said, and answered with this status.
async fn asked(program: &Program, request: &str, status: u16) -> Line {
    let mut line = Line::open(program).await;
    line.say(request).await;
    assert_eq!(line.answer().await.status, status);
    line
}

/// Whether nothing has come yet, the end included.
async fn is_open(line: &mut Line) -> bool {
    timeout(Duration::from_millis(1), line.hear()).await.is_err()
}

#[tokio::test]
async fn connections_with_a_key_are_served_on_and_more_wait_until_one_of_them_closes() {
    let (_home, program) = start(2).await;
    let mut first = asked(&program, &get("/v1/stats"), 200).await;
    let mut second = asked(&program, &get("/v1/stats"), 200).await;
    let mut third = Line::open(&program).await;
    third.say(&get("/v1/stats")).await;
    assert!(timeout(Duration::from_millis(300), third.hear()).await.is_err(), "a third connection is served");
    for line in [&mut first, &mut second] {
        line.say(&get("/v1/stats")).await;
        assert_eq!(line.answer().await.status, 200, "the others are not disturbed");
    }
    drop(first);
    assert_eq!(third.answer().await.status, 200);
    second.say(&get("/v1/stats")).await;
    assert_eq!(second.answer().await.status, 200, "the others are not disturbed");
    // A key that is not valid any more does not keep the place.
    second.say(&get("/v1/stats").replace("Bearer ", "Bearer not-")).await;
    assert_eq!(second.answer().await.status, 401);
    asked(&program, &get("/v1/stats"), 200).await;
    second.end().await;
    drop(third);
    program.stop().await;
}

#[tokio::test]
async fn connections_without_a_key_cannot_close_the_door_to_probes() {
    let (_home, program) = start(8).await;
    let mut known = asked(&program, &get("/v1/stats"), 200).await;
    let mut silent = Line::open(&program).await;
    let mut trickling = Line::open(&program).await;
    trickling.say("GET /v1/stats HT").await;
    let mut uploading = Line::open(&program).await;
    uploading.say("POST /v1/notifications HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{").await;
    assert_eq!(uploading.answer().await.status, 401);
    let mut idle = vec![];
    for (path, status) in [("/healthz", 200), ("/v1/stats", 401), ("/nothing", 404), ("/openapi.json", 200)] {
        idle.push(asked(&program, &keyless(path), status).await);
    }
    // Eight are open. Each probe is one more, and stays open as well.
    let mut probes = vec![];
    for probe in 0..20 {
        let path = if probe % 2 == 0 { "/healthz" } else { "/readyz" };
        let answered = timeout(PATIENCE, asked(&program, &keyless(path), 200)).await;
        probes.push(answered.expect("a probe is answered"));
    }
    assert!(program.log().contains("one without a valid key is closed for another"), "{}", program.log());
    for line in [&mut silent, &mut trickling, &mut uploading].into_iter().chain(&mut idle) {
        line.end().await;
    }
    // The oldest made room: of the probes the last seven are left.
    for (probe, line) in probes.iter_mut().enumerate() {
        assert_eq!(is_open(line).await, probe >= 13, "{probe}");
    }
    // A caller with a key finds its way in as well, and one that was there before was never disturbed.
    asked(&program, &get("/v1/stats"), 200).await;
    known.say(&get("/v1/stats")).await;
    assert_eq!(known.answer().await.status, 200);
    program.stop().await;
}
