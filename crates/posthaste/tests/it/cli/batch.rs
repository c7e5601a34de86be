//! `posthaste send --batch`: files with one notification per line.

use serde_json::{Value, json};

use super::served::Scene;
use super::{Ended, finish};

/// A line that waits, so that nothing is sent while the test runs.
fn good(scene: &Scene, number: usize) -> String {
    let to = scene.sink.url("/ok");
    let later = "2099-01-01T00:00:00Z";
    json!({"channel": "webhook", "to": to, "body": number, "eventKey": format!("e-{number}"), "notBefore": later})
        .to_string()
}

async fn send(scene: &Scene, text: &str, more: &[&str]) -> Ended {
    finish(scene.command(&[&["send", "--batch", "-"], more].concat()), text).await
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

#[tokio::test]
async fn each_line_is_accepted_or_rejected_with_its_number() {
    let scene = Scene::start().await;
    let mut lines: Vec<String> = (1..=1_203).map(|number| good(&scene, number)).collect();
    lines[2] = "{\"channel\": ".to_owned();
    lines[9] = String::new();
    lines[699] = r#"{"channel": "webhook", "to": "http://10.0.0.1/", "body": 1}"#.to_owned();
    lines[1_202] = r#"{"chanel": "webhook"}"#.to_owned();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orders.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let ended = scene.run(&["send", "--batch", file.to_str().unwrap()]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.out, "accepted 1199 of 1202 notifications, rejected 3\n");
    let told: Vec<&str> = ended.err.lines().collect();
    assert_eq!(told.len(), 3, "{}", ended.err);
    assert!(
        told[0].starts_with("line 3: the line is not JSON: ") && told[0].ends_with("(BAD_JSON)"),
        "{}",
        told[0]
    );
    assert!(
        told[1].starts_with("line 700: ") && told[1].ends_with("(DESTINATION_FORBIDDEN) at /to"),
        "{}",
        told[1]
    );
    assert!(told[2].starts_with("line 1203: ") && told[2].contains("chanel"), "{}", told[2]);
    let stats = scene.json(&["stats"]).await;
    assert_eq!(stats["queued"], 1_199, "{stats}");
}

#[tokio::test]
async fn programs_get_an_object_per_line_and_a_key_makes_a_repeat_harmless() {
    let scene = Scene::start().await;
    let text: String = (1..=501).map(|number| good(&scene, number) + "\n").collect();
    let args = ["--idempotency-key", "import-7", "--output", "json"];
    let first = send(&scene, &text, &args).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    let rows = objects(&first.out);
    assert_eq!(rows.len(), 501);
    for (number, row) in (1..).zip(&rows) {
        assert_eq!(row["line"], number, "{row}");
    }
    assert_eq!(objects(&first.err), [json!({"accepted": 501, "rejected": 0})]);
    let one = scene.json(&["notifications", "show", rows[500]["notificationId"].as_str().unwrap()]).await;
    assert_eq!(one["eventKey"], "e-501", "{one}");
    let again = send(&scene, &text, &args).await;
    assert_eq!(again.out, first.out, "the same key gives the same notifications");

    let mixed = send(&scene, &format!("[1]\n{{\n{}", good(&scene, 3)), &["--output", "json"]).await;
    assert_eq!(mixed.code, Some(1), "{mixed:?}");
    let mut rows = objects(&mixed.out);
    rows.sort_by_key(|row| row["line"].as_u64());
    assert!(rows[0]["problem"]["detail"].is_string(), "{rows:?}");
    assert_eq!((&rows[1]["line"], &rows[1]["problem"]["code"]), (&json!(2), &json!("BAD_JSON")));
    assert!(rows[2]["notificationId"].is_string(), "{rows:?}");
}

#[tokio::test]
async fn a_file_of_which_nothing_is_accepted_says_why_for_each_line_and_goes_on() {
    let scene = Scene::start().await;
    let bad = "{\"chanel\": \"webhook\"}\n";
    let args = ["--idempotency-key", "none-1"];
    let ended = send(&scene, &bad.repeat(2), &args).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), "accepted 0 of 2 notifications, rejected 2\n"));
    let told: Vec<&str> = ended.err.lines().collect();
    assert!(told.len() == 2 && told[0].starts_with("line 1: unknown field `chanel`"), "{}", ended.err);
    assert!(told[1].starts_with("line 2: ") && told[1].ends_with(" at /chanel"), "{}", ended.err);
    // The key is not used up, and a batch after one that is rejected is sent.
    let mended = send(&scene, &format!("{}\n", good(&scene, 1)), &args).await;
    assert_eq!(mended.code, Some(0), "{mended:?}");
    let mixed = send(&scene, &format!("{}{}", bad.repeat(500), good(&scene, 2)), &[]).await;
    assert_eq!(
        (mixed.code, mixed.out.as_str()),
        (Some(1), "accepted 1 of 501 notifications, rejected 500\n")
    );
}

#[tokio::test]
async fn a_batch_that_is_refused_as_a_whole_says_where_to_go_on() {
    let scene = Scene::start().await;
    let text = format!("{}\n{}\n", good(&scene, 1), good(&scene, 2));
    let ended = send(&scene, &text, &["--key", "phk_wrong"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    let told = "lines 1 to 2 were not accepted. To go on, send the lines from 1 on";
    assert!(ended.err.contains(told), "{}", ended.err);
    assert!(ended.err.contains("(UNAUTHORIZED)"), "{}", ended.err);
    let ended = send(&scene, &text, &["--key", "phk_wrong", "--output", "json"]).await;
    let told = objects(&ended.err);
    assert_eq!((&told[0]["nextLine"], &told[1]["code"]), (&json!(1), &json!("UNAUTHORIZED")), "{told:?}");
    let ended = send(&scene, &text, &["--key", "phk_wrong", "--idempotency-key", "orders"]).await;
    assert!(ended.err.contains("To go on, run the same command again"), "{}", ended.err);
}

#[tokio::test]
async fn an_empty_file_is_nothing_to_send_and_a_missing_one_a_failure() {
    let scene = Scene::start().await;
    let ended = send(&scene, "\n\n", &[]).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "accepted 0 of 0 notifications, rejected 0\n"));
    let ended = scene.run(&["send", "--batch", "/nowhere/orders.jsonl"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.starts_with("error: cannot read /nowhere/orders.jsonl: "), "{}", ended.err);
    for flags in [&["--to", "http://127.0.0.1:1/"][..], &["--watch"], &["--ttl", "1h"], &["--channel", "sms"]]
    {
        let ended = send(&scene, "", flags).await;
        assert_eq!(ended.code, Some(2), "{flags:?}: {ended:?}");
        assert!(ended.err.contains("cannot be used with"), "{flags:?}: {}", ended.err);
    }
}
