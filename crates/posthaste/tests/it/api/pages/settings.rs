//! `/settings` and `/v1/settings`: every key with its value and where it came from, and never a secret.

use http::Method;
use posthaste::config::{Config, DEFAULTS, Setting, Sources};
use serde_json::{Value, json};

use super::super::running::{ADMIN, Running, StoreKind};
use super::{Browser, is_safe};

/// What is planted wherever a secret may stand.
const SECRET: &str = "hunter2";

/// A configuration from every source, with a secret in each place that may hold one.
fn planted(directory: &std::path::Path) -> Config {
    let file = directory.join("posthaste.toml");
    let text = format!(
        r#"
[server]
connections = 77
[alerts]
slack_url = "https://hooks.slack.com/{SECRET}"
pagerduty_key = "{SECRET}"
[auth.jwt]
algorithm = "HS256"
secret = "{SECRET}-{SECRET}-{SECRET}-{SECRET}-{SECRET}"
issuer = "https://id.example"
audience = "posthaste"
[policies."tenant:acme"]
max_attempts = 4
[providers.mail]
channel = "email"
kind = "smtp"
url = "smtp://me:{SECRET}@127.0.0.1:2525"
from = "Posthaste <no-reply@example.com>"
[providers.texts]
channel = "sms"
kind = "twilio"
account_sid = "AC1"
auth_token = "{SECRET}"
base_url = "https://me:{SECRET}@sms.example"
[providers.bot]
channel = "telegram"
kind = "telegram"
token = "env:PATH"
"#
    );
    std::fs::write(&file, text).unwrap();
    let text = |name: &str, value: &str| (name.into(), value.into());
    let flag = |name: &str, value: String| (name.to_owned(), value);
    Config::load(Sources {
        directory: directory.into(),
        variables: vec![
            text("POSTHASTE__ALERTS__WEBHOOK_URL", &format!("https://x.example/{SECRET}")),
            text("POSTHASTE__ENGINE__CONCURRENCY", "99"),
            text("POSTHASTE__SECURITY__ALLOW_SUBNETS", "10.0.0.0/8, 127.0.0.0/8"),
            text("POSTHASTE__METRICS__REQUIRE_KEY", "TRUE"),
            text("POSTHASTE_ADMIN_KEY", &SECRET.repeat(8)),
        ],
        flags: vec![
            flag("store.url", format!("postgres://me:{SECRET}@127.0.0.1:1/d?sslpassword={SECRET}")),
            flag("webhooks.proxy", format!("http://me:{SECRET}@127.0.0.1:3128")),
        ],
        ..Sources::default()
    })
    .unwrap()
}

fn find<'a>(data: &'a [Value], key: &str) -> &'a Value {
    data.iter().find(|one| one["key"] == key).unwrap_or_else(|| panic!("{key} is missing"))
}

async fn every_setting_says_its_value_and_where_it_came_from(on: StoreKind) {
    let directory = tempfile::tempdir().unwrap();
    let settings: Vec<Setting> = planted(directory.path()).settings;
    let running = Running::with(on, |config| config.settings = settings).await;
    let told = running.admin.ask(Method::GET, "/v1/settings", &[], "").await;
    let data = told.is(200)["data"].as_array().unwrap().clone();
    let file = directory.path().join("posthaste.toml");
    let file = file.to_str().unwrap();
    for (key, value, source, place) in [
        ("server.listen", json!("127.0.0.1:7780"), "builtIn", None),
        ("server.connections", json!(77), "file", Some(file)),
        ("policies.\"tenant:acme\".max_attempts", json!(4), "file", Some(file)),
        ("auth.jwt.secret", json!("***"), "file", Some(file)),
        ("auth.jwt.issuer", json!("https://id.example"), "file", Some(file)),
        ("auth.jwt.role_claim", json!("role"), "builtIn", None),
        ("providers.mail.kind", json!("smtp"), "file", Some(file)),
        ("providers.mail.url", json!("***"), "file", Some(file)),
        ("providers.texts.auth_token", json!("***"), "file", Some(file)),
        ("providers.texts.base_url", json!("https://***@sms.example"), "file", Some(file)),
        ("providers.bot.token", json!("env:PATH"), "file", Some(file)),
        ("engine.concurrency", json!(99), "variable", Some("POSTHASTE__ENGINE__CONCURRENCY")),
        ("metrics.require_key", json!(true), "variable", Some("POSTHASTE__METRICS__REQUIRE_KEY")),
        (
            "security.allow_subnets",
            json!(["10.0.0.0/8", "127.0.0.0/8"]),
            "variable",
            Some("POSTHASTE__SECURITY__ALLOW_SUBNETS"),
        ),
        ("alerts.webhook_url", json!("***"), "variable", Some("POSTHASTE__ALERTS__WEBHOOK_URL")),
        ("webhooks.proxy", json!("***"), "flag", Some("webhooks.proxy")),
        ("webhooks.proxy_password", json!(""), "builtIn", None),
    ] {
        let wanted = json!({"key": key, "value": value, "source": source, "place": place});
        assert_eq!(find(&data, key), &wanted);
    }
    assert_eq!(find(&data, "store.url")["source"], "flag");
    // Each key of the reference is there.
    let reference: toml::Table = DEFAULTS.parse().unwrap();
    for (section, keys) in &reference {
        for key in keys.as_table().unwrap().keys() {
            let key = format!("{section}.{key}");
            assert!(
                data.iter().any(|one| one["key"].as_str().unwrap().starts_with(&key)),
                "{key} is missing"
            );
        }
    }
    // No secret is anywhere in it, nor on the page.
    let text = String::from_utf8(told.bytes.to_vec()).unwrap();
    assert!(text.contains("\"***\"") && !text.contains(SECRET), "{text}");
    running.tenant("acme").await.ask(Method::GET, "/v1/settings", &[], "").await.problem(403, "FORBIDDEN");
    running.admin.ask(Method::GET, "/v1/settings?x=1", &[], "").await.problem(422, "VALIDATION_FAILED");
    let shown = Browser::with(&running, ADMIN).await.get("/settings").await;
    is_safe(&shown);
    let page = shown.page();
    assert!(page.contains("POSTHASTE__ENGINE__CONCURRENCY") && page.contains(file), "{page}");
    assert!(page.contains("***") && !page.contains(SECRET), "{page}");
    let mut tenant = Browser::with(&running, &running.key_of("acme").await).await;
    tenant.get("/settings").await.is(403);
    running.stop().await;
}

on_each_store! {
    every_setting_says_its_value_and_where_it_came_from;
}
