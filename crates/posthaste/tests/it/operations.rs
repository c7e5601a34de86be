//! kill -9 in the middle of a retry operation, in whichever stage it is: every item is sent again once, and none is stuck (I13).
//!
//! `POSTHASTE_OPERATION_KILLS` kills it more often, `POSTHASTE_OPERATION_ITEMS` makes it larger.

use std::time::Duration;

use fastrand::Rng;
use posthaste_wire::sink::Sink;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::kept::Values;
use super::program::{Home, Program, eventually, get, post, sink};

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("the variable is a number"))
}

/// How often the program is killed.
pub(super) fn kills() -> u64 {
    number("POSTHASTE_OPERATION_KILLS", 5)
}

/// How many items the operation has: fewer in the slow debug profile.
pub(super) fn items() -> u64 {
    number("POSTHASTE_OPERATION_ITEMS", if cfg!(debug_assertions) { 2_000 } else { 20_000 })
}

/// The number of pending dead letters.
async fn pending(program: &Program) -> u64 {
    get(&program.client(), "/v1/stats").await["inDeadLetter"].as_u64().unwrap()
}

/// Makes so many dead letters, whose next attempt arrives, and starts an operation on all of them. Returns its id.
pub(super) async fn begin(program: &Program, sink: &Sink, items: u64) -> String {
    let client = program.client();
    let one = json!({
        "channel": "webhook", "to": sink.url("/sequence/400,200"), "body": "x",
        "policy": {"maxAttempts": 1, "quick": {"tries": 0}},
    });
    let mut left = items;
    while left > 0 {
        let count = left.min(500);
        let batch = json!({"notifications": vec![&one; usize::try_from(count).unwrap()]});
        post(&client, "/v1/notifications/batch", &batch).await;
        left -= count;
    }
    let all_dead = async || (pending(program).await == items).then_some(());
    eventually(all_dead).await.expect("everything dies");
    post(&client, "/v1/retry-operations", &json!({"all": true})).await["id"].as_str().unwrap().to_owned()
}

/// A while that ends in some stage of the operation, or between two of them.
pub(super) async fn some_while(rng: &mut Rng) {
    sleep(Duration::from_millis(rng.u64(20..600))).await;
}

/// Waits until the operation is finished, and checks that its numbers add up.
pub(super) async fn finished(program: &Program, id: &str, items: u64) -> Value {
    let (client, path) = (program.client(), format!("/v1/retry-operations/{id}"));
    let ended = eventually(async || {
        let shown = get(&client, &path).await;
        shown["finishedAt"].is_string().then_some(shown)
    });
    let ended = ended.await.expect("the operation ends");
    let numbers =
        ["total", "forwarded", "skipped", "remaining", "batchesRemaining"].map(|name| ended[name].as_u64());
    assert_eq!(numbers, [Some(items), Some(items), Some(0), Some(0), Some(0)], "{ended}");
    assert_eq!(ended["state"], "completed", "{ended}");
    ended
}

/// What SQL says when all is at rest: each item is forwarded, each notification was requeued once and delivered.
pub(super) fn check(rows: &dyn Fn(&str) -> Vec<Values>, items: u64) {
    let one = |sql: &str| rows(sql).first().map_or(0, |row| row.number::<u64>(0));
    assert_eq!(one("select count(*) from operation_item where stage = 2"), items, "I13: forwarded");
    assert_eq!(one("select count(*) from operation_item where stage <> 2"), 0, "I13: stuck or skipped");
    assert_eq!(one("select count(*) from operation_batch where stage <> 3"), 0, "batches");
    assert_eq!(one("select count(*) from queue"), 0, "I16");
    assert_eq!(
        one("select count(*) from ended where state = 2 and generation = 2"),
        items,
        "I12: one retry each"
    );
    assert_eq!(one("select count(*) from event where word = 'requeue'"), items, "I12: one requeue each");
    assert_eq!(one("select count(*) from dead_letter where status = 1"), items, "resolved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_any_stage_an_operation_sends_each_item_again_once() {
    let (home, sink, mut rng) = (Home::new(&[]), sink().await, Rng::new());
    let items = items();
    let mut program = home.start().await;
    let id = begin(&program, &sink, items).await;
    for _ in 0..kills() {
        some_while(&mut rng).await;
        program.kill();
        program = home.start().await;
    }
    let ended = finished(&program, &id, items).await;
    eprintln!("operation: {} events: {}", ended["total"], ended["events"]);
    program.rest().await;
    program.stop().await;
    let conn = rusqlite::Connection::open(home.file()).unwrap();
    check(&|sql| super::kept::rows_of_file(&conn, sql), items);
    sink.stop().await;
}
