//! The commands of README.md, docs/api.md and docs/deploy.md, run with the real curl against a real server, and their answers held to
//! those that the pages print.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use posthaste::client::ClientResponse;
use posthaste::clock::SystemClock;
use posthaste::http::problem::Kind;
use posthaste_core::channel::Channel;
use posthaste_core::sealed::KeyName;
use posthaste_core::time::Timestamp;
use posthaste_engine::clock::Clock;
use serde_json::{Value, json};
use tokio::process::Command;

use super::providers::log_provider;
use super::running::{ADMIN, Running, StoreKind, checked};

const README: &str = include_str!("../../../../../README.md");
const API: &str = include_str!("../../../../../docs/api.md");
const DEPLOY: &str = include_str!("../../../../../docs/deploy.md");

/// Where `posthaste dev` listens, and its sink.
const DEV: [&str; 2] = ["127.0.0.1:7780", "127.0.0.1:7790"];

/// A command of a page, and the answer that is printed behind it.
#[derive(Debug, PartialEq)]
struct Example<'p> {
    command: &'p str,
    answer: Option<&'p str>,
}

/// The examples of a page: each block of `sh` that is a call of curl, with the block of `json` that comes next.
fn examples(page: &str) -> Vec<Example<'_>> {
    let mut found: Vec<Example<'_>> = vec![];
    // Blocks are what stands between fences, so every second part is one.
    for block in page.split("```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap_or((block, ""));
        match kind {
            "sh" if text.starts_with("curl ") => found.push(Example { command: text, answer: None }),
            "sh" => {}
            "json" => {
                let last = found.last_mut().filter(|last| last.answer.is_none());
                last.unwrap_or_else(|| panic!("an answer without a command:\n{text}")).answer = Some(text);
            }
            _ => {}
        }
    }
    found
}

/// What the ids, keys and addresses of a page are in this run.
struct Page {
    running: Running,
    names: BTreeMap<String, String>,
}

impl Page {
    async fn start() -> Self {
        let running = Running::with(StoreKind::Sqlite, |config| {
            config.engine.name = Some("mail-1".to_owned());
            // As in `posthaste dev`.
            config.providers.insert("log".to_owned(), log_provider(Channel::Sms, 1_000, None));
        })
        .await;
        let (api, sink) = (running.address().to_string(), running.sink.address().to_string());
        let names = BTreeMap::from([(DEV[0].to_owned(), api), (DEV[1].to_owned(), sink)]);
        Self { running, names }
    }

    async fn run(&mut self, page: &str) {
        for example in examples(page) {
            self.settle().await;
            let (asked, answer) = self.curl(example.command).await;
            let printed = example.answer.map(|text| {
                serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"))
            });
            let wanted = printed
                .as_ref()
                .and_then(|printed| printed.get("code").and(printed["status"].as_u64()))
                .unwrap_or(0);
            let fits = if wanted == 0 {
                answer.status.is_success()
            } else {
                u64::from(answer.status.as_u16()) == wanted
            };
            assert!(fits, "{asked}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
            let Some(printed) = printed else {
                assert_eq!(answer.status, 204, "{asked} answers something that the page does not print");
                continue;
            };
            let real: Value = serde_json::from_slice(&answer.body).unwrap();
            self.learn(&printed, &real);
            let differences = self.differences(&printed, &real);
            assert!(differences.is_empty(), "{asked}\n{}\nin {real:#}", differences.join("\n"));
        }
    }

    /// Runs a command as it is written, but for names; the answer is held against the description as well.
    async fn curl(&self, command: &str) -> (String, ClientResponse) {
        let mut script = command.trim_end().to_owned();
        for (name, real) in &self.names {
            script = script.replace(name, real);
        }
        let script =
            format!("{script} -w '\\n%{{http_code}} %{{method}} %{{content_type}}\\n%{{url_effective}}'");
        let ran =
            Command::new("sh").args(["-c", &script]).env("POSTHASTE_KEY", ADMIN).output().await.unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success(), "{script}: {text} {}", String::from_utf8_lossy(&ran.stderr));
        let (rest, url) = text.rsplit_once('\n').unwrap();
        let (body, facts) = rest.rsplit_once('\n').unwrap();
        let facts: Vec<&str> = facts.splitn(3, ' ').collect();
        let method: Method = facts[1].parse().unwrap();
        let path = url.strip_prefix(&format!("http://{}", self.running.address())).unwrap().to_owned();
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_str(facts[2]).unwrap());
        let answer = ClientResponse {
            status: facts[0].parse::<StatusCode>().unwrap(),
            headers,
            body: Bytes::from(body.to_owned()),
        };
        checked(&method, &path, answer.clone());
        (format!("{method} {path}"), answer)
    }

    /// Waits until nothing is due for a while: who reads a page is slower than a test.
    async fn settle(&self) {
        let path = "/v1/notifications?state=pending,processing,retrying,retryScheduled";
        let quiet = async {
            loop {
                let later = SystemClock.now().later(Duration::from_secs(60));
                let rows = self.running.admin.all(path).await;
                let waits = |row: &Value| {
                    row["nextAttemptAt"].as_str().is_some_and(|at| at.parse::<Timestamp>().unwrap() > later)
                };
                if rows.iter().all(waits) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), quiet)
            .await
            .expect("what the page sent does not settle");
    }

    /// Remembers what the printed ids are called in this run.
    fn learn(&mut self, printed: &Value, real: &Value) {
        match (printed, real) {
            (Value::Object(printed), Value::Object(real)) => {
                for (name, inner) in printed {
                    self.learn(inner, real.get(name).unwrap_or(&Value::Null));
                }
            }
            (Value::Array(printed), Value::Array(real)) => {
                printed.iter().zip(real).for_each(|(printed, real)| self.learn(printed, real));
            }
            (Value::String(printed), Value::String(real))
                if kind_of_id(printed).is_some() && kind_of_id(printed) == kind_of_id(real) =>
            {
                self.names.insert(printed.clone(), real.clone());
            }
            _ => {}
        }
    }

    /// Where an answer differs from the printed one in more than names, times and durations.
    fn differences(&self, printed: &Value, real: &Value) -> Vec<String> {
        let mut found = vec![];
        self.compare("", printed, real, &mut found);
        found
    }

    fn compare(&self, place: &str, printed: &Value, real: &Value, found: &mut Vec<String>) {
        match (printed, real) {
            (Value::Object(printed), Value::Object(real)) => {
                let (wanted, there): (Vec<_>, Vec<_>) = (printed.keys().collect(), real.keys().collect());
                if wanted != there {
                    found.push(format!("{place}: the fields are {there:?}, the page has {wanted:?}"));
                }
                for (name, inner) in printed {
                    self.compare(
                        &format!("{place}/{name}"),
                        inner,
                        real.get(name).unwrap_or(&Value::Null),
                        found,
                    );
                }
            }
            (Value::Array(printed), Value::Array(real)) if printed.len() == real.len() => {
                for (at, (printed, real)) in printed.iter().zip(real).enumerate() {
                    self.compare(&format!("{place}/{at}"), printed, real, found);
                }
            }
            (Value::String(one), Value::String(other)) if self.same_text(place, one, other) => {}
            (Value::Number(_), Value::Number(_))
                if [
                    "/durationMs",
                    "/dataKeys",
                    "/data/0/number",
                    "/run",
                    "/p50",
                    "/p95",
                    "/p99",
                    "/hours/22",
                    "/hours/23",
                ]
                .iter()
                .any(|end| place.ends_with(end)) => {}
            (printed, real) if printed == real => {}
            (printed, real) => found.push(format!("{place}: {real}, the page has {printed}")),
        }
    }

    fn same_text(&self, place: &str, printed: &str, real: &str) -> bool {
        let both_times = printed.parse::<Timestamp>().is_ok() && real.parse::<Timestamp>().is_ok();
        // These are drawn anew each time.
        let drawn = ["/nextCursor", "/start", "/version", "/requestId", "/file", "/secret"]
            .iter()
            .any(|end| place.ends_with(end));
        let renamed =
            self.names.iter().fold(printed.to_owned(), |text, (name, real)| text.replace(name, real));
        let both_keys = [printed, real].iter().all(|text| text.parse::<KeyName>().is_ok());
        both_times || both_keys || drawn || renamed == real
    }
}

/// Whether a text is an id or a key, and of what kind.
fn kind_of_id(text: &str) -> Option<&str> {
    let (kind, rest) = text.split_once('_')?;
    let plain = rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (["ntf", "dl", "op", "key", "phk"].contains(&kind) && plain && rest.len() >= 26).then_some(kind)
}

#[tokio::test]
async fn the_commands_of_the_readme_do_what_it_says() {
    assert!(!examples(README).is_empty(), "README.md shows no call of the API");
    let mut page = Page::start().await;
    page.run(README).await;
    page.settle().await;
    page.running.stop().await;
}

#[tokio::test]
async fn the_commands_of_the_page_about_the_api_do_what_it_says() {
    assert!(examples(API).len() > 20);
    let mut page = Page::start().await;
    page.run(API).await;
    page.running.stop().await;
}

#[tokio::test]
async fn the_calls_of_the_page_about_deployment_do_what_it_says() {
    assert!(!examples(DEPLOY).is_empty(), "docs/deploy.md shows no call of the API");
    let mut page = Page::start().await;
    page.run(DEPLOY).await;
    page.running.stop().await;
}

#[test]
fn the_page_has_every_problem_with_its_status() {
    for kind in Kind::ALL {
        let (status, code, _) = kind.shown();
        let row = format!("| `{code}` | {} |", status.as_u16());
        assert!(API.contains(&row), "docs/api.md has no row {row}");
    }
    let rows = API.lines().skip_while(|line| !line.starts_with("| code | status")).skip(2);
    assert_eq!(rows.take_while(|line| line.starts_with('|')).count(), Kind::ALL.len());
}

#[test]
fn an_answer_that_differs_from_the_page_is_found() {
    let page = "Text.\n```sh\ncurl -s x\n```\n```json\n{}\n```\n```sh\ncargo run\n```\n```sh\ncurl y\n```\n";
    let wanted = [
        Example { command: "curl -s x\n", answer: Some("{}\n") },
        Example { command: "curl y\n", answer: None },
    ];
    assert_eq!(examples(page), wanted);
    assert_eq!(kind_of_id("ntf_01m7evw8n9fb986pfzhm0xvfbg"), Some("ntf"));
    assert_eq!((kind_of_id("ntf_1"), kind_of_id("web_shop")), (None, None));
}

#[tokio::test]
async fn a_page_that_says_something_else_is_caught() {
    let mut page = Page::start().await;
    let printed = json!({"id": "ntf_01m7evw8n9fb986pfzhm0xvfbg", "at": "2026-01-01T00:00:00.000Z", "list": [1], "text": "a"});
    let same = json!({"id": "ntf_01m7evw8n9fb986pfzhm0xvfbh", "at": "2026-01-02T00:00:00.000Z", "list": [1], "text": "a"});
    page.learn(&printed, &same);
    assert_eq!(page.differences(&printed, &same), [""; 0]);
    for (field, value) in [
        ("list", json!([1, 2])),
        ("text", json!("b")),
        ("text", Value::Null),
        ("more", json!(1)),
        ("at", json!("soon")),
    ] {
        let mut other = same.clone();
        other[field] = value;
        assert_ne!(page.differences(&printed, &other), [""; 0], "{other}");
    }
    page.running.stop().await;
}
