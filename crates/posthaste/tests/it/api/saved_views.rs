//! `/v1/views`: filters of lists that people gave names.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind, Told};

async fn put(caller: &Caller, name: &str, body: &Value) -> Told {
    caller.ask(Method::PUT, &format!("/v1/views/{name}"), &[], body.to_string()).await
}

fn view(query: &str) -> Value {
    json!({"list": "notifications", "query": query})
}

async fn names(caller: &Caller, query: &str) -> Vec<String> {
    let listed = caller.get(&format!("/v1/views{query}")).await;
    assert_eq!(listed["nextCursor"], Value::Null);
    let rows = listed["data"].as_array().unwrap();
    rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

async fn role_of(running: &Running, tenant: &str, role: &str) -> Caller {
    let wanted = json!({"name": role, "tenant": tenant, "role": role});
    running.caller(running.admin.post("/v1/keys", &wanted).await.is(201)["key"].as_str())
}

async fn a_view_is_saved_listed_replaced_and_deleted(on: StoreKind) {
    let running = Running::start(on).await;
    let acme = running.tenant("acme").await;
    let saved = put(&acme, "failed%20today", &view("?status=failed&since=1d&q=a%20b")).await.is(200);
    let shown = |saved: &Value| {
        (saved["name"].clone(), saved["list"].clone(), saved["query"].clone(), saved["shared"].clone())
    };
    let query = "status=failed&since=1d&q=a+b";
    assert_eq!(shown(&saved), (json!("failed today"), json!("notifications"), json!(query), json!(true)));
    assert!(saved["by"].is_string() && saved["at"].is_string(), "{saved}");
    assert_eq!(acme.get("/v1/views/failed%20today").await, saved);
    acme.get(&format!("/v1/notifications?{query}")).await;
    put(&acme, "all", &json!({"list": "dead-letters", "query": ""})).await.is(200);
    put(&acme, "soon", &json!({"list": "retry-queue", "query": "channel=webhook"})).await.is(200);
    put(&acme, "where", &json!({"list": "failure-groups", "query": "by=destination"})).await.is(200);
    assert_eq!(names(&acme, "").await, ["failed today", "soon", "all", "where"]);
    assert_eq!(names(&acme, "?list=retry-queue").await, ["soon"]);
    put(&acme, "soon", &view("status=queued")).await.is(200);
    assert_eq!(names(&acme, "?list=notifications").await, ["failed today", "soon"]);
    let running = running.restart().await;
    let audited = running.admin.get("/v1/audit?action=put-view,delete-view&tenant=acme").await;
    assert_eq!(audited["data"].as_array().unwrap().len(), 5);
    assert_eq!((&audited["data"][0]["target"], &audited["data"][0]["count"]), (&json!("soon"), &json!(1)));
    running.stop().await;
}

async fn views_belong_to_a_tenant_and_one_that_is_not_shared_to_its_key(on: StoreKind) {
    let running = Running::start(on).await;
    let (ada, bob) = (role_of(&running, "acme", "operator").await, running.tenant("acme").await);
    let (reader, admin) =
        (role_of(&running, "acme", "reader").await, role_of(&running, "acme", "admin").await);
    let other = running.tenant("other").await;
    put(&ada, "ours", &view("status=failed")).await.is(200);
    let mine = json!({"list": "notifications", "query": "status=queued", "shared": false});
    put(&ada, "mine", &mine).await.is(200);
    assert_eq!(names(&ada, "").await, ["mine", "ours"]);
    for caller in [&bob, &reader] {
        assert_eq!(names(caller, "").await, ["ours"]);
        caller.ask(Method::GET, "/v1/views/mine", &[], "").await.problem(404, "not-found");
    }
    assert_eq!(names(&admin, "").await, ["mine", "ours"]);
    for caller in [&other, &running.admin] {
        assert_eq!(names(caller, "").await, [] as [String; 0]);
        caller.ask(Method::DELETE, "/v1/views/ours", &[], "").await.problem(404, "not-found");
    }
    let taken = put(&bob, "mine", &view("status=failed")).await.problem(422, "VALIDATION_FAILED");
    assert_eq!(taken["parameter"], "name");
    bob.ask(Method::DELETE, "/v1/views/mine", &[], "").await.problem(404, "not-found");
    reader.ask(Method::DELETE, "/v1/views/ours", &[], "").await.problem(403, "FORBIDDEN");
    bob.ask(Method::DELETE, "/v1/views/ours", &[], "").await.is(204);
    admin.ask(Method::DELETE, "/v1/views/mine", &[], "").await.is(204);
    assert_eq!(names(&ada, "").await, [] as [String; 0]);
    running.stop().await;
}

async fn a_view_whose_list_would_refuse_it_is_not_saved(on: StoreKind) {
    let running = Running::start(on).await;
    let acme = running.tenant("acme").await;
    let long = format!("q={}", "x".repeat(2_001));
    // The space becomes one byte, and each of the others three.
    let grown = format!("q={}&template={}", "ü".repeat(300), "ü".repeat(300));
    for (body, pointer) in [
        (json!({"query": "status=failed"}), "/list"),
        (json!({"list": "audit", "query": ""}), "/list"),
        (json!({"list": "notifications"}), "/query"),
        (view("status=broken"), "/query"),
        (view("status=failed&status=queued"), "/query"),
        (view("nonsense=1"), "/query"),
        (view("cursor=x"), "/query"),
        (view("limit=5"), "/query"),
        (view("by=destination"), "/query"),
        (view("since=yesterday"), "/query"),
        (view(&long), "/query"),
        (view(&grown), "/query"),
        (json!({"list": "failure-groups", "query": "by=cause"}), "/query"),
        (json!({"list": "retry-queue", "query": "status=failed"}), "/query"),
        (json!({"list": "notifications", "query": "", "public": true}), "/public"),
    ] {
        let problem = put(&acme, "x", &body).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(problem["pointer"], pointer, "{body}: {problem}");
        assert_eq!(problem.get("parameter"), None, "{body}: {problem}");
    }
    let problem = put(&acme, "x", &view("tenant=other")).await.problem(403, "FORBIDDEN");
    assert_eq!(problem["pointer"], "/query");
    for name in ["a%2Fb", "%20a", "%2E%2E", "a%00b", &"x".repeat(61)] {
        let problem = put(&acme, name, &view("")).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(problem["parameter"], "name", "{name}: {problem}");
    }
    let problem =
        acme.ask(Method::GET, "/v1/views?list=audit", &[], "").await.problem(422, "VALIDATION_FAILED");
    assert_eq!(problem["parameter"], "list");
    assert_eq!(names(&acme, "").await, [] as [String; 0]);
    for number in 0..100 {
        put(&acme, &format!("v{number}"), &view("status=failed")).await.is(200);
    }
    let full = put(&acme, "one-more", &view("status=failed")).await.problem(422, "VALIDATION_FAILED");
    assert!(full["detail"].as_str().unwrap().contains("100 views"), "{full}");
    put(&acme, "v7", &view("status=queued")).await.is(200);
    assert_eq!(names(&acme, "").await.len(), 100);
    running.stop().await;
}

on_each_store! {
    a_view_is_saved_listed_replaced_and_deleted;
    views_belong_to_a_tenant_and_one_that_is_not_shared_to_its_key;
    a_view_whose_list_would_refuse_it_is_not_saved;
}
