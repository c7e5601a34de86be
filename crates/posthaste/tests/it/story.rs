//! The acceptance tests of the retry story, told over HTTP to the built binary, with short delays.
//!
//! The engine passes them with the real minutes on paused time (`posthaste-engine/tests/it/engine/`). A webhook that is
//! refused with 400 stands for the invalid address until there is a channel for mail.

use std::time::Duration;

use posthaste::client::Client;
use posthaste_core::time::Timestamp;
use posthaste_wire::sink::{ReceivedRequest, Sink};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::program::{Home, Program, eventually, get, post, sink};

const JITTER: Duration = Duration::from_millis(100);
/// How much later than planned a send may be on a busy machine.
const BUSY: Duration = Duration::from_secs(2);

struct Scene {
    client: Client,
    sink: Sink,
    program: Program,
    _home: Home,
}

impl Scene {
    async fn set() -> Self {
        let home = Home::new(&[]);
        let program = home.start().await;
        Self { client: program.client(), sink: sink().await, program, _home: home }
    }

    /// Sends a notification with a schedule in milliseconds and the story's kind of jitter.
    async fn send(&self, path: &str, schedule: &[u64], max_attempts: u32) -> String {
        let schedule: Vec<String> = schedule.iter().map(|millis| format!("{millis}ms")).collect();
        let body = json!({
            "channel": "webhook",
            "to": self.sink.url(path),
            "subject": "Your invoice",
            "body": {"invoice": 17},
            "policy": {
                "strategy": "schedule", "schedule": schedule, "maxAttempts": max_attempts,
                "jitter": {"plus": format!("{}ms", JITTER.as_millis())}, "quick": {"tries": 0},
            },
        });
        let sent = post(&self.client, "/v1/notifications", &body).await;
        assert_eq!(sent["status"], "queued");
        sent["notificationId"].as_str().unwrap().to_owned()
    }

    async fn shown(&self, id: &str) -> Value {
        get(&self.client, &format!("/v1/notifications/{id}")).await
    }

    /// Waits until people read these words about a notification.
    async fn reads(&self, id: &str, words: &str) -> Value {
        let mut last = Value::Null;
        let read = eventually(async || {
            last = self.shown(id).await;
            (last["words"] == words).then_some(())
        });
        assert!(read.await.is_some(), "it never read {words:?}: {last}");
        last
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        get(&self.client, path).await["data"].as_array().unwrap().clone()
    }

    /// A notification that failed at every attempt, and its dead letter.
    async fn dead(&self, path: &str) -> (String, Value) {
        let id = self.send(path, &[50, 50], 3).await;
        self.reads(&id, "Failed (moved to dead letter queue)").await;
        let letters = self.list("/v1/dead-letters").await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!((&letters[0]["notificationId"], &letters[0]["status"]), (&json!(id), &json!("pending")));
        (id, letters[0].clone())
    }

    async fn end(self) {
        self.program.stop().await;
        self.sink.stop().await;
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().expect("a time").parse().unwrap()
}

fn numbers(arrivals: &[ReceivedRequest]) -> Vec<u32> {
    arrivals.iter().map(|arrival| arrival.attempt.unwrap()).collect()
}

fn column(shown: &Value, name: &str) -> Vec<Value> {
    shown["attempts"].as_array().unwrap().iter().map(|attempt| attempt[name].clone()).collect()
}

#[tokio::test]
async fn test_1_automatic_retry_on_transient_failure() {
    let scene = Scene::set().await;
    let id = scene.send("/sequence/503,200", &[1_500, 3_000, 4_500], 3).await;

    let waiting = scene.reads(&id, "Retrying (attempt 2 of 3)").await;
    assert_eq!((&waiting["state"], &waiting["status"]), (&json!("retryScheduled"), &json!("retrying")));
    assert_eq!(scene.list("/v1/retry-queue").await[0]["notificationId"], id);
    assert_eq!(get(&scene.client, "/v1/stats").await["inRetry"], 1);

    let delivered = scene.reads(&id, "Delivered").await;
    assert_eq!((&delivered["state"], &delivered["stateCode"]), (&json!("succeeded"), &json!(2)));
    assert_eq!(column(&delivered, "number"), [1, 2]);
    assert_eq!(column(&delivered, "outcome"), ["failed", "delivered"]);
    assert_eq!(column(&delivered, "statusCode"), [503, 200]);
    let started: Vec<Timestamp> = column(&delivered, "startedAt").iter().map(time).collect();
    assert!(started[1].since(started[0]) >= Duration::from_millis(1_499), "{started:?}");
    assert_eq!(numbers(&scene.sink.arrivals()), [1, 2]);
    assert_eq!(scene.list("/v1/dead-letters").await, Vec::<Value>::new());
    scene.end().await;
}

#[tokio::test]
async fn test_2_exponential_backoff_timing() {
    const SCHEDULE: [u64; 3] = [400, 800, 1_600];
    let scene = Scene::set().await;
    let id = scene.send("/status/503", &SCHEDULE, 4).await;
    let mut planned = vec![];
    for number in 2..=4 {
        let waiting = scene.reads(&id, &format!("Retrying (attempt {number} of 4)")).await;
        let last = waiting["attempts"].as_array().unwrap().last().unwrap().clone();
        // None while the attempt is under way, when the plan was missed.
        let next = waiting["nextAttemptAt"].as_str().map(|next| next.parse::<Timestamp>().unwrap());
        planned.extend(next.map(|next| (number, next.since(time(&last["startedAt"])), last)));
    }
    let dead = scene.reads(&id, "Failed (moved to dead letter queue)").await;
    assert_eq!(column(&dead, "number"), [1, 2, 3, 4]);

    let arrivals = scene.sink.arrivals();
    assert_eq!(numbers(&arrivals), [1, 2, 3, 4]);
    for (pair, delay) in arrivals.windows(2).zip(SCHEDULE.map(Duration::from_millis)) {
        let interval = pair[1].at.since(pair[0].at);
        assert!(interval >= delay, "{interval:?} is early for {delay:?}");
        assert!(interval <= delay + JITTER + BUSY, "{interval:?} is late for {delay:?}");
    }
    assert!(!planned.is_empty(), "no plan was seen");
    for (number, interval, last) in planned {
        let delay = Duration::from_millis(SCHEDULE[number - 2]);
        let took = Duration::from_millis(last["durationMs"].as_u64().unwrap());
        // Times are shown in milliseconds, and the engine counts from the latest that the answer can have come.
        let rounded = Duration::from_millis(1);
        assert!(interval + rounded >= delay, "planned {interval:?} for {delay:?}");
        assert!(
            interval <= delay + JITTER + took + Duration::from_millis(500),
            "planned {interval:?} for {delay:?}"
        );
    }
    scene.end().await;
}

#[tokio::test]
async fn test_3_permanent_failure_does_not_retry() {
    let scene = Scene::set().await;
    let id = scene.send("/status/400", &[100, 100, 100], 3).await;
    let dead = scene.reads(&id, "Failed (moved to dead letter queue)").await;
    assert_eq!((&dead["state"], &dead["status"]), (&json!("deadLetter"), &json!("failed")));
    assert_eq!((&dead["reasonCode"], &dead["nextAttemptAt"]), (&json!("PERMANENT_FAILURE"), &Value::Null));
    assert_eq!(column(&dead, "failureType"), ["permanent"]);
    assert_eq!(scene.list("/v1/retry-queue").await, Vec::<Value>::new());

    let letters = scene.list("/v1/dead-letters").await;
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (&letters[0]["notificationId"], &letters[0]["reasonCode"]),
        (&json!(id), &json!("PERMANENT_FAILURE"))
    );
    assert!(letters[0]["reason"].as_str().unwrap().contains("400"), "{}", letters[0]["reason"]);
    let letter =
        get(&scene.client, &format!("/v1/dead-letters/{}", letters[0]["id"].as_str().unwrap())).await;
    assert_eq!(letter["payload"]["body"], json!({"invoice": 17}));
    assert_eq!(column(&letter, "statusCode"), [400]);

    // Long past every delay of its policy there was still one send.
    sleep(Duration::from_millis(600)).await;
    assert_eq!(numbers(&scene.sink.arrivals()), [1]);
    scene.end().await;
}

#[tokio::test]
async fn test_4_dead_letter_queue_manual_retry() {
    let scene = Scene::set().await;
    let (id, letter) = scene.dead("/sequence/503,503,503,503,200").await;
    assert_eq!(letter["reasonCode"], "MAX_ATTEMPTS_EXCEEDED");
    assert!(letter["reason"].as_str().unwrap().contains("503"), "{letter}");
    assert_eq!(column(&letter, "number"), [1, 2, 3]);
    assert_eq!(get(&scene.client, "/v1/stats").await["inDeadLetter"], 1);

    let requeue = format!("/v1/dead-letters/{}/requeue", letter["id"].as_str().unwrap());
    let requeued = post(&scene.client, &requeue, &json!({})).await;
    assert_eq!((&requeued["notificationId"], &requeued["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(scene.list("/v1/dead-letters").await, Vec::<Value>::new());

    let delivered = scene.reads(&id, "Delivered").await;
    assert_eq!((&delivered["generation"], &delivered["attempt"]), (&json!(2), &json!(2)));
    assert_eq!(column(&delivered, "number"), [1, 2, 3, 1, 2]);
    assert_eq!(column(&delivered, "generation"), [1, 1, 1, 2, 2]);
    assert_eq!(numbers(&scene.sink.arrivals()), [1, 2, 3, 1, 2]);
    assert!(scene.sink.arrivals().iter().all(|arrival| arrival.id.as_deref() == Some(&*id)));
    assert_eq!(scene.list("/v1/dead-letters?status=requeued").await.len(), 1);
    assert_eq!(get(&scene.client, "/v1/stats").await["inDeadLetter"], 0);
    scene.end().await;
}

#[tokio::test]
async fn test_5_dead_letter_queue_discard() {
    let scene = Scene::set().await;
    let (id, letter) = scene.dead("/status/503").await;
    let dead_letter = letter["id"].as_str().unwrap();
    post(&scene.client, &format!("/v1/dead-letters/{dead_letter}/discard"), &json!({})).await;

    let shown = scene.shown(&id).await;
    assert_eq!((&shown["words"], &shown["state"]), (&json!("Permanently Failed"), &json!("failed")));
    assert_eq!(shown["reasonCode"], "DISCARDED");
    assert_eq!(scene.list("/v1/dead-letters").await, Vec::<Value>::new());
    assert_eq!(scene.list("/v1/retry-queue").await, Vec::<Value>::new());
    let stats = get(&scene.client, "/v1/stats").await;
    for kind in ["queued", "sending", "inRetry", "inDeadLetter"] {
        assert_eq!(stats[kind], 0, "{kind}");
    }
    let audit = scene.list("/v1/audit").await;
    let row = audit.iter().find(|row| row["action"] == "discard").expect("the discard is recorded");
    assert_eq!((&row["target"], &row["outcome"], &row["count"]), (&json!(id), &json!("done"), &json!(1)));
    assert!(row["actor"].as_str().is_some_and(|actor| !actor.is_empty()), "{row}");
    assert!(time(&row["at"]) >= time(&shown["createdAt"]));
    scene.end().await;
}
