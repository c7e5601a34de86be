//! The walk of callers of each role over all routes, as the owner of what is there and as somebody else.

use http::Method;
use posthaste::http::route::{Access, Needed, Route};
use posthaste_core::group::{GroupBy, GroupId};
use posthaste_core::role::Role;
use serde_json::{Value, json};

use super::super::running::{Caller, Running, StoreKind, routes};
use super::super::tenants::{Ids, populate};

/// A key as it was asked for.
pub(in super::super) struct Holder {
    /// `None` for a tenant's key without one.
    pub(in super::super) role: Option<Role>,
    /// `*` for all tenants.
    pub(in super::super) tenant: &'static str,
    pub(in super::super) caller: Caller,
}

impl Holder {
    pub(in super::super) async fn make(running: &Running, tenant: &'static str, role: Option<Role>) -> Self {
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
pub(in super::super) async fn holders(running: &Running, tenant: &'static str) -> Vec<Holder> {
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
const FOR_ALL: [&str; 10] = [
    "masterKey",
    "rotateMasterKey",
    "listNodes",
    "listSettings",
    "listTenants",
    "listJobs",
    "listJobRuns",
    "runJob",
    "pauseJob",
    "resumeJob",
];

/// Something of the tenant `a`.
pub(in super::super) struct Scene {
    pub(in super::super) running: Running,
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
    pub(in super::super) async fn start(on: StoreKind) -> Self {
        Self::of(Running::start(on).await).await
    }

    pub(in super::super) async fn of(running: Running) -> Self {
        let made = running.admin.post("/v1/keys", &json!({"name": "of a", "tenant": "a"})).await.is(201);
        let a = running.caller(made["key"].as_str());
        let (notifications, dead_letters) = populate(&running, &a).await;
        let policy = json!({"maxAttempts": 7}).to_string();
        running.admin.ask(Method::PUT, "/v1/policies/tenant:a", &[], policy).await.is(200);
        let group = GroupId::of(GroupBy::Tenant, b"a").to_string();
        let started = a.post("/v1/retry-operations", &json!({"filter": {"q": "nothing"}})).await.is(202);
        let operation = started["id"].as_str().unwrap().to_owned();
        super::super::retry_operations::finished(&a, &operation).await;
        let key = made["id"].as_str().unwrap().to_owned();
        let destination = super::super::destinations::receiver(&running, "a");
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
                super::super::destinations::forget_failures(row);
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

    /// Holds each caller against the contract, at every route.
    pub(in super::super) async fn asks_each_for_its_role(&self, all: &[Holder]) {
        let before = self.seen().await;
        for route in routes().iter().filter(|route| route.access.needs_key()) {
            let Access::Key(Needed { roles, .. }) = &route.access else { unreachable!("a key is needed") };
            for holder in all {
                let about = format!("{} for {}", route.name, holder.about());
                if !may(holder.role, &route.name) {
                    let (path, body) = self.request(route);
                    let told = holder.caller.ask(route.method.clone(), &path, &[], body).await;
                    let detail = told.problem(403, "FORBIDDEN")["detail"].as_str().unwrap().to_owned();
                    for needed in roles.iter().filter(|role| Role::NAMED.contains(role)) {
                        assert!(detail.contains(needed.name()), "{about}: {detail}");
                    }
                    continue;
                }
                let (path, body) = harmless(route);
                let told = holder.caller.ask(route.method.clone(), &path, &[], body).await;
                if FOR_ALL.contains(&route.name.as_str()) && holder.tenant != "*" {
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
        let mut after = self.seen().await;
        // What a key for all removed, although there was nothing.
        if all.iter().any(|holder| holder.tenant == "*") {
            let audit = after[2].as_array_mut().unwrap();
            assert_eq!(
                (&audit[0]["action"], &audit[0]["target"]),
                (&json!("remove-policy"), &json!("tenant:nobody"))
            );
            audit.remove(0);
        }
        assert_eq!(after, before);
    }

    /// Callers of `b` reach nothing of `a`. One of them is an admin.
    pub(in super::super) async fn keeps_out(&self, all: &[Holder]) {
        let before = self.seen().await;
        for route in routes().iter().filter(|route| route.access.needs_key()) {
            let names_something =
                route.path.contains('{') || ["send", "createKey"].contains(&route.name.as_str());
            for holder in all.iter().filter(|_| names_something) {
                let (path, body) = self.request(route);
                let told = holder.caller.ask(route.method.clone(), &path, &[], body).await;
                let about = format!("{} for {}: {}", route.name, holder.about(), told.json);
                let wanted: &[u16] = match may(holder.role, &route.name) {
                    true if FOR_ALL.contains(&route.name.as_str()) => &[403],
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
        assert_eq!(self.seen().await, before);
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
