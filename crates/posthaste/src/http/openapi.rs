//! `/openapi.json`: the description of the API, made from the declarations of the handlers.
//!
//! What every route of a kind may answer is added here, so that a declaration names only what is its own.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::route::{Routes, SCHEME};
use super::{Shared, described};

mod examples;

/// The description, and the routes that it names.
pub struct Document {
    /// As it is served.
    pub text: String,
    pub value: Value,
    pub routes: Routes,
}

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(get))
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", tag = "server", security(()),
    responses((status = 200, description = "The description", body = Object)))]
async fn get() -> Response {
    ([(CONTENT_TYPE, "application/json")], document().text.as_str()).into_response()
}

/// The description of all routes.
pub fn document() -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let mut value = serde_json::to_value(described().into_openapi()).expect("a description is JSON");
        finish(&mut value);
        let text = serde_json::to_string_pretty(&value).expect("a value is JSON") + "\n";
        let routes = Routes::of(&value);
        Document { text, value, routes }
    })
}

/// Fields of answers that are left out where there is nothing to say.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "Problem",
        &[
            "pointer",
            "parameter",
            "state",
            "errors",
            "rejected",
            "notificationId",
            "deferredUntil",
            "requestId",
        ],
    ),
    ("Accepted", &["deferredUntil"]),
    ("AcceptedItem", &["deferredUntil"]),
    ("QuickTry", &["statusCode"]),
    ("ResponseExcerpt", &["contentType"]),
    ("Readiness", &["reason"]),
    ("DeadLetterActed", &["attempt"]),
    ("SimulatedEvent", &["until"]),
];

fn finish(document: &mut Value) {
    document["openapi"] = json!("3.1.0");
    document["info"] = json!({
        "title": "Posthaste",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "A notification delivery engine: accepts, delivers, retries, and keeps what cannot be delivered.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    });
    document["servers"] = json!([{"url": "/"}]);
    document["tags"] = tags();
    document["components"]["securitySchemes"] = json!({ SCHEME: {"type": "http", "scheme": "bearer", "description": "An API key, or an access token (JWT) of the identity provider that the configuration names (`[auth.jwt]`)"} });
    name_pages(document);
    tidy(document);
    for operations in objects(&mut document["paths"]) {
        for operation in objects(operations) {
            add_problems(operation);
            refuse_null(operation);
        }
    }
    let given = named_in_requests(document);
    for (name, schema) in fields(&mut document["components"]["schemas"]) {
        if let Some(of) = name.strip_suffix("Page") {
            // A generic list describes its rows in place.
            schema["properties"]["data"]["items"] = json!({"$ref": format!("#/components/schemas/{of}")});
        }
        if let Some(example) = examples::of(name) {
            schema["examples"] = json!([example]);
        }
        if given.contains(name.as_str()) {
            close(schema);
        } else {
            require_all(name, schema);
        }
    }
}

fn tags() -> Value {
    let tags = [
        ("notifications", "Send, look, retry, cancel"),
        ("dead letters", "What cannot be delivered, and what to do with it"),
        ("retry operations", "One act on many notifications"),
        ("destinations", "What can be down as a whole: breakers, blocks and limits"),
        ("views", "Filters of lists with a name"),
        ("policies", "When and how often is tried"),
        ("figures", "Counters and the audit"),
        ("keys", "Who may call"),
        ("server", "Health, readiness, metrics, nodes and this description"),
    ];
    tags.map(|(name, description)| json!({"name": name, "description": description})).into_iter().collect()
}

fn fields(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}

fn objects(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    fields(value).map(|(_, inner)| inner)
}

/// `Page_Key` becomes `KeyPage`.
fn name_pages(value: &mut Value) {
    let rename = |name: &str| name.strip_prefix("Page_").map(|of| format!("{of}Page"));
    match value {
        Value::Object(object) => {
            let renamed = std::mem::take(object)
                .into_iter()
                .map(|(name, inner)| (rename(&name).unwrap_or(name), inner));
            *object = renamed.collect::<Map<_, _>>();
            object.values_mut().for_each(name_pages);
        }
        Value::Array(list) => list.iter_mut().for_each(name_pages),
        Value::String(text) => {
            let Some((before, name)) = text.rsplit_once('/') else { return };
            if let Some(renamed) = rename(name) {
                *text = format!("{before}/{renamed}");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Removes what says nothing or is wrong: the format of a number is that of Rust, not of JSON. Generators
/// read the description of a field that may be null only beside its `oneOf`.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::Array(forms)) = object.get_mut("oneOf") {
                let described = forms.iter_mut().filter(|form| form.get("$ref").is_some());
                let moved = described.filter_map(|form| form.as_object_mut()?.remove("description")).next();
                if let Some(moved) = moved {
                    object.entry("description").or_insert(moved);
                }
            }
            object.retain(|name, inner| match name.as_str() {
                "format" => inner == "date-time",
                "propertyNames" => false,
                _ => true,
            });
            object.values_mut().for_each(tidy);
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Every route with a key may refuse the key (after many wrong ones with 429) and the parameters, and every body may be refused.
fn add_problems(operation: &mut Value) {
    let keyed =
        operation["security"].as_array().is_some_and(|all| all.iter().any(|one| one.get(SCHEME).is_some()));
    let has_body = operation.get("requestBody").is_some();
    let mut statuses = vec![];
    if keyed {
        statuses.extend(["401", "403", "422", "429", "503"]);
    }
    if has_body {
        statuses.extend(["400", "408", "413", "415"]);
    }
    let responses = operation["responses"].as_object_mut().expect("an operation has responses");
    for status in statuses {
        responses.entry(status).or_insert_with(|| json!({"description": ""}));
    }
    for (status, response) in responses {
        let mut header = |name: &str, description: &str, always: bool| {
            response["headers"][name] =
                json!({"description": description, "required": always, "schema": {"type": "string"}});
        };
        header("x-request-id", "Names the request in the log of the server", true);
        match status.as_str() {
            "401" => header("www-authenticate", "`Bearer`", true),
            "429" | "503" => header("retry-after", "When to ask again, in seconds", false),
            _ => {}
        }
        let is_problem = status.starts_with(['4', '5']) && response.get("content").is_none();
        if is_problem {
            if response["description"].as_str().is_none_or(str::is_empty) {
                response["description"] = json!(meaning(status));
            }
            response["content"] =
                json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
        }
    }
}

fn meaning(status: &str) -> &'static str {
    match status {
        "400" => "The body is not valid JSON",
        "401" => "The API key is missing or not known",
        "403" => "The key may not do that",
        "404" => "There is no such thing",
        "408" => "The body took too long",
        "409" => "The state does not allow it",
        "413" => "The body is too large",
        "415" => "The body must be application/json",
        "422" => "A field or parameter is wrong",
        "429" => "Too many reads or streams at a time, or too many wrong keys from one address",
        "503" => "The store cannot serve now, or the node is stopping",
        _ => "A problem",
    }
}

/// A parameter or body is there or is left out; it is never null.
fn refuse_null(operation: &mut Value) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        without_null(&mut parameter["schema"]);
    }
    if let Some(body) = operation.get_mut("requestBody") {
        without_null(&mut body["content"]["application/json"]["schema"]);
    }
}

fn without_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            schema["type"] = one.clone();
        }
    }
    if let Some(Value::Array(forms)) = schema.get_mut("oneOf") {
        forms.retain(|form| form.get("type").is_none_or(|one| one != "null"));
        if let [one] = forms.as_slice() {
            let one = one.as_object().cloned().unwrap_or_default();
            let schema = schema.as_object_mut().expect("it has a field");
            schema.remove("oneOf");
            schema.extend(one);
        }
    }
}

/// What is given has no fields but those described, and what must be given must not be null.
fn close(schema: &mut Value) {
    let required: Vec<String> = schema
        .get("required")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    if schema.get("properties").is_none() {
        return;
    }
    schema["additionalProperties"] = json!(false);
    for name in required {
        without_null(&mut schema["properties"][name]);
    }
}

/// The names of all schemas that a request can contain.
fn named_in_requests(document: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for operations in document["paths"].as_object().into_iter().flat_map(Map::values) {
        for operation in operations.as_object().into_iter().flat_map(Map::values) {
            collect(&operation["requestBody"], document, &mut found);
        }
    }
    found
}

fn collect(value: &Value, document: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            let named = object.get("$ref").and_then(Value::as_str).and_then(|text| text.rsplit('/').next());
            if let Some(name) = named
                && found.insert(name.to_owned())
            {
                collect(&document["components"]["schemas"][name], document, found);
            }
            object.values().for_each(|inner| collect(inner, document, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| collect(inner, document, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Answers show every field, with null where there is nothing. What is left out instead is never null.
fn require_all(name: &str, schema: &mut Value) {
    let left_out = LEFT_OUT.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, names)| names);
    let parts = match schema.get_mut("allOf") {
        Some(Value::Array(parts)) => parts.iter_mut().collect(),
        _ => vec![schema],
    };
    for part in parts {
        let Some(properties) = part.get("properties").and_then(Value::as_object) else { continue };
        let names: Vec<&String> =
            properties.keys().filter(|name| !left_out.contains(&name.as_str())).collect();
        let shown = json!(names);
        part["required"] = shown;
        for name in left_out {
            if let Some(field) = part["properties"].get_mut(name) {
                without_null(field);
            }
        }
    }
}
