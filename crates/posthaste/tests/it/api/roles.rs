//! What a key may do: its role, its tenant, until when, and after a rotation.

use std::time::Duration;

use http::Method;
use posthaste::http::route::{Access, Needed, Route};
use posthaste_core::group::{GroupBy, GroupId};
use posthaste_core::role::Role;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind, routes};
use super::tenants::{Ids, populate};

/// A key as it was asked for.
struct Holder {
    /// `None` for a tenant's key without one.
    role: Option<Role>,
    /// `*` for all tenants.
    tenant: &'static str,
    caller: Caller,
}

impl Holder {
    async fn make(running: &Running, tenant: &'static str, role: Option<Role>) -> Self {
        let mut body = json!({"name": "k", "tenant": tenant});
        if let Some(role) = role {
            body["role"] = json!(role.name());
        }
        let made = running.admin.post("/v1/keys", &body).await.is(201);
        assert_eq!(made["role"], json!(role.map(Role::name)));
        assert_eq!(made["tenant"], if tenant == "*" { Value::Null } else { json!(tenant) });
        Self { role, tenant, caller: running.caller(made["key"].as_str()) }
    }

    fn about(&self) -> String {
        format!("{:?} of {}", self.role, self.tenant)
    }
}

/// One key of each role for a tenant.
async fn holders(running: &Running, tenant: &'static str) -> Vec<Holder> {
    let roles: &[Option<Role>] = match tenant {
        "*" => &[Some(Role::Reader), Some(Role::Operator), Some(Role::Admin)],
        _ => &[Some(Role::Sender), Some(Role::Reader), Some(Role::Operator), None, Some(Role::Admin)],
    };
    let mut all = vec![];
    for role in roles {
        all.push(Holder::make(running, tenant, *role).await);
    }
    all
}

/// Whether the contract lets a role do this. A new route needs its case.
fn may(role: Option<Role>, route: &str) -> bool {
    let (sends, reads, acts) = match role {
        None => (true, true, true),
        Some(Role::Sender) => (true, false, false),
        Some(Role::Reader) => (false, true, false),
        Some(Role::Operator) => (false, true, true),
        Some(Role::Admin) => return true,
        Some(Role::Tenant) => unreachable!("no key is given this role"),
    };
    match route {
        "send" | "sendBatch" => sends,
        "getNotification" => sends || reads,
        read if READS.split(' ').any(|known| known == read) => reads,
        act if ACTS.split(' ').any(|known| known == act) => acts,
        "putPolicy" | "deletePolicy" | "listKeys" => role.is_none(),
        "createKey"
        | "revokeKey"
        | "rotateKey"
        | "getSigningSecret"
        | "rotateSigningSecret"
        | "rotateMasterKey" => false,
        new => panic!("the new route {new} needs its case"),
    }
}

/// Routes that a reader may call.
const READS: &str = "\
    listNotifications listFailed listRetryQueue listDeadLetters getDeadLetter stats statsSeries \
    retryLoad stream listAudit listPolicies getPolicy previewPolicy simulatePolicy listNodes listSettings listTenants \
    listJobs listJobRuns listViews getView listFailureGroups getFailureGroup listRetryOperations getRetryOperation \
    listDestinations getDestination masterKey";

/// Routes that an operator may call.
const ACTS: &str = "\
    retry retryNow cancel requeue discard editAndRetry restore runJob pauseJob resumeJob \
    putFailureGroupNote putView deleteView startRetryOperation pauseRetryOperation resumeRetryOperation \
    cancelRetryOperation putDestination blockDestination unblockDestination resetDestination";

/// Routes that only keys for all tenants may call.
const FOR_ALL: &str = "\
    masterKey rotateMasterKey listNodes listSettings listTenants listJobs listJobRuns runJob pauseJob resumeJob";

fn is_for_all(route: &Route) -> bool {
    FOR_ALL.split(' ').any(|name| name == route.name)
}

/// Something of the tenant `a`.
struct Scene {
    running: Running,
    notifications: Ids,
    dead_letters: Ids,
    operation: String,
    key: String,
    /// Its failure group by tenant.
    group: String,
    /// Where its webhooks go.
    destination: String,
}

impl Scene {
    async fn start(on: StoreKind) -> Self {
        let running = Running::start(on).await;
        let made = running.admin.post("/v1/keys", &json!({"name": "of a", "tenant": "a"})).await.is(201);
        let a = running.caller(made["key"].as_str());
        let (notifications, dead_letters) = populate(&running, &a).await;
        let policy = json!({"maxAttempts": 7}).to_string();
        running.admin.ask(Method::PUT, "/v1/policies/tenant:a", &[], policy).await.is(200);
        let group = GroupId::of(GroupBy::Tenant, b"a").to_string();
        let started = a.post("/v1/retry-operations", &json!({"filter": {"q": "nothing"}})).await.is(202);
        let operation = started["id"].as_str().unwrap().to_owned();
        super::retry_operations::finished(&a, &operation).await;
        let key = made["id"].as_str().unwrap().to_owned();
        let destination = super::destinations::receiver(&running, "a");
        Self { running, notifications, dead_letters, operation, key, group, destination }
    }

    /// What there is, but for figures that change by themselves.
    async fn seen(&self) -> Vec<Value> {
        let mut seen = vec![];
        for list in [
            "/v1/notifications?limit=500",
            "/v1/dead-letters?status=all&limit=500",
            "/v1/audit?limit=500",
            "/v1/policies",
            "/v1/keys",
            "/v1/destinations?all=true",
        ] {
            let mut shown = self.running.admin.get(list).await["data"].clone();
            for row in shown.as_array_mut().unwrap() {
                row.as_object_mut().unwrap().remove("lastUsedAt");
                super::destinations::forget_failures(row);
            }
            seen.push(shown);
        }
        seen
    }

    /// A request that would change something of `a` if it were allowed: path and body.
    fn request(&self, route: &Route) -> (String, String) {
        let id = match route.name.as_str() {
            "requeue" | "discard" | "editAndRetry" | "getDeadLetter" => &self.dead_letters["pending"],
            "restore" => &self.dead_letters["cancelled"],
            "retry" => &self.notifications["failed"],
            "retryNow" => &self.notifications["retryScheduled"],
            "getFailureGroup" | "putFailureGroupNote" => &self.group,
            "getDestination" | "putDestination" | "blockDestination" | "unblockDestination"
            | "resetDestination" => &self.destination,
            "getRetryOperation" | "pauseRetryOperation" | "resumeRetryOperation" | "cancelRetryOperation" => {
                &self.operation
            }
            "revokeKey" | "rotateKey" => &self.key,
            _ => &self.notifications["pending"],
        };
        let mut sent = self.running.webhook("/ok");
        sent["tenant"] = json!("a");
        let body = match route.name.as_str() {
            "send" => sent,
            "sendBatch" => json!({"notifications": [sent]}),
            "createKey" => json!({"name": "x", "tenant": "a"}),
            "startRetryOperation" => json!({"ids": [self.dead_letters["pending"]]}),
            "putPolicy" => json!({"maxAttempts": 2}),
            "putFailureGroupNote" => json!({"text": "x"}),
            "putView" => json!({"list": "notifications", "query": "tenant=a"}),
            _ => json!({}),
        };
        let body = if route.method == Method::GET { String::new() } else { body.to_string() };
        (route.path.replace("{id}", id).replace("{scope}", "tenant:a").replace("{name}", "of%20a"), body)
    }
}

/// A request that is refused for what it asks, once it is known that the caller may ask: nothing changes.
fn harmless(route: &Route) -> (String, String) {
    let id = match route.path.as_str() {
        path if path.starts_with("/v1/dead-letters") => "dl_00000000000000000000000000",
        path if path.starts_with("/v1/failure-groups") => "grp_00000000000000000000000000",
        path if path.starts_with("/v1/retry-operations") => "op_00000000000000000000000000",
        path if path.starts_with("/v1/destinations") => "dst_00000000000000000000000000",
        path if path.starts_with("/v1/keys") => "key_00000000000000000000000000",
        _ => "ntf_00000000000000000000000000",
    };
    let body = if route.method == Method::GET { "" } else { r#"{"no such field": 1}"# };
    let path = route.path.replace("{id}", id).replace("{scope}", "tenant:nobody").replace("{name}", "none");
    // A look at a secret is audited, so this one asks for more than there is.
    let query = if path.starts_with("/v1/signing-secret") { "?nothing=1" } else { "" };
    (path + query, body.to_owned())
}

async fn every_route_asks_for_its_role(on: StoreKind) {
    let scene = Scene::start(on).await;
    let mut all = holders(&scene.running, "a").await;
    all.extend(holders(&scene.running, "*").await);
    let before = scene.seen().await;
    for route in routes().iter().filter(|route| route.access.needs_key()) {
        let Access::Key(Needed { roles, .. }) = &route.access else { unreachable!("a key is needed") };
        for holder in &all {
            let about = format!("{} for {}", route.name, holder.about());
            if !may(holder.role, &route.name) {
                let (path, body) = scene.request(route);
                let told = holder.caller.ask(route.method.clone(), &path, &[], body).await;
                let detail = told.problem(403, "FORBIDDEN")["detail"].as_str().unwrap().to_owned();
                for needed in roles.iter().filter(|role| Role::NAMED.contains(role)) {
                    assert!(detail.contains(needed.name()), "{about}: {detail}");
                }
                continue;
            }
            let (path, body) = harmless(route);
            let told = holder.caller.ask(route.method.clone(), &path, &[], body).await;
            if is_for_all(route) && holder.tenant != "*" {
                let detail = told.problem(403, "FORBIDDEN")["detail"].clone();
                assert!(detail.as_str().unwrap().contains("all tenants"), "{about}: {detail}");
            } else if route.name == "getSigningSecret" {
                told.problem(422, "VALIDATION_FAILED");
            } else if route.name == "deletePolicy" && holder.tenant == "*" {
                // There is nothing to be removed; that somebody asked is audited, so a refused route must come after it.
                told.is(204);
            } else {
                let wanted: &[u16] = if route.method == Method::GET { &[200, 404] } else { &[404, 422] };
                assert!(wanted.contains(&told.status.as_u16()), "{about}: {}", told.json);
            }
        }
    }
    let mut after = scene.seen().await;
    let audit = after[2].as_array_mut().unwrap();
    assert_eq!(
        (&audit[0]["action"], &audit[0]["target"]),
        (&json!("remove-policy"), &json!("tenant:nobody"))
    );
    audit.remove(0);
    assert_eq!(after, before);
    scene.running.stop().await;
}

async fn no_role_reaches_what_is_another_tenants(on: StoreKind) {
    let scene = Scene::start(on).await;
    let all = holders(&scene.running, "b").await;
    let before = scene.seen().await;
    for route in routes().iter().filter(|route| route.access.needs_key()) {
        let names_something =
            route.path.contains('{') || ["send", "createKey"].contains(&route.name.as_str());
        for holder in all.iter().filter(|_| names_something) {
            let (path, body) = scene.request(route);
            let told = holder.caller.ask(route.method.clone(), &path, &[], body).await;
            let about = format!("{} for {}: {}", route.name, holder.about(), told.json);
            let wanted: &[u16] = match may(holder.role, &route.name) {
                true if is_for_all(route) => &[403],
                // A view of its own that would show what is another's.
                true if route.name == "putView" => &[403],
                true if route.path.contains('{') => &[404],
                _ => &[403],
            };
            assert!(wanted.contains(&told.status.as_u16()), "{about}");
        }
    }
    // An admin of a tenant makes keys of its tenant, and never one for all.
    let admin = &all.iter().find(|holder| holder.role == Some(Role::Admin)).unwrap().caller;
    for body in [
        json!({"name": "x", "tenant": "*", "role": "reader"}),
        json!({"name": "x", "tenant": "*", "role": "admin"}),
        json!({"name": "x", "admin": true}),
        json!({"name": "x", "tenant": "a", "role": "sender"}),
    ] {
        let problem = admin.post("/v1/keys", &body).await.problem(403, "FORBIDDEN");
        assert_eq!(problem["pointer"], "/tenant");
    }
    let batch = json!({"notifications": [{"tenant": "a", "channel": "webhook", "to": "http://127.0.0.1:9", "body": ""}]});
    let told = admin.post("/v1/notifications/batch", &batch).await.problem(422, "VALIDATION_FAILED");
    assert_eq!(told["rejected"][0]["problem"]["code"], "FORBIDDEN");
    assert_eq!(told["rejected"][0]["problem"]["pointer"], "/notifications/0/tenant");
    assert_eq!(scene.seen().await, before);
    scene.running.stop().await;
}

async fn an_admin_of_a_tenant_manages_the_keys_of_its_tenant(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = Holder::make(&running, "a", Some(Role::Admin)).await.caller;
    running.key_of("b").await;
    let made = admin.post("/v1/keys", &json!({"name": "s", "tenant": "a", "role": "sender"})).await.is(201);
    let id = made["id"].as_str().unwrap();
    let listed = admin.get("/v1/keys").await;
    let tenants: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|row| row["tenant"].as_str().unwrap()).collect();
    assert_eq!(tenants, ["a", "a"]);
    let rotated = admin.post(&format!("/v1/keys/{id}/rotate"), &json!({"overlap": "0"})).await.is(200);
    let [old, new] = [&made, &rotated].map(|shown| running.caller(shown["key"].as_str()));
    assert_eq!(rotated["previous"], Value::Null);
    old.post("/v1/notifications", &json!({})).await.problem(401, "UNAUTHORIZED");
    new.post("/v1/notifications", &json!({})).await.is(422);
    admin.ask(Method::DELETE, &format!("/v1/keys/{id}"), &[], "").await.is(204);
    new.post("/v1/notifications", &json!({})).await.problem(401, "UNAUTHORIZED");
    let audit = admin.get("/v1/audit").await;
    let acts: Vec<&str> =
        audit["data"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(acts, ["revoke-key", "rotate-key", "create-key"]);
    running.stop().await;
}

async fn a_rotated_key_has_two_secrets_until_the_overlap_ends(on: StoreKind) {
    let running = Running::start(on).await;
    let made = running.admin.post("/v1/keys", &json!({"name": "x", "tenant": "a"})).await.is(201);
    let path = format!("/v1/keys/{}/rotate", made["id"].as_str().unwrap());
    let first = running.caller(made["key"].as_str());
    first.act(&path).await.problem(403, "FORBIDDEN");
    // A node of the version before would refuse both secrets.
    running.change_store("update node set level = 1").await;
    running.admin.act(&path).await.problem(409, "KEY_CONFLICT");
    running.change_store("update node set level = 2").await;
    // Without a body the overlap is a day.
    let rotated = running.admin.act(&path).await.is(200);
    assert_eq!((&rotated["id"], &rotated["role"]), (&made["id"], &Value::Null));
    let until: posthaste_core::time::Timestamp =
        rotated["previous"]["expiresAt"].as_str().unwrap().parse().unwrap();
    let now: posthaste_core::time::Timestamp =
        running.admin.get("/v1/nodes").await["data"][0]["lastHeartbeatAt"].as_str().unwrap().parse().unwrap();
    let left = until.since(now).as_secs();
    assert!((86_300..86_500).contains(&left), "{left} s");
    let second = running.caller(rotated["key"].as_str());
    assert_eq!(first.get("/v1/stats").await["queued"], second.get("/v1/stats").await["queued"]);
    let listed = running.admin.get("/v1/keys").await["data"][0].clone();
    assert_eq!(listed["start"], json!(rotated["key"].as_str().unwrap()[..12]));
    // A second rotation shortens the time of the first key as well.
    let rotated = running.admin.post(&path, &json!({"overlap": "100ms"})).await.is(200);
    let third = running.caller(rotated["key"].as_str());
    for old in [first, second] {
        until_refused(&old).await;
    }
    third.get("/v1/stats").await;
    let kept = running.everything_kept().await;
    for secret in [&made, &rotated].map(|shown| &shown["key"].as_str().unwrap()[12..32]) {
        assert!(!kept.windows(secret.len()).any(|window| window == secret.as_bytes()), "a key is kept");
    }
    for (body, pointer) in [
        (json!({"overlap": "91d"}), "/overlap"),
        (json!({"overlap": "x"}), "/overlap"),
        (json!({"a": 1}), "/a"),
    ] {
        assert_eq!(
            running.admin.post(&path, &body).await.problem(422, "VALIDATION_FAILED")["pointer"],
            pointer
        );
    }
    running.admin.act("/v1/keys/key_00000000000000000000000000/rotate").await.problem(404, "not-found");
    running.stop().await;
}

/// Asks until the key is no longer known: the time of the server passes by itself.
async fn until_refused(caller: &Caller) {
    let refused = async { while caller.ask(Method::GET, "/v1/stats", &[], "").await.status != 401 {} };
    tokio::time::timeout(Duration::from_secs(20), refused).await.expect("the key is refused in the end");
}

async fn a_key_is_refused_once_it_has_expired(on: StoreKind) {
    let running = Running::start(on).await;
    let make = async |expires_at: Value| {
        running.admin.post("/v1/keys", &json!({"name": "x", "tenant": "a", "expiresAt": expires_at})).await
    };
    let made = make(json!("150ms")).await.is(201);
    let caller = running.caller(made["key"].as_str());
    until_refused(&caller).await;
    assert_eq!(running.admin.get("/v1/keys").await["data"][0]["expiresAt"], made["expiresAt"]);
    let lasting = make(json!("2999-01-01T00:00:00Z")).await.is(201);
    assert_eq!(lasting["expiresAt"], "2999-01-01T00:00:00.000Z");
    running.caller(lasting["key"].as_str()).get("/v1/stats").await;
    let rotate = async |made: &Value, overlap: &str| {
        let path = format!("/v1/keys/{}/rotate", made["id"].as_str().unwrap());
        running.admin.post(&path, &json!({"overlap": overlap})).await
    };
    let problem = rotate(&made, "1h").await.problem(409, "KEY_CONFLICT");
    assert!(problem["detail"].as_str().unwrap().contains("expired"), "{problem}");
    // The old secret ends with the key, although the overlap is longer.
    let short = make(json!("1h")).await.is(201);
    let rotated = rotate(&short, "2d").await.is(200);
    assert_eq!(rotated["previous"]["expiresAt"], short["expiresAt"]);
    // A number may be meant as a time, so it is not read as a duration.
    for wrong in [json!(3600), json!("3600"), json!("2020-01-01T00:00:00Z"), json!("0s"), json!("soon")]
        .into_iter()
        .chain([json!(-1), json!(true), json!({})])
    {
        let problem = make(wrong.clone()).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(problem["pointer"], "/expiresAt", "{wrong}");
    }
    running.stop().await;
}

async fn what_a_key_may_be_is_checked(on: StoreKind) {
    let running = Running::start(on).await;
    for (body, pointer) in [
        (json!({"name": "x", "tenant": "*"}), "/role"),
        (json!({"name": "x", "tenant": "*", "role": "sender"}), "/role"),
        (json!({"name": "x", "tenant": "a", "role": "tenant"}), "/role"),
        (json!({"name": "x", "tenant": "a", "role": "Admin"}), "/role"),
        (json!({"name": "x", "admin": true, "role": "reader"}), "/role"),
        (json!({"name": "x", "admin": true, "tenant": "*"}), "/tenant"),
        (json!({"name": "x", "role": "admin"}), "/tenant"),
        (json!({"name": "x", "tenant": "system"}), "/tenant"),
        (json!({"name": "x", "tenant": "posthaste"}), "/tenant"),
        (json!({"name": "x", "tenant": "Acme"}), "/tenant"),
    ] {
        let problem = running.admin.post("/v1/keys", &body).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(problem["pointer"], pointer, "{body}");
    }
    assert_eq!(running.admin.get("/v1/keys").await["data"], json!([]));
    running.stop().await;
}

async fn a_key_for_all_sends_for_a_tenant_and_a_tenant_from_before_keeps_its_name(on: StoreKind) {
    let running = Running::start(on).await;
    let for_tenant = |name: &str| {
        let mut sent = running.webhook("/ok");
        sent["tenant"] = json!(name);
        sent
    };
    let shown = running.admin.send_until(&for_tenant("acme"), "succeeded").await;
    assert_eq!(shown["tenant"], "acme");
    // Its idempotency keys are those of `default`.
    let key = [("idempotency-key", "one")];
    let path = "/v1/notifications";
    let first = running.admin.ask(Method::POST, path, &key, for_tenant("acme").to_string()).await.is(202);
    let again = running.admin.ask(Method::POST, path, &key, for_tenant("acme").to_string()).await.is(202);
    assert_eq!(first, again);
    running
        .admin
        .ask(Method::POST, path, &key, for_tenant("default").to_string())
        .await
        .problem(409, "IDEMPOTENCY_CONFLICT");
    let acme = running.tenant("acme").await;
    let own = acme.ask(Method::POST, path, &key, for_tenant("acme").to_string()).await.is(202);
    assert_ne!(own["notificationId"], first["notificationId"]);
    for wrong in ["Old", "system", "posthaste", "a b", "", "*"] {
        let problem = running.admin.post(path, &for_tenant(wrong)).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(problem["pointer"], "/tenant", "{wrong}");
    }
    // `Old` is from before.
    running
        .change_store("insert into flow (tenant, channel, destination) values ('Old', 0, 'http://x:80')")
        .await;
    running.admin.send_until(&for_tenant("Old"), "succeeded").await;
    running.key_of("Old").await;
    let batch = json!({"notifications": [for_tenant("b"), for_tenant("system"), running.webhook("/ok")]});
    let told = running.admin.post("/v1/notifications/batch", &batch).await.is(202);
    assert_eq!(told["rejected"][0]["problem"]["pointer"], "/notifications/1/tenant");
    for (index, tenant) in [(0, "b"), (1, "default")] {
        let id = told["accepted"][index]["notificationId"].as_str().unwrap();
        assert_eq!(running.admin.wait(id, "succeeded").await["tenant"], tenant);
    }
    let keys_only = running.key_of("quiet").await;
    running.caller(Some(&keys_only)).ask(Method::GET, "/v1/tenants", &[], "").await.problem(403, "FORBIDDEN");
    let wanted = json!([
        {"name": "Old", "keys": 1}, {"name": "acme", "keys": 1}, {"name": "b", "keys": 0},
        {"name": "default", "keys": 0}, {"name": "quiet", "keys": 1}
    ]);
    for path in ["/v1/tenants", "/v1/tenants?limit=1", "/v1/tenants?limit=2", "/v1/tenants?limit=5"] {
        assert_eq!(json!(running.admin.all(path).await), wanted, "{path}");
    }
    running.stop().await;
}

async fn the_last_use_of_a_key_is_known_after_a_restart(on: StoreKind) {
    let running = Running::start(on).await;
    let (used, _unused) = (running.tenant("a").await, running.tenant("b").await);
    let last = async |running: &Running| {
        let listed = running.admin.get("/v1/keys").await;
        let rows = listed["data"].as_array().unwrap();
        let of =
            |tenant: &str| rows.iter().find(|row| row["tenant"] == tenant).unwrap()["lastUsedAt"].clone();
        [of("a"), of("b")]
    };
    assert_eq!(last(&running).await, [Value::Null, Value::Null]);
    used.get("/v1/stats").await;
    let seen = last(&running).await;
    assert!(seen[0].is_string() && seen[1].is_null(), "{seen:?}");
    let running = running.restart().await;
    assert_eq!(last(&running).await, seen);
    running.stop().await;
}

on_each_store! {
    every_route_asks_for_its_role;
    no_role_reaches_what_is_another_tenants;
    an_admin_of_a_tenant_manages_the_keys_of_its_tenant;
    a_rotated_key_has_two_secrets_until_the_overlap_ends;
    a_key_is_refused_once_it_has_expired;
    what_a_key_may_be_is_checked;
    a_key_for_all_sends_for_a_tenant_and_a_tenant_from_before_keeps_its_name;
    the_last_use_of_a_key_is_known_after_a_restart;
}
