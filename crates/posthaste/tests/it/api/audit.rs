//! `/v1/audit`: filtered by who did what, to what, and when.

use std::time::Duration;

use http::Method;
use posthaste_core::time::Timestamp;
use serde_json::{Value, json};

use super::running::{Caller, Running, StoreKind};
use super::wrong_input::{INVALID, is_refused};

async fn targets(caller: &Caller, query: &str) -> Vec<String> {
    let rows = caller.all(&format!("/v1/audit?{query}")).await;
    rows.iter().map(|row| row["target"].as_str().unwrap().to_owned()).collect()
}

async fn the_audit_is_filtered_by_who_did_what_to_what_and_when(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    let put = async |caller: &Caller, scope: &str| {
        caller.ask(Method::PUT, &format!("/v1/policies/{scope}"), &[], r#"{"maxAttempts": 2}"#).await.is(200);
    };
    put(admin, "global").await;
    put(&acme, "tenant:acme").await;
    put(admin, "tenant:acme").await;
    admin.ask(Method::DELETE, "/v1/policies/global", &[], "").await.is(204);
    let policies = "action=put-policy,remove-policy";
    assert_eq!(targets(admin, policies).await, ["global", "tenant:acme", "tenant:acme", "global"]);
    assert_eq!(targets(admin, "action=remove-policy").await, ["global"]);
    assert_eq!(targets(admin, &format!("{policies}&actor=admin")).await, ["global", "tenant:acme", "global"]);
    assert_eq!(targets(admin, "actor=key%20of%20acme").await, ["tenant:acme"]);
    assert_eq!(targets(admin, "target=tenant:acme&actor=admin").await, ["tenant:acme"]);
    assert_eq!(targets(admin, &format!("{policies}&since=1h")).await.len(), 4);
    assert_eq!(targets(admin, "until=1h").await, [""; 0]);
    assert_eq!(targets(admin, "since=2999-01-01").await, [""; 0]);
    let rows = admin.all(&format!("/v1/audit?{policies}")).await;
    let at = |row: &Value| row["at"].as_str().unwrap().to_owned();
    let (newest, oldest) = (at(&rows[0]), at(&rows[3]));
    assert!(targets(admin, &format!("{policies}&since={oldest}")).await.len() == 4, "since is at or after");
    assert!(targets(admin, &format!("{policies}&until={oldest}")).await.is_empty(), "until is before");
    assert!(!targets(admin, &format!("{policies}&since={newest}")).await.is_empty());
    // Page by page, and only with the filter that the cursor was made for.
    let first = admin.get(&format!("/v1/audit?{policies}&limit=3")).await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = admin.get(&format!("/v1/audit?{policies}&limit=3&cursor={cursor}")).await;
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
    let other = admin.ask(Method::GET, &format!("/v1/audit?limit=3&cursor={cursor}"), &[], "").await;
    other.problem(422, "BAD_CURSOR");
    // A tenant finds its own rows only, whatever it asks for.
    assert_eq!(targets(&acme, "target=global").await, [""; 0]);
    assert_eq!(targets(&acme, "actor=admin").await, [""; 0]);
    assert_eq!(targets(&acme, policies).await, ["tenant:acme"]);
    for (query, name) in
        [("since=soon", "since"), ("until=x", "until"), ("action=a,", "action"), ("who=x", "who")]
    {
        let told = admin.ask(Method::GET, &format!("/v1/audit?{query}"), &[], "").await;
        is_refused(&told, (422, INVALID, &format!("?{name}")), query);
    }
    running.stop().await;
}

/// More rows than one page looks at.
const OTHERS: usize = 5_200;

/// Writes so many rows of a tenant, so many seconds after the newest one.
fn many_rows(on: StoreKind, tenant: &str, seconds: u64) -> String {
    let numbers = match on {
        StoreKind::Sqlite => {
            format!("with recursive n(n) as (select 1 union all select n + 1 from n where n < {OTHERS})")
        }
        StoreKind::Postgres => format!("with n(n) as (select generate_series(1, {OTHERS}))"),
    };
    format!(
        "insert into audit (tenant, actor, action, target, at, asked, count)
         {numbers}
         select {tenant}, 'many', 'x', 'y', (select max(at) from audit) + {micros}, 1, 1
         from n",
        micros = seconds * 1_000_000
    )
}

/// A filter that nearly nothing matches looks at so many rows, and returns a cursor where it stopped.
async fn a_rare_row_is_found_behind_many_others_page_by_page(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    admin.ask(Method::PUT, "/v1/policies/tenant:acme", &[], "{}").await.is(200);
    running.change_store(&many_rows(on, "null", 0)).await;
    let page = admin.get("/v1/audit?action=put-policy").await;
    assert_eq!(page["data"], json!([]));
    assert!(page["nextCursor"].is_string(), "the walk stopped before it came to the row: {page}");
    assert_eq!(targets(admin, "action=put-policy").await, ["tenant:acme"]);
    assert_eq!(targets(admin, "actor=many&limit=500").await.len(), OTHERS);
    running.stop().await;
}

/// The times of rows follow their numbers, so the walk starts where the rows are old enough.
async fn a_page_of_long_ago_is_whole_behind_many_newer_rows(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    acme.ask(Method::PUT, "/v1/policies/tenant:acme", &[], "{}").await.is(200);
    let row = admin.get("/v1/audit?action=put-policy").await["data"][0].clone();
    let at: Timestamp = row["at"].as_str().unwrap().parse().unwrap();
    let until = at.later(Duration::from_secs(3_600));
    running.change_store(&many_rows(on, "'acme'", 3 * 3_600)).await;
    for caller in [admin, &acme] {
        let page = caller.get(&format!("/v1/audit?action=put-policy&until={until}")).await;
        assert_eq!((&page["data"][0]["target"], &page["nextCursor"]), (&json!("tenant:acme"), &Value::Null));
    }
    running.stop().await;
}

/// The rows name the notification, which is the same one for both ids.
async fn an_act_on_a_dead_letter_is_found_by_both_ids(on: StoreKind) {
    let running = Running::start(on).await;
    let (acme, other) = (running.tenant("acme").await, running.tenant("other").await);
    let dead = acme.send_until(&running.webhook("/status/400"), "deadLetter").await;
    let [letter, id] = ["deadLetterId", "notificationId"].map(|name| dead[name].as_str().unwrap());
    acme.act(&format!("/v1/dead-letters/{letter}/discard")).await.is(202);
    for caller in [&running.admin, &acme] {
        assert_eq!(targets(caller, &format!("target={letter}")).await, [id]);
        assert_eq!(targets(caller, &format!("target={id}")).await, [id]);
    }
    assert_eq!(targets(&other, &format!("target={letter}")).await, [""; 0]);
    running.stop().await;
}

on_each_store! {
    an_act_on_a_dead_letter_is_found_by_both_ids;
    a_page_of_long_ago_is_whole_behind_many_newer_rows;
    the_audit_is_filtered_by_who_did_what_to_what_and_when;
    a_rare_row_is_found_behind_many_others_page_by_page;
}
