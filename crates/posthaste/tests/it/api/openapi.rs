//! openapi.json says what the API does: no more, no less.

use std::collections::BTreeSet;

use posthaste::http::openapi;
use posthaste::http::problem::Kind;
use posthaste::http::route::{Access, Route};
use serde_json::Value;

use super::running::{Running, StoreKind, routes};
use super::schema::{complaints, document, resolve};

/// Every method and path of the description, with what it says.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(|(method, said)| (method.to_uppercase(), path.clone(), said))
    });
    all.collect()
}

/// Calls `visit` with every object in a value.
fn each_object(value: &'static Value, visit: &mut impl FnMut(&'static serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            visit(object);
            object.values().for_each(|inner| each_object(inner, visit));
        }
        Value::Array(list) => list.iter().for_each(|inner| each_object(inner, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_file_beside_the_code_is_what_is_served() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let text = &openapi::document().text;
    if std::env::var_os("POSTHASTE_WRITE_OPENAPI").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(
        kept == *text,
        "openapi.json is out of date: POSTHASTE_WRITE_OPENAPI=1 cargo test -p posthaste openapi"
    );
}

#[test]
fn every_route_has_a_name_a_tag_and_what_it_is_for() {
    let mut names = BTreeSet::new();
    let tags: Vec<&Value> = document()["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    for (method, path, said) in operations() {
        assert!(names.insert(said["operationId"].as_str().unwrap()), "{method} {path}: its name is taken");
        assert!(said["summary"].as_str().is_some_and(|text| text.len() > 5), "{method} {path}");
        let own = said["tags"].as_array().unwrap();
        assert!(own.len() == 1 && tags.contains(&&own[0]), "{method} {path}: {own:?}");
    }
}

#[test]
fn what_needs_a_key_names_its_roles_and_may_be_refused() {
    for route in routes() {
        let Route { method, path, access, .. } = route;
        let said = &document()["paths"][path][method.as_str().to_lowercase()];
        if let Access::Key(needed) = access {
            assert!(!needed.roles.is_empty(), "{method} {path}: no role may call it");
        }
        for status in ["401", "403", "429"] {
            assert_eq!(said["responses"][status].is_object(), *access != Access::Open, "{method} {path}");
        }
    }
    let open: Vec<&str> =
        routes().iter().filter(|route| !route.access.needs_key()).map(|route| &*route.path).collect();
    assert_eq!(open, ["/docs", "/docs/{file}", "/healthz", "/metrics", "/openapi.json", "/readyz"]);
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let mut used = BTreeSet::new();
    each_object(document(), &mut |object| {
        if let Some(reference) = object.get("$ref") {
            resolve(reference.as_str().unwrap());
            used.insert(reference.as_str().unwrap());
        }
    });
    for name in document()["components"]["schemas"].as_object().unwrap().keys() {
        assert!(used.contains(&*format!("#/components/schemas/{name}")), "nothing uses {name}");
    }
}

#[test]
fn what_is_required_is_described() {
    each_object(document(), &mut |object| {
        for name in object.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap();
            assert!(object["properties"].get(name).is_some(), "{name} is required, but not described");
        }
    });
}

#[test]
fn each_part_of_a_path_is_a_parameter() {
    for (method, path, said) in operations() {
        let inner: Vec<&str> = path.split('{').skip(1).map(|part| part.split('}').next().unwrap()).collect();
        let parameters = said["parameters"].as_array().cloned().unwrap_or_default();
        let in_path: Vec<_> = parameters.iter().filter(|one| one["in"] == "path").collect();
        assert_eq!(
            in_path.iter().map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(),
            inner,
            "{method} {path}"
        );
        assert!(in_path.iter().all(|one| one["required"] == true), "{method} {path}");
    }
}

#[test]
fn the_codes_of_problems_are_those_that_exist() {
    let described = document()["components"]["schemas"]["ProblemCode"]["enum"].as_array().unwrap();
    let described: BTreeSet<&str> = described.iter().map(|code| code.as_str().unwrap()).collect();
    let real: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.shown().1).collect();
    assert_eq!(described, real);
}

#[test]
fn the_statuses_of_problems_are_those_that_exist() {
    let real: BTreeSet<String> = Kind::ALL.iter().map(|kind| kind.shown().0.as_str().to_owned()).collect();
    let mut described = BTreeSet::new();
    for (method, path, said) in operations() {
        for (status, answer) in said["responses"].as_object().unwrap() {
            let is_problem = answer["content"].get("application/problem+json").is_some();
            let is_fine = status.starts_with('2') || status == "304";
            assert!(is_problem != is_fine || path == "/readyz", "{method} {path} {status}");
            if is_problem {
                assert!(real.contains(status), "{method} {path}: no problem has the status {status}");
                described.insert(status.clone());
            }
        }
    }
    // An address or method that does not exist belongs to no operation, and a bug is not promised.
    let apart = ["405".to_owned(), "500".to_owned()];
    let told: BTreeSet<String> = real.into_iter().filter(|status| !apart.contains(status)).collect();
    assert_eq!(described, told);
}

#[test]
fn a_request_of_the_pages_fits_the_description() {
    let policy = serde_json::json!({
        "preset": "notify", "strategy": "exponential", "initialDelay": "30s", "multiplier": 2, "maximumDelay": "480s",
        "schedule": ["1m", "5m"], "maxAttempts": 5, "jitter": {"percent": 10}, "timeout": "10s", "maxAge": "3d",
        "deadLetter": true, "honourRetryAfter": true, "maximumRetryAfter": "1h",
        "quick": {"tries": 4, "delay": "500ms", "backoff": "exponential", "jitter": false, "retryAfter": true,
            "statusCodes": [404], "when": "any"},
        "retryOn": {"permanent": false, "authenticationFailure": false, "invalidRecipient": false, "timeout": true},
    });
    let said = &document()["components"]["schemas"];
    assert_eq!(complaints(&said["Policy"], &policy), [""; 0]);
    let send = serde_json::json!({"channel": "webhook", "to": "https://example.com", "body": null, "policy": policy});
    assert_eq!(complaints(&said["NewNotification"], &send), [""; 0]);
    let misspelt = serde_json::json!({"chanel": "webhook", "to": "https://example.com", "body": null});
    assert_ne!(complaints(&said["NewNotification"], &misspelt), [""; 0]);
}

/// The schemas that stand in a value where a name could: those of fields, items, parameters and contents.
fn schemas_in_place() -> Vec<&'static serde_json::Map<String, Value>> {
    let mut found = vec![];
    for schema in document()["components"]["schemas"].as_object().unwrap().values() {
        let object = schema.as_object().unwrap();
        for (_, inner) in object.iter().filter(|(keyword, _)| *keyword != "examples") {
            each_object(inner, &mut |object| found.push(object));
        }
    }
    each_object(&document()["paths"], &mut |object| found.push(object));
    found
}

#[test]
fn every_enum_has_a_name() {
    for schema in schemas_in_place() {
        assert!(!schema.contains_key("enum"), "a generator has to invent a name for {schema:?}");
        let Some(Value::Array(forms)) = schema.get("oneOf") else { continue };
        for form in forms {
            assert!(form.get("properties").is_none(), "a generator has to invent a name for {form}");
        }
    }
}

#[test]
fn what_must_be_given_and_what_is_left_out_is_not_null() {
    let is_null = |schema: &Value| complaints(schema, &Value::Null).is_empty();
    for (method, path, said) in operations() {
        for parameter in said["parameters"].as_array().into_iter().flatten() {
            assert!(!is_null(&parameter["schema"]), "{method} {path}: {parameter}");
        }
        if let Some(body) = said.get("requestBody") {
            assert!(!is_null(&body["content"]["application/json"]["schema"]), "{method} {path}");
        }
    }
    let said = &document()["components"]["schemas"];
    for (name, field) in [("NewNotification", "channel"), ("NewKey", "name"), ("Problem", "pointer")] {
        assert!(!is_null(&said[name]["properties"][field]), "{name}.{field}");
    }
    assert!(is_null(&said["NewNotification"]["properties"]["subject"]));
}

#[test]
fn the_forms_of_texts_are_those_that_are_read() {
    let said = &document()["components"]["schemas"];
    let fits = |name: &str, text: &str| complaints(&said[name], &Value::from(text)).is_empty();
    for text in [
        "500ms",
        "30",
        " 1.5h ",
        "00:00:30",
        "0.00:15",
        "1.02:03:04.005",
        "-5s",
        "5 m",
        "1e3",
        ".5s",
        ":",
        "",
    ] {
        assert_eq!(fits("Duration", text), posthaste_core::duration::parse(text).is_ok(), "{text}");
    }
    for text in [
        "90d",
        " 1.5h ",
        "00:30",
        "1.02:00:00",
        "3600",
        "1.5",
        "",
        "soon",
        "2999-01-01",
        "2999-01-01T00:00:00",
    ]
    .into_iter()
    .chain(["2999-01-01T00:00:00Z", "2999-01-01t00:00:00.123456z", "2999-01-01T00:00:00+02:00"])
    {
        let is_time = text.parse::<posthaste_core::time::Timestamp>().is_ok();
        let is_read = is_time || posthaste_core::duration::with_unit(text).is_ok();
        assert_eq!(fits("TimeOrDuration", text), is_read, "{text}");
    }
    let long = format!("tenant:{}", "x".repeat(65));
    for text in [
        "global",
        "channel:webhook",
        "channel:fax",
        "tenant:a.b",
        "tenant:a b",
        "template:x",
        "x:y",
        "template:",
        &long,
    ] {
        assert_eq!(fits("Scope", text), text.parse::<posthaste_core::policy::Scope>().is_ok(), "{text}");
    }
    assert!(fits("Tenant", "a-b_c.9") && !fits("Tenant", "") && !fits("Tenant", "a/b"));
}

#[test]
fn every_example_fits_its_schema() {
    let mut named = BTreeSet::new();
    for (name, schema) in document()["components"]["schemas"].as_object().unwrap() {
        for example in schema.get("examples").and_then(Value::as_array).into_iter().flatten() {
            assert_eq!(complaints(schema, example), [""; 0], "{name}");
            named.insert(name.as_str());
        }
    }
    assert!(named.is_superset(&["NewNotification", "Batch", "Policy", "Problem"].into()), "{named:?}");
}

#[tokio::test]
async fn the_examples_of_requests_are_accepted() {
    let running = Running::start(StoreKind::Sqlite).await;
    let example = |name: &str| &document()["components"]["schemas"][name]["examples"][0];
    let mut send = example("NewNotification").clone();
    send["notBefore"] = "2100-01-01T00:00:00Z".into();
    send["ttlSeconds"] = Value::Null;
    running.admin.post("/v1/notifications", &send).await.is(202);
    let answer = running.admin.post("/v1/policies/preview", example("Policy")).await.is(200);
    assert_eq!(&answer, example("Preview"));
    running.admin.post("/v1/keys", example("NewKey")).await.is(201);
    running.stop().await;
}
