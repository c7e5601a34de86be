//! Wrong requests: each is refused with its status, code and place, and leaves nothing behind.

use bytes::Bytes;
use http::Method;
use posthaste::config::Config;
use serde_json::{Value, json};

use super::running::{Running, StoreKind, Told};

/// Everything that a request could have changed.
#[derive(Debug, PartialEq)]
struct Kept {
    stats: Value,
    notifications: Value,
    audit: Value,
    policies: Value,
    keys: Value,
    arrived: u64,
}

impl Kept {
    async fn of(running: &Running) -> Self {
        let admin = &running.admin;
        Self {
            stats: counters(admin.get("/v1/stats").await),
            notifications: admin.get("/v1/notifications?limit=500").await["data"].take(),
            audit: admin.get("/v1/audit?limit=500").await["data"].take(),
            policies: admin.get("/v1/policies").await,
            keys: admin.get("/v1/keys").await,
            arrived: running.sink.received(),
        }
    }
}

/// The counters alone: figures of a day are counted a moment after what they tell of.
pub(super) fn counters(mut stats: Value) -> Value {
    fn strip(figures: &mut Value) {
        for name in ["firstTryRate24h", "timeToDeliverMs", "topReasons"] {
            figures.as_object_mut().map(|figures| figures.remove(name));
        }
    }
    strip(&mut stats);
    let channels = stats.get_mut("channels").and_then(Value::as_object_mut);
    channels.into_iter().flat_map(|channels| channels.values_mut()).for_each(strip);
    stats
}

/// A server with a little of everything, and what it holds.
pub(super) struct Trial {
    pub(super) running: Running,
    kept: Kept,
}

impl Trial {
    pub(super) async fn start(on: StoreKind) -> Self {
        // Callers say where they are, so that wrong keys can come from many addresses.
        let proxies =
            |config: &mut Config| config.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let running = Running::with(on, proxies).await;
        running.admin.send_until(&running.webhook("/ok"), "succeeded").await;
        running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
        let kept = Kept::of(&running).await;
        Self { running, kept }
    }

    /// Nothing is as it was not.
    pub(super) async fn unchanged(&self, after: &str) {
        assert_eq!(Kept::of(&self.running).await, self.kept, "after {after}");
    }

    /// Asks as the admin, checks the refusal and that nothing changed.
    pub(super) async fn refused(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
        wanted: (u16, &str, &str),
    ) {
        let body: Bytes = body.into();
        let start: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        let asked = format!("{method} {path} {headers:?} {start}");
        let told = self.running.admin.ask(method, path, headers, body).await;
        is_refused(&told, wanted, &asked);
        self.unchanged(&asked).await;
    }

    /// A send that is refused.
    pub(super) async fn send_refused(&self, body: &Value, wanted: (u16, &str, &str)) {
        self.refused(Method::POST, "/v1/notifications", &[], body.to_string(), wanted).await;
    }

    pub(super) async fn stop(self) {
        self.running.stop().await;
    }
}

/// Checks status, code and place: `/..` is a pointer, `?..` a parameter, `-` neither.
pub(super) fn is_refused(told: &Told, (status, code, place): (u16, &str, &str), asked: &str) {
    let problem = &told.json;
    assert_eq!((told.status.as_u16(), &problem["code"]), (status, &json!(code)), "{asked}: {problem}");
    let wanted = match (place, place.strip_prefix('?')) {
        ("-", _) => (Value::Null, Value::Null),
        (_, Some(parameter)) => (Value::Null, json!(parameter)),
        (pointer, None) => (json!(pointer), Value::Null),
    };
    assert_eq!((problem["pointer"].clone(), problem["parameter"].clone()), wanted, "{asked}: {problem}");
    assert!(problem["detail"].as_str().unwrap().len() > 10, "{asked}: {problem}");
}

/// The code of what is not in order.
pub(super) const INVALID: &str = "VALIDATION_FAILED";

/// A good request with some fields set to something else; null takes one out.
pub(super) fn but(good: &Value, changes: &Value) -> Value {
    let mut changed = good.clone();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(changed.as_object_mut().unwrap().remove(name)),
            value => changed[name] = value.clone(),
        }
    }
    changed
}

/// A change of one field, with the pointer of the mistake.
fn wrong(name: &str, value: Value) -> (Value, String) {
    (json!({ name: value }), format!("/{name}"))
}

fn values_of_another_kind() -> Vec<(Value, String)> {
    let mut table = vec![];
    for name in ["userId", "template", "module", "eventKey", "correlationId"] {
        table.push(wrong(name, json!("x".repeat(256))));
    }
    for name in ["userId", "template", "module", "eventKey", "correlationId", "subject", "to"] {
        for value in
            [json!(""), json!("a\u{0}b"), json!("a\r\nb"), json!("a\nb"), json!("a\u{7f}b"), json!("\u{85}")]
        {
            table.push(wrong(name, value));
        }
    }
    let texts =
        ["channel", "to", "userId", "template", "module", "eventKey", "correlationId", "subject", "html"];
    for name in texts {
        for value in [json!(7), json!([]), json!({}), json!(true), json!(["x"])] {
            table.push(wrong(name, value));
        }
    }
    for name in ["notBefore", "expiresAt"] {
        // The last one is a time in seconds since 1970.
        for value in [json!([]), json!({}), json!(true), json!(-1), json!(1e300), json!(1_800_000_000)] {
            table.push(wrong(name, value));
        }
    }
    for name in ["headers", "metadata", "policy"] {
        for value in [json!(7), json!([]), json!("x"), json!(false)] {
            table.push(wrong(name, value));
        }
    }
    for value in [json!("fax"), json!("Webhook"), json!(""), json!("webhook "), json!("x".repeat(100))] {
        table.push(wrong("channel", value));
    }
    for value in [json!("urgent"), json!("HIGH"), json!(1), json!([]), json!({"high": 1}), json!("")] {
        table.push(wrong("priority", value));
    }
    for value in [json!(0), json!(-1), json!(1.5), json!(1e300), json!("60"), json!([]), json!(1.0)] {
        table.push(wrong("ttlSeconds", value));
    }
    table
}

async fn a_field_that_is_missing_unknown_or_of_another_type_is_named(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let mut table = vec![
        wrong("channel", Value::Null),
        wrong("to", Value::Null),
        wrong("body", Value::Null),
        wrong("chanel", json!("webhook")),
        (json!({"channel": null, "chanel": "webhook"}), "/chanel".to_owned()),
        (json!({"body": null, "boddy": 1}), "/boddy".to_owned()),
        (json!({"to": null, "url": "https://example.com"}), "/url".to_owned()),
        wrong("Channel", json!("webhook")),
        wrong("tenant", json!("Other")),
        wrong("notificationId", json!("ntf_01")),
        wrong("", json!(1)),
        (json!({"a/b~c": 1}), "/a~1b~0c".to_owned()),
        wrong("data", json!({})),
        wrong("attachments", json!([])),
        wrong("provider", json!("x")),
        (json!({"expiresAt": "2999-01-01T00:00:00Z", "ttlSeconds": 5}), "/ttlSeconds".to_owned()),
        (
            json!({"notBefore": "2999-01-01T00:00:00Z", "expiresAt": "2998-01-01T00:00:00Z"}),
            "/notBefore".to_owned(),
        ),
        (json!({"notBefore": "2999-01-01T00:00:00Z", "ttlSeconds": 60}), "/notBefore".to_owned()),
        wrong("metadata", json!({"x": "y".repeat(16 * 1024)})),
        wrong("to", json!(format!("https://example.com/{}", "x".repeat(8 * 1024)))),
        wrong("subject", json!("x".repeat(999))),
        (json!({"headers": {"x": 1}}), "/headers/x".to_owned()),
        (json!({"headers": {"x": null}}), "/headers/x".to_owned()),
    ];
    table.extend(values_of_another_kind());
    let past = ["2020-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "0000-01-01T00:00:00Z"];
    table.extend(past.map(|time| wrong("expiresAt", json!(time))));
    for (changes, pointer) in table {
        trial.send_refused(&but(&good, &changes), (422, INVALID, &pointer)).await;
    }
    trial.stop().await;
}

async fn a_field_that_is_not_described_is_refused_also_as_null(on: StoreKind) {
    let trial = Trial::start(on).await;
    for name in ["data", "attachments", "x"] {
        let mut changed = trial.running.webhook("/ok");
        changed[name] = Value::Null;
        trial.send_refused(&changed, (422, INVALID, &format!("/{name}"))).await;
    }
    trial.stop().await;
}

async fn a_time_is_rfc_3339_and_nothing_else(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let odd = [
        "",
        "tomorrow",
        "now",
        "2999-01-01",
        "12:00:00Z",
        "2999-01-01T12:00:00",
        "2999-01-01T12:00Z",
        "2999-01-01T12Z",
        "2999-13-01T00:00:00Z",
        "2999-02-29T00:00:00Z",
        "2999-01-01T24:00:00Z",
        "2999-01-01T12:00:00+25:00",
        "2999-01-01T12:00:00 Z",
        " 2999-01-01T12:00:00Z",
        "2999-01-01T12:00:00Z\n",
        "29990101T120000Z",
        "2999-W01-1T12:00:00Z",
        "+002999-01-01T12:00:00Z",
        "-002999-01-01T12:00:00Z",
        "2999-01-01T12:00:00Z[Europe/Berlin]",
        "2999-01-01T12:00:00[UTC]",
        "2999-01-01T12:00:00,5Z",
        "2999-01-01T12:00:00+02",
        "2999-01-01T12:00:00+0200",
        "32472144000",
        "10000-01-01T00:00:00Z",
        "２９９９-01-01T00:00:00Z",
    ];
    for time in odd {
        for name in ["notBefore", "expiresAt"] {
            trial
                .send_refused(&but(&good, &json!({ name: time })), (422, INVALID, &format!("/{name}")))
                .await;
        }
        if !time.is_empty() {
            let query = posthaste::client::encode(time);
            let path = format!("/v1/notifications?since={query}");
            if time == "2999-01-01" {
                // A filter takes a date.
                continue;
            }
            trial.refused(Method::GET, &path, &[], "", (422, INVALID, "?since")).await;
        }
    }
    trial.stop().await;
}

/// JSON by its form, but no value that a parser can read back.
async fn unreadable_values_are_refused(trial: &Trial) {
    for (fields, place) in [
        (r#""body":"\ud800""#, "/body"),
        (r#""body":{"a":["\udc00"]}"#, "/body/a/0"),
        (r#""body":[1e999]"#, "/body/0"),
        (r#""body":1,"metadata":{"a":"\ud800"}"#, "/metadata/a"),
        (r#""body":1,"metadata":{"a":-1E999}"#, "/metadata/a"),
    ] {
        let body = format!(r#"{{"channel":"webhook","to":"https://example.com",{fields}}}"#);
        trial.refused(Method::POST, "/v1/notifications", &[], body, (422, INVALID, place)).await;
    }
}

async fn what_is_not_one_json_object_is_told_so(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok").to_string();
    let twice = |field: &str| format!("{},{field}}}", good.strip_suffix('}').unwrap());
    let bad_json: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "-"),
        (b" \n".to_vec(), "-"),
        (b"{".to_vec(), "-"),
        (b"nonsense".to_vec(), "-"),
        (b"{\"channel\":}".to_vec(), "-"),
        (b"{'channel': 'webhook'}".to_vec(), "-"),
        (b"{\"channel\": \"webhook\",}".to_vec(), "-"),
        (b"{\"channel\": NaN}".to_vec(), "-"),
        (b"{\"channel\": \"web\nhook\"}".to_vec(), "-"),
        (b"{\"channel\": 01}".to_vec(), "-"),
        (format!("{good}x").into_bytes(), "-"),
        (format!("{good}{good}").into_bytes(), "-"),
        (format!("\u{feff}{good}").into_bytes(), "-"),
        (good.clone().into_bytes()[..good.len() - 1].to_vec(), "-"),
        (b"{\"channel\": \"\xff\xfe\"}".to_vec(), "-"),
        (b"{\"\xc3\": 1}".to_vec(), "-"),
        (b"{\"\\ud800\": 1}".to_vec(), "-"),
        (b"\0".to_vec(), "-"),
        ("[".repeat(50_000).into_bytes(), "-"),
        ("{\"a\":".repeat(50_000).into_bytes(), "-"),
        (
            twice(&format!(r#""metadata":{{"x":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000)))
                .into_bytes(),
            "-",
        ),
    ];
    for (body, place) in bad_json {
        trial.refused(Method::POST, "/v1/notifications", &[], body, (400, "BAD_JSON", place)).await;
    }
    unreadable_values_are_refused(&trial).await;
    for body in ["[]", "\"x\"", "null", "7", "true", " [1] "] {
        trial.refused(Method::POST, "/v1/notifications", &[], body, (422, INVALID, "")).await;
    }
    let doubled = [
        (twice(r#""channel":"webhook""#), "/channel"),
        (twice(r#""chann\u0065l":"webhook""#), "/channel"),
        (twice(r#""body":1"#), "/body"),
        (twice(r#""headers":{"x":"1","x":"2"}"#), "/headers"),
        (twice(r#""headers":{"x":"1","X":"2"}"#), "/headers/x"),
    ];
    for (body, place) in doubled {
        trial.refused(Method::POST, "/v1/notifications", &[], body, (422, INVALID, place)).await;
    }
    let in_policy = r#"{"channel":"webhook","to":"https://example.com","body":1,"policy":{"maxAttempts":1,"maxAttempts":2}}"#;
    trial.refused(Method::POST, "/v1/notifications", &[], in_policy, (422, INVALID, "/policy")).await;
    for count in [65, 1_001, 20_000] {
        let many: Vec<String> = (0..count).map(|at| format!("\"f{at}\":1")).collect();
        let (whole, broken) = (format!("{{{}}}", many.join(",")), format!("{{{},}}", many.join(",")));
        trial.refused(Method::POST, "/v1/notifications", &[], whole, (422, INVALID, "/f0")).await;
        trial.refused(Method::POST, "/v1/notifications", &[], broken, (400, "BAD_JSON", "-")).await;
    }
    // More headers than a map of headers can be made for.
    let short = |at: u32| [at / 900, at / 30 % 30, at % 30].map(|digit| char::from_digit(digit, 30).unwrap());
    let headers: serde_json::Map<String, Value> =
        (0..25_000).map(|at| (short(at).iter().collect(), json!(""))).collect();
    let many = but(&trial.running.webhook("/ok"), &json!({"headers": headers}));
    trial.running.admin.post("/v1/notifications", &many).await.problem(422, INVALID);
    trial.unchanged("too many fields").await;
    trial.stop().await;
}

async fn what_is_too_large_or_of_another_type_is_not_read(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let large = but(&good, &json!({"body": "x".repeat(257 * 1024)}));
    trial.send_refused(&large, (413, "PAYLOAD_TOO_LARGE", "-")).await;
    let batch = "/v1/notifications/batch";
    let huge = json!({"notifications": [but(&good, &json!({"body": "x".repeat(16 * 1024 * 1024)}))]});
    trial.refused(Method::POST, batch, &[], huge.to_string(), (413, "PAYLOAD_TOO_LARGE", "-")).await;
    let table = [
        (json!({"notifications": vec![good.clone(); 501]}), "/notifications"),
        (json!({"notifications": []}), "/notifications"),
        (json!({"notifications": {}}), "/notifications"),
        (json!({"notifications": "x"}), "/notifications"),
        (json!({"notifications": null}), "/notifications"),
        (json!({}), "/notifications"),
        (json!({"notifications": [good], "more": 1}), "/more"),
        (json!([good]), ""),
    ];
    for (body, place) in table {
        trial.refused(Method::POST, batch, &[], body.to_string(), (422, INVALID, place)).await;
    }
    let post = Method::POST;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/jsonx",
        "",
        "json",
        ";",
    ] {
        let headers = [("content-type", kind)];
        trial
            .refused(
                post.clone(),
                "/v1/notifications",
                &headers,
                good.to_string(),
                (415, "UNSUPPORTED_MEDIA_TYPE", "-"),
            )
            .await;
    }
    for key in ["", " ", &"k".repeat(256)] {
        let headers = [("idempotency-key", key)];
        trial
            .refused(
                post.clone(),
                "/v1/notifications",
                &headers,
                good.to_string(),
                (422, INVALID, "?Idempotency-Key"),
            )
            .await;
    }
    let kinds = ["application/json", "Application/JSON; charset=utf-8", "application/json;"];
    for kind in kinds {
        let told = trial
            .running
            .admin
            .ask(post.clone(), "/v1/policies/preview", &[("content-type", kind)], "{}")
            .await;
        told.is(200);
    }
    trial.stop().await;
}

async fn a_header_that_is_ours_or_breaks_the_line_is_refused(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let ours = [
        "host",
        "Content-Length",
        "TRANSFER-ENCODING",
        "connection",
        "webhook-x",
        "Webhook-Id",
        "posthaste-x",
        "Posthaste-Attempt",
    ];
    for name in ours {
        let sent = but(&good, &json!({"headers": {name: "x"}}));
        trial.send_refused(&sent, (422, INVALID, &format!("/headers/{name}"))).await;
    }
    for value in ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\u{0}b", "\u{7f}"] {
        let sent = but(&good, &json!({"headers": {"x-a": value}}));
        trial.send_refused(&sent, (422, INVALID, "/headers/x-a")).await;
    }
    for name in ["", "x y", "x:y", "ü", "x\r\ny", "x\u{0}"] {
        let told = trial
            .running
            .admin
            .post("/v1/notifications", &but(&good, &json!({"headers": {name: "v"}})))
            .await;
        let problem = told.problem(422, INVALID);
        assert!(problem["pointer"].as_str().unwrap().starts_with("/headers/"), "{problem}");
        trial.unchanged(name).await;
    }
    let many: serde_json::Map<_, _> = (0..65).map(|at| (format!("x-{at:02}"), json!(""))).collect();
    let told = trial.running.admin.post("/v1/notifications", &but(&good, &json!({"headers": many}))).await;
    told.problem(422, INVALID);
    trial.unchanged("too many headers").await;
    trial.stop().await;
}

on_each_store! {
    a_field_that_is_missing_unknown_or_of_another_type_is_named;
    a_field_that_is_not_described_is_refused_also_as_null;
    a_time_is_rfc_3339_and_nothing_else;
    what_is_not_one_json_object_is_told_so;
    what_is_too_large_or_of_another_type_is_not_read;
    a_header_that_is_ours_or_breaks_the_line_is_refused;
}
