//! The character NUL, which PostgreSQL cannot keep in a text: refused, or told as it came, and the same on every store.

use http::Method;
use posthaste::http::route::Route;
use serde_json::{Value, json};

use super::running::{Running, StoreKind, routes};
use super::schema::document;
use super::wrong_input::{INVALID, Trial, but};

/// The parameters that openapi.json describes for a query.
fn parameters(route: &Route) -> Vec<&'static str> {
    let Route { method, path, .. } = route;
    let described = &document()["paths"][path][method.as_str().to_lowercase()]["parameters"];
    let described = described.as_array().map_or(&[][..], Vec::as_slice);
    let in_query = described.iter().filter(|parameter| parameter["in"] == "query");
    in_query.map(|parameter| parameter["name"].as_str().unwrap()).collect()
}

async fn a_parameter_with_a_nul_is_named_whatever_it_filters(on: StoreKind) {
    let trial = Trial::start(on).await;
    let mut seen = 0;
    for route in routes().iter().filter(|route| route.method == Method::GET) {
        let path = route.path.replace("{scope}", "global");
        for name in parameters(route) {
            for value in ["%00", "a%00b", "%00%00%00"] {
                let wanted = (422, INVALID, &*format!("?{name}"));
                trial.refused(Method::GET, &format!("{path}?{name}={value}"), &[], "", wanted).await;
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "openapi.json describes fewer parameters than it did: {seen}");
    trial.stop().await;
}

async fn a_path_with_a_nul_names_nothing(on: StoreKind) {
    let trial = Trial::start(on).await;
    let keyed = routes().iter().filter(|route| route.access.needs_key());
    for route in keyed.filter(|route| route.path.contains('{')) {
        let Route { method, path, .. } = route;
        for inner in
            ["%00", "ntf_%00", "dl_%00", "template:%00", "template:a%00b", "tenant:%00", "tenant:a%00b"]
        {
            let body = if method == Method::PUT { "{}" } else { "" };
            // A name that is given anew is a mistake of the caller's, not a thing that is missing.
            let is_new_name = method == Method::PUT && path.contains("{name}");
            let wanted = if is_new_name { (422, INVALID, "?name") } else { (404, "not-found", "-") };
            let path = path.replace("{id}", inner).replace("{scope}", inner).replace("{name}", inner);
            trial.refused(method.clone(), &path, &[], body, wanted).await;
        }
    }
    trial.stop().await;
}

async fn a_field_with_a_nul_is_refused_where_it_is_a_name(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let names =
        ["userId", "subject", "template", "module", "eventKey", "correlationId", "to", "channel", "priority"];
    for name in names {
        for text in ["\0", "a\0b"] {
            let pointer = format!("/{name}");
            trial.send_refused(&but(&good, &json!({name: text})), (422, INVALID, &pointer)).await;
        }
    }
    trial.send_refused(&but(&good, &json!({"headers": {"x-a": "\0"}})), (422, INVALID, "/headers/x-a")).await;
    trial.send_refused(&but(&good, &json!({"headers": {"x\0": "a"}})), (422, INVALID, "/headers/x\\0")).await;
    for (key, pointer) in
        [(json!({"name": "\0", "tenant": "a"}), "/name"), (json!({"name": "a", "tenant": "a\0"}), "/tenant")]
    {
        let wanted = (422, INVALID, pointer);
        trial.refused(Method::POST, "/v1/keys", &[], key.to_string(), wanted).await;
    }
    trial.stop().await;
}

async fn a_content_with_a_nul_is_taken_and_told_as_it_came(on: StoreKind) {
    let running = Running::start(on).await;
    let contents = [
        json!({"body": "a\0b"}),
        json!({"body": {"a\0": ["\0"]}}),
        json!({"html": "<p>\0</p>"}),
        json!({"metadata": {"a\0": "\0"}}),
    ];
    for content in contents {
        let sent = but(&running.webhook("/ok"), &content);
        let shown = running.admin.send_until(&sent, "succeeded").await;
        for (name, value) in content.as_object().unwrap() {
            assert_eq!(&shown[name], value, "{name}: {shown}");
        }
    }
    let arrived = running.sink.arrivals();
    let bodies: Vec<Value> = arrived.iter().map(|arrival| json!(arrival.body)).collect();
    assert_eq!(bodies[0], "a\0b");
    running.stop().await;
}

on_each_store! {
    a_parameter_with_a_nul_is_named_whatever_it_filters;
    a_path_with_a_nul_names_nothing;
    a_field_with_a_nul_is_refused_where_it_is_a_name;
    a_content_with_a_nul_is_taken_and_told_as_it_came;
}
