//! Dead letters that retention has soft-deleted: who sees them, and how they come back.

use serde_json::{Value, json};

use super::running::{Running, StoreKind};

/// Soft-deletes every dead letter that is resolved, as the job does once they are old.
const DELETE: &str = "update dead_letter set deleted_at = created_at where status <> 0";

async fn ids(caller: &super::running::Caller, query: &str) -> Vec<Value> {
    caller.all(&format!("/v1/dead-letters{query}")).await.iter().map(|row| row["id"].clone()).collect()
}

async fn a_deleted_dead_letter_is_listed_on_demand_and_restored_as_it_was(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let acme = running.tenant("acme").await;
    let mut mine = running.webhook("/status/400");
    mine["tenant"] = json!("acme");
    let dead = admin.send_until(&mine, "deadLetter").await;
    let letter = dead["deadLetterId"].clone();
    let path = format!("/v1/dead-letters/{}", letter.as_str().unwrap());
    acme.act(&format!("{path}/discard")).await.is(202);
    let discarded = acme.get(&path).await;
    assert_eq!(discarded["deletedAt"], Value::Null);
    running.change_store(DELETE).await;
    for query in ["", "?status=discarded", "?status=all", "?status=pending"] {
        assert_eq!(ids(&acme, query).await, Vec::<Value>::new(), "{query}");
    }
    assert_eq!(ids(&acme, "?status=deleted").await, std::slice::from_ref(&letter));
    let deleted = acme.get(&path).await;
    assert_eq!(deleted["deletedAt"], deleted["createdAt"]);
    assert_eq!(deleted["status"], "cancelled");
    let other = running.tenant("other").await;
    assert_eq!(ids(&other, "?status=deleted").await, Vec::<Value>::new());
    other.act(&format!("{path}/restore")).await.problem(404, "not-found");
    acme.act(&format!("{path}/requeue")).await.problem(409, "DEAD_LETTER_RESOLVED");
    let restored = acme.act(&format!("{path}/restore")).await.is(202);
    let wanted = json!({"id": letter, "notificationId": dead["notificationId"], "status": "failed"});
    assert_eq!(restored, wanted);
    assert_eq!(acme.get(&path).await, discarded, "as it was");
    acme.act(&format!("{path}/restore")).await.is(202);
    assert_eq!(acme.get(&path).await["status"], "pending", "and then as it died");
    acme.act(&format!("{path}/requeue")).await.is(202);
    acme.wait(dead["notificationId"].as_str().unwrap(), "deadLetter").await;
    running.change_store(DELETE).await;
    let restored = acme.act(&format!("{path}/restore")).await.is(202);
    assert_eq!(restored["status"], "failed", "of its notification, which died again");
    assert_eq!(acme.get(&path).await["status"], "requeued");
    acme.act(&format!("{path}/restore")).await.problem(409, "DEAD_LETTER_RESOLVED");
    let audited = acme.all("/v1/audit?action=restore").await;
    assert_eq!(audited.len(), 3);
    running.stop().await;
}

on_each_store! {
    a_deleted_dead_letter_is_listed_on_demand_and_restored_as_it_was;
}
