//! What a key may do: its role, its tenant, until when, and after a rotation.

pub(super) mod walk;

use std::time::Duration;

use http::Method;
use posthaste_core::role::Role;
use serde_json::{Value, json};

use self::walk::{Holder, Scene, holders};
use super::running::{Caller, Running, StoreKind};

async fn every_route_asks_for_its_role(on: StoreKind) {
    let scene = Scene::start(on).await;
    let mut all = holders(&scene.running, "a").await;
    all.extend(holders(&scene.running, "*").await);
    scene.asks_each_for_its_role(&all).await;
    scene.running.stop().await;
}

async fn no_role_reaches_what_is_another_tenants(on: StoreKind) {
    let scene = Scene::start(on).await;
    let all = holders(&scene.running, "b").await;
    scene.keeps_out(&all).await;
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
    assert_eq!(listed["previous"], rotated["previous"]);
    // A second rotation shortens the time of the first key as well.
    let rotated = running.admin.post(&path, &json!({"overlap": "100ms"})).await.is(200);
    let third = running.caller(rotated["key"].as_str());
    for old in [first, second] {
        until_refused(&old).await;
    }
    assert_eq!(running.admin.get("/v1/keys").await["data"][0]["previous"], Value::Null);
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
