//! WebDriver, as far as the tests need it: a chromedriver of the test's own, and one browser with one page.

mod process;

use std::time::Duration;

use http::Method;
use posthaste::client::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::process::Process;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the browser may take for one command, its own start among them.
const COMMAND: Duration = Duration::from_secs(60);
/// How often a browser is started that does not come up.
const STARTS: u32 = 3;
/// Without a sandbox, because tests may run as root, and without a word to anybody else.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];
/// The name of an element in WebDriver's answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Runs in every document before its own scripts: a breach of the content security policy is a line of the log.
const WATCH: &str = "document.addEventListener('securitypolicyviolation', (breach) => console.error( \
    `breach of the policy: ${breach.effectiveDirective} ${breach.blockedURI} ${breach.sample}`))";
/// Why a click did not happen, where it may a moment later: the page is changing.
const PASSING: [&str; 5] = [
    "no such element",
    "stale element reference",
    "element not interactable",
    "element click intercepted",
    "javascript error",
];

/// What the browser did and said since the last look.
#[derive(Debug)]
pub(super) struct Heard {
    /// Every address that was asked for.
    pub(super) addresses: Vec<String>,
    /// Texts of the dialogs that were opened.
    pub(super) dialogs: Vec<String>,
    /// Scripts that failed, breaches of the content security policy, and answers with an error.
    pub(super) complaints: Vec<String>,
}

/// A browser with one page. It ends with its value.
pub(super) struct Driver {
    client: Client,
    session: String,
    _process: Process,
    _profile: TempDir,
}

impl Driver {
    pub(super) async fn start() -> Self {
        let mut refusals = vec![];
        // On a busy machine chromium may end or hang while it starts, which says nothing about the dashboard.
        for _ in 0..STARTS {
            match Self::begin().await {
                Ok(driver) => return driver,
                Err(why) => refusals.push(why),
            }
        }
        panic!("no browser after {STARTS} starts: {refusals:#?}")
    }

    async fn begin() -> Result<Self, String> {
        let profile = tempfile::tempdir().unwrap();
        let process = Process::start(profile.path()).await?;
        let client = Client::new(&format!("http://127.0.0.1:{}", process.port), None).unwrap();
        let client = client.within(COMMAND);
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).into();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            // A dialog is a line of the log, and keeps nobody waiting.
            "unhandledPromptBehavior": "dismiss",
        }}});
        let made = client.post("/session", &wanted).await.map_err(|error| error.to_string())?;
        let made: Value = made.json().map_err(|error| error.to_string())?;
        let session = made["value"]["sessionId"].as_str().ok_or_else(|| made.to_string())?.to_owned();
        let driver = Self { client, session, _process: process, _profile: profile };
        driver.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": WATCH})).await;
        // What the browser's own first page asked for and said is not ours.
        driver.open("about:blank").await;
        driver.heard().await;
        Ok(driver)
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Result<Value, Value> {
        let path = format!("/session/{}{path}", self.session);
        let body = if method == Method::POST { body.to_string() } else { String::new() };
        let answer = self.client.send(method, &path, &[], body.into()).await.unwrap();
        let value: Value = answer.json().unwrap();
        if answer.status.is_success() { Ok(value["value"].clone()) } else { Err(value["value"].clone()) }
    }

    /// A command of the DevTools protocol.
    pub(super) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let asked = json!({"cmd": command, "params": parameters});
        self.ask(Method::POST, "/goog/cdp/execute", asked).await.unwrap()
    }

    pub(super) async fn open(&self, url: &str) {
        self.ask(Method::POST, "/url", json!({"url": url})).await.unwrap();
    }

    /// Waits until the page has come whole and was painted once: before that, the browser may drop keys that are pressed.
    pub(super) async fn is_painted(&self) {
        let painted =
            "return document.readyState === 'complete' && performance.getEntriesByType('paint').length > 0";
        self.wait_until(painted, json!([])).await;
    }

    pub(super) async fn reload(&self) {
        self.ask(Method::POST, "/refresh", json!({})).await.unwrap();
    }

    /// Looks until there is something.
    pub(super) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Result<T, Value>) -> T {
        let mut last = Value::Null;
        let found = async {
            loop {
                match look().await {
                    Ok(found) => return found,
                    Err(instead) => last = instead,
                }
                // A browser tells nothing by itself: it has to be asked again.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, found).await;
        match waited {
            Ok(found) => found,
            Err(_) => panic!("{what}: {last:#}\n{}", self.shown().await),
        }
    }

    /// What a person reads, for complaints.
    async fn shown(&self) -> String {
        let script = "return `${location.href}\n${document.body ? document.body.innerText : ''}`";
        let shown = self.ask(Method::POST, "/execute/sync", json!({"script": script, "args": []})).await;
        shown.map_or_else(|error| error.to_string(), |text| text.as_str().unwrap_or("").to_owned())
    }

    async fn try_script(&self, script: &str, arguments: Value) -> Result<Value, Value> {
        self.ask(Method::POST, "/execute/sync", json!({"script": script, "args": arguments})).await
    }

    /// What a script of the test returns. `arguments` is an array.
    pub(super) async fn script(&self, script: &str, arguments: Value) -> Value {
        self.try_script(script, arguments).await.unwrap()
    }

    /// What a script of the test gives to its callback.
    pub(super) async fn promised(&self, script: &str, arguments: Value) -> Value {
        let asked = json!({"script": script, "args": arguments});
        self.ask(Method::POST, "/execute/async", asked).await.unwrap()
    }

    /// Waits until a script returns something that counts as true.
    pub(super) async fn wait_until(&self, script: &str, arguments: Value) -> Value {
        let about = format!("{script} {arguments}");
        self.until(&about, async || {
            let found = self.try_script(script, arguments.clone()).await?;
            let is_there = !matches!(found, Value::Null | Value::Bool(false));
            if is_there { Ok(found) } else { Err(found) }
        })
        .await
    }

    /// Waits until elements have a text in them.
    pub(super) async fn wait_for(&self, selector: &str, text: &str) {
        let script =
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent).join('\\n')";
        self.until(&format!("{selector} does not say {text:?}"), async || {
            let found = self.try_script(script, json!([selector])).await?;
            if found.as_str().unwrap().contains(text) { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Asks for something about the element that a script returns, once it is there and lets itself be asked.
    async fn on_element(&self, script: &str, arguments: Value, command: &str, body: Value) {
        self.until(&format!("{script} {arguments}"), async || {
            let found = self.try_script(script, arguments.clone()).await?;
            let id = found[ELEMENT].as_str().ok_or(Value::Null)?;
            let done = self.ask(Method::POST, &format!("/element/{id}/{command}"), body.clone()).await;
            done.map(|_| ()).inspect_err(|error| {
                let kind = error["error"].as_str().unwrap_or_default();
                assert!(PASSING.contains(&kind), "{arguments}: {error:#}");
            })
        })
        .await;
    }

    pub(super) async fn click(&self, selector: &str) {
        let script = "return document.querySelector(arguments[0])";
        self.on_element(script, json!([selector]), "click", json!({})).await;
    }

    /// Clicks what has these words on it: the first link, button or summary that is seen below an element.
    pub(super) async fn press_in(&self, selector: &str, words: &str) {
        let script = "const [selector, words] = arguments; \
            const within = [...document.querySelectorAll(selector)]; \
            const all = within.flatMap((one) => [...one.querySelectorAll('a, button, summary')]); \
            return all.find((one) => one.checkVisibility() && one.textContent.trim().startsWith(words)) || null";
        self.on_element(script, json!([selector, words]), "click", json!({})).await;
    }

    /// Clicks what has these words on it.
    pub(super) async fn press(&self, words: &str) {
        self.press_in("body", words).await;
    }

    pub(super) async fn type_into(&self, selector: &str, text: &str) {
        let script = "return document.querySelector(arguments[0])";
        self.on_element(script, json!([selector]), "value", json!({"text": text})).await;
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub(super) async fn keys(&self, text: &str) {
        let steps = text.chars().flat_map(|key| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        });
        let steps: Vec<Value> = steps.collect();
        let asked = json!({"actions": [{"type": "key", "id": "keyboard", "actions": steps}]});
        self.ask(Method::POST, "/actions", asked).await.unwrap();
    }

    /// Moves the pointer to the middle of an element, as soon as it can be seen.
    pub(super) async fn point_at(&self, selector: &str) {
        let script = "const found = document.querySelector(arguments[0]); \
            found.scrollIntoView({block: 'center', behavior: 'instant'}); \
            return found";
        let element = self.script(script, json!([selector])).await;
        let step = json!({"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": element});
        let pointer = json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [step]});
        self.ask(Method::POST, "/actions", json!({"actions": [pointer]})).await.unwrap();
    }

    /// What is seen of the page, as PNG in base64.
    pub(super) async fn picture(&self) -> String {
        let picture = self.ask(Method::GET, "/screenshot", Value::Null).await.unwrap();
        picture.as_str().unwrap().to_owned()
    }

    /// The lines of a log since the last look, each with its level.
    async fn log(&self, kind: &str) -> Vec<(String, String)> {
        let lines = self.ask(Method::POST, "/se/log", json!({"type": kind})).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        lines.as_array().unwrap().iter().map(|line| (text(&line["level"]), text(&line["message"]))).collect()
    }

    /// What the browser did and said since the last look.
    pub(super) async fn heard(&self) -> Heard {
        let (mut addresses, mut dialogs) = (vec![], vec![]);
        for (_, event) in self.log("performance").await {
            let Ok(event) = serde_json::from_str::<Value>(&event) else { continue };
            let (method, said) = (&event["message"]["method"], &event["message"]["params"]);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            match method.as_str() {
                Some("Network.requestWillBeSent") => addresses.push(text(&said["request"]["url"])),
                Some("Page.javascriptDialogOpening") => dialogs.push(text(&said["message"])),
                _ => {}
            }
        }
        let lines = self.log("browser").await.into_iter();
        // Hints for developers have other levels.
        let is_complaint = |level: &str| level == "SEVERE" || level == "WARNING";
        let complaints = lines.filter(|(level, _)| is_complaint(level)).map(|(_, text)| text).collect();
        Heard { addresses, dialogs, complaints }
    }

    /// What the browser complained about since the last look.
    pub(super) async fn complaints(&self) -> Vec<String> {
        self.heard().await.complaints
    }

    pub(super) async fn quit(self) {
        let _ = self.ask(Method::DELETE, "", Value::Null).await;
    }
}
