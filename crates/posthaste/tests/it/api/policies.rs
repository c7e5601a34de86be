//! `/v1/policies`: put, read, removed, laid over one another, and in force at the next decision.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind};
use super::wrong_input::{INVALID, is_refused};

async fn put(caller: &Caller, scope: &str, policy: &Value) -> Value {
    caller.ask(Method::PUT, &format!("/v1/policies/{scope}"), &[], policy.to_string()).await.is(200)
}

async fn remove(caller: &Caller, scope: &str) {
    caller.ask(Method::DELETE, &format!("/v1/policies/{scope}"), &[], "").await.is(204);
}

/// The example of the contract.
fn whole() -> Value {
    json!({
        "preset": "notify", "strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "8m",
        "schedule": ["1m", "5m"], "maxAttempts": 5, "jitter": {"percent": 10}, "timeout": "10s", "maxAge": "3d",
        "deadLetter": true, "honourRetryAfter": true, "maximumRetryAfter": "1h",
        "quick": {"tries": 4, "delay": "500ms", "backoff": "exponential", "jitter": false, "retryAfter": true,
            "statusCodes": [404], "when": "any"},
        "retryOn": {"permanent": false, "authenticationFailure": false, "invalidRecipient": false, "timeout": true},
    })
}

async fn a_policy_is_put_read_replaced_and_removed(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let before = admin.get("/v1/policies").await;
    for scope in ["global", "channel:webhook", "tenant:acme", "template:welcome"] {
        let path = format!("/v1/policies/{scope}");
        let unset = admin.get(&path).await;
        assert_eq!(put(admin, scope, &whole()).await, json!({"scope": scope, "policy": whole()}));
        let shown = admin.get(&path).await;
        assert_eq!((&shown["policy"], &shown["channel"]), (&whole(), &json!("webhook")));
        assert_eq!(shown["effective"]["maxAttempts"], 5);
        let listed = admin.get("/v1/policies").await;
        assert!(
            listed["data"].as_array().unwrap().contains(&json!({"scope": scope, "policy": whole()})),
            "{listed}"
        );
        // A put replaces the whole: nothing of the first is left.
        put(admin, scope, &json!({"maxRetries": 1})).await;
        assert_eq!(admin.get(&path).await["policy"], json!({"maxAttempts": 2}));
        remove(admin, scope).await;
        assert_eq!(admin.get(&path).await, unset, "{scope}");
        remove(admin, scope).await;
    }
    assert_eq!(admin.get("/v1/policies").await, before);
    let rows = admin.get("/v1/audit").await;
    let row = &rows["data"][0];
    assert_eq!((&row["action"], &row["target"]), (&json!("remove-policy"), &json!("template:welcome")));
    running.stop().await;
}

async fn every_effective_policy_is_whole_and_can_be_put_back(on: StoreKind) {
    let running = Running::start(on).await;
    let fields = [
        "strategy",
        "maxAttempts",
        "jitter",
        "timeout",
        "maxAge",
        "deadLetter",
        "honourRetryAfter",
        "maximumRetryAfter",
        "quick",
        "retryOn",
    ];
    for channel in
        ["webhook", "email", "sms", "whatsapp", "telegram", "slack", "discord", "teams", "push", "inapp"]
    {
        let shown = running.admin.get(&format!("/v1/policies/global?channel={channel}")).await;
        let effective = &shown["effective"];
        for field in fields {
            assert!(effective.get(field).is_some(), "{channel}: {field} is missing in {effective}");
        }
        let path = format!("channel:{channel}");
        put(&running.admin, &path, effective).await;
        assert_eq!(
            running.admin.get(&format!("/v1/policies/{path}")).await["effective"],
            *effective,
            "{channel}"
        );
    }
    for preset in ["story", "notify", "zgw", "shumoul-email", "webhook", "standard"] {
        put(&running.admin, "channel:webhook", &json!({ "preset": preset })).await;
        let shown = running.admin.get("/v1/policies/channel:webhook").await;
        put(&running.admin, "channel:webhook", &shown["effective"]).await;
        let again = running.admin.get("/v1/policies/channel:webhook").await;
        // What the strategy does not use may come from a wider scope; what was said is said again.
        for (field, said) in shown["effective"].as_object().unwrap() {
            assert_eq!(again["effective"][field], *said, "{preset}: {field}");
        }
    }
    running.stop().await;
}

async fn the_narrower_scope_wins_and_a_change_acts_on_the_next_decision(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    let sent = json!({"channel": "webhook", "to": running.sink.url("/status/503"), "body": 1, "template": "welcome"});
    let most = async |sent: &Value| {
        let id = acme.send(sent).await;
        let shown = acme.wait(&id, "deadLetter").await;
        assert_eq!(shown["attempt"], shown["maxAttempts"]);
        shown["attempt"].as_u64().unwrap()
    };
    let quick = |attempts: u32| json!({"strategy": "fixed", "initialDelay": "5ms", "jitter": "none", "quick": {"tries": 0}, "maxAttempts": attempts});
    put(admin, "global", &quick(1)).await;
    assert_eq!(most(&sent).await, 1);
    put(admin, "channel:webhook", &json!({"maxAttempts": 2})).await;
    assert_eq!(most(&sent).await, 2);
    put(&acme, "tenant:acme", &json!({"maxAttempts": 3})).await;
    assert_eq!(most(&sent).await, 3);
    put(admin, "template:welcome", &json!({"maxAttempts": 4})).await;
    assert_eq!(most(&sent).await, 4);
    let mut own = sent.clone();
    own["policy"] = json!({"maxAttempts": 6});
    assert_eq!(most(&own).await, 6);
    remove(admin, "template:welcome").await;
    assert_eq!(most(&sent).await, 3);
    // The due time that is set stays; what is decided next follows the new policy.
    put(&acme, "tenant:acme", &json!({"initialDelay": "1h"})).await;
    let id = acme.send(&sent).await;
    let waiting = acme.wait(&id, "retryScheduled").await;
    put(&acme, "tenant:acme", &json!({"initialDelay": "5ms", "maxAttempts": 2})).await;
    assert_eq!(acme.get(&format!("/v1/notifications/{id}")).await["nextAttemptAt"], waiting["nextAttemptAt"]);
    acme.act(&format!("/v1/notifications/{id}/retry-now")).await.is(202);
    assert_eq!(acme.wait(&id, "deadLetter").await["attempt"], 2);
    running.stop().await;
}

async fn a_preview_tells_when_each_attempt_would_be_made_and_changes_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let preview = async |query: &str, policy: Value| {
        running.admin.post(&format!("/v1/policies/preview{query}"), &policy).await.is(200)
    };
    let told = preview("", json!({"preset": "story", "maxAttempts": 4})).await;
    let attempts: Vec<_> = told["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["earliest"].clone(), one["latest"].clone()))
        .collect();
    assert_eq!(
        attempts,
        [
            (json!("0s"), json!("0s")),
            (json!("1m"), json!("90s")),
            (json!("6m"), json!("7m")),
            (json!("21m"), json!("1350s"))
        ]
    );
    assert_eq!(preview("", json!({"strategy": "none"})).await["attempts"].as_array().unwrap().len(), 1);
    // Without a channel the policy stands on what is built in; with one, on the scopes of that channel.
    put(
        &running.admin,
        "channel:webhook",
        &json!({"strategy": "fixed", "initialDelay": "7s", "jitter": "none", "maxAttempts": 2}),
    )
    .await;
    let over = preview("?channel=webhook", json!({})).await;
    assert_eq!(over["window"], "7s");
    assert_eq!(preview("", json!({})).await["attempts"].as_array().unwrap().len(), 10);
    let close = preview("", json!({"strategy": "immediate", "maxAttempts": 3, "jitter": "full"})).await;
    let second = json!({"number": 2, "earliest": "10ms", "latest": "10ms"});
    assert_eq!((&close["attempts"][1], &close["window"]), (&second, &json!("20ms")));
    // The largest numbers that a policy can hold are previewed, not overflowed.
    let far = preview("", json!({"strategy": "exponential", "initialDelay": "100d", "multiplier": 1e308, "maximumDelay": "1000d", "maxAttempts": 1000})).await;
    assert_eq!(far["attempts"].as_array().unwrap().len(), 1_000);
    running.stop().await;
}

async fn a_template_has_a_policy_of_its_tenant_over_that_of_every_tenant(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme, other) = (&running.admin, running.tenant("acme").await, running.tenant("other").await);
    let scopes = async |caller: &Caller| -> Vec<String> {
        let listed = caller.get("/v1/policies").await;
        let rows = listed["data"].as_array().unwrap().iter();
        rows.map(|row| row["scope"].as_str().unwrap().to_owned()).collect()
    };
    let quick = json!({"strategy": "fixed", "initialDelay": "5ms", "jitter": "none", "quick": {"tries": 0}, "maxAttempts": 1});
    put(admin, "global", &quick).await;
    // What a key for all tenants writes without a tenant is for every tenant, as it was before.
    put(admin, "template:welcome", &json!({"maxAttempts": 2})).await;
    let said = put(admin, "template:acme%2Fwelcome", &json!({"maxAttempts": 3})).await;
    assert_eq!(said["scope"], "template:acme/welcome");
    assert_eq!(put(admin, "template:*%2Fa%2Fb", &json!({"maxAttempts": 4})).await["scope"], "template:*/a/b");
    assert_eq!(admin.get("/v1/policies/template:*%2Fwelcome").await["scope"], "template:welcome");
    assert_eq!(
        scopes(admin).await,
        ["global", "template:*/a/b", "template:welcome", "template:acme/welcome"]
    );
    // A tenant sees its own, and of the others not even the names.
    assert_eq!(scopes(&acme).await, ["global", "template:acme/welcome"]);
    assert_eq!(scopes(&other).await, ["global"]);
    for name in ["template:welcome", "template:acme%2Fwelcome"] {
        let shown = acme.get(&format!("/v1/policies/{name}")).await;
        assert_eq!(
            (&shown["scope"], &shown["policy"]["maxAttempts"]),
            (&json!("template:acme/welcome"), &json!(3))
        );
        assert_eq!(shown["effective"]["maxAttempts"], 3);
    }
    let shown = other.get("/v1/policies/template:welcome").await;
    assert_eq!((&shown["policy"], &shown["effective"]["maxAttempts"]), (&Value::Null, &json!(2)), "{shown}");
    for name in ["template:acme%2Fwelcome", "template:*%2Fwelcome"] {
        other.ask(Method::GET, &format!("/v1/policies/{name}"), &[], "").await.problem(404, "not-found");
        other.ask(Method::PUT, &format!("/v1/policies/{name}"), &[], "{}").await.problem(404, "not-found");
        other.ask(Method::DELETE, &format!("/v1/policies/{name}"), &[], "").await.problem(404, "not-found");
    }
    // A tenant's key without a role changes its tenant's policy only.
    let refused = acme.ask(Method::PUT, "/v1/policies/template:welcome", &[], "{}").await;
    let detail = refused.problem(403, "FORBIDDEN")["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "the policy of template:acme/welcome can be changed only with an admin key");
    // The next decision of each tenant follows its own.
    let sent = json!({"channel": "webhook", "to": running.sink.url("/status/503"), "body": 1, "template": "welcome"});
    for (caller, attempts) in [(&acme, 3), (&other, 2), (admin, 2)] {
        let id = caller.send(&sent).await;
        assert_eq!(caller.wait(&id, "deadLetter").await["attempt"], attempts);
    }
    remove(admin, "template:acme%2Fwelcome").await;
    assert_eq!(scopes(&acme).await, ["global"]);
    let id = acme.send(&sent).await;
    assert_eq!(acme.wait(&id, "deadLetter").await["attempt"], 2);
    running.stop().await;
}

/// A node of the version before wrote `policy:template:x`, also for names with a slash, and reads nothing else.
async fn a_template_policy_from_before_is_one_of_every_tenant(on: StoreKind) {
    let running = Running::start(on).await;
    put(&running.admin, "template:welcome", &json!({"maxAttempts": 2})).await;
    put(&running.admin, "template:*%2Forder%2Fpaid", &json!({"maxAttempts": 3})).await;
    put(&running.admin, "template:acme%2Fwelcome", &json!({"maxAttempts": 4})).await;
    let kept = String::from_utf8_lossy(&running.everything_kept().await).into_owned();
    for name in ["policy:template:welcome", "policy:template:order/paid", "template-policy:acme/welcome"] {
        assert!(kept.contains(name), "{name}");
    }
    assert!(!kept.contains("policy:template:acme/welcome") && !kept.contains("policy:template:*/"));
    running.stop().await;
}

async fn no_policy_is_put_for_a_tenant_that_cannot_be(on: StoreKind) {
    let running = Running::start(on).await;
    for scope in ["tenant:system", "tenant:posthaste", "template:system%2Fx", "tenant:Acme"] {
        let path = format!("/v1/policies/{scope}");
        let told = running.admin.ask(Method::PUT, &path, &[], "{}").await;
        is_refused(&told, (422, INVALID, "?scope"), scope);
    }
    // A tenant from before keeps its name.
    running.tenant("acme").await.ask(Method::PUT, "/v1/policies/tenant:acme", &[], "{}").await.is(200);
    running.stop().await;
}

async fn a_scope_that_a_tenant_does_not_have_is_refused_with_those_that_it_has(on: StoreKind) {
    let running = Running::start(on).await;
    let acme = running.tenant("acme").await;
    for scope in ["template:*%2Fwelcome", "template:other%2Fx", "tenant:other"] {
        let told = acme.ask(Method::PUT, &format!("/v1/policies/{scope}"), &[], "{}").await;
        let problem = told.problem(404, "not-found");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("tenant:acme and template:x"), "{detail}");
    }
    running.stop().await;
}

async fn every_field_says_where_it_comes_from(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    put(admin, "global", &json!({"timeout": "5s", "retryOn": {"permanent": true}})).await;
    put(admin, "channel:webhook", &json!({"preset": "notify", "jitter": "none"})).await;
    put(&acme, "tenant:acme", &json!({"quick": {"tries": 1}, "initialDelay": "1h"})).await;
    let shown = acme.get("/v1/policies/tenant:acme").await;
    for (field, source) in [
        ("preset", "channel:webhook"),
        ("timeout", "preset notify"),
        ("retryOn.permanent", "preset notify"),
        ("jitter", "channel:webhook"),
        ("quick.tries", "tenant:acme"),
        ("initialDelay", "tenant:acme"),
        ("maximumDelay", "tenant:acme"),
        ("maxAge", "built-in"),
    ] {
        assert_eq!(shown["sources"][field], source, "{field}: {shown}");
    }
    // Each field of what results has its entry, and nothing else has one.
    let mut fields: Vec<String> = vec!["preset".to_owned()];
    for (name, value) in shown["effective"].as_object().unwrap() {
        match value.as_object().filter(|_| name != "jitter") {
            Some(inner) => fields.extend(inner.keys().map(|inner| format!("{name}.{inner}"))),
            None => fields.push(name.clone()),
        }
    }
    fields.sort();
    let listed: Vec<String> = shown["sources"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(listed, fields);
    // Another channel, another tenant: other sources.
    let email = acme.get("/v1/policies/tenant:acme?channel=email").await;
    assert_eq!(
        (&email["sources"]["timeout"], &email["sources"]["jitter"]),
        (&json!("global"), &json!("preset standard"))
    );
    let other = running.tenant("other").await.get("/v1/policies/tenant:other").await;
    assert_eq!(other["sources"]["quick.tries"], "preset notify");
    running.stop().await;
}

async fn a_preview_at_a_scope_is_what_a_put_would_come_to(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    put(admin, "global", &json!({"jitter": "none", "initialDelay": "1m"})).await;
    put(admin, "tenant:acme", &json!({"maxAttempts": 9, "initialDelay": "1s"})).await;
    let said = json!({"maxAttempts": 3, "strategy": "fixed"});
    let preview = async |caller: &Caller, scope: &str, said: &Value| {
        let path = format!("/v1/policies/preview?scope={scope}&channel=email");
        caller.ask(Method::POST, &path, &[], said.to_string()).await
    };
    // What the scope says now does not count: the delay is that of the wider scope.
    let wanted = json!({"attempts": [
        {"number": 1, "earliest": "0s", "latest": "0s"},
        {"number": 2, "earliest": "1m", "latest": "1m"},
        {"number": 3, "earliest": "2m", "latest": "2m"}], "window": "2m"});
    for caller in [admin, &acme] {
        assert_eq!(preview(caller, "tenant:acme", &said).await.is(200), wanted);
    }
    // It is refused as a put would be, and a scope of others is no scope.
    let long = preview(admin, "tenant:acme", &json!({"timeout": "2m"})).await;
    is_refused(&long, (422, INVALID, "/timeout"), "a long timeout");
    let many = preview(admin, "template:acme%2Fx", &json!({"maxAttempts": 6})).await;
    is_refused(&many, (422, INVALID, "/maxAttempts"), "a template");
    for (caller, scope) in [(&acme, "tenant:other"), (admin, "nonsense")] {
        is_refused(&preview(caller, scope, &said).await, (422, INVALID, "?scope"), scope);
    }
    assert_eq!(admin.get("/v1/policies/tenant:acme").await["policy"]["maxAttempts"], 9);
    running.stop().await;
}

on_each_store! {
    a_preview_at_a_scope_is_what_a_put_would_come_to;
    every_field_says_where_it_comes_from;
    no_policy_is_put_for_a_tenant_that_cannot_be;
    a_scope_that_a_tenant_does_not_have_is_refused_with_those_that_it_has;
    a_template_has_a_policy_of_its_tenant_over_that_of_every_tenant;
    a_template_policy_from_before_is_one_of_every_tenant;
    a_policy_is_put_read_replaced_and_removed;
    every_effective_policy_is_whole_and_can_be_put_back;
    the_narrower_scope_wins_and_a_change_acts_on_the_next_decision;
    a_preview_tells_when_each_attempt_would_be_made_and_changes_nothing;
}
