//! `/v1/failure-groups`: what the pending dead letters have in common, for a tenant and for all, with notes.

use http::Method;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind};

const UNKNOWN: &str = "/v1/failure-groups/grp_00000000000000000000000000";

/// Sends notifications that are refused with these statuses, and waits until they are dead letters. Returns their ids.
async fn die(running: &Running, caller: &Caller, statuses: &[u16]) -> Vec<String> {
    let mut letters = vec![];
    for status in statuses {
        let dead = caller.send_until(&running.webhook(&format!("/status/{status}")), "deadLetter").await;
        letters.push(dead["deadLetterId"].as_str().unwrap().to_owned());
    }
    letters
}

async fn counts(caller: &Caller, query: &str) -> Vec<(String, u64)> {
    let rows = caller.all(&format!("/v1/failure-groups{query}")).await;
    let shown = |row: &Value| (row["title"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap());
    rows.iter().map(shown).collect()
}

fn named(groups: &[(&str, u64)]) -> Vec<(String, u64)> {
    groups.iter().map(|(title, count)| ((*title).to_owned(), *count)).collect()
}

async fn put(caller: &Caller, group: &str, body: &str) -> super::running::Told {
    caller.ask(Method::PUT, &format!("/v1/failure-groups/{group}/note"), &[], body.to_owned()).await
}

async fn groups_count_what_is_pending_for_a_tenant_and_for_all(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme, other) = (&running.admin, running.tenant("acme").await, running.tenant("other").await);
    let letters = die(&running, &acme, &[400, 400, 400]).await;
    die(&running, &other, &[400, 401, 401]).await;
    let titles = counts(admin, "").await;
    assert_eq!(titles.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [4, 2]);
    assert!(titles[0].0.starts_with("400: ") && titles[1].0.starts_with("401: "), "{titles:?}");
    assert_eq!(counts(&acme, "").await, named(&[(&titles[0].0, 3)]));
    assert_eq!(counts(admin, "?tenant=other").await, named(&[(&titles[1].0, 2), (&titles[0].0, 1)]));
    assert_eq!(counts(admin, "?by=tenant&limit=1").await.len(), 2, "in pages of one");
    assert_eq!(counts(&acme, "?by=tenant").await, named(&[("acme", 3)]));
    assert_eq!(counts(admin, "?by=channel").await, named(&[("webhook", 6)]));
    assert_eq!(counts(admin, "?by=template").await, []);
    assert_eq!(
        counts(admin, "?by=destination").await,
        named(&[(running.sink.url("").trim_end_matches('/'), 6)])
    );
    let group = acme.get("/v1/failure-groups").await["data"][0].clone();
    assert_eq!(
        (&group["by"], &group["reasonCode"], &group["failureType"], &group["statusCode"], &group["note"]),
        (&json!("fingerprint"), &json!("PERMANENT_FAILURE"), &json!("permanent"), &json!(400), &Value::Null)
    );
    assert_eq!(group["sampleId"], letters[2].as_str());
    let sample = acme.get(&format!("/v1/dead-letters/{}", letters[2])).await;
    assert_eq!(group["lastSeen"], sample["createdAt"]);
    let hours: Vec<u64> = group["hours"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!((hours.len(), hours.iter().sum::<u64>()), (24, 3));
    let id = group["id"].as_str().unwrap();
    assert_eq!(acme.get(&format!("/v1/failure-groups/{id}")).await, group);
    assert_eq!(admin.get(&format!("/v1/failure-groups/{id}?tenant=acme")).await, group);
    assert_eq!(admin.get(&format!("/v1/failure-groups/{id}")).await["count"], 4);
    // The lists of dead letters take the group.
    let filter = format!("/v1/dead-letters?group={id}");
    assert_eq!((admin.all(&filter).await.len(), acme.all(&filter).await.len()), (4, 3));
    assert_eq!(acme.all(&format!("{filter}&status=requeued")).await.len(), 0);
    for letter in &letters {
        acme.act(&format!("/v1/dead-letters/{letter}/discard")).await.is(202);
    }
    assert_eq!(counts(&acme, "").await, []);
    assert_eq!(acme.get(&format!("/v1/failure-groups/{id}")).await["count"], 0);
    let metrics = admin.ask(Method::GET, "/metrics", &[], "").await;
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(metrics.contains("posthaste_failure_groups{by=\"fingerprint\"} 2"), "{metrics}");
    running.stop().await;
}

async fn a_note_is_kept_for_whoever_wrote_it_and_stays_when_the_group_empties(on: StoreKind) {
    let running = Running::start(on).await;
    let key = running.key_of("acme").await;
    let (admin, acme, other) = (&running.admin, running.caller(Some(&key)), running.tenant("other").await);
    let letters = die(&running, &acme, &[400]).await;
    die(&running, &other, &[400]).await;
    let id = acme.get("/v1/failure-groups").await["data"][0]["id"].as_str().unwrap().to_owned();
    let noted = put(&acme, &id, r#"{"text": " their API changed, ticket 7 "}"#).await.is(200);
    assert_eq!(noted["note"]["text"], "their API changed, ticket 7");
    assert!(noted["note"]["by"].is_string() && noted["note"]["at"].is_string(), "{noted}");
    assert_eq!(acme.get("/v1/failure-groups").await["data"][0], noted);
    let path = format!("/v1/failure-groups/{id}");
    assert_eq!(other.get(&path).await["note"], Value::Null, "it is not the other tenant's");
    assert_eq!(admin.get(&path).await["note"], Value::Null);
    assert_eq!(admin.get(&format!("{path}?tenant=acme")).await["note"], noted["note"]);
    put(admin, &id, r#"{"text": "for all"}"#).await.is(200);
    assert_eq!((&admin.get(&path).await["note"]["by"], &acme.get(&path).await), (&json!("admin"), &noted));
    acme.act(&format!("/v1/dead-letters/{}/discard", letters[0])).await.is(202);
    assert_eq!(acme.get("/v1/failure-groups").await["data"], json!([]));
    let running = running.restart().await;
    let acme = running.caller(Some(&key));
    assert_eq!(acme.get(&path).await["note"], noted["note"]);
    let audit = acme.get("/v1/audit?action=note").await["data"].clone();
    assert_eq!((&audit[0]["target"], audit.as_array().unwrap().len()), (&json!(id), 1));
    assert_eq!(put(&acme, &id, r#"{"text": ""}"#).await.is(200)["note"], Value::Null);
    assert_eq!(acme.get(&path).await["note"], Value::Null);
    running.stop().await;
}

async fn what_is_wrong_is_named_and_changes_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    die(&running, admin, &[400, 401]).await;
    let before = admin.get("/v1/failure-groups").await["data"].clone();
    let id = before[0]["id"].as_str().unwrap().to_owned();
    let ask = async |path: &str| admin.ask(Method::GET, path, &[], "").await;
    for (path, parameter) in [
        ("/v1/failure-groups?by=cause", "by"),
        ("/v1/failure-groups?limit=501", "limit"),
        ("/v1/failure-groups?since=1d", "since"),
        ("/v1/failure-groups?tenant=a%20b", "tenant"),
        ("/v1/dead-letters?group=dl_1", "group"),
        // The group of all others has no list.
        ("/v1/dead-letters?group=grp_3e6g5sszxkfac9s9a4wtxqg2hc", "group"),
        ("/v1/notifications?group=grp_00000000000000000000000000", "group"),
    ] {
        assert_eq!(ask(path).await.problem(422, "VALIDATION_FAILED")["parameter"], parameter, "{path}");
    }
    let cursor = admin.get("/v1/failure-groups?limit=1").await["nextCursor"].as_str().unwrap().to_owned();
    ask(&format!("/v1/failure-groups?by=channel&cursor={cursor}")).await.problem(422, "BAD_CURSOR");
    assert_eq!(
        admin.get(&format!("/v1/failure-groups?limit=1&cursor={cursor}")).await["nextCursor"],
        Value::Null
    );
    for path in [UNKNOWN, "/v1/failure-groups/dl_00000000000000000000000000", "/v1/failure-groups/x"] {
        ask(path).await.problem(404, "not-found");
    }
    assert_eq!(ask("/v1/dead-letters?group=grp_00000000000000000000000000").await.is(200)["data"], json!([]));
    let long = json!({"text": "x".repeat(2_001)}).to_string();
    for (body, status, code, pointer) in [
        (r#"{"text": "a", "by": "me"}"#, 422, "VALIDATION_FAILED", Some("/by")),
        (r#"{"text": 7}"#, 422, "VALIDATION_FAILED", Some("/text")),
        (&long, 422, "VALIDATION_FAILED", Some("/text")),
        (r#"{"text": "a\u0000b"}"#, 422, "VALIDATION_FAILED", Some("/text")),
        ("[]", 422, "VALIDATION_FAILED", Some("")),
        ("{", 400, "BAD_JSON", None),
    ] {
        let problem = put(admin, &id, body).await.problem(status, code);
        assert_eq!(problem["pointer"].as_str(), pointer, "{body}: {problem}");
    }
    assert!(
        put(admin, &id, "{}").await.problem(422, "VALIDATION_FAILED")["detail"].to_string().contains("text")
    );
    put(admin, "grp_00000000000000000000000000", r#"{"text": "x"}"#).await.problem(404, "not-found");
    assert_eq!(admin.get("/v1/failure-groups").await["data"], before);
    assert_eq!(admin.get("/v1/audit?action=note").await["data"], json!([]));
    running.stop().await;
}

on_each_store! {
    groups_count_what_is_pending_for_a_tenant_and_for_all;
    a_note_is_kept_for_whoever_wrote_it_and_stays_when_the_group_empties;
    what_is_wrong_is_named_and_changes_nothing;
}
