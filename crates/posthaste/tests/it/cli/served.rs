//! What the command line does with a real server and the sink.

use std::sync::Arc;

use posthaste::clock::SystemClock;
use posthaste::config::{Config, Sources};
use posthaste::wiring::Server;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock as _;
use posthaste_wire::sink::{Sink, SinkOptions};
use serde_json::Value;
use tempfile::TempDir;

use super::{Ended, Talk, finish, posthaste};

pub(super) const KEY: &str = "an-admin-key-of-more-than-32-characters";
/// JSON that any reader which writes it again would change.
const ORDER: &str = r#"{"order": 17, "amount": 10.00, "big": 123456789012345678901, "a": 1}"#;
/// Three attempts, a moment apart.
const POLICY: &str = r#"{"strategy": "fixed", "initialDelay": "50ms", "maxAttempts": 3, "jitter": "none", "quick": {"tries": 0}}"#;

/// A server on a fresh file, and a sink to send to.
pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) sink: Sink,
    config: Config,
    _directory: TempDir,
}

impl Scene {
    pub(super) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("posthaste.db");
        let flags = [
            ("server.listen", "127.0.0.1:0".to_owned()),
            ("store.url", format!("sqlite://{}", file.display())),
            ("security.allow_subnets", "127.0.0.0/8".to_owned()),
        ];
        let flags = flags.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let sources = Sources { directory: directory.path().to_owned(), flags, ..Sources::default() };
        let mut config = Config::load(sources).unwrap();
        let server = Server::start(&config, Some(KEY)).await.unwrap();
        let options = SinkOptions::new(Arc::new(SystemClock));
        let sink = Sink::start("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        config.server.listen = server.address.into();
        Self { server, sink, config, _directory: directory }
    }

    /// Stops the server and starts it again at the same address.
    pub(super) async fn restart(self) -> Self {
        self.server.stop().await.unwrap();
        Self { server: Server::start(&self.config, Some(KEY)).await.unwrap(), ..self }
    }

    pub(super) fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = posthaste(args);
        command.env("POSTHASTE_URL", format!("http://{}", self.server.address)).env("POSTHASTE_KEY", KEY);
        command
    }

    pub(super) async fn run(&self, args: &[&str]) -> Ended {
        finish(self.command(args), "").await
    }

    /// Runs a command that must go well, and reads the JSON it prints.
    pub(super) async fn json(&self, args: &[&str]) -> Value {
        let ended = self.run(&[args, &["--output", "json"]].concat()).await;
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    /// Sends to a path of the sink and watches to the end; answers the id.
    async fn sent(&self, path: &str, code: i32) -> (String, Ended) {
        let to = self.sink.url(path);
        let ended = self.run(&["send", "--to", &to, "--body", "Hi", "--policy", POLICY, "--watch"]).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        (ended.out.lines().next().unwrap().to_owned(), ended)
    }
}

#[tokio::test]
async fn a_watched_notification_fails_twice_and_arrives() {
    let scene = Scene::start().await;
    let (id, ended) = scene.sent("/sequence/503,503,200", 0).await;
    assert!(id.starts_with("ntf_"), "{id}");
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.last(), Some(&"Delivered"), "{}", ended.out);
    for (number, result) in
        [(1, "failed, temporary, HTTP 503"), (2, "failed, temporary, HTTP 503"), (3, "delivered")]
    {
        let start = format!("  attempt {number} at ");
        let line =
            lines.iter().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{}", ended.out));
        assert!(line.contains(result), "{line}");
    }
    assert_eq!(scene.sink.received(), 3);
}

#[tokio::test]
async fn a_watched_notification_that_dies_ends_with_1_and_can_be_requeued() {
    let scene = Scene::start().await;
    let (id, ended) = scene.sent("/status/500", 1).await;
    let last = ended.out.lines().last().unwrap();
    assert!(last.starts_with("Failed (moved to dead letter queue): "), "{last}");
    assert!(last.contains("MAX_ATTEMPTS_EXCEEDED"), "{last}");

    let list = scene.json(&["dead-letters", "list"]).await;
    let letter = list["data"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(list["data"][0]["notificationId"], id.as_str());
    let failed = scene.run(&["notifications", "failed"]).await;
    assert!(failed.out.contains(&id) && failed.out.starts_with("ID "), "{}", failed.out);

    let unknown = "dl_00000000000000000000000000";
    let ended = scene.run(&["dead-letters", "requeue", &letter, unknown]).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "one of the two is not there");
    assert!(ended.err.starts_with("error: ") && ended.err.contains(unknown), "{}", ended.err);
    let ended = scene.run(&["dead-letters", "requeue", unknown]).await;
    assert!(ended.err.contains("(not-found)"), "{}", ended.err);
    let ended = scene.run(&["dead-letters", "requeue", &letter]).await;
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.out, format!("{letter} is requeued, next is attempt 1\n"));
    scene.sink.wait_for(6).await;

    let audit = scene.run(&["audit"]).await;
    assert!(audit.out.lines().any(|line| line.contains("requeue") && line.contains(&id)), "{}", audit.out);
    let shown = scene.run(&["notifications", "show", &id]).await;
    assert!(shown.out.contains("\nAttempts\n  attempt 1 at "), "{}", shown.out);
    assert!(shown.out.contains("\nEvents\n") && shown.out.contains("requeue"), "{}", shown.out);
}

/// Several ids are one operation; one is a single act.
#[tokio::test]
async fn several_ids_are_acted_on_by_one_operation() {
    let scene = Scene::start().await;
    for _ in 0..3 {
        scene.sent("/status/500", 1).await;
    }
    let list = scene.json(&["dead-letters", "list"]).await;
    let letters: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    let all = [&["dead-letters", "discard"], &letters[..]].concat();
    let ended = scene.run(&all).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("op_") && ended.out.contains("completed") && ended.out.contains("3/3"));
    let again = scene.run(&all).await;
    assert_eq!(again.code, Some(1), "they are resolved already: {again:?}");
    assert!(again.out.contains("3 ALREADY_RESOLVED"), "{}", again.out);
    let one = scene.run(&["dead-letters", "restore", letters[0]]).await;
    assert_eq!((one.code, one.out), (Some(0), format!("{} is restored\n", letters[0])));
    let dry = ["retry-operations", "start", "--all", "--dry-run"];
    let counted = scene.run(&dry).await.out;
    assert!(counted.starts_with("1 would be acted on") && counted.contains("FAILURE GROUP"), "{counted}");
    let operations = scene.json(&["retry-operations", "list"]).await;
    assert_eq!(operations["data"].as_array().unwrap().len(), 2);
    let later = r#"{"strategy": "fixed", "initialDelay": "1h", "maxAttempts": 4, "quick": {"tries": 0}}"#;
    let to = scene.sink.url("/status/503");
    let mut waiting = vec![];
    for _ in 0..2 {
        let sent = scene.run(&["send", "--to", &to, "--body", "x", "--policy", later]).await;
        waiting.push(sent.out.trim().to_owned());
    }
    let ended = scene.run(&["notifications", "cancel", &waiting[0], &waiting[1]]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("2/2"), "{}", ended.out);
    let doctor = scene.run(&["doctor"]).await.out;
    assert!(doctor.lines().any(|line| line.starts_with("ok") && line.contains("operations")), "{doctor}");
}

#[tokio::test]
async fn tables_say_why_something_is_retried_or_dead() {
    let scene = Scene::start().await;
    scene.sent("/status/500", 1).await;
    let to = scene.sink.url("/status/503");
    let hourly = r#"{"strategy": "fixed", "initialDelay": "1h", "maxAttempts": 4, "quick": {"tries": 0}}"#;
    let args = ["send", "--to", &to, "--body", "x", "--event-key", "order.paid", "--policy", hourly];
    assert_eq!(scene.run(&args).await.code, Some(0));
    let one_row = async |args: &[&str]| loop {
        let list = scene.run(args).await.out;
        match list.lines().collect::<Vec<_>>()[..] {
            [titles, row] => return (titles.to_owned(), row.to_owned()),
            [] => {}
            _ => panic!("{list}"),
        }
    };
    let (titles, row) = one_row(&["retry-queue"]).await;
    for title in ["ATTEMPTS", "EVENT KEY", "NEXT ATTEMPT", "LAST ERROR"] {
        assert!(titles.contains(title), "{titles}");
    }
    for cell in
        ["Retrying (attempt 2 of 4)", "  1 of 4  ", "  order.paid  ", "  answered 503: failed as told"]
    {
        assert!(row.contains(cell), "{row}");
    }
    // There is one tenant, and nothing in the queue has a reason.
    assert!(!titles.contains("TENANT") && !titles.contains("CODE"), "{titles}");
    let (titles, row) = one_row(&["dead-letters", "list"]).await;
    assert!(titles.contains("STATUS") && !titles.contains("EVENT KEY"), "{titles}");
    for cell in ["  pending  3  ", "  MAX_ATTEMPTS_EXCEEDED  ", "  answered 500: failed as told"] {
        assert!(row.contains(cell), "{row}");
    }
}

#[tokio::test]
async fn what_was_sent_arrives_as_it_was_given() {
    let scene = Scene::start().await;
    let to = scene.sink.url("/ok");
    let args = [
        "send",
        "--to",
        &to,
        "--json",
        "-",
        "--subject",
        "S",
        "--priority",
        "high",
        "--event-key",
        "order.paid",
        "--correlation-id",
        "c-1",
        "--header",
        "X-Shop: 4",
        "--ttl",
        "10m",
        "--idempotency-key",
        "k-1",
        "--output",
        "json",
    ];
    let first = finish(scene.command(&args), ORDER).await;
    let again = finish(scene.command(&args), ORDER).await;
    assert_eq!((first.code, &first.out), (Some(0), &again.out), "the same key gives the same notification");
    let other = finish(scene.command(&args), "{\"order\": 18}").await;
    assert_eq!(other.code, Some(1));
    assert!(other.err.contains("\"code\":\"IDEMPOTENCY_CONFLICT\""), "{}", other.err);

    scene.sink.wait_for(1).await;
    assert_eq!(scene.sink.arrivals()[0].body, ORDER);
    let accepted: Value = serde_json::from_str(&first.out).unwrap();
    let one = scene.json(&["notifications", "show", accepted["notificationId"].as_str().unwrap()]).await;
    for (field, wanted) in
        [("subject", "S"), ("priority", "high"), ("eventKey", "order.paid"), ("correlationId", "c-1")]
    {
        assert_eq!(one[field], wanted, "{one}");
    }
    assert_eq!(one["headers"]["X-Shop"], "4", "{one}");
    let time = |field: &str| one[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("expiresAt").since(time("createdAt")).as_secs(), 600, "{one}");
}

#[tokio::test]
async fn every_field_of_a_send_can_be_given() {
    let scene = Scene::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("@{}", path.display())
    };
    let (metadata, policy) = (file("metadata.json", r#"{"shop": 4}"#), file("policy.json", POLICY));
    let to = scene.sink.url("/ok");
    let args = [
        &[
            "send",
            "--to",
            &to,
            "--body",
            "-",
            "--html",
            "<p>Hi</p>",
            "--user-id",
            "u-7",
            "--template",
            "welcome",
        ][..],
        &[
            "--module",
            "shop",
            "--metadata",
            &metadata,
            "--policy",
            &policy,
            "--not-before",
            "1h",
            "--output",
            "json",
        ],
    ];
    let sent = finish(scene.command(&args.concat()), "Hello").await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let accepted: Value = serde_json::from_str(&sent.out).unwrap();
    let one = scene.json(&["notifications", "show", accepted["notificationId"].as_str().unwrap()]).await;
    for (field, wanted) in
        [("userId", "u-7"), ("template", "welcome"), ("module", "shop"), ("html", "<p>Hi</p>")]
    {
        assert_eq!(one[field], wanted, "{one}");
    }
    assert_eq!((&one["body"], &one["metadata"]["shop"]), (&"Hello".into(), &4.into()), "{one}");
    assert_eq!(one["maxAttempts"], 3, "{one}");
    let unknown = scene.run(&["send", "--to", &to, "--body", "x", "--provider", "nobody"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("webhook has no providers"), "{}", unknown.err);
    let twice = scene.run(&["send", "--to", &to, "--body", "-", "--metadata", "-"]).await;
    assert_eq!(twice.code, Some(2), "{twice:?}");
    assert!(twice.err.contains("stdin is read once"), "{}", twice.err);
}

#[tokio::test]
async fn lists_are_filtered_and_followed_to_their_end() {
    let scene = Scene::start().await;
    for number in 0..3 {
        let to = scene.sink.url("/ok");
        let key = format!("event-{number}");
        let args = ["send", "--to", &to, "--body", "x", "--event-key", &key, "--not-before", "1h"];
        assert_eq!(scene.run(&args).await.code, Some(0));
    }
    let page = scene.json(&["notifications", "list", "--limit", "2"]).await;
    assert_eq!(page["data"].as_array().unwrap().len(), 2);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = scene.json(&["notifications", "list", "--limit", "2", "--cursor", cursor]).await;
    assert_eq!(rest["data"][0]["eventKey"], "event-0", "{rest}");
    let all = scene.json(&["notifications", "list", "--all"]).await;
    assert_eq!((all["data"].as_array().unwrap().len(), &all["nextCursor"]), (3, &Value::Null));
    let one =
        scene.json(&["notifications", "list", "-q", "event-1", "--state", "pending,retryScheduled"]).await;
    assert_eq!(one["data"].as_array().unwrap().len(), 1, "{one}");
    let none = scene.run(&["notifications", "list", "--until", "1h", "--channel", "webhook"]).await;
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(0), "", "nothing found\n"));

    let id = all["data"][0]["notificationId"].as_str().unwrap();
    let cancelled = scene.run(&["notifications", "cancel", id]).await;
    assert_eq!((cancelled.code, cancelled.out), (Some(0), format!("{id} is being cancelled\n")));
    let refused = scene.run(&["notifications", "retry", id]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("(NOTIFICATION_NOT_FAILED)"), "{}", refused.err);
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_where() {
    let scene = Scene::start().await;
    let ended = scene.run(&["send", "--to", "http://10.0.0.1/", "--body", "x"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.starts_with("error: ") && ended.err.contains("(DESTINATION_FORBIDDEN)"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("\n  at /to"), "{}", ended.err);
    let mut keyless = scene.command(&["stats"]);
    keyless.env_remove("POSTHASTE_KEY");
    let ended = finish(keyless, "").await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("(UNAUTHORIZED)") && ended.err.contains("POSTHASTE_KEY"), "{}", ended.err);
    let ended = scene.run(&["stats", "--key", "phk_wrong"]).await;
    assert!(ended.err.contains("check the key"), "{}", ended.err);
}

#[tokio::test]
async fn the_nodes_are_listed_with_what_each_holds() {
    let scene = Scene::start().await;
    let shown = scene.run(&["nodes"]).await;
    let lines: Vec<&str> = shown.out.lines().collect();
    assert_eq!((shown.code, lines.len()), (Some(0), 2), "{shown:?}");
    assert!(
        lines[0].starts_with("NODE") && lines[0].contains("LEVEL") && lines[0].contains("HOLDS"),
        "{}",
        shown.out
    );
    assert!(lines[1].starts_with('1') && lines[1].contains("alive, answers this"), "{}", shown.out);
    assert_eq!(scene.json(&["nodes"]).await["data"][0]["held"], 0);
}

#[tokio::test]
async fn a_repeat_with_a_duration_gets_its_first_answer() {
    let scene = Scene::start().await;
    let to = scene.sink.url("/ok");
    let args = [
        "send",
        "--to",
        &to,
        "--body",
        "x",
        "--idempotency-key",
        "d-1",
        "--not-before",
        "1h",
        "--expires-at",
        "7200",
        "--output",
        "json",
    ];
    let first = scene.run(&args).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    let again = scene.run(&args).await;
    assert_eq!((again.code, &again.out), (Some(0), &first.out), "{again:?}");
    let accepted: Value = serde_json::from_str(&first.out).unwrap();
    let one = scene.json(&["notifications", "show", accepted["notificationId"].as_str().unwrap()]).await;
    let time = |field: &str| one[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    // The clock is read for the duration and for the id, so they may be a moment apart.
    for (field, seconds) in [("notBefore", 3_600), ("expiresAt", 7_200)] {
        let after = time(field).since(time("createdAt")).as_secs();
        assert!((seconds - 10..=seconds).contains(&after), "{field}: {one}");
    }
}

#[tokio::test]
async fn a_preview_is_in_words_and_ends_with_the_maximum_age() {
    let scene = Scene::start().await;
    let preview = async |policy: &str| {
        let ended = scene.run(&["policy", "preview", policy]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out
    };
    let all = preview(r#"{"preset": "webhook"}"#).await;
    assert!(all.ends_with("from the first attempt to the last: 3d 11h 8m\n"), "{all}");
    assert!(all.contains("\n2        4.5s         5.5s\n"), "{all}");
    let cut = preview(r#"{"preset": "webhook", "maxAge": "1h"}"#).await;
    assert!(cut.ends_with("from the first attempt to the last: 38m 35s\n"), "{cut}");
    assert_eq!(cut.lines().filter(|line| line.starts_with(char::is_numeric)).count(), 4, "{cut}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.json");
    std::fs::write(&path, r#"{"preset": "story"}"#).unwrap();
    let path = path.to_str().unwrap();
    assert!(preview(&format!("@{path}")).await.contains("7m"));
    let bare = scene.run(&["policy", "preview", path]).await;
    assert_eq!(bare.code, Some(2), "{bare:?}");
    assert!(bare.err.contains(&format!("write @{path}")), "{}", bare.err);
}

#[tokio::test]
async fn failures_are_found_by_reason_code_status_code_and_status() {
    let scene = Scene::start().await;
    let mut ids = vec![];
    for path in ["/status/400", "/status/500", "/status/404"] {
        ids.push(scene.sent(path, 1).await.0);
    }
    let found = async |args: &[&str]| {
        let list = scene.json(&[&["notifications", "list"], args].concat()).await;
        let rows = list["data"].as_array().unwrap().clone();
        let mut found: Vec<usize> =
            rows.iter().map(|row| ids.iter().position(|id| row["notificationId"] == **id).unwrap()).collect();
        found.sort_unstable();
        found
    };
    let today = &SystemClock.now().to_string()[..10];
    let url = scene.sink.url("/any/path?x=1");
    for (args, wanted) in [
        (&["--reason-code", "PERMANENT_FAILURE"][..], &[0][..]),
        (&["--reason-code", "MAX_ATTEMPTS_EXCEEDED,PERMANENT_FAILURE"], &[0, 1, 2]),
        (&["--status-code", "500"], &[1]),
        (&["--status-code", "400,404"], &[0, 2]),
        (&["--failure-type", "unknown"], &[2]),
        (&["--status", "failed", "--since", "1d"], &[0, 1, 2]),
        (&["--status", "delivered,queued"], &[]),
        (&["--since", today, "--destination", &url], &[0, 1, 2]),
        (&["--until", today], &[]),
    ] {
        assert_eq!(found(args).await, wanted, "{args:?}");
    }
    let dead =
        scene.json(&["dead-letters", "list", "--status-code", "404", "--status", "pending,requeued"]).await;
    assert_eq!(dead["data"].as_array().unwrap().len(), 1, "{dead}");
}

#[tokio::test]
async fn the_doctor_finds_nothing_on_a_healthy_server_and_a_bad_key_on_a_wrong_one() {
    let scene = Scene::start().await;
    let well = scene.run(&["doctor"]).await;
    assert_eq!(well.code, Some(0), "{well:?}");
    assert!(
        well.out.lines().count() >= 7 && well.out.lines().all(|line| line.starts_with("ok  ")),
        "{}",
        well.out
    );
    assert!(well.out.contains("every dead letter is in its groups"), "{}", well.out);
    let ill = scene.run(&["doctor", "--key", "phk_wrong"]).await;
    assert_eq!(ill.code, Some(1));
    assert!(ill.out.lines().any(|line| line.starts_with("fail  key")), "{}", ill.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_c_ends_the_watch_and_says_that_the_notification_goes_on() {
    let scene = Scene::start().await;
    let to = scene.sink.url("/ok");
    let args = ["send", "--to", &to, "--body", "x", "--not-before", "1h", "--watch"];
    let mut watching = Talk::start(scene.command(&args));
    let id = watching.line();
    // Whoever tells how it stands has asked the server, and listens for the signal since then.
    let stands = watching.line();
    assert!(stands.starts_with("Queued, next at "), "{stands}");
    watching.signal("INT");
    let (code, said) = watching.end();
    assert_eq!(code, Some(1), "it was not seen to be delivered: {said}");
    assert_eq!(said, format!("stopped watching; {id} goes on: posthaste notifications show {id}\n"));
    let one = scene.json(&["notifications", "show", &id]).await;
    assert_eq!(one["state"], "pending");
}
