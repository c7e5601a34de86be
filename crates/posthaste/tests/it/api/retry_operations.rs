//! Retry operations: one act on many, from the request to the last item.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind, slow};
use super::wrong_input::is_refused;

const PATH: &str = "/v1/retry-operations";

/// Waits until the operation is finished; returns it as it ended.
pub(super) async fn finished(caller: &Caller, id: &str) -> Value {
    let mut last = Value::Null;
    for _ in 0..1_200 {
        last = caller.get(&format!("{PATH}/{id}")).await;
        if last["finishedAt"].is_string() {
            assert_eq!(
                last["total"].as_u64().unwrap(),
                last["forwarded"].as_u64().unwrap() + last["skipped"].as_u64().unwrap(),
                "{last}"
            );
            assert_eq!((&last["remaining"], &last["batchesRemaining"]), (&json!(0), &json!(0)), "{last}");
            return last;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{id} is not finished: {last}");
}

async fn start(caller: &Caller, body: &Value) -> String {
    caller.post(PATH, body).await.is(202)["id"].as_str().unwrap().to_owned()
}

/// Dead letters whose next attempt arrives: ids of the dead letters and of the notifications.
async fn dead(running: &Running, caller: &Caller, count: usize) -> Vec<(String, String)> {
    let mut all = vec![];
    for number in 0..count {
        let mut sent = running.webhook("/sequence/400,200");
        sent["eventKey"] = json!(format!("event {number}"));
        let dead = caller.send_until(&sent, "deadLetter").await;
        let text = |name: &str| dead[name].as_str().unwrap().to_owned();
        all.push((text("deadLetterId"), text("notificationId")));
    }
    all
}

async fn what_a_filter_selects_is_counted_then_sent_again(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let all = dead(&running, admin, 7).await;
    let body =
        json!({"filter": {"reasonCode": "PERMANENT_FAILURE", "since": "1d"}, "rate": 500, "dryRun": true});
    let preview = admin.post(PATH, &body).await.is(200);
    assert_eq!(
        (&preview["total"], &preview["exact"], &preview["expired"]),
        (&json!(7), &json!(true), &json!(0))
    );
    assert_eq!(preview["sample"].as_array().unwrap().len(), 5);
    assert_eq!(preview["sample"][0]["id"], all[6].0.as_str());
    let group = &preview["groups"][0];
    assert_eq!((preview["groups"].as_array().unwrap().len(), &group["count"]), (1, &json!(7)), "{preview}");
    let listed = admin.get("/v1/failure-groups").await;
    assert_eq!((&listed["data"][0]["id"], &listed["data"][0]["title"]), (&group["id"], &group["title"]));
    assert_eq!(admin.get(PATH).await["data"], json!([]), "nothing was started");
    let body = json!({"filter": {"reasonCode": ["PERMANENT_FAILURE"], "since": "1d"}, "rate": 500});
    let text = body.to_string();
    let key = [("idempotency-key", "once")];
    let started = admin.ask(Method::POST, PATH, &key, text.clone()).await.is(202);
    assert_eq!((&started["state"], &started["action"]), (&json!("waiting"), &json!("requeue")));
    assert!(started["filter"]["since"].as_str().unwrap().ends_with('Z'), "{started}");
    let twin = admin.ask(Method::POST, PATH, &key, text).await;
    assert_eq!(twin.headers["idempotency-replayed"], "true");
    assert_eq!(twin.is(202), started);
    let other = json!({"all": true}).to_string();
    admin.ask(Method::POST, PATH, &key, other).await.problem(409, "IDEMPOTENCY_CONFLICT");
    let id = started["id"].as_str().unwrap();
    let ended = finished(admin, id).await;
    assert_eq!(
        (&ended["state"], &ended["total"], &ended["forwarded"]),
        (&json!("completed"), &json!(7), &json!(7))
    );
    assert_eq!((&ended["batches"], &ended["skippedReasons"]), (&json!(1), &json!({})));
    assert_eq!(ended["events"][0]["event"], "completed");
    for (letter, notification) in &all {
        admin.wait(notification, "succeeded").await;
        let shown = admin.get(&format!("/v1/dead-letters/{letter}")).await;
        assert_eq!((&shown["status"], &shown["resolvedBy"]), (&json!("requeued"), &json!("admin")));
        assert_eq!(shown["operation"], Value::Null);
    }
    let audit = admin.all(&format!("/v1/audit?target={id}")).await;
    let actions: Vec<_> =
        audit.iter().map(|row| (row["action"].as_str().unwrap(), row["count"].clone())).collect();
    assert_eq!(actions, [("end-operation", json!(7)), ("start-operation", json!(1))]);
    let listed = admin.all(PATH).await;
    assert_eq!(listed.len(), 1, "one was started");
    running.stop().await;
}

async fn ids_of_both_kinds_are_acted_on_and_what_is_resolved_is_skipped(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let all = dead(&running, admin, 3).await;
    admin.act(&format!("/v1/dead-letters/{}/discard", all[0].0)).await.is(202);
    let ids = json!([all[0].0, all[1].0, all[2].1, all[2].0]);
    let id = start(admin, &json!({"ids": ids, "action": "discard"})).await;
    let ended = finished(admin, &id).await;
    // A notification and its dead letter are one item.
    assert_eq!((&ended["total"], &ended["forwarded"]), (&json!(3), &json!(2)));
    assert_eq!(ended["skippedReasons"], json!({"ALREADY_RESOLVED": 1}));
    assert_eq!(ended["ids"], json!([all[0].0, all[1].0, all[2].1]));
    let id = start(admin, &json!({"all": true, "action": "restore"})).await;
    assert_eq!(finished(admin, &id).await["forwarded"], 3);
    for (letter, _) in &all {
        assert_eq!(admin.get(&format!("/v1/dead-letters/{letter}")).await["status"], "pending");
    }
    let twice = json!({"ids": [all[0].0, all[0].1, all[1].0, all[0].0], "dryRun": true});
    let preview = admin.post(PATH, &twice).await.is(200);
    assert_eq!((&preview["total"], preview["sample"].as_array().unwrap().len()), (&json!(2), 2));
    let restore = json!({"ids": [all[0].0], "action": "restore", "dryRun": true});
    assert_eq!(admin.post(PATH, &restore).await.is(200)["total"], 0, "it is pending");
    running.stop().await;
}

async fn an_operation_is_paused_resumed_and_cancelled(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let all = dead(&running, admin, 6).await;
    let id = start(admin, &json!({"all": true, "rate": 1})).await;
    let act = async |act: &str| admin.act(&format!("{PATH}/{id}/{act}")).await;
    let paused = act("pause").await.is(202);
    assert_eq!((&paused["state"], &paused["pausedBy"]), (&json!("paused"), &json!("admin")));
    assert_eq!(act("resume").await.is(202)["pausedBy"], Value::Null);
    // It may take a moment until what it holds is marked.
    let mut held = 0;
    for _ in 0..600 {
        let list = admin.get("/v1/dead-letters").await;
        held = list["data"].as_array().unwrap().iter().filter(|row| row["operation"] == id.as_str()).count();
        if held > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(held > 0, "no dead letter shows {id}");
    assert_eq!(act("cancel").await.is(202)["state"], "cancelled");
    let ended = finished(admin, &id).await;
    assert_eq!((&ended["state"], &ended["stoppedBy"]), (&json!("cancelled"), &json!("admin")));
    assert_eq!(ended["skippedReasons"]["CANCELLED"], ended["skipped"]);
    for word in ["pause", "resume", "cancel"] {
        act(word).await.problem(409, "OPERATION_FINISHED");
    }
    let list = admin.get("/v1/dead-letters").await;
    assert!(list["data"].as_array().unwrap().iter().all(|row| row["operation"] == Value::Null), "{list}");
    assert_eq!(all.len(), 6);
    running.stop().await;
}

async fn what_waits_is_retried_now_or_cancelled(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let mut sent = running.webhook("/status/503");
    sent["policy"] = slow();
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(
            admin.send_until(&sent, "retryScheduled").await["notificationId"].as_str().unwrap().to_owned(),
        );
    }
    let id = start(admin, &json!({"ids": [ids[0]], "action": "retryNow"})).await;
    assert_eq!(finished(admin, &id).await["forwarded"], 1);
    let id = start(admin, &json!({"filter": {"status": "retrying"}, "action": "cancel"})).await;
    let ended = finished(admin, &id).await;
    assert_eq!(ended["total"], 3);
    for id in &ids[1..] {
        admin.wait(id, "cancelled").await;
    }
    running.stop().await;
}

async fn wrong_requests_say_where_and_change_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let (letter, notification) = dead(&running, admin, 1).await.remove(0);
    for (body, pointer) in [
        (json!({}), ""),
        (json!({"all": false}), ""),
        (json!({"all": true, "ids": [letter]}), "/all"),
        (json!({"filter": {}, "ids": [letter]}), "/ids"),
        (json!({"ids": []}), "/ids"),
        (json!({"ids": ["x"]}), "/ids/0"),
        (json!({"ids": [letter, "dl_00000000000000000000000000"]}), "/ids/1"),
        (json!({"ids": [letter], "action": "cancel"}), "/ids/0"),
        (json!({"all": true, "action": "cancel"}), "/all"),
        (json!({"all": true, "action": "edit"}), "/action"),
        (json!({"all": true, "rate": 0}), "/rate"),
        (json!({"all": true, "rate": -1}), "/rate"),
        (json!({"all": true, "canary": {"size": 0, "maxFailurePercent": 1}}), "/canary/size"),
        (json!({"all": true, "canary": {"size": 9, "maxFailurePercent": 101}}), "/canary/maxFailurePercent"),
        (json!({"all": true, "action": "discard", "canary": {"size": 9, "maxFailurePercent": 1}}), "/canary"),
        (json!({"filter": {}}), "/filter"),
        (json!({"filter": {}, "action": "cancel"}), "/filter"),
        (json!({"filter": {"colour": "red"}}), "/filter/colour"),
        (json!({"filter": {"reasonCode": "nonsense"}}), "/filter/reasonCode"),
        (json!({"filter": {"status": "discarded"}}), "/filter/status"),
        (json!({"filter": {"status": "pending"}, "action": "restore"}), "/filter/status"),
        (json!({"filter": {"status": "deleted,requeued"}, "action": "restore"}), "/filter/status"),
        (json!({"filter": {"status": "deleted"}, "action": "discard"}), "/filter/status"),
        (json!({"filter": {"status": "delivered"}, "action": "cancel"}), "/filter/status"),
        (json!({"filter": {"q": "a\u{0}b"}}), "/filter/q"),
        (json!({"all": true, "colour": "red"}), "/colour"),
    ] {
        let told = admin.post(PATH, &body).await;
        assert_eq!(told.problem(422, "VALIDATION_FAILED")["pointer"], pointer, "{body}");
    }
    assert_eq!(admin.get(PATH).await["data"], json!([]));
    let nothing = start(admin, &json!({"filter": {"q": "no such text"}})).await;
    let ended = finished(admin, &nothing).await;
    assert_eq!((&ended["state"], &ended["total"]), (&json!("completed"), &json!(0)));
    admin.act(&format!("{PATH}/op_00000000000000000000000000/pause")).await.problem(404, "not-found");
    let told = admin.ask(Method::POST, PATH, &[], "[]").await;
    is_refused(&told, (422, "VALIDATION_FAILED", ""), "a list");
    let told =
        admin.ask(Method::POST, PATH, &[], r#"{"filter": {"q": "a", "q": "b"}, "dryRun": true}"#).await;
    assert!(told.problem(422, "VALIDATION_FAILED")["detail"].as_str().unwrap().contains("given twice"));
    assert_eq!(admin.get(&format!("/v1/notifications/{notification}")).await["state"], "deadLetter");
    running.stop().await;
}

async fn operations_that_one_tenant_leaves_open_keep_no_other_out(on: StoreKind) {
    let running = Running::start(on).await;
    let (a, b) = (running.tenant("a").await, running.tenant("b").await);
    dead(&running, &a, 1).await;
    let slow = json!({"all": true, "rate": 1});
    for _ in 0..20 {
        let id = start(&a, &slow).await;
        a.act(&format!("{PATH}/{id}/pause")).await;
    }
    // Those that had nothing to do are finished, so that few are open.
    let open =
        |data: &Value| data.as_array().unwrap().iter().filter(|one| one["finishedAt"].is_null()).count();
    while open(&a.get(&format!("{PATH}?limit=500")).await["data"]) < 20 {
        let id = start(&a, &slow).await;
        a.act(&format!("{PATH}/{id}/pause")).await;
    }
    a.post(PATH, &slow).await.problem(409, "TOO_MANY_OPERATIONS");
    a.post(PATH, &json!({"all": true, "dryRun": true})).await.is(200);
    for other in [&b, &running.admin] {
        let id = start(other, &json!({"filter": {"q": "no such text"}})).await;
        finished(other, &id).await;
    }
    running.stop().await;
}

on_each_store! {
    what_a_filter_selects_is_counted_then_sent_again;
    ids_of_both_kinds_are_acted_on_and_what_is_resolved_is_skipped;
    an_operation_is_paused_resumed_and_cancelled;
    what_waits_is_retried_now_or_cancelled;
    wrong_requests_say_where_and_change_nothing;
    operations_that_one_tenant_leaves_open_keep_no_other_out;
}
