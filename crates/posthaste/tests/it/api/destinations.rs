//! `/v1/destinations`: a receiver that fails, what is shown of it, and what people do about it.

use std::time::Duration;

use http::Method;
use posthaste::config::Config;
use posthaste::http::route::Route;
use posthaste_core::channel::Channel;
use posthaste_core::destination::{DestinationKey, DestinationName};
use serde_json::{Value, json};

use super::providers::log_provider;
use super::running::{Caller, Running, StoreKind, Told, quick};
use crate::program::eventually;

const PATH: &str = "/v1/destinations";
const UNKNOWN: &str = "dst_00000000000000000000000000";

/// The breaker opens after three failures and stays so.
pub(super) fn lasting(config: &mut Config) {
    config.breaker.failure_threshold = 3;
    config.breaker.first_break = Duration::from_secs(3_600);
    config.breaker.break_duration = Duration::from_secs(3_600);
    config.breaker.forget_after = Duration::from_secs(7_200);
}

/// The breaker opens after three failures, for a moment.
fn short(config: &mut Config) {
    config.breaker.failure_threshold = 3;
    config.breaker.first_break = Duration::from_millis(300);
    config.breaker.break_duration = Duration::from_millis(300);
}

/// A channel with two ways out.
fn two_providers(config: &mut Config) {
    let email = |name: &str, priority| (name.to_owned(), log_provider(Channel::Email, priority, None));
    config.providers = [email("mail", 1), email("spare", 2)].into();
}

/// The id of the receiver for webhooks of a tenant.
pub(super) fn receiver(running: &Running, tenant: &str) -> String {
    let name = DestinationName::parse(&running.sink.url("")).unwrap();
    name.key(Some(tenant.parse().unwrap())).unwrap().id().to_string()
}

/// Failures are written a second later. Rows of other lists are left as they are.
pub(super) fn forget_failures(row: &mut Value) {
    if row["failures"].is_number() {
        for name in ["failures", "firstFailureAt", "lastFailureAt", "lastStatusCode", "lastError", "label"] {
            row[name] = Value::Null;
        }
    }
}

/// What a key of `a` is answered about the receiver as the destination of `b`: it has another id for each tenant.
pub(super) async fn trespass(running: &Running, a: &Caller, Route { method, path, name, .. }: &Route) {
    let of_b = receiver(running, "b");
    if name == "listDestinations" {
        for query in ["", "?all=true", "?all=true&history=1d"] {
            let own = a.get(&format!("{path}{query}")).await.to_string();
            assert!(!own.contains(&of_b) && !own.contains(r#""tenant":"b""#), "{own}");
        }
        for other in ["b", "default"] {
            let asked = format!("{path}?tenant={other}");
            a.ask(Method::GET, &asked, &[], "").await.problem(403, "FORBIDDEN");
        }
        return;
    }
    let path = path.replace("{id}", &of_b);
    let body = if *method == Method::GET { "" } else { "{}" };
    a.ask(method.clone(), &path, &[], body).await.problem(404, "not-found");
    if ["putDestination", "blockDestination"].contains(&name.as_str()) {
        let named = json!({"name": running.sink.url(""), "tenant": "b"}).to_string();
        a.ask(method.clone(), &path, &[], named).await.problem(403, "FORBIDDEN");
        // Without a tenant the name is that of its own, which has another id.
        let named = json!({"name": running.sink.url("")}).to_string();
        a.ask(method.clone(), &path, &[], named).await.problem(422, "VALIDATION_FAILED");
    }
}

async fn put(caller: &Caller, id: &str, body: &Value) -> Told {
    caller.ask(Method::PUT, &format!("{PATH}/{id}"), &[], body.to_string()).await
}

async fn post(caller: &Caller, id: &str, act: &str, body: &str) -> Told {
    caller.ask(Method::POST, &format!("{PATH}/{id}/{act}"), &[], body.to_owned()).await
}

async fn names(caller: &Caller, query: &str) -> Vec<String> {
    let rows = caller.all(&format!("{PATH}{query}")).await;
    rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

/// The destination once it is as wanted.
pub(super) async fn until(caller: &Caller, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let look = async || {
        let told = caller.ask(Method::GET, &format!("{PATH}/{id}"), &[], "").await;
        (told.status == 200 && wanted(&told.json)).then_some(told.json)
    };
    eventually(look).await.expect("the destination becomes so")
}

async fn metrics(running: &Running) -> String {
    let told = running.admin.ask(Method::GET, "/metrics", &[], "").await;
    String::from_utf8_lossy(&told.bytes).into_owned()
}

/// What happened to a destination, from the first to the last.
fn events(destination: &Value) -> Vec<&str> {
    let history = destination["history"].as_array().unwrap().iter().rev();
    history.map(|event| event["event"].as_str().unwrap()).collect()
}

async fn actions(caller: &Caller) -> Vec<String> {
    let rows = caller.all("/v1/audit").await;
    let names = rows.iter().map(|row| row["action"].as_str().unwrap().to_owned());
    let mut of_destinations: Vec<String> = names.filter(|name| name.ends_with("-destination")).collect();
    of_destinations.reverse();
    of_destinations
}

async fn what_fails_is_left_alone_and_shown_until_somebody_resets_it(on: StoreKind) {
    let running = Running::with(on, lasting).await;
    let key = running.key_of("acme").await;
    let (acme, id) = (running.caller(Some(&key)), receiver(&running, "acme"));
    let dead = acme.send_until(&running.webhook("/status/503"), "deadLetter").await;
    let open = until(&acme, &id, |shown| shown["state"] == "open").await;
    for (field, wanted) in [
        ("id", json!(id)),
        ("kind", json!("webhook")),
        ("name", json!(running.sink.url("").trim_end_matches('/'))),
        ("tenant", json!("acme")),
        ("label", json!("BLOCKED")),
        ("failures", json!(3)),
        ("lastStatusCode", json!(503)),
        ("lastError", dead["lastError"].clone()),
        ("blockedBy", Value::Null),
        ("ramping", json!(false)),
        ("parked", json!(0)),
    ] {
        assert_eq!(open[field], wanted, "{field}");
    }
    assert_eq!(events(&open), ["opened"]);
    assert_eq!(open["history"][0]["until"], open["blockedUntil"]);
    assert!(open["firstFailureAt"].is_string() && open["blockedAt"].is_string(), "{open}");
    let sent = [acme.send(&running.webhook("/ok")).await, acme.send(&running.webhook("/ok")).await];
    let parked = until(&acme, &id, |shown| shown["parked"] == 2).await;
    assert_eq!(acme.get(PATH).await["data"][0]["parked"], 2);
    let detail = acme.get(&format!("/v1/notifications/{}", sent[0])).await;
    assert_eq!((&detail["state"], &detail["attempts"]), (&json!("pending"), &json!([])));
    assert_eq!(detail["parked"]["destinationId"], json!(id));
    assert_eq!(detail["parked"]["until"], parked["blockedUntil"]);
    let metrics = metrics(&running).await;
    for line in [
        "posthaste_destination_state{state=\"open\"} 1",
        "posthaste_destination_state{state=\"blocked\"} 0",
        "posthaste_destination_events_total{event=\"opened\"} 1",
        "posthaste_parked 2",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // All of it survives a restart.
    let running = running.restart().await;
    let acme = running.caller(Some(&key));
    assert_eq!(acme.get(&format!("{PATH}/{id}")).await, parked);
    let after = acme.send(&running.webhook("/ok")).await;
    until(&acme, &id, |shown| shown["parked"] == 3).await;
    assert_eq!(running.sink.arrivals().len(), 3, "nothing was sent since it opened");
    let reset = post(&acme, &id, "reset", "").await.is(200);
    assert_eq!(
        (&reset["state"], &reset["label"], &reset["failures"]),
        (&json!("closed"), &json!(""), &json!(0))
    );
    for id in sent.iter().chain([&after]) {
        let delivered = acme.wait(id, "succeeded").await;
        assert_eq!(
            (&delivered["attempt"], &delivered["parked"]),
            (&json!(1), &Value::Null),
            "nothing was spent"
        );
    }
    assert_eq!(acme.get(PATH).await["data"], json!([]), "it is well");
    histories_are_listed(&running, &acme, &id).await;
    assert_eq!(events(&acme.get(&format!("{PATH}/{id}")).await), ["opened", "reset"]);
    let acts = ["reset-destination", "limit-destination", "limit-destination"];
    assert_eq!(actions(&acme).await, acts);
    running.stop().await;
}

/// The list has the same events as the destination, since a time that is given.
async fn histories_are_listed(running: &Running, acme: &Caller, id: &str) {
    let whole = acme.get(&format!("{PATH}/{id}")).await["history"].clone();
    let other = "https://limited.example:443";
    let key = DestinationName::parse(other).unwrap().key(Some("acme".parse().unwrap())).unwrap();
    put(acme, &key.id().to_string(), &json!({"rate": 1, "name": other})).await.is(200);
    let history = async |query: &str| {
        let rows = acme.all(&format!("{PATH}?{query}")).await;
        let of = rows.iter().find(|row| row["id"] == json!(id));
        (of.unwrap()["history"].clone(), rows)
    };
    for since in ["1d", "2000-01-01", "2000-01-01T00:00:00Z"] {
        let (found, rows) = history(&format!("all=true&history={since}")).await;
        assert_eq!(found, whole, "{since}");
        let limited = rows.iter().find(|row| row["name"] == other).unwrap();
        assert_eq!((events(limited), rows.len()), (vec!["limited"], 2));
    }
    let last = whole[0]["at"].as_str().unwrap();
    let (since_then, _) = history(&format!("all=true&history={last}")).await;
    assert_eq!(since_then, json!([whole[0]]), "at or after {last}");
    assert!(history("all=true").await.0.is_null(), "it is only there where it is asked for");
    let by_name = format!("name={}&history=1d", running.sink.url("/x"));
    assert_eq!(history(&by_name).await.0, whole);
    // What is shown of rows does not say which rows there are, so a place in the list stays one.
    let first = acme.get(&format!("{PATH}?all=true&limit=1&history=1d")).await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = acme.get(&format!("{PATH}?all=true&limit=1&cursor={cursor}")).await;
    assert!(second["data"][0]["name"].is_string() && second["data"][0]["name"] != first["data"][0]["name"]);
    for wrong in ["x", "-1d", ""] {
        let told = acme.ask(Method::GET, &format!("{PATH}?history={wrong}"), &[], "").await;
        assert_eq!(told.problem(422, "VALIDATION_FAILED")["parameter"], "history");
    }
    put(acme, &key.id().to_string(), &json!({})).await.is(200);
}

async fn a_probe_that_arrives_closes_the_breaker_and_it_ramps_up(on: StoreKind) {
    let running = Running::with(on, short).await;
    let (admin, id) = (&running.admin, receiver(&running, "default"));
    admin.send_until(&running.webhook("/status/503"), "deadLetter").await;
    let probe = admin.send(&running.webhook("/ok")).await;
    admin.wait(&probe, "succeeded").await;
    let closed = until(admin, &id, |shown| shown["ramping"] == true).await;
    assert_eq!((&closed["state"], &closed["label"]), (&json!("closed"), &json!("MONITORING")));
    assert_eq!(events(&closed), ["opened", "probed", "closed"]);
    running.stop().await;
}

async fn answers_that_do_not_blame_the_destination_leave_it_alone(on: StoreKind) {
    let running = Running::with(on, lasting).await;
    let admin = &running.admin;
    for status in [410, 404, 400, 401] {
        admin.send_until(&running.webhook(&format!("/status/{status}")), "deadLetter").await;
    }
    admin.send_until(&running.webhook("/ok"), "succeeded").await;
    assert_eq!(admin.get(PATH).await["data"], json!([]));
    // The same number of failures that blame it are counted.
    let mut fails = running.webhook("/status/500");
    fails["policy"] = quick(2);
    admin.send_until(&fails, "deadLetter").await;
    let counted = until(admin, &receiver(&running, "default"), |shown| shown["failures"] == 2).await;
    assert_eq!((&counted["state"], &counted["label"]), (&json!("closed"), &json!("MONITORING")));
    running.stop().await;
}

async fn a_blocked_destination_gets_nothing_until_it_is_unblocked(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    let id = receiver(&running, "acme");
    let url = running.sink.url("/some/path?x=1");
    post(&acme, &id, "block", "").await.problem(404, "not-found");
    let found = acme.get(&format!("{PATH}?name={}", url.replace('?', "%3F"))).await;
    assert_eq!((&found["data"][0]["id"], &found["data"][0]["state"]), (&json!(id), &json!("closed")));
    let body = json!({"reason": " they asked us to ", "name": url, "tenant": "acme"}).to_string();
    let blocked = post(admin, &id, "block", &body).await.is(200);
    for (field, wanted) in [
        ("state", json!("open")),
        ("label", json!("BLOCKED")),
        ("blockedBy", json!("admin")),
        ("blockReason", json!("they asked us to")),
        ("blockedUntil", Value::Null),
        ("failures", json!(0)),
    ] {
        assert_eq!(blocked[field], wanted, "{field}");
    }
    post(&acme, &id, "block", "{}").await.problem(409, "DESTINATION_CONFLICT");
    let sent = acme.send(&running.webhook("/ok")).await;
    until(&acme, &id, |shown| shown["parked"] == 1).await;
    let waiting = acme.get(&format!("/v1/notifications/{sent}")).await;
    assert_eq!((&waiting["attempt"], &waiting["attempts"]), (&json!(1), &json!([])));
    assert_eq!(
        waiting["parked"],
        json!({"destinationId": id, "kind": "webhook", "name": blocked["name"], "until": null, "blockedBy": "admin"})
    );
    let unblocked = post(&acme, &id, "unblock", "").await.is(200);
    assert_eq!((&unblocked["state"], &unblocked["blockedBy"]), (&json!("closed"), &Value::Null));
    let delivered = acme.wait(&sent, "succeeded").await;
    assert_eq!((&delivered["attempt"], delivered["attempts"].as_array().unwrap().len()), (&json!(1), 1));
    post(&acme, &id, "unblock", "").await.problem(409, "DESTINATION_CONFLICT");
    let history = acme.get(&format!("{PATH}/{id}")).await;
    assert_eq!(events(&history), ["blocked", "unblocked"]);
    assert_eq!(history["history"][1]["by"], "admin");
    assert_eq!(actions(&acme).await, ["block-destination", "unblock-destination"], "also what an admin did");
    running.stop().await;
}

async fn limits_are_set_and_kept_and_bad_ones_change_nothing(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    let (id, url) = (receiver(&running, "acme"), running.sink.url("/x"));
    let limits = json!({"rate": 12.5, "concurrency": 3, "name": url});
    put(&acme, &id, &json!({"rate": 12.5})).await.problem(404, "not-found");
    let set = put(&acme, &id, &limits).await.is(200);
    assert_eq!(
        (&set["rate"], &set["concurrency"], &set["state"]),
        (&json!(12.5), &json!(3), &json!("closed"))
    );
    for (body, pointer) in [
        (json!({"rate": 0}), "/rate"),
        (json!({"rate": -1}), "/rate"),
        (json!({"rate": 1e7}), "/rate"),
        (json!({"rate": "5"}), "/rate"),
        (json!({"concurrency": 0}), "/concurrency"),
        (json!({"concurrency": -1}), "/concurrency"),
        (json!({"concurrency": 1.5}), "/concurrency"),
        (json!({"concurrency": 5_000_000_000_u64}), "/concurrency"),
        (json!({"rates": 1}), "/rates"),
        (json!({"rate": 1, "name": "ftp://a.example"}), "/name"),
        (json!({"rate": 1, "name": "hooks.example.com"}), "/name"),
        (json!({"rate": 1, "name": "https://other.example"}), "/name"),
        (json!({"rate": 1, "tenant": "acme"}), "/name"),
    ] {
        let problem = put(&acme, &id, &body).await.problem(422, "VALIDATION_FAILED");
        assert_eq!(problem["pointer"], pointer, "{body}: {problem}");
    }
    let cut = put(&acme, &id, &json!({"name": "hooks.example.com"})).await.problem(422, "VALIDATION_FAILED");
    assert!(cut["detail"].as_str().unwrap().contains("a URL begins with https://"), "{cut}");
    let both = put(&acme, &id, &json!({"rate": 0, "concurrency": 0})).await.problem(422, "VALIDATION_FAILED");
    assert_eq!(both["errors"].as_array().unwrap().len(), 2, "{both}");
    let theirs = json!({"rate": 1, "name": url, "tenant": "other"});
    assert_eq!(put(&acme, &id, &theirs).await.problem(403, "FORBIDDEN")["pointer"], "/tenant");
    let unnamed = put(admin, &id, &json!({"rate": 1, "name": url})).await.problem(422, "VALIDATION_FAILED");
    assert_eq!(unnamed["pointer"], "/tenant");
    put(admin, UNKNOWN, &json!({"rate": 1})).await.problem(404, "not-found");
    let long = json!({"reason": "x".repeat(501)}).to_string();
    assert_eq!(
        post(&acme, &id, "block", &long).await.problem(422, "VALIDATION_FAILED")["pointer"],
        "/reason"
    );
    let mut listed = set;
    listed["history"] = Value::Null;
    assert_eq!(acme.get(PATH).await["data"], json!([listed]), "the old limits stay");
    for wrong in [UNKNOWN, "ntf_00000000000000000000000000", "x"] {
        admin.ask(Method::GET, &format!("{PATH}/{wrong}"), &[], "").await.problem(404, "not-found");
        for act in ["block", "unblock", "reset"] {
            post(admin, wrong, act, "").await.problem(404, "not-found");
        }
    }
    for (query, parameter) in
        [("all=yes", "all"), ("name=a%20b", "name"), ("state=open", "state"), ("limit=0", "limit")]
    {
        let told = admin.ask(Method::GET, &format!("{PATH}?{query}"), &[], "").await;
        assert_eq!(told.problem(422, "VALIDATION_FAILED")["parameter"], parameter);
    }
    let cleared = put(&acme, &id, &json!({})).await.is(200);
    assert_eq!((&cleared["rate"], &cleared["concurrency"]), (&Value::Null, &Value::Null));
    assert_eq!(acme.get(PATH).await["data"], json!([]));
    assert_eq!(actions(&acme).await, ["limit-destination", "limit-destination"]);
    running.stop().await;
}

async fn every_known_destination_is_listed_in_pages_to_whom_it_belongs(on: StoreKind) {
    let running = Running::with(on, two_providers).await;
    let (admin, acme, other) = (&running.admin, running.tenant("acme").await, running.tenant("other").await);
    for caller in [&acme, &other] {
        caller.send_until(&running.webhook("/ok"), "succeeded").await;
    }
    let own = running.sink.url("").trim_end_matches('/').to_owned();
    let limited = "https://limited.example:443";
    let id = DestinationName::parse(limited).unwrap().key(Some("acme".parse().unwrap())).unwrap().id();
    put(&acme, &id.to_string(), &json!({"rate": 1, "name": limited})).await.is(200);
    assert_eq!(names(&acme, "").await, [limited]);
    for limit in ["1", "2", "50"] {
        let all = format!("?all=true&limit={limit}");
        assert_eq!(names(&acme, &all).await, [own.as_str(), limited], "{limit}");
        assert_eq!(
            names(admin, &all).await,
            ["mail", "spare", own.as_str(), limited, own.as_str()],
            "{limit}"
        );
        assert_eq!(names(admin, &format!("{all}&tenant=other")).await, [own.as_str()], "{limit}");
    }
    let cursor = admin.get(&format!("{PATH}?all=true&limit=1")).await["nextCursor"].clone();
    let elsewhere = format!("{PATH}?limit=1&cursor={}", cursor.as_str().unwrap());
    admin.ask(Method::GET, &elsewhere, &[], "").await.problem(422, "BAD_CURSOR");
    let named = running.sink.url("/any").replace("://", "%3A%2F%2F");
    assert_eq!(admin.all(&format!("{PATH}?name={named}&limit=1")).await.len(), 2, "one of each tenant");
    assert_eq!(names(&acme, &format!("?name={named}")).await, [own.as_str()]);
    assert_eq!(
        (names(admin, "?name=mail").await, names(admin, "?name=nobody").await),
        (vec!["mail".to_owned()], vec![])
    );
    // A provider is nobody's: a tenant's key neither sees nor touches it.
    let mail = DestinationKey::provider("mail").id().to_string();
    assert_eq!(names(&acme, "?name=mail").await, [""; 0]);
    acme.ask(Method::GET, &format!("{PATH}/{mail}"), &[], "").await.problem(404, "not-found");
    post(&acme, &mail, "block", "").await.problem(404, "not-found");
    running.stop().await;
}

async fn a_pool_waits_only_while_none_of_its_providers_can_be_sent_to(on: StoreKind) {
    let running = Running::with(on, two_providers).await;
    let (admin, acme) = (&running.admin, running.tenant("acme").await);
    let [mail, spare] = ["mail", "spare"].map(|name| DestinationKey::provider(name).id().to_string());
    let text = json!({"channel": "email", "to": "a@example.com", "subject": "s", "body": "b"});
    assert_eq!(post(admin, &mail, "block", "").await.is(200)["kind"], "provider");
    let shown = metrics(&running).await;
    assert!(shown.contains("posthaste_provider_blocked{provider=\"mail\"} 1"), "{shown}");
    let sent = acme.send_until(&text, "succeeded").await;
    assert_eq!(sent["attempts"][0]["provider"], "spare");
    post(admin, &spare, "block", "").await.is(200);
    let sent = acme.send(&text).await;
    for id in [&mail, &spare] {
        until(admin, id, |shown| shown["parked"] == 1).await;
    }
    let waiting = acme.get(&format!("/v1/notifications/{sent}")).await;
    let parked =
        json!({"destinationId": null, "kind": "provider", "name": "mail", "until": null, "blockedBy": null});
    assert_eq!((&waiting["parked"], &waiting["attempts"]), (&parked, &json!([])));
    let all = admin.get(&format!("/v1/notifications/{sent}")).await;
    assert_eq!(
        (&all["parked"]["destinationId"], &all["parked"]["blockedBy"]),
        (&json!(mail), &json!("admin"))
    );
    post(admin, &spare, "unblock", "").await.is(200);
    let sent = acme.wait(&sent, "succeeded").await;
    assert_eq!((&sent["attempts"][0]["provider"], &sent["parked"]), (&json!("spare"), &Value::Null));
    assert_eq!(admin.get(&format!("{PATH}/{mail}")).await["parked"], 0);
    running.stop().await;
}

async fn a_429_with_retry_after_pauses_the_destination(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, id) = (&running.admin, receiver(&running, "default"));
    admin.send_until(&running.webhook("/retry-after/429/3000"), "retryScheduled").await;
    let paused = until(admin, &id, |shown| shown["pausedUntil"].is_string()).await;
    assert_eq!(
        (&paused["state"], &paused["failures"], events(&paused)),
        (&json!("closed"), &json!(0), vec!["paused"])
    );
    let sent = admin.send(&running.webhook("/ok")).await;
    until(admin, &id, |shown| shown["parked"] == 1).await;
    let waiting = admin.get(&format!("/v1/notifications/{sent}")).await;
    assert_eq!(waiting["parked"]["until"], paused["pausedUntil"]);
    post(admin, &id, "reset", "").await.is(200);
    admin.wait(&sent, "succeeded").await;
    running.stop().await;
}

async fn nothing_is_changed_while_an_older_node_would_not_obey(on: StoreKind) {
    let running = Running::start(on).await;
    let (admin, id) = (&running.admin, receiver(&running, "default"));
    let limits = json!({"rate": 1, "name": running.sink.url(""), "tenant": "default"});
    let now = posthaste_engine::store::LEVEL;
    running.change_store("update node set level = 3").await;
    // The next heartbeat learns of it.
    let refused = async || {
        let told = put(admin, &id, &limits).await;
        (told.status == 409).then_some(told)
    };
    let told = eventually(refused).await.expect("it is refused");
    assert!(told.problem(409, "DESTINATION_CONFLICT")["detail"].as_str().unwrap().contains("older version"));
    running.change_store(&format!("update node set level = {now}")).await;
    running.stop().await;
}

on_each_store! {
    what_fails_is_left_alone_and_shown_until_somebody_resets_it;
    a_probe_that_arrives_closes_the_breaker_and_it_ramps_up;
    answers_that_do_not_blame_the_destination_leave_it_alone;
    a_blocked_destination_gets_nothing_until_it_is_unblocked;
    limits_are_set_and_kept_and_bad_ones_change_nothing;
    every_known_destination_is_listed_in_pages_to_whom_it_belongs;
    a_pool_waits_only_while_none_of_its_providers_can_be_sent_to;
    a_429_with_retry_after_pauses_the_destination;
    nothing_is_changed_while_an_older_node_would_not_obey;
}
