//! Who sees which page: what the API says of the operation behind it.

use http::{Method, StatusCode};
use posthaste::dashboard::{Needs, PAGES, PageRoute};
use posthaste::http::openapi::document;
use posthaste_core::role::Role;
use serde_json::{Value, json};

use super::super::retry_operations::finished;
use super::super::running::{Running, StoreKind};
use super::super::tenants::populate;
use super::{Browser, filled, form, is_safe, token_of};

/// A running Posthaste with something of tenant `a` in every state, and what to put into the paths.
struct Scene {
    running: Running,
    notification: String,
    dead_letter: String,
    key: String,
    group: String,
    operation: String,
    destination: String,
}

impl Scene {
    async fn start(on: StoreKind) -> Self {
        let running = Running::start(on).await;
        let made = running.admin.post("/v1/keys", &json!({"name": "of a", "tenant": "a"})).await.is(201);
        let a = running.caller(made["key"].as_str());
        let (notifications, dead_letters) = populate(&running, &a).await;
        let groups = a.get("/v1/failure-groups").await;
        let nothing = json!({"filter": {"q": "nothing is like this"}});
        let operation = a.post("/v1/retry-operations", &nothing).await.is(202);
        let operation = operation["id"].as_str().unwrap().to_owned();
        finished(&a, &operation).await;
        let destinations = a.get("/v1/destinations?all=true").await;
        Self {
            destination: destinations["data"][0]["id"].as_str().unwrap().to_owned(),
            running,
            notification: notifications["retryScheduled"].clone(),
            dead_letter: dead_letters["pending"].clone(),
            key: made["id"].as_str().unwrap().to_owned(),
            group: groups["data"][0]["id"].as_str().unwrap().to_owned(),
            operation,
        }
    }

    fn path(&self, page: &PageRoute) -> String {
        filled(page, |page| match page.path.split('/').nth(1).unwrap() {
            "notifications" => self.notification.clone(),
            "dead-letters" => self.dead_letter.clone(),
            "keys" => self.key.clone(),
            "failure-groups" => self.group.clone(),
            "retry-operations" => self.operation.clone(),
            "destinations" => self.destination.clone(),
            "views" => "of%20a".to_owned(),
            "jobs" => "retry-expire".to_owned(),
            "policies" => "tenant:a".to_owned(),
            "assets" => "app.css".to_owned(),
            other => panic!("the new page {other} needs its case"),
        })
    }

    async fn key_of(&self, tenant: &str, role: Option<Role>) -> String {
        let mut wanted = json!({"name": "k", "tenant": tenant});
        if let Some(role) = role {
            wanted["role"] = json!(role.name());
        }
        self.running.admin.post("/v1/keys", &wanted).await.is(201)["key"].as_str().unwrap().to_owned()
    }

    /// What there is, but for what a login itself changes.
    async fn seen(&self) -> Vec<Value> {
        let mut seen = vec![];
        for list in [
            "/v1/notifications?limit=500",
            "/v1/dead-letters?status=all&limit=500",
            "/v1/policies",
            "/v1/jobs",
            "/v1/failure-groups",
            "/v1/retry-operations",
        ] {
            let mut shown = self.running.admin.get(list).await;
            shown.as_object_mut().unwrap().remove("nextCursor");
            for row in shown["data"].as_array_mut().unwrap() {
                // Jobs run by themselves.
                row.as_object_mut()
                    .unwrap()
                    .retain(|name, _| !["nextRunAt", "lastRun", "running"].contains(&name.as_str()));
            }
            seen.push(shown);
        }
        seen
    }
}

on_each_store! {
    each_role_sees_the_pages_whose_operations_it_may_call;
    a_form_that_is_not_the_visitors_own_changes_nothing;
}

async fn each_role_sees_the_pages_whose_operations_it_may_call(on: StoreKind) {
    let scene = Scene::start(on).await;
    let holders = [
        ("a", Some(Role::Reader)),
        ("a", Some(Role::Operator)),
        ("a", None),
        ("a", Some(Role::Admin)),
        ("*", Some(Role::Reader)),
        ("*", Some(Role::Operator)),
        ("*", Some(Role::Admin)),
    ];
    for (tenant, role) in holders {
        let key = scene.key_of(tenant, role).await;
        let mut browser = Browser::with(&scene.running, &key).await;
        for page in PAGES.iter().filter(|page| page.method == Method::GET) {
            let Needs::Operation(operation) = page.needs else { continue };
            let path = scene.path(page);
            let route = document().routes.all().iter().find(|route| route.name == operation).unwrap();
            let about = format!("{role:?} of {tenant} at {path}");
            // The API's own answer to the same key says who may.
            let api = match path.as_str() {
                "/" => "/v1/stats".to_owned(),
                "/retry-operations/new" => "/v1/retry-operations".to_owned(),
                // The page asks for the tenant, and shows no secret by itself.
                "/signing-secret" => "/v1/signing-secret?tenant=a".to_owned(),
                "/policies/tenant:a/simulate" => "/v1/policies/simulate".to_owned(),
                _ => format!("/v1{path}"),
            };
            let caller = scene.running.caller(Some(&key));
            let allowed = if route.method == Method::GET {
                // The page of a secret that cannot be encrypted says so.
                let told = caller.ask(Method::GET, &api, &[], "").await.status;
                if told == 409 { StatusCode::OK } else { told }
            } else {
                // A form that leads to an act: a wrong request is refused by role before it is read.
                let told = caller.ask(route.method.clone(), &api, &[], "[]").await.status;
                if told == 403 { told } else { StatusCode::OK }
            };
            let shown = browser.get(&path).await;
            assert_eq!(shown.status, allowed, "{about}: {}", shown.text);
            is_safe(&shown);
            if shown.status == 200 {
                assert_eq!(shown.headers["content-type"], "text/html; charset=utf-8");
                assert!(shown.text.starts_with("<!doctype html>") && shown.text.contains("<h1"), "{about}");
            }
        }
        let acts = |page: &str| page.contains("Retry Now") || page.contains(">Discard<");
        let groups = browser.get("/failure-groups").await.page();
        let has_acts = groups.contains("Requeue these") || groups.contains("Add a note");
        assert_eq!(has_acts, role != Some(Role::Reader), "{role:?} of {tenant}: {groups}");
        let list = browser.get("/dead-letters").await.page();
        assert_eq!(acts(&list), role != Some(Role::Reader), "{role:?} of {tenant}");
        assert_eq!(list.contains("form=\"picks\""), role != Some(Role::Reader), "{role:?} of {tenant}");
        // What a role may not see is not in its navigation.
        assert_eq!(list.contains("href=\"/jobs\""), tenant == "*", "{role:?} of {tenant}");
        assert_eq!(
            list.contains("href=\"/keys\""),
            matches!(role, None | Some(Role::Admin)),
            "{role:?} of {tenant}"
        );
    }
    scene.running.stop().await;
}

async fn a_form_that_is_not_the_visitors_own_changes_nothing(on: StoreKind) {
    let scene = Scene::start(on).await;
    let admin = scene.key_of("*", Some(Role::Admin)).await;
    let reader = scene.key_of("*", Some(Role::Reader)).await;
    let mut browser = Browser::with(&scene.running, &admin).await;
    let mut other = Browser::with(&scene.running, &reader).await;
    let mine = token_of(&browser.get("/session").await.page());
    let theirs = token_of(&other.get("/session").await.page());
    let before = scene.seen().await;
    for page in PAGES.iter().filter(|page| page.method == Method::POST && page.path != "/login") {
        let path = scene.path(page);
        let own = browser.origin.clone();
        for (origin, token) in [
            (own.as_str(), ""),
            (own.as_str(), theirs.as_str()),
            ("http://evil.example", mine.as_str()),
            ("null", mine.as_str()),
            ("", mine.as_str()),
        ] {
            let shown =
                browser.ask(Method::POST, &path, &[("origin", origin)], form(&[("token", token)])).await;
            assert_eq!(shown.status, 403, "{path} {origin} {token}: {}", shown.text);
            is_safe(&shown);
        }
        // Without a session there is only the way to log in.
        let nobody = Browser::new(scene.running.address()).send("/", &path, &[("token", &mine)]).await;
        assert_eq!((nobody.status.as_u16(), nobody.to()), (303, "/login"), "{path}");
        if let Needs::Operation(operation) = page.needs {
            let shown = other.send("/", &path, &[("token", &theirs)]).await;
            // A reader may ask what a policy would do.
            let wanted = if operation == "previewPolicy" { 200 } else { 403 };
            assert_eq!(shown.status, wanted, "a reader and {operation}: {}", shown.text);
        }
    }
    assert_eq!(scene.seen().await, before);
    browser.get("/").await.is(200);
    scene.running.stop().await;
}

#[tokio::test]
async fn a_tenant_sees_and_touches_nothing_of_another() {
    let scene = Scene::start(StoreKind::Sqlite).await;
    let b = scene.key_of("b", Some(Role::Admin)).await;
    let mut browser = Browser::with(&scene.running, &b).await;
    let before = scene.seen().await;
    for page in PAGES.iter().filter(|page| page.path.contains('{') && page.path != "/assets/{file}") {
        let path = scene.path(page);
        let about = format!("{} {path}", page.method);
        if page.method == Method::GET {
            let shown = browser.get(&path).await;
            assert!(shown.status == 404 || shown.status == 403, "{about}: {}", shown.text);
        } else {
            let token = token_of(&browser.get("/session").await.page());
            let shown =
                browser.send("/", &path, &[("token", &token), ("policy", "{\"maxAttempts\": 3}")]).await;
            // Refused, or back on the page before with the reason.
            assert!([303, 403, 404].contains(&shown.status.as_u16()), "{about}: {}", shown.text);
        }
    }
    assert_eq!(scene.seen().await, before);
    // What the last act came to names what was asked for.
    browser.cookies.remove("__Host-posthaste-flash");
    for page in PAGES.iter().filter(|page| page.method == Method::GET && !page.path.contains('{')) {
        let shown = browser.get(page.path).await;
        for theirs in [&scene.notification, &scene.dead_letter, &scene.key, &scene.group, &scene.operation] {
            assert!(!shown.text.contains(theirs.as_str()), "{}: {}", page.path, shown.text);
        }
    }
    scene.running.stop().await;
}
