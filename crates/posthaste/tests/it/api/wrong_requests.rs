//! Wrong keys, parameters, cursors, paths, methods, ids and states: refused, and nothing changes.

use http::{HeaderMap, Method};
use posthaste::client::encode;
use posthaste::http::route::Route;
use serde_json::{Value, json};

use super::running::{ADMIN, Running, StoreKind, raw, routes, slow};
use super::wrong_input::{INVALID, Trial, is_refused};

const LISTS: [&str; 5] =
    ["/v1/notifications", "/v1/notifications/failed", "/v1/retry-queue", "/v1/dead-letters", "/v1/audit"];

/// Parameters that are unknown to a list, or that it cannot read.
const BAD_QUERIES: &[(&str, &str, &str)] = &[
    ("/v1/notifications", "tenant=", "tenant"),
    ("/v1/notifications", "cursor=", "cursor"),
    ("/v1/stats", "tenant=", "tenant"),
    ("/v1/notifications", "state=lost", "state"),
    ("/v1/notifications", "state=pending,lost", "state"),
    ("/v1/notifications", "state=Pending", "state"),
    ("/v1/notifications", "state=,", "state"),
    ("/v1/notifications", "failureType=boredom", "failureType"),
    ("/v1/notifications", "channel=fax", "channel"),
    ("/v1/notifications", "since=yesterday", "since"),
    ("/v1/notifications", "until=1", "until"),
    ("/v1/notifications", "status=pending", "status"),
    ("/v1/notifications/failed", "state=failed", "state"),
    ("/v1/notifications/failed", "channel=fax", "channel"),
    ("/v1/dead-letters", "status=lost", "status"),
    ("/v1/dead-letters", "failureType=x", "failureType"),
    ("/v1/dead-letters", "state=pending", "state"),
    ("/v1/dead-letters", "since=2020", "since"),
    ("/v1/dead-letters", "reasonCode=BORED", "reasonCode"),
    ("/v1/dead-letters", "statusCode=5xx", "statusCode"),
    ("/v1/retry-queue", "state=retrying", "state"),
    ("/v1/retry-queue", "channel=fax", "channel"),
    ("/v1/stats", "channel=webhook", "channel"),
    ("/v1/stats", "limit=5", "limit"),
    ("/v1/stats/series", "step=7m", "step"),
    ("/v1/stats/series", "limit=5", "limit"),
    ("/v1/retry-queue/load", "until=never", "until"),
    ("/v1/retry-queue/load", "limit=5", "limit"),
    ("/v1/policies", "limit=5", "limit"),
    ("/v1/policies/global", "channel=fax", "channel"),
    ("/v1/policies/global", "x=1", "x"),
    ("/v1/keys", "tenant=a", "tenant"),
    ("/v1/audit", "state=pending", "state"),
    ("/v1/stream", "events=stats,operations", "events"),
    ("/v1/stream", "events=missed", "events"),
    ("/v1/stream", "events=,", "events"),
    ("/v1/stream", "state=none", "state"),
    ("/v1/stream", "limit=5", "limit"),
    ("/v1/stream", "tenant=a%20b", "tenant"),
];

/// The path of a route with something in place of its braces.
fn path_of(route: &Route, inner: &str) -> String {
    route.path.replace("{id}", inner).replace("{scope}", inner)
}

async fn nobody_gets_in_without_a_key_that_is_known(on: StoreKind) {
    let trial = Trial::start(on).await;
    let nobody = trial.running.caller(None);
    let long = format!("Bearer {}", "k".repeat(50 * 1024));
    let almost = format!("Bearer {}", &ADMIN[1..]);
    let more = format!("Bearer {ADMIN}x");
    let twice = format!("Bearer {ADMIN} {ADMIN}");
    let basic = format!("Basic {ADMIN}");
    let wrong = [
        None,
        Some("Bearer nonsense"),
        Some(&*almost),
        Some(&*more),
        Some(&*twice),
        Some(&*basic),
        Some(ADMIN),
        Some("Bearer"),
        Some("Bearer "),
        Some(""),
        Some(&*long),
        Some("Bearer phk_"),
    ];
    let mut calls = 0_u32;
    for route in routes().iter().filter(|route| route.access.needs_key()) {
        for given in wrong {
            calls += 1;
            let address = std::net::Ipv4Addr::from(calls).to_string();
            let mut headers = vec![("x-forwarded-for", &*address)];
            headers.extend(given.map(|value| ("authorization", value)));
            let told = nobody.ask(route.method.clone(), &path_of(route, "x"), &headers, "").await;
            is_refused(&told, (401, "UNAUTHORIZED", "-"), &format!("{route:?} {given:?}"));
            assert_eq!(told.headers["www-authenticate"], "Bearer");
        }
        trial.unchanged(&format!("{route:?} without a key")).await;
    }
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        nobody.ask(Method::GET, open, &[], "").await.is(200);
    }
    // The scheme may be written in any case.
    nobody
        .ask(Method::GET, "/v1/stats", &[("authorization", &format!("bEARER  {ADMIN} "))], "")
        .await
        .is(200);
    trial.stop().await;
}

async fn a_head_beyond_all_bounds_is_cut_off(on: StoreKind) {
    let running = Running::start(on).await;
    let head = |more: &str| {
        format!(
            "GET /v1/stats HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {ADMIN}\r\n{more}\r\n\r\n"
        )
    };
    assert_eq!(raw(running.address(), head("x-a: 1").as_bytes()).await.0, 200);
    let large = head(&format!("x-a: {}", "a".repeat(300 * 1024)));
    assert_eq!(raw(running.address(), large.as_bytes()).await.0, 431);
    let many: Vec<String> = (0..200).map(|at| format!("x-{at}: 1")).collect();
    assert_eq!(raw(running.address(), head(&many.join("\r\n")).as_bytes()).await.0, 431);
    for nonsense in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET /v1/stats HTTP/1.1\r\nbad header\r\n\r\n",
    ] {
        assert_eq!(raw(running.address(), nonsense.as_bytes()).await.0, 400, "{nonsense}");
    }
    // A target that is no path of ours, and a body that breaks off or never ends.
    let (status, problem) =
        raw(running.address(), b"GET * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(status == 400 || (status == 404 && problem["code"] == "not-found"), "{status} {problem}");
    let post = format!(
        "POST /v1/notifications HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {ADMIN}\r\n"
    );
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let endless = format!("{post}transfer-encoding: chunked\r\n\r\n{}", chunk.repeat(5));
    let (status, problem) = raw(running.address(), endless.as_bytes()).await;
    assert_eq!((status, &problem["code"]), (413, &json!("PAYLOAD_TOO_LARGE")));
    let smuggled = format!("{post}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{{}}0\r\n\r\n");
    let (status, problem) = raw(running.address(), smuggled.as_bytes()).await;
    assert!((400..500).contains(&status), "{status} {problem}");
    // A path that is not UTF-8, not in its plain form, or encoded is no other path.
    for target in [
        "/v1/%6eotifications",
        "/v1/../v1/notifications",
        "//v1/notifications",
        "/v1/notifications/",
        "/V1/notifications",
        "/v1/notifications;x",
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {ADMIN}\r\n\r\n"
        );
        let (status, problem) = raw(running.address(), request.as_bytes()).await;
        assert_eq!((status, &problem["code"]), (404, &json!("not-found")), "{target}");
    }
    assert_eq!(running.admin.get("/v1/stats").await["queued"], 0);
    running.stop().await;
}

async fn a_parameter_that_is_unknown_twice_or_nonsense_is_named(on: StoreKind) {
    let trial = Trial::start(on).await;
    let get = Method::GET;
    for list in LISTS {
        for (query, parameter) in [
            ("color=red", "color"),
            ("Limit=5", "Limit"),
            ("limit=1&limit=2", "limit"),
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("limit=abc", "limit"),
            ("limit=-1", "limit"),
            ("limit=1.5", "limit"),
            ("limit=99999999999999999999", "limit"),
            ("tenant=a%20b", "tenant"),
            ("tenant=x&tenant=x", "tenant"),
            ("=", ""),
            ("%00=1", "\\0"),
        ] {
            trial
                .refused(
                    get.clone(),
                    &format!("{list}?{query}"),
                    &[],
                    "",
                    (422, INVALID, &format!("?{parameter}")),
                )
                .await;
        }
        for cursor in ["x", "00", &"0".repeat(1_000), &"ab".repeat(44), "%FF", "../../etc"] {
            trial
                .refused(
                    get.clone(),
                    &format!("{list}?cursor={cursor}"),
                    &[],
                    "",
                    (422, "BAD_CURSOR", "?cursor"),
                )
                .await;
        }
        let long = format!("{list}?cursor={}", "0".repeat(2_000));
        trial.refused(get.clone(), &long, &[], "", (422, INVALID, "?cursor")).await;
    }
    for (path, query, parameter) in BAD_QUERIES {
        trial
            .refused(
                get.clone(),
                &format!("{path}?{query}"),
                &[],
                "",
                (422, INVALID, &format!("?{parameter}")),
            )
            .await;
    }
    let long = format!("/v1/notifications?q={}", "x".repeat(1_025));
    trial.refused(get.clone(), &long, &[], "", (422, INVALID, "?q")).await;
    for count in [33, 8_000] {
        let many: Vec<String> = (0..count).map(|at| format!("{at}=1")).collect();
        let path = format!("/v1/notifications?{}", many.join("&"));
        let told = trial.running.admin.ask(get.clone(), &path, &[], "").await;
        let problem = told.problem(422, INVALID);
        assert!(problem["detail"].as_str().unwrap().contains("more than 32 parameters"), "{problem}");
    }
    trial.stop().await;
}

async fn what_acts_has_no_parameters(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok").to_string();
    for (method, path, body) in [
        (Method::POST, "/v1/notifications", &*good),
        (Method::POST, "/v1/notifications/batch", "{}"),
        (Method::PUT, "/v1/policies/global", "{}"),
        (Method::DELETE, "/v1/policies/global", ""),
        (Method::POST, "/v1/keys", "{\"name\":\"x\"}"),
        (Method::POST, "/v1/policies/preview", "{}"),
        (Method::POST, "/v1/policies/simulate", "{}"),
    ] {
        trial
            .refused(method, &format!("{path}?dryRun=true"), &[], body.to_owned(), (422, INVALID, "?dryRun"))
            .await;
    }
    trial.stop().await;
}

async fn a_cursor_goes_on_only_in_its_own_list(on: StoreKind) {
    let running = Running::start(on).await;
    for _ in 0..4 {
        running.admin.send_until(&running.webhook("/status/400"), "deadLetter").await;
    }
    let cursor = |page: Value| page["nextCursor"].as_str().unwrap().to_owned();
    let own = cursor(running.admin.get("/v1/notifications?limit=1").await);
    let filtered =
        cursor(running.admin.get("/v1/notifications?limit=1&state=deadLetter&channel=webhook").await);
    // The order of the parameters and the limit are free, everything else is not.
    running
        .admin
        .get(&format!("/v1/notifications?channel=webhook&limit=3&cursor={filtered}&state=deadLetter"))
        .await;
    let mut forged = own.clone().into_bytes();
    forged[30] = if forged[30] == b'0' { b'1' } else { b'0' };
    let forged = String::from_utf8(forged).unwrap();
    let longer = format!("{own}00");
    for (list, cursor) in [
        ("/v1/notifications?", &forged),
        ("/v1/notifications?", &longer),
        ("/v1/notifications?", &filtered),
        ("/v1/notifications?", &own[2..].to_owned()),
        ("/v1/notifications?state=deadLetter&", &own),
        ("/v1/notifications?state=deadLetter&", &filtered),
        ("/v1/notifications?tenant=default&", &own),
        ("/v1/notifications/failed?", &own),
        ("/v1/dead-letters?", &own),
        ("/v1/retry-queue?", &own),
        ("/v1/audit?", &own),
    ] {
        let told = running.admin.ask(Method::GET, &format!("{list}cursor={cursor}"), &[], "").await;
        is_refused(&told, (422, "BAD_CURSOR", "?cursor"), list);
    }
    running.stop().await;
}

async fn an_address_that_is_not_there_is_not_found_and_a_wrong_method_is_told_the_right_ones(on: StoreKind) {
    let trial = Trial::start(on).await;
    for path in [
        "/v1",
        "/v1/",
        "/v2/notifications",
        "/v1/notifications/",
        "/v1/notifications/x/y",
        "/v1/notifications/x/retry/",
        "/docs/x/y",
        "/admin",
        "/.env",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            trial.refused(method, path, &[], "", (404, "not-found", "-")).await;
        }
    }
    let methods = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
        Method::TRACE,
    ];
    for route in routes() {
        let path = path_of(route, "x1");
        let allowed: Vec<Method> = routes()
            .iter()
            .filter(|other| other.path == route.path)
            .map(|other| other.method.clone())
            .collect();
        for method in methods.iter().filter(|method| !allowed.contains(method)) {
            let told = trial.running.admin.ask(method.clone(), &path, &[], "{}").await;
            is_refused(&told, (405, "METHOD_NOT_ALLOWED", "-"), &format!("{method} {path}"));
            let mut wanted: Vec<&str> = allowed.iter().map(Method::as_str).collect();
            if wanted.contains(&"GET") {
                wanted.push("HEAD");
            }
            assert_eq!(allow(&told.headers), wanted, "{method} {path}");
        }
    }
    trial.unchanged("wrong methods").await;
    trial.stop().await;
}

fn allow(headers: &HeaderMap) -> Vec<&str> {
    headers["allow"].to_str().unwrap().split(", ").collect()
}

async fn an_id_that_names_nothing_is_not_found(on: StoreKind) {
    let trial = Trial::start(on).await;
    let dead = trial.running.admin.get("/v1/dead-letters").await["data"][0].clone();
    let (letter, notification) = (dead["id"].as_str().unwrap(), dead["notificationId"].as_str().unwrap());
    let number = notification.strip_prefix("ntf_").unwrap();
    let absent = "ntf_00000000000000000000000000";
    let never = [
        absent,
        "dl_00000000000000000000000000",
        "key_00000000000000000000000000",
        "x",
        "1",
        "null",
        "ntf_",
        number,
        "%00",
        "ntf_zzzzzzzzzzzzzzzzzzzzzzzzzz",
        "ntf_%C3%BC",
        "..",
        "%2e%2e%2ffailed",
        "ntf_01j9panot700000000000000",
    ];
    let upper = format!("NTF_{}", number.to_uppercase());
    let longer = format!("{notification}0");
    let huge = "x".repeat(4_000);
    let ids: Vec<&str> = never.into_iter().chain([&*upper, &*longer, &*huge]).collect();
    for route in routes().iter().filter(|route| route.path.contains("{id}")) {
        // An id of the one kind is none of the other.
        let other = if route.path.starts_with("/v1/notifications") { letter } else { notification };
        for id in ids.iter().chain([&other]) {
            trial.refused(route.method.clone(), &path_of(route, id), &[], "", (404, "not-found", "-")).await;
        }
    }
    trial.stop().await;
}

async fn an_act_that_the_state_forbids_is_refused_with_the_state(on: StoreKind) {
    let running = Running::start(on).await;
    let admin = &running.admin;
    let mut waits = running.webhook("/ok");
    waits["notBefore"] = json!("2999-01-01T00:00:00Z");
    let mut retries = running.webhook("/status/503");
    retries["policy"] = slow();
    let mut fails = running.webhook("/status/400");
    fails["policy"]["deadLetter"] = json!(false);
    let pending = admin.send(&waits).await;
    let called_off = admin.send(&waits).await;
    admin.act(&format!("/v1/notifications/{called_off}/cancel")).await.is(202);
    let id = |shown: Value| shown["notificationId"].as_str().unwrap().to_owned();
    let states = [
        ("pending", pending),
        ("succeeded", id(admin.send_until(&running.webhook("/ok"), "succeeded").await)),
        ("retryScheduled", id(admin.send_until(&retries, "retryScheduled").await)),
        ("failed", id(admin.send_until(&fails, "failed").await)),
        ("deadLetter", id(admin.send_until(&running.webhook("/status/400"), "deadLetter").await)),
        ("cancelled", called_off),
    ];
    for (state, id) in &states {
        let refusals: &[(&str, &str)] = match *state {
            "pending" => &[("retry", "NOTIFICATION_NOT_FAILED"), ("retry-now", "STATE_CONFLICT")],
            "succeeded" => &[
                ("retry", "NOTIFICATION_ALREADY_DELIVERED"),
                ("retry-now", "STATE_CONFLICT"),
                ("cancel", "STATE_CONFLICT"),
            ],
            "retryScheduled" => &[("retry", "NOTIFICATION_NOT_FAILED")],
            "cancelled" => &[
                ("retry", "NOTIFICATION_NOT_FAILED"),
                ("retry-now", "STATE_CONFLICT"),
                ("cancel", "STATE_CONFLICT"),
            ],
            _ => &[("retry-now", "STATE_CONFLICT"), ("cancel", "STATE_CONFLICT")],
        };
        let before = admin.get(&format!("/v1/notifications/{id}")).await;
        for (act, code) in refusals {
            let problem = admin.act(&format!("/v1/notifications/{id}/{act}")).await.problem(409, code);
            assert_eq!(problem["state"], *state, "{act}: {problem}");
        }
        assert_eq!(admin.get(&format!("/v1/notifications/{id}")).await, before);
    }
    let letter = admin.get("/v1/dead-letters").await["data"][0]["id"].as_str().unwrap().to_owned();
    let act = |act: &str| format!("/v1/dead-letters/{letter}/{act}");
    admin.act(&act("restore")).await.problem(409, "DEAD_LETTER_RESOLVED");
    admin.act(&act("discard")).await.is(202);
    for refused in ["discard", "requeue"] {
        admin.act(&act(refused)).await.problem(409, "DEAD_LETTER_RESOLVED");
    }
    admin.act(&act("restore")).await.is(202);
    admin.act(&act("requeue")).await.is(202);
    for refused in ["discard", "requeue", "restore"] {
        admin.act(&act(refused)).await.problem(409, "DEAD_LETTER_RESOLVED");
    }
    running.stop().await;
}

async fn a_key_is_made_only_with_a_name_and_for_a_tenant_that_can_be(on: StoreKind) {
    let trial = Trial::start(on).await;
    for (body, place) in [
        (json!({}), "/name"),
        (json!({"name": ""}), "/name"),
        (json!({"name": 7}), "/name"),
        (json!({"name": "x".repeat(101)}), "/name"),
        (json!({"name": "a\r\nb"}), "/name"),
        (json!({"name": "x", "tenant": "a b"}), "/tenant"),
        (json!({"name": "x", "tenant": ""}), "/tenant"),
        (json!({"name": "x", "tenant": 7}), "/tenant"),
        (json!({"name": "x", "tenant": "x".repeat(65)}), "/tenant"),
        (json!({"name": "x", "tenant": "ü"}), "/tenant"),
        (json!({"name": "x"}), "/tenant"),
        (json!({"name": "x", "tenant": null}), "/tenant"),
        (json!({"name": "x", "admin": false}), "/tenant"),
        (json!({"name": "x", "tenant": "a", "admin": true}), "/tenant"),
        (json!({"name": "x", "admin": "yes"}), "/admin"),
        (json!([]), ""),
    ] {
        trial.refused(Method::POST, "/v1/keys", &[], body.to_string(), (422, INVALID, place)).await;
    }
    let huge = json!({"name": "x".repeat(20 * 1024)}).to_string();
    trial.refused(Method::POST, "/v1/keys", &[], huge, (413, "PAYLOAD_TOO_LARGE", "-")).await;
    let encoded = format!("/v1/policies/{}", encode("tenant:a/b"));
    trial.refused(Method::GET, &encoded, &[], "", (404, "not-found", "-")).await;
    trial.stop().await;
}

on_each_store! {
    nobody_gets_in_without_a_key_that_is_known;
    a_head_beyond_all_bounds_is_cut_off;
    a_parameter_that_is_unknown_twice_or_nonsense_is_named;
    what_acts_has_no_parameters;
    a_cursor_goes_on_only_in_its_own_list;
    an_address_that_is_not_there_is_not_found_and_a_wrong_method_is_told_the_right_ones;
    an_id_that_names_nothing_is_not_found;
    an_act_that_the_state_forbids_is_refused_with_the_state;
    a_key_is_made_only_with_a_name_and_for_a_tenant_that_can_be;
}
