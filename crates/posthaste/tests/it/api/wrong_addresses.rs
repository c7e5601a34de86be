//! Addresses that nothing is sent to: what is no URL of a webhook, and what leads inside our own network.

use serde_json::json;

use super::running::{Running, StoreKind};
use super::wrong_input::{INVALID, Trial, but, is_refused};

async fn only_a_url_of_a_webhook_is_taken_as_one(on: StoreKind) {
    let trial = Trial::start(on).await;
    let good = trial.running.webhook("/ok");
    let bad = [
        "example.com",
        "//example.com/x",
        "/x",
        "http://",
        "https:///",
        "http://:80/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "data:text/plain,x",
        "ws://example.com/",
        "http://user@example.com/",
        "http://user:password@example.com/",
        "http://:password@example.com/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:x/",
        "http://exa mple.com/",
        "http://[::1/",
        "http://[zz]/",
        "http://%00/",
        "http://exa%0ample.com/",
        "http://256.256.256.256/",
    ];
    for to in bad {
        trial.send_refused(&but(&good, &json!({ "to": to })), (422, INVALID, "/to")).await;
    }
    for (name, reason) in
        [("email", "a@example.com"), ("sms", "+1555"), ("slack", "x"), ("inapp", "u"), ("push", "t")]
    {
        let other = but(&good, &json!({"channel": name, "to": reason, "body": "x"}));
        trial.send_refused(&other, (422, "CHANNEL_UNAVAILABLE", "/channel")).await;
    }
    let nobody = but(&good, &json!({"to": null, "userId": "u-1"}));
    trial.send_refused(&nobody, (422, "RECIPIENT_UNKNOWN", "/userId")).await;
    trial.stop().await;
}

async fn a_forbidden_address_is_refused_in_every_spelling_and_a_name_when_it_is_looked_up(on: StoreKind) {
    let running = Running::with(on, |config| config.security.allow_subnets = vec![]).await;
    let spellings = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "017700000001",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "0xa9fea9fe",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "10.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "0",
        "[::]",
        "224.0.0.1",
        "255.255.255.255",
        "[fe80::1]",
        "[ff02::1]",
        "[fc00::1]",
        "127。0。0。1",
        "１２７.0.0.1",
        "①②⑦.⓪.⓪.①",
        "%31%32%37.0.0.1",
        "127.0.0.1.",
        "168.63.129.16",
    ];
    let nothing = running.admin.get("/v1/stats").await;
    for host in spellings {
        for url in [format!("http://{host}/x"), format!("HTTPS:\\\\{host}:8443/?q"), format!("http:{host}")] {
            let sent = but(&running.webhook("/ok"), &json!({ "to": url }));
            let told = running.admin.post("/v1/notifications", &sent).await;
            is_refused(&told, (422, "DESTINATION_FORBIDDEN", "/to"), &url);
        }
    }
    assert_eq!(running.admin.get("/v1/stats").await, nothing);
    // A name is accepted, and the address behind it is refused when the name is looked up.
    let port = running.sink.address().port();
    let named = but(&running.webhook("/ok"), &json!({"to": format!("http://localhost:{port}/ok")}));
    let dead = running.admin.send_until(&named, "deadLetter").await;
    assert_eq!((&dead["reasonCode"], &dead["attempt"]), (&json!("PERMANENT_FAILURE"), &json!(1)));
    assert_eq!(dead["attempts"][0]["failureType"], "permanent");
    assert_eq!((running.sink.received(), running.sink.accepted()), (0, 0));
    running.stop().await;
}

on_each_store! {
    only_a_url_of_a_webhook_is_taken_as_one;
    a_forbidden_address_is_refused_in_every_spelling_and_a_name_when_it_is_looked_up;
}
