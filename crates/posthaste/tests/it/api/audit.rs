//! `/v1/audit`: filtered by who did what, to what, and when.

use http::Method;
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

/// A filter that nearly nothing matches looks at so many rows, and returns a cursor where it stopped.
async fn a_rare_row_is_found_behind_many_others_page_by_page(on: StoreKind) {
    const OTHERS: usize = 5_200;
    let running = Running::start(on).await;
    let admin = &running.admin;
    admin.ask(Method::PUT, "/v1/policies/tenant:acme", &[], "{}").await.is(200);
    let numbers = match on {
        StoreKind::Sqlite => {
            format!("with recursive n(n) as (select 1 union all select n + 1 from n where n < {OTHERS})")
        }
        StoreKind::Postgres => format!("with n(n) as (select generate_series(1, {OTHERS}))"),
    };
    let many = format!(
        "insert into audit (tenant, actor, action, target, at, asked, count)
         {numbers} select null, 'many', 'x', 'y', (select max(at) from audit), 1, 1 from n"
    );
    running.change_store(&many).await;
    let page = admin.get("/v1/audit?action=put-policy").await;
    assert_eq!(page["data"], json!([]));
    assert!(page["nextCursor"].is_string(), "the walk stopped before it came to the row: {page}");
    assert_eq!(targets(admin, "action=put-policy").await, ["tenant:acme"]);
    assert_eq!(targets(admin, "actor=many&limit=500").await.len(), OTHERS);
    running.stop().await;
}

on_each_store! {
    the_audit_is_filtered_by_who_did_what_to_what_and_when;
    a_rare_row_is_found_behind_many_others_page_by_page;
}
