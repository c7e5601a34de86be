//! I14: a tenant sees and touches nothing of another's, by any route.

use std::collections::BTreeMap;

use http::Method;
use posthaste::http::route::Route;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind, routes, slow};
use super::wrong_input::counters;

/// The lists of the API, each with everything that it can show.
const LISTS: [&str; 9] = [
    "/v1/notifications?limit=500",
    "/v1/notifications/failed?limit=500",
    "/v1/retry-queue?limit=500",
    "/v1/dead-letters?status=all&limit=500",
    "/v1/audit?limit=500",
    "/v1/failure-groups?limit=500",
    "/v1/destinations?all=true",
    "/v1/policies",
    "/v1/views",
];

/// Two tenants with something in every state.
struct Two {
    running: Running,
    a: Caller,
    b: Caller,
    /// The notifications of `b` by state.
    notifications: BTreeMap<&'static str, String>,
    /// The dead letters of `b` by status.
    dead_letters: BTreeMap<&'static str, String>,
    /// An operation of `b`.
    operation: String,
    /// The key of `b`.
    key: String,
}

impl Two {
    async fn start(on: StoreKind) -> Self {
        let running = Running::start(on).await;
        let a = running.tenant("a").await;
        let made = running.admin.post("/v1/keys", &json!({"name": "key of b", "tenant": "b"})).await.is(201);
        let b = running.caller(made["key"].as_str());
        populate(&running, &a).await;
        let (notifications, dead_letters) = populate(&running, &b).await;
        let policy = |attempts: u32| json!({"maxAttempts": attempts}).to_string();
        for (tenant, attempts) in [("a", 7), ("b", 8)] {
            let path = format!("/v1/policies/tenant:{tenant}");
            running.admin.ask(Method::PUT, &path, &[], policy(attempts)).await.is(200);
        }
        let nothing = json!({"filter": {"q": "nothing"}});
        let started = b.post("/v1/retry-operations", &nothing).await.is(202);
        let operation = started["id"].as_str().unwrap().to_owned();
        super::retry_operations::finished(&b, &operation).await;
        let view = json!({"list": "notifications", "query": "status=failed"}).to_string();
        b.ask(Method::PUT, "/v1/views/of%20b", &[], view).await.is(200);
        let key = made["id"].as_str().unwrap().to_owned();
        Self { running, a, b, notifications, dead_letters, operation, key }
    }

    /// Everything of `b`, as `b` and the admin see it.
    async fn of_b(&self) -> Vec<Value> {
        let mut seen = vec![];
        for list in LISTS.iter().chain(&["/v1/keys", "/v1/stats"]) {
            seen.push(settled(self.b.get(list).await));
        }
        for list in &LISTS[..7] {
            seen.push(settled(self.running.admin.get(&format!("{list}&tenant=b")).await));
        }
        for id in self.notifications.values() {
            seen.push(settled(self.running.admin.get(&format!("/v1/notifications/{id}")).await));
        }
        for id in self.dead_letters.values() {
            seen.push(self.running.admin.get(&format!("/v1/dead-letters/{id}")).await);
        }
        seen
    }
}

/// Without what differs from one look to the next: cursors are sealed anew each time.
fn settled(shown: Value) -> Value {
    let mut shown = counters(shown);
    if let Some(object) = shown.as_object_mut() {
        object.remove("nextCursor");
        object.remove("oldestDueSeconds");
        for row in object.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten() {
            row.as_object_mut().map(|row| (row.remove("lastUsedAt"), row.remove("hours")));
            super::destinations::forget_failures(row);
        }
    }
    shown
}

pub(super) type Ids = BTreeMap<&'static str, String>;

/// One notification in each state that lasts, and one dead letter in each status.
pub(super) async fn populate(running: &Running, caller: &Caller) -> (Ids, Ids) {
    let (ok, dies) = (running.webhook("/ok"), running.webhook("/status/400"));
    let (mut waits, mut retries, mut fails, mut expires) =
        (ok.clone(), dies.clone(), dies.clone(), dies.clone());
    waits["notBefore"] = json!("2999-01-01T00:00:00Z");
    retries["to"] = json!(running.sink.url("/status/503"));
    retries["policy"] = slow();
    fails["policy"]["deadLetter"] = json!(false);
    expires["to"] = retries["to"].clone();
    expires["policy"] = slow();
    expires["ttlSeconds"] = json!(1);
    let mut notifications = Ids::new();
    for (state, sent) in [
        ("pending", &waits),
        ("succeeded", &ok),
        ("retryScheduled", &retries),
        ("failed", &fails),
        ("deadLetter", &dies),
        ("cancelled", &waits),
        ("expired", &expires),
    ] {
        let id = caller.send(sent).await;
        if state == "cancelled" {
            caller.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
        }
        caller.wait(&id, state).await;
        notifications.insert(state, id);
    }
    // A list with one row has no second page, and so no cursor.
    caller.send_until(&retries, "retryScheduled").await;
    let mut dead_letters = Ids::new();
    for (status, act) in [("pending", None), ("cancelled", Some("discard")), ("requeued", Some("requeue"))] {
        // Fails at its first attempt, arrives when it is sent again.
        let mut sent = running.webhook("/sequence/400,200");
        sent["eventKey"] = json!(status);
        let id = caller.send(&sent).await;
        let letter = caller.wait(&id, "deadLetter").await["deadLetterId"].as_str().unwrap().to_owned();
        if let Some(act) = act {
            caller.act(&format!("/v1/dead-letters/{letter}/{act}")).await.is(202);
        }
        if status == "requeued" {
            caller.wait(&id, "succeeded").await;
        }
        dead_letters.insert(status, letter);
    }
    (notifications, dead_letters)
}

/// Whether something shown speaks of tenant `b`.
fn speaks_of_b(two: &Two, shown: &Value) -> bool {
    let text = shown.to_string();
    let ids = two.notifications.values().chain(two.dead_letters.values()).chain([&two.key]);
    text.contains(r#""tenant":"b""#)
        || text.contains("tenant:b")
        || ids.into_iter().any(|id| text.contains(id.as_str()))
}

/// What a key of `a` is shown of a list that `b` has rows in.
async fn trespass_list(two: &Two, path: &str) {
    let own = two.a.get(path).await;
    assert!(!speaks_of_b(two, &own), "{path}: {own}");
    let named = two.a.get(&format!("{path}?tenant=a")).await;
    assert_eq!(settled(named), settled(own), "{path}");
    let ask = async |query: String| two.a.ask(Method::GET, &format!("{path}?{query}"), &[], "").await;
    for other in ["b", "default", "c"] {
        ask(format!("tenant={other}")).await.problem(403, "FORBIDDEN");
    }
    if !["/v1/stats", "/v1/failure-groups"].contains(&path) {
        let cursor = two.b.get(&format!("{path}?limit=1")).await["nextCursor"].clone();
        let cursor = cursor.as_str().unwrap_or_else(|| panic!("{path} has one page only"));
        ask(format!("cursor={cursor}")).await.problem(422, "BAD_CURSOR");
    }
}

/// A key of `a` hears nothing of what happens to others, whatever it asks for.
async fn trespass_stream(two: &Two, path: &str) {
    let ask = async |query: &str| two.a.ask(Method::GET, &format!("{path}{query}"), &[], "").await;
    for other in ["b", "default", "c"] {
        ask(&format!("?tenant={other}")).await.problem(403, "FORBIDDEN");
        ask(&format!("?tenant={other}&events=stats")).await.problem(403, "FORBIDDEN");
    }
    let counted = two.a.get("/v1/stats").await;
    let mut all = two.running.admin.stream(&format!("{path}?events=notification"), None).await;
    let mut own = two.a.stream(path, None).await;
    // Of the tenant `default`: nothing of `b` may change in this walk.
    let ids = [
        two.running.admin.send(&two.running.webhook("/ok")).await,
        two.a.send(&two.running.webhook("/ok")).await,
    ];
    for id in &ids {
        two.running.admin.wait(id, "succeeded").await;
    }
    for (events, wanted) in [(&mut all, &ids[..]), (&mut own, &ids[1..])] {
        let mut ended = vec![];
        while ended.len() < wanted.len() {
            let event = events.next().await.unwrap().unwrap();
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            if event.name == "stats" {
                assert_eq!(data["inDeadLetter"], counted["inDeadLetter"], "the counters are those of `a`");
            } else if data["state"] == "succeeded" {
                ended.push(data["notificationId"].as_str().unwrap().to_owned());
            }
            let is_wanted = |id: &str| wanted.iter().any(|wanted| wanted == id);
            assert!(data["notificationId"].as_str().is_none_or(is_wanted), "{data}");
        }
    }
}

/// A group has the same id for each tenant: `a` sees its own part, and its note is not that of `b`.
async fn trespass_group(two: &Two, route: &Route) {
    let group = two.b.get("/v1/failure-groups?by=tenant").await["data"][0]["id"].as_str().unwrap().to_owned();
    let told =
        two.a.ask(route.method.clone(), &route.path.replace("{id}", &group), &[], r#"{"text": "x"}"#).await;
    told.problem(404, "not-found");
    let shared = two.b.get("/v1/failure-groups").await["data"][0]["id"].as_str().unwrap().to_owned();
    let path = route.path.replace("{id}", &shared);
    let own = two.a.ask(route.method.clone(), &path, &[], r#"{"text": "of a"}"#).await.is(200);
    assert!(!speaks_of_b(two, &own), "{own}");
}

/// What is open to all speaks of nobody.
async fn trespass_open(two: &Two, path: &str) {
    let told = two.a.ask(Method::GET, path, &[], "").await;
    told.is(200);
    let text = String::from_utf8_lossy(&told.bytes);
    let ids = two.notifications.values().chain(two.dead_letters.values());
    assert!(ids.into_iter().all(|id| !text.contains(id.as_str())) && !text.contains("key of b"), "{path}");
}

async fn trespass_send(two: &Two) {
    let mut sent = two.running.webhook("/ok");
    sent["tenant"] = json!("b");
    let problem = two.a.post("/v1/notifications", &sent).await.problem(403, "FORBIDDEN");
    assert_eq!(problem["pointer"], "/tenant");
    for named in [None, Some("a")] {
        let mut sent = two.running.webhook("/ok");
        named.inspect(|name| sent["tenant"] = json!(name));
        let id = two.a.send(&sent).await;
        assert_eq!(two.a.wait(&id, "succeeded").await["tenant"], "a");
    }
}

/// Neither ids nor a filter nor everything reaches what is another tenant's.
async fn trespass_operation(two: &Two) {
    let path = "/v1/retry-operations";
    for id in two.dead_letters.values().chain(two.notifications.values()) {
        let told = two.a.post(path, &json!({"ids": [id]})).await;
        assert_eq!(told.problem(422, "VALIDATION_FAILED")["pointer"], "/ids/0");
    }
    let named = json!({"filter": {"tenant": "b"}});
    two.a.post(path, &named).await.problem(403, "FORBIDDEN");
    let preview = two.a.post(path, &json!({"all": true, "dryRun": true})).await.is(200);
    assert!(!speaks_of_b(two, &preview), "{preview}");
}

/// Figures are those of the own tenant.
async fn trespass_figures(two: &Two, path: &str) {
    let own = two.a.get(path).await;
    assert!(!speaks_of_b(two, &own), "{path}: {own}");
    two.a.get(&format!("{path}?tenant=a")).await;
    for other in ["b", "default", "c"] {
        let told = two.a.ask(Method::GET, &format!("{path}?tenant={other}"), &[], "").await;
        told.problem(403, "FORBIDDEN");
    }
}

async fn trespass_operations(two: &Two, Route { method, path, name, .. }: &Route) {
    let told = two.a.ask(method.clone(), &path.replace("{id}", &two.operation), &[], "").await;
    if name == "listRetryOperations" {
        let own = told.is(200);
        assert!(!own.to_string().contains(&two.operation), "{own}");
    } else {
        told.problem(404, "not-found");
    }
}

async fn trespass_views(two: &Two, Route { method, path, name, .. }: &Route) {
    let of_b = path.replace("{name}", "of%20b");
    let put = async |caller: &Caller, query: &str| {
        let body = json!({"list": "notifications", "query": query}).to_string();
        caller.ask(Method::PUT, "/v1/views/of%20b", &[], body).await
    };
    match name.as_str() {
        "listViews" => assert_eq!(two.a.get(path).await["data"], json!([])),
        "putView" => {
            put(&two.a, "tenant=b").await.problem(403, "FORBIDDEN");
            // The name is free for `a`, and stands for another view than that of `b`.
            put(&two.a, "status=queued").await.is(200);
            two.a.ask(Method::DELETE, &of_b, &[], "").await.is(204);
        }
        _ => drop(two.a.ask(method.clone(), &of_b, &[], "").await.problem(404, "not-found")),
    }
}

async fn trespass_policy(two: &Two, Route { method, path, .. }: &Route) {
    let body = if method == Method::GET { "" } else { "{}" };
    let ask = async |scope: &str| two.a.ask(method.clone(), &path.replace("{scope}", scope), &[], body).await;
    for scope in ["tenant:b", "template:b%2Fwelcome", "template:*%2Fwelcome"] {
        ask(scope).await.problem(404, "not-found");
    }
    if method != Method::GET {
        for scope in ["global", "channel:webhook", "template:welcome"] {
            ask(scope).await.problem(403, "FORBIDDEN");
        }
    }
}

/// What is computed goes by the policies of the caller.
async fn trespass_preview(two: &Two, Route { name, path, .. }: &Route) {
    let ask = async |path: String, body: &str| two.a.ask(Method::POST, &path, &[], body.to_owned()).await;
    if name == "previewPolicy" {
        // `a` sees its 7 attempts, not the 8 of `b`.
        let told = ask(format!("{path}?channel=webhook"), "{}").await.is(200);
        assert_eq!(told["attempts"].as_array().unwrap().len(), 7);
        return;
    }
    // Where nothing is ever taken, `a` makes 7 attempts of each, not the 8 of `b`.
    let body = json!({"rate": 0.001, "script": "404", "duration": "60d"}).to_string();
    let told = ask(format!("{path}?channel=webhook"), &body).await.is(200);
    let each = told["attempts"].as_f64().unwrap() / told["arrived"].as_f64().unwrap();
    assert!((6.8..=7.0).contains(&each), "{told}");
    for other in ["tenant:b", "template:b/x"] {
        ask(format!("{path}?scope={other}"), &body).await.problem(422, "VALIDATION_FAILED");
    }
}

/// What a key of `a` is answered on a route with the ids of `b`. A new route needs its case.
async fn trespass(two: &Two, route: &Route) {
    let Route { method, path, .. } = route;
    let with = |id: &str| path.replace("{id}", id).replace("{scope}", id);
    let ask = async |path: String, body: &str| two.a.ask(method.clone(), &path, &[], body.to_owned()).await;
    match route.name.as_str() {
        "getNotification" | "retry" | "retryNow" | "cancel" => {
            for id in two.notifications.values() {
                ask(with(id), "").await.problem(404, "not-found");
            }
        }
        "getDeadLetter" | "requeue" | "discard" | "editAndRetry" | "restore" => {
            for id in two.dead_letters.values() {
                ask(with(id), "").await.problem(404, "not-found");
            }
        }
        "listNotifications" | "listFailed" | "listRetryQueue" | "listDeadLetters" | "listAudit" | "stats" => {
            trespass_list(two, path).await;
        }
        "startRetryOperation" => trespass_operation(two).await,
        "listRetryOperations"
        | "getRetryOperation"
        | "pauseRetryOperation"
        | "resumeRetryOperation"
        | "cancelRetryOperation" => trespass_operations(two, route).await,
        "stream" => trespass_stream(two, path).await,
        "statsSeries" | "retryLoad" => trespass_figures(two, path).await,
        "listFailureGroups" => trespass_list(two, path).await,
        "getFailureGroup" | "putFailureGroupNote" => trespass_group(two, route).await,
        "listDestinations" | "getDestination" | "putDestination" | "blockDestination"
        | "unblockDestination" | "resetDestination" => {
            super::destinations::trespass(&two.running, &two.a, route).await
        }
        "listViews" | "getView" | "putView" | "deleteView" => trespass_views(two, route).await,
        "listPolicies" | "listKeys" => {
            let own = ask(path.to_owned(), "").await.is(200);
            assert!(!speaks_of_b(two, &own) && own.to_string().contains('a'), "{path}: {own}");
        }
        "getPolicy" | "putPolicy" | "deletePolicy" => trespass_policy(two, route).await,
        // The keys of these tenants have no role, which these routes need: `roles` walks them with one.
        "revokeKey" | "rotateKey" => drop(ask(with(&two.key), "").await.problem(403, "FORBIDDEN")),
        "getSigningSecret" | "rotateSigningSecret" => {
            ask(format!("{path}?tenant=b"), "").await.problem(403, "FORBIDDEN");
        }
        "listNodes" | "listSettings" | "listTenants" | "listJobs" | "masterKey" | "rotateMasterKey" => {
            drop(ask(path.to_owned(), "").await.problem(403, "FORBIDDEN"))
        }
        "listJobRuns" | "runJob" | "pauseJob" | "resumeJob" => {
            ask(with("retry-expire"), "").await.problem(403, "FORBIDDEN");
        }
        "createKey" => {
            for body in
                [r#"{"name": "x", "tenant": "b"}"#, r#"{"name": "x", "tenant": "a"}"#, r#"{"name": "x"}"#]
            {
                ask(path.to_owned(), body).await.problem(403, "FORBIDDEN");
            }
        }
        // Whose it becomes is said by the key.
        "send" => trespass_send(two).await,
        "sendBatch" => {
            let sent = json!({"notifications": [two.running.webhook("/ok")]}).to_string();
            let told = ask(path.to_owned(), &sent).await.is(202);
            let id = told["accepted"][0]["notificationId"].as_str().unwrap().to_owned();
            assert_eq!(two.a.wait(&id, "succeeded").await["tenant"], "a");
        }
        "previewPolicy" | "simulatePolicy" => trespass_preview(two, route).await,
        "health" | "ready" | "metrics" | "openapi" | "docs" => {
            trespass_open(two, path).await;
        }
        "docsFile" => trespass_open(two, &path.replace("{file}", "explorer.js")).await,
        new => panic!("the new route {new} needs its case"),
    }
}

async fn a_key_of_one_tenant_finds_and_changes_nothing_of_another_by_any_route(on: StoreKind) {
    let two = Two::start(on).await;
    let before = two.of_b().await;
    for route in routes() {
        trespass(&two, route).await;
        assert_eq!(two.of_b().await, before, "after {route:?}");
    }
    // The same ids are there for whoever may see them.
    for (state, id) in &two.notifications {
        assert_eq!(two.b.get(&format!("/v1/notifications/{id}")).await["state"], *state);
    }
    for (status, id) in &two.dead_letters {
        assert_eq!(two.b.get(&format!("/v1/dead-letters/{id}")).await["status"], *status);
    }
    two.running.stop().await;
}

async fn an_admin_sees_every_tenant_and_sends_for_default(on: StoreKind) {
    let two = Two::start(on).await;
    let admin = &two.running.admin;
    let shown = admin.send_until(&two.running.webhook("/ok"), "succeeded").await;
    assert_eq!(shown["tenant"], "default");
    let all = admin.all("/v1/notifications?limit=7").await;
    let of = |tenant: &str| all.iter().filter(|one| one["tenant"] == tenant).count();
    assert_eq!((of("a"), of("b"), of("default"), all.len()), (11, 11, 1, 23));
    assert_eq!(admin.all("/v1/notifications?tenant=b").await.len(), 11);
    assert_eq!(admin.all("/v1/notifications?tenant=nobody").await, [] as [Value; 0]);
    let (whole, part) = (admin.get("/v1/stats").await, two.a.get("/v1/stats").await);
    assert_eq!((&whole["inDeadLetter"], &part["inDeadLetter"]), (&json!(4), &json!(2)));
    assert_eq!((&whole["inRetry"], &part["inRetry"]), (&json!(4), &json!(2)));
    assert_eq!(admin.get("/v1/stats?tenant=a").await["inDeadLetter"], part["inDeadLetter"]);
    // An admin acts on what belongs to a tenant, and the audit names both.
    let id = &two.notifications["pending"];
    admin.act(&format!("/v1/notifications/{id}/cancel")).await.is(202);
    let row = two.b.get("/v1/audit?limit=1").await["data"][0].clone();
    assert_eq!(
        (&row["actor"], &row["action"], &row["target"], &row["tenant"]),
        (&json!("admin"), &json!("cancel"), &json!(id), &json!("b"))
    );
    two.running.stop().await;
}

async fn idempotency_keys_of_two_tenants_are_apart(on: StoreKind) {
    let running = Running::start(on).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    let key = [("idempotency-key", "one")];
    let path = "/v1/notifications";
    let first = a.ask(Method::POST, path, &key, running.webhook("/ok").to_string()).await.is(202);
    let second = b.ask(Method::POST, path, &key, running.webhook("/status/201").to_string()).await.is(202);
    assert_ne!(first["notificationId"], second["notificationId"]);
    let again = b.ask(Method::POST, path, &key, running.webhook("/status/201").to_string()).await.is(202);
    assert_eq!(again, second);
    running.stop().await;
}

async fn a_key_works_until_it_is_revoked_and_is_kept_only_as_its_hash(on: StoreKind) {
    let running = Running::start(on).await;
    let made = running.admin.post("/v1/keys", &json!({"name": "till", "tenant": "a"})).await.is(201);
    let second =
        running.admin.post("/v1/keys", &json!({"name": "second admin", "admin": true})).await.is(201);
    let key = made["key"].as_str().unwrap();
    let (tenant, admin) = (running.caller(Some(key)), running.caller(second["key"].as_str()));
    tenant.send_until(&running.webhook("/ok"), "succeeded").await;
    assert_eq!(second["tenant"], Value::Null);
    let listed = tenant.get("/v1/keys").await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!((&listed["data"][0]["id"], &listed["data"][0]["start"]), (&made["id"], &json!(key[..12])));
    assert_eq!(admin.get("/v1/keys").await["data"].as_array().unwrap().len(), 2);
    let kept = running.everything_kept().await;
    // The start is kept to know the key by, which shows that all is looked at.
    let holds = |text: &str| kept.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds(&key[..12]));
    for secret in [key, second["key"].as_str().unwrap(), super::running::ADMIN] {
        // Not even the part behind the shown start.
        assert!(!holds(&secret[12..32]), "a key is kept");
    }
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    tenant.ask(Method::DELETE, &path, &[], "").await.problem(403, "FORBIDDEN");
    admin.ask(Method::DELETE, &path, &[], "").await.is(204);
    tenant.ask(Method::GET, "/v1/stats", &[], "").await.problem(401, "UNAUTHORIZED");
    tenant
        .ask(Method::POST, "/v1/notifications", &[], running.webhook("/ok").to_string())
        .await
        .problem(401, "UNAUTHORIZED");
    admin.ask(Method::DELETE, &path, &[], "").await.problem(404, "not-found");
    let rows = running.admin.get("/v1/audit").await;
    let actions: Vec<&str> =
        rows["data"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions[..3], ["revoke-key", "create-key", "create-key"], "{rows}");
    running.stop().await;
}

on_each_store! {
    a_key_of_one_tenant_finds_and_changes_nothing_of_another_by_any_route;
    an_admin_sees_every_tenant_and_sends_for_default;
    idempotency_keys_of_two_tenants_are_apart;
    a_key_works_until_it_is_revoked_and_is_kept_only_as_its_hash;
}
