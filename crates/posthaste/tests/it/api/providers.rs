//! Channels with providers: the kind `log` carries text messages, in the order of the pool or as the sender asks.

use posthaste::config::{Config, Provider};
use posthaste_core::channel::Channel;
use posthaste_engine::store::PROVIDERS_LEVEL;
use serde_json::{Value, json};

use super::running::{Running, StoreKind, quick};

/// A provider of the kind `log`.
pub(super) fn log_provider(channel: Channel, priority: u32, fail: Option<&str>) -> Provider {
    Provider {
        channel,
        kind: "log".to_owned(),
        priority,
        url: None,
        base_url: None,
        from: None,
        account_sid: None,
        auth_token: None,
        token: None,
        fail: fail.map(str::to_owned),
    }
}

/// `texts` is the first of two for text messages; `busy`, `blocked` and `broke` fail; `mail` is for another channel.
fn providers(config: &mut Config) {
    let sms = |priority, fail| log_provider(Channel::Sms, priority, fail);
    config.providers = [
        ("backup", sms(2, None)),
        ("texts", sms(1, None)),
        ("busy", sms(5, Some("busy"))),
        ("blocked", sms(5, Some("blocked"))),
        ("mail", log_provider(Channel::Email, 1, None)),
        ("later", Provider { kind: "twilio".to_owned(), ..log_provider(Channel::Whatsapp, 1, None) }),
    ]
    .map(|(name, provider)| (name.to_owned(), provider))
    .into();
}

fn sms() -> Value {
    json!({"channel": "sms", "to": "+15550100", "body": "hello", "policy": quick(2)})
}

fn with(name: &str, value: Value) -> Value {
    let mut changed = sms();
    changed[name] = value;
    changed
}

async fn a_text_message_is_carried_by_the_first_provider_of_its_pool(on: StoreKind) {
    let running = Running::with(on, providers).await;
    let sent = running.admin.send_until(&sms(), "succeeded").await;
    assert_eq!((&sent["destination"], &sent["status"]), (&json!("pool:sms"), &json!("delivered")));
    let attempt = &sent["attempts"][0];
    assert_eq!((&attempt["provider"], &attempt["statusCode"]), (&json!("texts"), &Value::Null));
    let id = sent["notificationId"].as_str().unwrap();
    assert_eq!(attempt["messageId"], format!("log-{id}-1"));
    assert_eq!(attempt["response"], Value::Null);
    let listed = running.admin.all("/v1/notifications?destination=pool:sms&channel=sms").await;
    assert_eq!(listed.len(), 1);
    running.stop().await;
}

async fn the_provider_that_a_sender_names_carries_it_and_its_code_decides(on: StoreKind) {
    let running = Running::with(on, providers).await;
    let admin = &running.admin;
    let sent = admin.send_until(&with("provider", json!("backup")), "succeeded").await;
    assert_eq!(sent["destination"], "provider:backup");
    assert_eq!(sent["attempts"][0]["provider"], "backup");
    let blocked = admin.send_until(&with("provider", json!("blocked")), "deadLetter").await;
    let made = blocked["attempts"].as_array().unwrap();
    assert_eq!((made.len(), &made[0]["failureType"]), (1, &json!("permanent")), "{blocked}");
    assert_eq!(made[0]["error"], "refused (blocked): this provider was told to fail");
    assert_eq!((&made[0]["provider"], &made[0]["messageId"]), (&json!("blocked"), &Value::Null));
    assert_eq!(blocked["reasonCode"], "PERMANENT_FAILURE");
    let busy = admin.send_until(&with("provider", json!("busy")), "deadLetter").await;
    let made = busy["attempts"].as_array().unwrap();
    assert_eq!((made.len(), &made[1]["failureType"]), (2, &json!("temporary")), "{busy}");
    let letter = admin.get(&format!("/v1/dead-letters/{}", busy["deadLetterId"].as_str().unwrap())).await;
    assert_eq!(letter["attempts"][1]["provider"], "busy");
    // Also the one that comes after a requeue is pinned.
    admin.act(&format!("/v1/dead-letters/{}/requeue", letter["id"].as_str().unwrap())).await.is(202);
    let again = admin.wait(busy["notificationId"].as_str().unwrap(), "deadLetter").await;
    assert!(again["attempts"].as_array().unwrap().iter().all(|made| made["provider"] == "busy"), "{again}");
    running.stop().await;
}

async fn what_no_provider_can_carry_is_refused_with_its_pointer(on: StoreKind) {
    let running = Running::with(on, providers).await;
    let refused = async |send: Value, code: &str, pointer: &str, says: &str| {
        let problem = running.admin.post("/v1/notifications", &send).await.problem(422, code);
        assert_eq!(problem["pointer"], pointer, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    };
    let invalid = "VALIDATION_FAILED";
    refused(with("provider", json!("nobody")), invalid, "/provider", "`nobody` is not configured").await;
    refused(with("provider", json!("mail")), invalid, "/provider", "is for email").await;
    refused(with("provider", json!("")), invalid, "/provider", "").await;
    let webhook = json!({"channel": "webhook", "to": "https://example.com", "body": 1, "provider": "texts"});
    refused(webhook, invalid, "/provider", "webhook has no providers").await;
    // A kind that is not built carries nothing.
    let chat = json!({"channel": "whatsapp", "to": "+15550100", "body": "x"});
    refused(chat, "CHANNEL_UNAVAILABLE", "/channel", "channel = \"whatsapp\"").await;
    let inapp = json!({"channel": "inapp", "to": "u", "body": "x"});
    refused(inapp, "CHANNEL_UNAVAILABLE", "/channel", "not built").await;
    for to in ["15550100", "+1 555 0100", "+0155501000", "https://example.com", "a@example.com"] {
        refused(with("to", json!(to)), invalid, "/to", "E.164").await;
    }
    let mail = json!({"channel": "email", "to": "nobody", "body": "x"});
    refused(mail, invalid, "/to", "e-mail address").await;
    refused(with("body", json!({"a": 1})), invalid, "/body", "must be a text").await;
    assert_eq!(running.admin.all("/v1/notifications").await.len(), 0);
    running.stop().await;
}

async fn an_edit_can_name_another_provider_or_none(on: StoreKind) {
    let running = Running::with(on, providers).await;
    let admin = &running.admin;
    let edited = async |edit: Value| {
        let dead = admin.send_until(&with("provider", json!("blocked")), "deadLetter").await;
        let path = format!("/v1/dead-letters/{}/edit-and-retry", dead["deadLetterId"].as_str().unwrap());
        admin.post(&path, &edit).await
    };
    for (edit, destination, provider, state) in [
        (json!({"provider": null}), "pool:sms", "texts", "succeeded"),
        (json!({"provider": "backup"}), "provider:backup", "backup", "succeeded"),
        (json!({"to": "+15550101"}), "provider:blocked", "blocked", "deadLetter"),
        (json!({"body": "again"}), "provider:blocked", "blocked", "deadLetter"),
    ] {
        let told = edited(edit).await.is(202);
        let copy = admin.wait(told["notificationId"].as_str().unwrap(), state).await;
        assert_eq!(
            (&copy["destination"], &copy["attempts"][0]["provider"]),
            (&json!(destination), &json!(provider))
        );
    }
    let refused = edited(json!({"provider": "mail"})).await.problem(422, "VALIDATION_FAILED");
    assert_eq!(refused["pointer"], "/provider");
    running.stop().await;
}

async fn a_batch_mixes_channels_and_rejects_only_what_is_wrong(on: StoreKind) {
    let running = Running::with(on, providers).await;
    let batch = json!({"notifications": [
        sms(), with("to", json!("x")), running.webhook("/ok"), with("provider", json!("nobody")),
    ]});
    let told = running.admin.post("/v1/notifications/batch", &batch).await.is(202);
    let indexes = |name: &str| -> Vec<u64> {
        told[name].as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect()
    };
    assert_eq!((indexes("accepted"), indexes("rejected")), (vec![0, 2], vec![1, 3]), "{told}");
    for item in told["accepted"].as_array().unwrap() {
        running.admin.wait(item["notificationId"].as_str().unwrap(), "succeeded").await;
    }
    running.stop().await;
}

/// An older node would claim it, find no way to send it, and bury it.
async fn while_a_node_of_an_older_version_is_alive_nothing_is_accepted_for_a_pool(on: StoreKind) {
    let running = Running::with(on, providers).await;
    for (level, wanted) in [(PROVIDERS_LEVEL - 1, 422), (PROVIDERS_LEVEL, 202)] {
        running.change_store(&format!("update node set level = {level}")).await;
        // The next heartbeat tells it.
        let mut told = running.admin.post("/v1/notifications", &sms()).await;
        for _ in 0..200 {
            if told.status == wanted {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            told = running.admin.post("/v1/notifications", &sms()).await;
        }
        told.is(wanted);
        let webhook = running.webhook("/ok");
        running.admin.send_until(&webhook, "succeeded").await;
    }
    running.stop().await;
}

on_each_store! {
    while_a_node_of_an_older_version_is_alive_nothing_is_accepted_for_a_pool;
    a_text_message_is_carried_by_the_first_provider_of_its_pool;
    the_provider_that_a_sender_names_carries_it_and_its_code_decides;
    what_no_provider_can_carry_is_refused_with_its_pointer;
    a_batch_mixes_channels_and_rejects_only_what_is_wrong;
    an_edit_can_name_another_provider_or_none;
}
