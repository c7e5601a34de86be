//! WebDriver, as far as the tests need it: a chromedriver of our own at a free port, and one session.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Method;
use posthaste::client::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Without a sandbox, because tests may run as root, and without a word to anybody else.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];
/// The name of an element in WebDriver's answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page.
pub(super) struct Driver {
    client: Client,
    session: String,
    process: Process,
    _profile: TempDir,
}

/// Ends with the test, also if that fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Driver {
    pub(super) async fn start() -> Self {
        let (process, port) = tokio::task::spawn_blocking(chromedriver).await.unwrap();
        let client = Client::new(&format!("http://127.0.0.1:{port}"), None).unwrap().within(PATIENCE);
        let profile = tempfile::tempdir().unwrap();
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).into();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = client.post("/session", &wanted).await.unwrap();
        let made: Value = made.json().unwrap();
        let session = made["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let driver = Self { client, session, process, _profile: profile };
        // What the browser's own first page asked for and said is not ours.
        driver.open("about:blank").await;
        driver.log("performance").await;
        driver.log("browser").await;
        driver
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Result<Value, Value> {
        let path = format!("/session/{}{path}", self.session);
        let body = if method == Method::POST { body.to_string() } else { String::new() };
        let answer = self.client.send(method, &path, &[], body.into()).await.unwrap();
        let value: Value = answer.json().unwrap();
        if answer.status.is_success() { Ok(value["value"].clone()) } else { Err(value["value"].clone()) }
    }

    pub(super) async fn open(&self, url: &str) {
        self.ask(Method::POST, "/url", json!({"url": url})).await.unwrap();
    }

    /// The first element that fits, once it is there.
    async fn find(&self, selector: &str) -> String {
        let wanted = json!({"using": "css selector", "value": selector});
        let found = async {
            loop {
                if let Ok(found) = self.ask(Method::POST, "/element", wanted.clone()).await {
                    return found[ELEMENT].as_str().unwrap().to_owned();
                }
                // A browser tells nothing by itself: it has to be asked again.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {selector}"))
    }

    pub(super) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.ask(Method::POST, &format!("/element/{element}/click"), json!({})).await.unwrap();
    }

    pub(super) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        self.ask(Method::POST, &format!("/element/{element}/value"), json!({"text": text})).await.unwrap();
    }

    /// Presses keys while no field has the focus.
    pub(super) async fn keys(&self, text: &str) {
        let element = self.find("body").await;
        self.ask(Method::POST, &format!("/element/{element}/value"), json!({"text": text})).await.unwrap();
    }

    /// Waits until an element has a text in it.
    pub(super) async fn wait_for(&self, selector: &str, text: &str) {
        let script =
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent).join('\\n')";
        let mut last = Value::Null;
        let there = async {
            loop {
                let asked = json!({"script": script, "args": [selector]});
                if let Ok(found) = self.ask(Method::POST, "/execute/sync", asked).await {
                    last = found;
                    if last.as_str().is_some_and(|found| found.contains(text)) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, there).await;
        assert!(waited.is_ok(), "{selector} does not say {text}: {last}");
    }

    /// The lines of a log since the last look, each with its level.
    async fn log(&self, kind: &str) -> Vec<(String, String)> {
        let lines = self.ask(Method::POST, "/se/log", json!({"type": kind})).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        lines.as_array().unwrap().iter().map(|line| (text(&line["level"]), text(&line["message"]))).collect()
    }

    /// Every address that was asked for.
    pub(super) async fn addresses(&self) -> Vec<String> {
        let events = self.log("performance").await;
        let asked = events.iter().filter_map(|(_, event)| {
            let event: Value = serde_json::from_str(event).ok()?;
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            is_request.then(|| event["params"]["request"]["url"].as_str().unwrap().to_owned())
        });
        asked.collect()
    }

    /// What the browser complained about: scripts that failed, and breaches of the content security policy.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let lines = self.log("browser").await.into_iter();
        // Hints for developers have other levels.
        lines.filter(|(level, _)| level == "SEVERE" || level == "WARNING").map(|(_, text)| text).collect()
    }

    pub(super) async fn quit(self) {
        let _ = self.ask(Method::DELETE, "", Value::Null).await;
        drop(self.process);
    }
}

/// Starts chromedriver at a free port, which it prints.
fn chromedriver() -> (Process, u16) {
    let started =
        Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut process =
        Process(started.expect("chromedriver is there: scripts/test installs it, with chromium"));
    let output = BufReader::new(process.0.stdout.take().unwrap());
    for line in output.lines() {
        let line = line.unwrap();
        // The first line repeats the port that was asked for.
        let port = line.split("on port ").nth(1).and_then(|rest| rest.trim_end_matches('.').parse().ok());
        if let Some(port) = port.filter(|port| *port != 0) {
            return (process, port);
        }
    }
    panic!("chromedriver names no port")
}
