//! Every change that a person or program makes leaves one audit row, with its key and its address: each route that is declared,
//! and each form of the pages.

use http::Method;
use posthaste::config::Config;
use posthaste::dashboard::{Needs, PAGES};
use posthaste_core::group::{GroupBy, GroupId};
use posthaste_core::sealed::Key;
use serde_json::{Value, json};

use super::pages::Browser;
use super::running::{Running, StoreKind, routes};

/// Routes that are asked with a body and change nothing, and those that hand in notifications, which are no administration.
const NO_CHANGE: [&str; 4] = ["send", "sendBatch", "previewPolicy", "simulatePolicy"];
/// Written by the operation itself, when it ends.
const END: &str = "end-operation";
/// Where the caller is, by the word of its proxy.
const ADDRESS: &str = "203.0.113.7";

/// A change: how the API is asked for it, and how a form.
struct Change {
    path: String,
    body: Value,
    form: String,
    fields: Vec<(&'static str, String)>,
}

/// A change that has nothing in its body.
fn plain(path: String) -> Change {
    Change { form: path.clone(), path, body: json!({}), fields: vec![] }
}

impl Change {
    fn with(self, body: Value, fields: &[(&'static str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { body, fields, ..self }
    }
}

struct Scene {
    running: Running,
    destination: String,
}

impl Scene {
    async fn start(on: StoreKind) -> Self {
        let behind_a_proxy = |config: &mut Config| {
            config.server.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
            // A file makes one of its own.
            if on == StoreKind::Postgres {
                config.security.master_keys = vec![Key::new([7; Key::LENGTH])];
            }
        };
        let running = Running::with(on, behind_a_proxy).await;
        let destination = super::destinations::receiver(&running, "default");
        Self { running, destination }
    }

    /// An operation that takes its time.
    async fn operation(&self) -> String {
        for _ in 0..6 {
            self.dead_letter().await;
        }
        let slow = json!({"all": true, "rate": 1, "action": "requeue"});
        let started = self.running.admin.post("/v1/retry-operations", &slow).await.is(202);
        format!("/retry-operations/{}", started["id"].as_str().unwrap())
    }

    async fn notification(&self, to: &str, state: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut sent = self.running.webhook(to);
        change(&mut sent);
        self.running.admin.send_until(&sent, state).await
    }

    async fn dead_letter(&self) -> String {
        let dead = self.notification("/sequence/400,200", "deadLetter", |_| {}).await;
        dead["deadLetterId"].as_str().unwrap().to_owned()
    }

    async fn key(&self) -> String {
        let made = self.running.admin.post("/v1/keys", &json!({"name": "x", "tenant": "a"})).await.is(201);
        made["id"].as_str().unwrap().to_owned()
    }

    /// Makes what a route changes, by somebody else. A new route needs its case, here or in `NO_CHANGE`.
    async fn change(&self, route: &str) -> Change {
        let id = |shown: Value| shown["notificationId"].as_str().unwrap().to_owned();
        match route {
            "retry" => {
                let fails = |sent: &mut Value| sent["policy"]["deadLetter"] = json!(false);
                let failed = id(self.notification("/status/400", "failed", fails).await);
                plain(format!("/notifications/{failed}/retry"))
            }
            "retryNow" => {
                let slow = |sent: &mut Value| sent["policy"] = super::running::slow();
                let waits = id(self.notification("/status/503", "retryScheduled", slow).await);
                plain(format!("/notifications/{waits}/retry-now"))
            }
            "cancel" => {
                let later = |sent: &mut Value| sent["notBefore"] = json!("2999-01-01T00:00:00Z");
                let waits = id(self.notification("/ok", "pending", later).await);
                plain(format!("/notifications/{waits}/cancel"))
            }
            "requeue" | "discard" => plain(format!("/dead-letters/{}/{route}", self.dead_letter().await)),
            "restore" => {
                let letter = self.dead_letter().await;
                self.running.admin.act(&format!("/v1/dead-letters/{letter}/discard")).await.is(202);
                plain(format!("/dead-letters/{letter}/restore"))
            }
            "editAndRetry" => {
                let to = self.running.sink.url("/ok");
                plain(format!("/dead-letters/{}/edit-and-retry", self.dead_letter().await))
                    .with(json!({"to": to}), &[("to", &to), ("body", "{}")])
            }
            other => self.change_of_settings(other).await,
        }
    }

    async fn change_of_settings(&self, route: &str) -> Change {
        match route {
            "runJob" => plain("/jobs/dead-letter-cleanup/run".to_owned()),
            "pauseJob" => plain("/jobs/retention/pause".to_owned()),
            "resumeJob" => plain("/jobs/retention/resume".to_owned()),
            "putFailureGroupNote" => {
                self.dead_letter().await;
                let group = GroupId::of(GroupBy::Tenant, b"default");
                plain(format!("/failure-groups/{group}/note")).with(json!({"text": "x"}), &[("text", "x")])
            }
            "putView" => Change { form: "/views".to_owned(), ..plain("/views/mine".to_owned()) }.with(
                json!({"list": "notifications", "query": "status=failed"}),
                &[("name", "mine"), ("list", "notifications"), ("query", "status=failed")],
            ),
            "deleteView" => {
                let view =
                    json!({"list": "notifications", "query": "status=failed", "shared": true}).to_string();
                self.running.admin.ask(Method::PUT, "/v1/views/theirs", &[], view).await.is(200);
                Change { form: "/views/theirs/delete".to_owned(), ..plain("/views/theirs".to_owned()) }
            }
            "startRetryOperation" => {
                self.dead_letter().await;
                let group = GroupId::of(GroupBy::Tenant, b"default").to_string();
                let fields = [("action", "requeue"), ("sure", "requeue"), ("group", &*group)];
                plain("/retry-operations".to_owned()).with(json!({"group": group}), &fields)
            }
            "pauseRetryOperation" => plain(format!("{}/pause", self.operation().await)),
            "cancelRetryOperation" => plain(format!("{}/cancel", self.operation().await)),
            "resumeRetryOperation" => {
                let operation = self.operation().await;
                self.running.admin.act(&format!("/v1{operation}/pause")).await.is(202);
                plain(format!("{operation}/resume"))
            }
            "putDestination" => plain(format!("/destinations/{}", self.destination))
                .with(json!({"rate": 500}), &[("rate", "500")]),
            "blockDestination" => plain(format!("/destinations/{}/block", self.destination))
                .with(json!({"reason": "x"}), &[("reason", "x")]),
            "unblockDestination" => plain(format!("/destinations/{}/unblock", self.destination)),
            "resetDestination" => plain(format!("/destinations/{}/reset", self.destination)),
            "putPolicy" => plain("/policies/tenant:a".to_owned())
                .with(json!({"maxAttempts": 2}), &[("policy", "{\"maxAttempts\": 2}")]),
            "deletePolicy" => {
                let form = "/policies/tenant:a/delete".to_owned();
                Change { form, ..plain("/policies/tenant:a".to_owned()) }
            }
            "createKey" => plain("/keys".to_owned()).with(
                json!({"name": "y", "tenant": "a"}),
                &[("name", "y"), ("tenant", "a"), ("role", "sender")],
            ),
            "revokeKey" => {
                let key = self.key().await;
                Change { form: format!("/keys/{key}/revoke"), ..plain(format!("/keys/{key}")) }
            }
            "rotateKey" => plain(format!("/keys/{}/rotate", self.key().await)),
            "rotateMasterKey" => plain("/master-key/rotate".to_owned()),
            "getSigningSecret" => {
                plain("/signing-secret/show".to_owned()).with(json!({}), &[("tenant", "a")])
            }
            "rotateSigningSecret" => {
                let path = "/signing-secret/rotate?tenant=a".to_owned();
                Change { path, ..plain("/signing-secret/rotate".to_owned()) }
                    .with(json!({}), &[("tenant", "a")])
            }
            new => panic!("the new route {new} needs its case"),
        }
    }

    /// The rows of a key, but for those of its session and of the ends of operations.
    async fn rows(&self, key: &str) -> Vec<Value> {
        let rows = self.running.admin.all(&format!("/v1/audit?actor={key}&limit=500")).await;
        rows.into_iter().filter(|row| row["action"] != END && row["action"] != "login").collect()
    }

    /// There is one more row than there was, and it says who and from where.
    async fn is_audited(&self, key: &str, before: usize, about: &str) {
        let rows = self.rows(key).await;
        assert_eq!(rows.len(), before + 1, "{about}: {:?}", &rows[..rows.len() - before.min(rows.len())]);
        let row = &rows[0];
        assert_eq!((&row["keyId"], &row["address"]), (&json!(key), &json!(ADDRESS)), "{about}: {row}");
        assert!(row["actor"].as_str().unwrap().starts_with("ada (key_"), "{about}: {row}");
    }
}

async fn ada(running: &Running) -> (String, String) {
    let made = json!({"name": "ada", "tenant": "*", "role": "admin"});
    let made = running.admin.post("/v1/keys", &made).await.is(201);
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

async fn every_change_by_the_api_is_audited_once_with_key_and_address(on: StoreKind) {
    let scene = Scene::start(on).await;
    let (id, key) = ada(&scene.running).await;
    let caller = scene.running.caller(Some(&key));
    let mut changes = 0;
    for route in routes().iter().filter(|route| route.method != Method::GET && route.access.needs_key()) {
        if NO_CHANGE.contains(&route.name.as_str()) {
            continue;
        }
        // A database has the key of the settings, so there is nothing to change.
        if on == StoreKind::Postgres && route.name == "rotateMasterKey" {
            continue;
        }
        let change = scene.change(&route.name).await;
        let before = scene.rows(&id).await.len();
        let body = if change.body == json!({}) { String::new() } else { change.body.to_string() };
        let path = format!("/v1{}", change.path);
        let told = caller.ask(route.method.clone(), &path, &[("x-forwarded-for", ADDRESS)], body).await;
        assert!(told.status.is_success(), "{}: {}", route.name, told.json);
        scene.is_audited(&id, before, &route.name).await;
        changes += 1;
    }
    assert!(changes >= 25, "{changes}");
    scene.running.stop().await;
}

async fn every_change_by_a_form_is_audited_once_with_key_and_address(on: StoreKind) {
    let scene = Scene::start(on).await;
    let (id, key) = ada(&scene.running).await;
    let mut browser = Browser::with(&scene.running, &key).await;
    browser.forwarded_for = ADDRESS.to_owned();
    for page in PAGES.iter().filter(|page| page.method == Method::POST) {
        let Needs::Operation(operation) = page.needs else { continue };
        // The last one only counts what an operation would act on.
        if NO_CHANGE.contains(&operation) || page.path == "/retry-operations/new" {
            continue;
        }
        let change = scene.change(operation).await;
        let before = scene.rows(&id).await.len();
        let fields: Vec<(&str, &str)> =
            change.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let shown = browser.press(&change.form, &change.form, &fields).await;
        let start: String = shown.text.split("<main").last().unwrap().chars().take(1_500).collect();
        assert!(shown.status.is_success() || shown.status == 303, "{}: {start}", page.path);
        scene.is_audited(&id, before, page.path).await;
    }
    // The page about it shows both.
    let page = browser.ask(Method::GET, "/audit", &[], String::new()).await.text;
    let shown =
        format!(">ada</span><span class=\"l2\">from {ADDRESS}, <a href=\"/audit?actor={id}\">{id}</a>");
    assert!(page.contains(&shown), "{page}");
    scene.running.stop().await;
}

on_each_store! {
    every_change_by_the_api_is_audited_once_with_key_and_address;
    every_change_by_a_form_is_audited_once_with_key_and_address;
}
