//! As many connections as there may be: idle ones keep nobody out, and a request under way is never cut off.

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

/// A send of which only the head has come, so it is being answered.
async fn busy(program: &Program) -> Line {
    let mut line = Line::open(program).await;
    make_busy(&mut line).await;
    line
}

async fn make_busy(line: &mut Line) {
    line.say(
        &get("/v1/notifications")
            .replacen("GET", "POST", 1)
            .replace("\r\n\r\n", "\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"),
    )
    .await;
    // The server asks for the body, so it has read the head.
    while !line.rest.ends_with(b"\r\n\r\n") {
        assert!(line.hear().await > 0);
    }
    line.rest.clear();
}

#[tokio::test]
async fn while_all_connections_have_a_request_under_way_more_wait_until_one_is_answered() {
    let (_home, program) = start(2).await;
    let (mut first, mut second) = (busy(&program).await, busy(&program).await);
    let mut third = Line::open(&program).await;
    third.say(&keyless("/healthz")).await;
    assert!(timeout(Duration::from_millis(300), third.hear()).await.is_err(), "a third connection is served");
    second.say("{}").await;
    assert_eq!(second.answer().await.status, 422);
    // The one that was answered is idle now, and makes room.
    assert_eq!(timeout(PATIENCE, third.answer()).await.expect("it is let in").status, 200);
    second.end().await;
    first.say("{}").await;
    assert_eq!(first.answer().await.status, 422, "the other is not disturbed");
    program.stop().await;
}

#[tokio::test]
async fn idle_connections_with_a_key_cannot_close_the_door_to_probes_and_others() {
    let (_home, program) = start(16).await;
    let mut working = busy(&program).await;
    let mut idle = vec![];
    for _ in 0..15 {
        idle.push(asked(&program, &get("/v1/stats"), 200).await);
    }
    // The first of them is used again, so the second has been idle for longest.
    idle[0].say(&get("/v1/stats")).await;
    assert_eq!(idle[0].answer().await.status, 200);
    let mut probes = vec![];
    for path in ["/healthz", "/readyz"] {
        let answered = timeout(PATIENCE, asked(&program, &keyless(path), 200)).await;
        probes.push(answered.expect("a probe is answered"));
    }
    for _ in 0..2 {
        let answered = timeout(PATIENCE, asked(&program, &get("/v1/stats"), 200)).await;
        idle.push(answered.expect("another caller is answered"));
    }
    program.says("is closed for another").await;
    for (number, line) in idle.iter_mut().enumerate() {
        assert_eq!(is_open(line).await, !(1..=4).contains(&number), "{number}");
    }
    for line in &mut probes {
        assert!(is_open(line).await, "an eighth is for those without a key");
    }
    working.say("{}").await;
    assert_eq!(working.answer().await.status, 422, "what is under way is not disturbed");
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
    program.says("one that waits for a request is closed for another").await;
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

#[tokio::test]
async fn an_answer_to_a_wrong_key_that_is_held_back_makes_room() {
    let (_home, program) = start(8).await;
    let wrong = "GET /v1/stats HTTP/1.1\r\nhost: x\r\nauthorization: Bearer wrong\r\n\r\n";
    let mut guessing = Line::open(&program).await;
    for _ in 0..9 {
        guessing.say(wrong).await;
        assert_eq!(guessing.answer().await.status, 401);
    }
    // The next one waits for four seconds.
    guessing.say(wrong).await;
    let mut last = Line::open(&program).await;
    loop {
        last.say(&keyless("/metrics")).await;
        let figures = last.answer().await;
        if String::from_utf8(figures.body).unwrap().contains("answer=\"delayed\"} 5\n") {
            break;
        }
    }
    make_busy(&mut last).await;
    let mut working = vec![last];
    for _ in 0..6 {
        working.push(busy(&program).await);
    }
    // Eight are open, and none of them is idle.
    let mut probe = Line::open(&program).await;
    probe.say(&keyless("/healthz")).await;
    let answer = timeout(Duration::from_secs(2), probe.answer()).await;
    assert_eq!(answer.expect("a probe does not wait for the answer to a wrong key").status, 200);
    guessing.end().await;
    for line in &mut working {
        line.say("{}").await;
        assert_eq!(line.answer().await.status, 422, "what is under way is not disturbed");
    }
    program.stop().await;
}
