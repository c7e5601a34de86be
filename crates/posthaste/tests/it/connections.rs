//! Connections to the built binary that are slow, silent, greedy or wrong: each is cut off in its time, none harms others.

mod crowd;
mod phases;
mod streams;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::program::{Home, KEY, PATIENCE, Program};

const HEAD: Duration = Duration::from_millis(600);
const BODY: Duration = Duration::from_millis(900);
const IDLE: Duration = Duration::from_millis(1_500);
/// How much later than its limit a connection may be cut off on a busy machine.
const BUSY: Duration = Duration::from_secs(5);
/// The pause between two bytes of a client that trickles.
const DRIP: Duration = Duration::from_millis(100);

async fn start(connections: u32) -> (Home, Program) {
    let home = Home::new(&[
        &format!("server.connections={connections}"),
        &format!("server.header_timeout={}ms", HEAD.as_millis()),
        &format!("server.body_timeout={}ms", BODY.as_millis()),
        &format!("server.idle_timeout={}ms", IDLE.as_millis()),
    ]);
    let program = home.start().await;
    (home, program)
}

/// A connection that is spoken to byte by byte.
struct Line {
    stream: TcpStream,
    /// What came and was not read as a part of an answer yet.
    rest: Vec<u8>,
}

/// An answer as it came over the line.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Line {
    async fn open(program: &Program) -> Self {
        Self { stream: TcpStream::connect(program.address()).await.unwrap(), rest: vec![] }
    }

    async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads some bytes; none is the end of the connection, however it came.
    async fn hear(&mut self) -> usize {
        let mut bytes = [0; 16 * 1024];
        let read = timeout(PATIENCE, self.stream.read(&mut bytes)).await.expect("something comes or it ends");
        let read = read.unwrap_or(0);
        self.rest.extend_from_slice(&bytes[..read]);
        read
    }

    /// The next answer. One to HEAD tells the length of a body that does not come.
    async fn answer_to(&mut self, method: &str) -> Answer {
        let end = loop {
            if let Some(at) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.hear().await > 0, "the connection ended: {:?}", String::from_utf8_lossy(&self.rest));
        };
        let head = String::from_utf8(self.rest.drain(..end).collect()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let length = if method == "HEAD" { 0 } else { length };
        while self.rest.len() < length {
            assert!(self.hear().await > 0, "the connection ended inside of a body");
        }
        Answer { status, head, body: self.rest.drain(..length).collect() }
    }

    async fn answer(&mut self) -> Answer {
        self.answer_to("GET").await
    }

    /// Waits for the end, with nothing more before it, and answers with how long it took.
    async fn end(&mut self) -> Duration {
        let begin = Instant::now();
        while self.hear().await > 0 {}
        assert_eq!(String::from_utf8_lossy(&self.rest), "", "something came before the end");
        begin.elapsed()
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n")
}

fn in_time(took: Duration, limit: Duration) {
    // The limit is counted from the accept, which comes a moment after the connect and never before it.
    assert!(took >= limit - Duration::from_millis(50), "cut off after {took:?} of {limit:?}");
    assert!(took <= limit + BUSY, "cut off only after {took:?} of {limit:?}");
}

#[tokio::test]
async fn a_silent_connection_is_closed_after_the_header_timeout() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    in_time(line.end().await, HEAD);
    program.stop().await;
}

#[tokio::test]
async fn a_head_that_trickles_is_closed_after_the_header_timeout() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    let begin = Instant::now();
    let mut head = "GET /healthz HTTP/1.1\r\nhost: ".chars().chain(std::iter::repeat('x'));
    loop {
        let drip = [head.next().unwrap() as u8];
        let closed = timeout(DRIP, line.hear()).await.is_ok_and(|read| read == 0);
        if closed || line.stream.write_all(&drip).await.is_err() {
            break;
        }
        assert!(begin.elapsed() < HEAD + BUSY, "each byte buys it more time");
    }
    in_time(begin.elapsed(), HEAD);
    program.stop().await;
}

#[tokio::test]
async fn the_second_head_of_a_connection_may_not_trickle_either() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    line.say(&get("/healthz")).await;
    assert_eq!(line.answer().await.status, 200);
    line.say("GET /healthz HT").await;
    let took = line.end().await;
    assert!(took < IDLE, "its head is counted, not its idleness: {took:?}");
    in_time(took, HEAD);
    program.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_in_use_is_not() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    let begin = Instant::now();
    while begin.elapsed() < IDLE * 2 {
        line.say(&get("/healthz")).await;
        assert_eq!(line.answer().await.status, 200);
        sleep(IDLE / 3).await;
    }
    line.say(&get("/healthz")).await;
    assert_eq!(line.answer().await.status, 200);
    in_time(line.end().await, IDLE);
    program.stop().await;
}

#[tokio::test]
async fn a_body_that_trickles_gets_408() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    line.say(&format!(
        "POST /v1/notifications HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 100000\r\n\r\n"
    ))
    .await;
    let begin = Instant::now();
    while line.rest.is_empty() {
        assert!(begin.elapsed() < BODY + BUSY, "each byte buys it more time");
        line.say(" ").await;
        let _ = timeout(DRIP, line.hear()).await;
    }
    in_time(begin.elapsed(), BODY);
    let answer = line.answer().await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (408, Some("REQUEST_TIMEOUT")));
    // What is left of the body cannot be told from a next request.
    line.end().await;
    program.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_cut_off() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    let requests = get("/openapi.json").repeat(100);
    let mut begin = Instant::now();
    // Until the buffers between the two are full the answers go somewhere, and more is asked for.
    let waited = loop {
        match timeout(PATIENCE, line.stream.write_all(requests.as_bytes())).await {
            Ok(Ok(())) => begin = Instant::now(),
            Ok(Err(_)) => break begin.elapsed(),
            Err(_) => panic!("it is never cut off"),
        }
    };
    assert!(waited <= IDLE + BUSY, "cut off only after {waited:?}");
    program.stop().await;
}

#[tokio::test]
async fn one_connection_can_make_thousands_of_requests() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    for _ in 0..3_000 {
        line.say(&get("/healthz")).await;
        assert_eq!(line.answer().await.status, 200);
    }
    program.stop().await;
}

#[tokio::test]
async fn requests_that_come_all_at_once_are_answered_in_order() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    let id = |number: u32| format!("ntf_{number:026}");
    let all: String = (0..100).map(|number| get(&format!("/v1/notifications/{}", id(number)))).collect();
    line.say(&all).await;
    for number in 0..100 {
        let answer = line.answer().await;
        assert_eq!(answer.status, 404);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&id(number)), "answer {number} is {detail}");
    }
    program.stop().await;
}

#[tokio::test]
async fn head_is_answered_as_get_without_the_body() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    line.say(&get("/healthz").replacen("GET", "HEAD", 1)).await;
    let head = line.answer_to("HEAD").await;
    line.say(&get("/healthz")).await;
    let get = line.answer().await;
    assert_eq!((head.status, get.status), (200, 200));
    let length = format!("content-length: {}\r\n", get.body.len());
    assert!(head.head.contains(&length), "{}", head.head);
    program.stop().await;
}

#[tokio::test]
async fn a_bad_head_gets_400_and_the_connection_closes() {
    let (_home, program) = start(10).await;
    for bad in [
        "nonsense\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: nine\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}\r\n\r\n",
    ] {
        let mut line = Line::open(&program).await;
        line.say(bad).await;
        assert_eq!(line.answer().await.status, 400, "{bad:?}");
        assert!(line.end().await < HEAD, "{bad:?}");
    }
    program.stop().await;
}

#[tokio::test]
async fn a_request_of_http_1_1_names_one_host() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    for (version, hosts, status) in [
        ("1.1", "", 400),
        ("1.1", "host: a\r\nhost: a\r\n", 400),
        ("1.1", "host: a\r\nHost: b\r\n", 400),
        ("1.1", "host: a\r\n", 200),
        // The empty name is one, and before 1.1 there was none.
        ("1.1", "host:\r\n", 200),
        ("1.0", "connection: keep-alive\r\n", 200),
        ("1.0", "connection: keep-alive\r\nhost: a\r\nhost: b\r\n", 400),
    ] {
        line.say(&format!("GET /healthz HTTP/{version}\r\n{hosts}\r\n")).await;
        let answer = line.answer().await;
        assert_eq!(answer.status, status, "{version} {hosts:?}");
        if status == 400 {
            assert!(answer.head.contains("content-type: application/problem+json"), "{}", answer.head);
            assert_eq!(
                (&answer.json()["code"], &answer.json()["parameter"]),
                (&"BAD_REQUEST".into(), &"Host".into())
            );
        }
    }
    program.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_the_connection_closes() {
    let (_home, program) = start(10).await;
    let mut line = Line::open(&program).await;
    // It may be cut off while it still sends.
    let large = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nlarge: {}\r\n\r\n", "x".repeat(200_000));
    let _ = line.stream.write_all(large.as_bytes()).await;
    while line.hear().await > 0 {}
    let heard = String::from_utf8_lossy(&line.rest);
    assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 431 "), "{heard}");
    let mut next = Line::open(&program).await;
    next.say(&get("/healthz")).await;
    assert_eq!(next.answer().await.status, 200);
    program.stop().await;
}

/// Two lengths for one body are how a request is smuggled past a proxy: what one of them takes for the body is the next
/// request to the other. The chunks count (RFC 9112, 6.1), and nothing after them is read.
#[tokio::test]
async fn a_request_with_two_lengths_is_the_last_of_its_connection() {
    let (_home, program) = start(10).await;
    let smuggled = get("/v1/stats");
    for length in [5, 5 + smuggled.len()] {
        let (one, other) = (format!("content-length: {length}\r\n"), "transfer-encoding: chunked\r\n");
        for lengths in [format!("{one}{other}"), format!("{other}{one}")] {
            let mut line = Line::open(&program).await;
            line.say(&format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{lengths}\r\n0\r\n\r\n{smuggled}")).await;
            assert_eq!(line.answer().await.status, 200, "{lengths:?}");
            assert!(line.end().await < HEAD, "{lengths:?}");
        }
    }
    program.stop().await;
}

#[tokio::test]
async fn bodies_that_would_take_too_much_memory_are_refused_and_small_ones_find_room() {
    let home = Home::new(&["server.body_timeout=50s"]);
    let program = home.start().await;
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let batch = "/v1/notifications/batch";
    // 240 MiB of batches that never end: more than one tenant may have.
    let (piece, whole) = ("x".repeat(1024 * 1024), 16 * 1024 * 1024);
    let mut open = vec![];
    for _ in 0..16 {
        let mut line = Line::open(&program).await;
        line.say(&head(batch, whole)).await;
        for _ in 0..15 {
            // The one that is refused may be closed before it has said everything.
            if line.stream.write_all(piece.as_bytes()).await.is_err() {
                break;
            }
        }
        open.push(line);
    }
    let refused = async {
        loop {
            for line in &mut open {
                if let Ok(answer) = timeout(DRIP, line.answer()).await {
                    return answer;
                }
            }
        }
    };
    let answer = timeout(PATIENCE, refused).await.expect("one of them is refused");
    assert_eq!((answer.status, &answer.json()["code"]), (503, &Value::from("OVERLOADED")));
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    let mut line = Line::open(&program).await;
    line.say(&head("/v1/notifications", 2)).await;
    line.say("{}").await;
    assert_eq!(line.answer().await.status, 422, "a small one is read");
    // All of them are of one tenant, so a large one of another is read.
    let made = program.client().post("/v1/keys", &json!({"name": "of b", "tenant": "b"})).await.unwrap();
    let made: Value = made.json().unwrap();
    let mut line = Line::open(&program).await;
    line.say(&head(batch, 2 + piece.len()).replace(KEY, made["key"].as_str().unwrap())).await;
    line.say(&" ".repeat(piece.len())).await;
    line.say("{}").await;
    assert_eq!(line.answer().await.status, 422, "another tenant's batch is read");
    drop(open);
    // What the others held is free again.
    let again = async {
        loop {
            let mut line = Line::open(&program).await;
            line.say(&head(batch, 2)).await;
            line.say("{}").await;
            if line.answer().await.status == 422 {
                return;
            }
            sleep(DRIP).await;
        }
    };
    timeout(PATIENCE, again).await.expect("there is room again");
    program.stop().await;
}

#[tokio::test]
async fn a_limit_on_open_files_that_is_too_low_is_told_at_the_start() {
    let home = Home::new(&["server.connections=1000", "engine.concurrency=50"]);
    let program = home.start_after("ulimit -S -n 512").await;
    let log = program.log();
    assert!(log.contains("may open 512 files") && log.contains("ulimit -n 1164"), "{log}");
    program.stop().await;
    let home = Home::new(&["server.connections=100", "engine.concurrency=50"]);
    let program = home.start_after("ulimit -S -n 512").await;
    assert!(!program.log().contains("files"), "{}", program.log());
    program.stop().await;
}
