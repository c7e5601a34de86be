//! What the command line says of rate limits and of a full queue.

use serde_json::{Value, json};

use super::{Ended, finish, posthaste, run};
use crate::program::{Home, KEY, Program};

async fn told(program: &Program, args: &[&str], input: &str) -> Ended {
    let mut command = posthaste(args);
    command.env("POSTHASTE_URL", format!("http://{}", program.address())).env("POSTHASTE_KEY", KEY);
    finish(command, input).await
}

/// A line of a batch, which is not sent while the test runs.
fn waiting() -> String {
    json!({"channel": "webhook", "to": "http://127.0.0.1:1/", "body": 1, "expiresAt": "2099-01-01T00:00:00Z"})
        .to_string()
}

#[tokio::test]
async fn a_send_over_the_limit_says_when_it_is_sent() {
    for answer in ["202", "429"] {
        let answer = format!("rate_limit.answer={answer}");
        let program = Home::new(&["rate_limit.per_tenant_per_minute=1", &answer]);
        let program = program.start().await;
        let send = ["send", "--to", "http://127.0.0.1:1/", "--body", "Hi"];
        let first = told(&program, &send, "").await;
        assert_eq!((first.code, first.err.as_str()), (Some(0), ""), "{first:?}");
        let over = told(&program, &send, "").await;
        assert!(over.out.starts_with("ntf_") && over.code == Some(0), "{over:?}");
        assert!(over.err.contains("over the rate limit: not before 20"), "{over:?}");
        let batch =
            told(&program, &["send", "--batch", "-"], &format!("{}\n{}\n", waiting(), waiting())).await;
        let wanted =
            "accepted 2 of 2 notifications, 2 of them over the rate limit and sent later, rejected 0\n";
        assert_eq!((batch.code, batch.out.as_str()), (Some(0), wanted), "{batch:?}");
        let rows = told(&program, &["send", "--batch", "-", "--output", "json"], &waiting()).await;
        let row: Value = serde_json::from_str(&rows.out).unwrap();
        assert!(row["deferredUntil"].is_string(), "{row}");
        program.stop().await;
    }
}

#[tokio::test]
async fn a_send_to_a_full_queue_fails_and_says_so() {
    let program = Home::new(&["queue.limit=1"]).start().await;
    let send = ["send", "--to", "http://127.0.0.1:1/", "--body", "Hi", "--not-before", "1h"];
    assert_eq!(told(&program, &send, "").await.code, Some(0));
    let full = told(&program, &send, "").await;
    assert!(full.code == Some(1) && full.err.contains("QUEUE_FULL"), "{full:?}");
    program.stop().await;
}

#[tokio::test]
async fn the_doctor_names_limits_that_make_no_sense() {
    let set = |pair: &'static str| ["--set", pair];
    let limits = [
        &["doctor", "--url", "http://127.0.0.1:1"][..],
        &set("rate_limit.per_tenant_per_minute=50"),
        &set("rate_limit.per_module_per_minute=100"),
        &set("queue.limit=499"),
    ];
    let ill = run(&limits.concat()).await;
    for said in ["per_module_per_minute = 100 can never be reached", "queue.limit = 499"] {
        assert!(ill.out.contains(said), "{}", ill.out);
    }
    let well = [
        &["doctor", "--url", "http://127.0.0.1:1"][..],
        &set("rate_limit.per_tenant_per_minute=100"),
        &set("rate_limit.per_module_per_minute=50"),
        &set("queue.limit=500"),
    ];
    let well = run(&well.concat()).await;
    assert!(!well.out.contains("rate limits") && !well.out.contains("queue limit"), "{}", well.out);
}
