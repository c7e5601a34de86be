//! `tail`: what it shows of a running server, and how it ends.

use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::Talk;
use super::served::{KEY, Scene};

fn json_line(tail: &mut Talk) -> Value {
    let line = block_in_place(|| tail.line());
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Sends something that is refused for good, and answers its id.
async fn refused(scene: &Scene, body: &str) -> String {
    let to = scene.sink.url("/status/400");
    let ended = scene.run(&["send", "--to", &to, "--body", body, "--watch"]).await;
    ended.out.lines().next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_lines_and_ctrl_c_ends_it_well() {
    let scene = Scene::start().await;
    let mut shown =
        Talk::start(scene.command(&["tail", "--state", "deadLetter", "--events", "notification,stats"]));
    // The counters say that the stream is open.
    let first = block_in_place(|| shown.line());
    assert!(first.starts_with("queued 0  sending 0  in retry 0  in dead letter 0"), "{first}");
    let id = refused(&scene, "x").await;
    let line = loop {
        let line = block_in_place(|| shown.line());
        if !line.starts_with("queued") {
            break line;
        }
    };
    for part in
        ["deadLetter", &id, "default", "attempt 1", "permanent", "HTTP 400", "PERMANENT_FAILURE", "dl_"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains('\u{1b}'), "no colours where it is no terminal: {line:?}");
    shown.signal("INT");
    let (code, said) = block_in_place(|| shown.end());
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_programs_each_event_is_a_line_of_json_and_a_break_is_told() {
    let scene = Scene::start().await;
    let mut tail =
        Talk::start(scene.command(&["tail", "--events", "stats,notification", "--output", "json"]));
    assert_eq!(json_line(&mut tail)["event"], "stats");
    let id = refused(&scene, "x").await;
    let mut states = vec![];
    while states.len() < 3 {
        let event = json_line(&mut tail);
        if event["event"] == "notification" {
            assert_eq!(event["data"]["notificationId"], json!(id));
            assert!(event["id"].as_str().is_some_and(|id| id.contains('.')), "{event}");
            states.push(event["data"]["state"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(states, ["pending", "processing", "deadLetter"]);
    let scene = scene.restart().await;
    let missed = loop {
        let event = json_line(&mut tail);
        if event["event"] == "missed" {
            break event;
        }
    };
    assert_eq!(missed["data"], json!({"since": null}));
    let again = refused(&scene, "y").await;
    loop {
        let event = json_line(&mut tail);
        if event["event"] == "notification" {
            assert_eq!(event["data"]["notificationId"], json!(again));
            break;
        }
    }
    tail.signal("TERM");
    let (code, said) = block_in_place(|| tail.end());
    assert_eq!(code, Some(0));
    assert_eq!(said, "the stream has ended; connecting again\nconnected again\n");
}

#[tokio::test]
async fn a_server_that_refuses_or_is_not_there_is_told() {
    let scene = Scene::start().await;
    let ended = scene.run(&["tail", "--key", &KEY[1..]]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("--key"), "{ended:?}");
    let ended = scene.run(&["tail", "--url", "http://127.0.0.1:9"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("cannot connect"), "{ended:?}");
    for wrong in [["tail", "--events", "none"], ["tail", "--state", "none"]] {
        assert_eq!(scene.run(&wrong).await.code, Some(2));
    }
}
