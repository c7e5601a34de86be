//! Keys and policies by the command line, with a real server.

use serde_json::Value;

use super::finish;
use super::served::Scene;

#[tokio::test]
async fn keys_are_made_listed_and_revoked() {
    let scene = Scene::start().await;
    let made = scene.run(&["keys", "create", "--name", "shop", "--tenant", "acme"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let key = made.out.trim();
    assert!(key.starts_with("phk_") && !key.contains(char::is_whitespace), "{key}");
    let list = scene.run(&["keys", "list"]).await;
    assert!(
        list.out.contains("shop") && list.out.contains("acme") && !list.out.contains(key),
        "{}",
        list.out
    );

    let to = scene.sink.url("/ok");
    assert_eq!(scene.run(&["send", "--to", &to, "--body", "x", "--key", key]).await.code, Some(0));
    assert_eq!(scene.run(&["keys", "create", "--name", "y", "--admin", "--key", key]).await.code, Some(1));

    let keys = scene.json(&["keys", "list"]).await;
    let shop = keys["data"].as_array().unwrap().iter().find(|row| row["name"] == "shop").unwrap();
    let id = shop["id"].as_str().unwrap();
    let revoked = scene.run(&["keys", "revoke", id]).await;
    assert_eq!((revoked.code, revoked.out), (Some(0), format!("{id} is revoked\n")));
    assert_eq!(scene.run(&["stats", "--key", key]).await.code, Some(1));
}

#[tokio::test]
async fn a_saved_view_filters_a_list_and_other_flags_come_before_it() {
    let scene = Scene::start().await;
    let to = scene.sink.url("/ok");
    for subject in ["blue", "red"] {
        let sent = scene.run(&["send", "--to", &to, "--body", "x", "--subject", subject]).await;
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let save = |list: &'static str, query: &'static str| {
        ["views", "save", "the blue ones", "--list", list, "--query", query]
    };
    let saved = scene.run(&save("notifications", "q=blue&channel=webhook")).await;
    assert_eq!((saved.code, saved.out.as_str()), (Some(0), "the blue ones is saved\n"), "{saved:?}");
    let listed = async |more: &[&str]| {
        let args = [&["notifications", "list", "--view", "the blue ones"], more].concat();
        let rows = scene.json(&args).await["data"].clone();
        let subjects = rows.as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap().to_owned());
        subjects.collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]).await, ["blue"]);
    assert_eq!(listed(&["-q", "red"]).await, ["red"]);
    let other = scene.run(&["dead-letters", "list", "--view", "the blue ones"]).await;
    assert!(other.code == Some(2) && other.err.contains("of the list notifications"), "{other:?}");
    let views = scene.run(&["views", "list"]).await;
    assert!(views.out.contains("the blue ones") && views.out.contains("q=blue"), "{}", views.out);
    let refused = scene.run(&save("retry-queue", "status=failed")).await;
    assert!(refused.code == Some(1) && refused.err.contains("status"), "{refused:?}");
    assert_eq!(scene.run(&["views", "delete", "the blue ones"]).await.code, Some(0));
    let gone = scene.run(&["notifications", "list", "--view", "the blue ones"]).await;
    assert!(gone.code == Some(1) && gone.err.contains("no view"), "{gone:?}");
}

#[tokio::test]
async fn keys_have_roles_expire_and_are_rotated() {
    let scene = Scene::start().await;
    let create = async |args: &[&str]| {
        let made = scene.run(&[&["keys", "create", "--name", "k"], args].concat()).await;
        assert_eq!(made.code, Some(0), "{made:?}");
        made.out.trim().to_owned()
    };
    let sender = create(&["--tenant", "acme", "--role", "sender", "--expires", "1h"]).await;
    let [one, two] = [
        create(&["--all-tenants", "--role", "reader"]).await,
        create(&["--tenant", "*", "--role", "admin"]).await,
    ];
    let to = scene.sink.url("/ok");
    assert_eq!(scene.run(&["send", "--to", &to, "--body", "x", "--key", &sender]).await.code, Some(0));
    let refused = scene.run(&["stats", "--key", &sender]).await;
    assert!(refused.code == Some(1) && refused.err.contains("role reader"), "{refused:?}");
    let args = ["send", "--to", &to, "--body", "x", "--tenant", "other", "--key"];
    assert_eq!(scene.run(&[&args[..], &[two.as_str()]].concat()).await.code, Some(0));
    assert_eq!(scene.run(&[&args[..], &[sender.as_str()]].concat()).await.code, Some(1));
    let tenants = scene.run(&["tenants", "--key", &one]).await;
    let names: Vec<&str> = tenants.out.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["NAME", "acme", "other"]);

    let keys = scene.json(&["keys", "list"]).await;
    let row = keys["data"].as_array().unwrap().iter().find(|row| row["role"] == "sender").unwrap();
    assert!(row["expiresAt"].is_string() && row["lastUsedAt"].is_string(), "{row}");
    let id = row["id"].as_str().unwrap();
    let rotated = scene.run(&["keys", "rotate", id, "--overlap", "1h"]).await;
    assert!(rotated.code == Some(0) && rotated.err.contains("valid until"), "{rotated:?}");
    let again = scene.run(&["keys", "rotate", id, "--overlap", "0"]).await;
    assert!(again.code == Some(0) && again.err.contains("refused from now on"), "{again:?}");
    for (key, code) in [(sender.as_str(), 1), (rotated.out.trim(), 1), (again.out.trim(), 0)] {
        assert_eq!(scene.run(&["send", "--to", &to, "--body", "x", "--key", key]).await.code, Some(code));
    }
}

#[tokio::test]
async fn the_signing_secret_is_shown_and_rotated() {
    let scene = Scene::start().await;
    let shown = scene.run(&["signing-secret", "show", "--tenant", "acme"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let secret = shown.out.trim();
    assert!(secret.starts_with("whsec_") && shown.out.lines().count() == 1, "{shown:?}");
    assert!(shown.err.contains("made ") && !shown.err.contains("before it"), "{shown:?}");
    let rotated = scene.run(&["signing-secret", "rotate", "--tenant", "acme"]).await;
    assert!(rotated.code == Some(0) && rotated.out.trim() != secret, "{rotated:?}");
    assert!(rotated.err.contains("the one before it signs, too, until"), "{rotated:?}");
    let json = scene.json(&["signing-secret", "show", "--tenant", "acme"]).await;
    assert_eq!(json["secret"], rotated.out.trim());
    // A key for all tenants says whose; one of a tenant need not, and is an admin's.
    let refused = scene.run(&["signing-secret", "show"]).await;
    assert!(refused.code == Some(1) && refused.err.contains("?tenant="), "{refused:?}");
    let key = |role| ["keys", "create", "--name", "k", "--tenant", "acme", "--role", role];
    let admin = scene.run(&key("admin")).await;
    let own = scene.run(&["signing-secret", "show", "--key", admin.out.trim()]).await;
    assert_eq!(own.out, rotated.out);
    let operator = scene.run(&key("operator")).await;
    let refused = scene.run(&["signing-secret", "show", "--key", operator.out.trim()]).await;
    assert!(refused.code == Some(1) && refused.err.contains("admin"), "{refused:?}");
}

#[tokio::test]
async fn policies_are_set_shown_previewed_and_removed() {
    let scene = Scene::start().await;
    let policy = r#"{"preset": "story", "maxAttempts": 4, "jitter": "none"}"#;
    let set = finish(scene.command(&["policy", "set", "tenant:acme", "-"]), policy).await;
    assert_eq!(set.code, Some(0), "{set:?}");
    let shown = scene.json(&["policy", "show", "tenant:acme"]).await;
    assert_eq!(shown["policy"]["maxAttempts"], 4, "{shown}");
    assert_eq!(shown["sources"]["maxAttempts"], "tenant:acme", "{shown}");
    let table = scene.run(&["policy", "show", "tenant:acme"]).await.out;
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("maxAttempts").contains('4') && row("maxAttempts").ends_with("tenant:acme"), "{table}");
    assert!(row("timeout").ends_with("preset story"), "{table}");
    let settings = scene.run(&["settings"]).await.out;
    let row = settings.lines().find(|line| line.starts_with("retention.attempts")).unwrap_or_default();
    assert!(row.contains("30d") && row.ends_with("built-in"), "{settings}");
    let list = scene.run(&["policy", "show"]).await;
    assert!(list.out.lines().any(|line| line.starts_with("tenant:acme")), "{}", list.out);
    let given = scene.run(&["policy", "set", "tenant:acme", policy]).await;
    assert_eq!(given.code, Some(0), "{given:?}");
    let preview = scene.run(&["policy", "preview", policy]).await;
    let last =
        preview.out.lines().find(|line| line.starts_with('4')).unwrap_or_else(|| panic!("{preview:?}"));
    assert!(last.contains("21m"), "1, 5 and 15 minutes after each other: {last}");
    let bad = finish(scene.command(&["policy", "set", "global", "-"]), r#"{"multiplier": 0.5}"#).await;
    assert_eq!(bad.code, Some(1));
    assert!(bad.err.contains("multiplier"), "{}", bad.err);
    assert_eq!(scene.run(&["policy", "remove", "tenant:acme"]).await.code, Some(0));
    let shown = scene.json(&["policy", "show", "tenant:acme"]).await;
    assert!(shown["policy"].is_null() || shown["policy"] == serde_json::json!({}), "{shown}");
}

#[tokio::test]
async fn what_was_imported_is_put_where_it_is_told() {
    let scene = Scene::start().await;
    let zgw = r#"{"Hangfire": {"RetrySchedule": "0.00:15;0.00:30"}, "CircuitBreaker": {"BreakDuration": "00:05:00"}}"#;
    let import = &["policy", "import", "-", "--apply", "channel:webhook"];
    let applied = finish(scene.command(import), zgw).await;
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert!(applied.err.contains("breaker: not applied"), "{applied:?}");
    let shown = scene.json(&["policy", "show", "channel:webhook"]).await;
    assert_eq!(shown["policy"]["schedule"], serde_json::json!(["15m", "30m"]), "{shown}");
    let refused =
        finish(scene.command(&["policy", "import", "-", "--apply", "template:x"]), "NOTIFY_MAX_RETRIES=6")
            .await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("maxAttempts"), "{refused:?}");
}

#[tokio::test]
async fn a_template_is_that_of_the_tenant_of_the_key() {
    let scene = Scene::start().await;
    let policy = r#"{"maxAttempts": 3}"#;
    for scope in ["template:acme/welcome", "template:welcome"] {
        assert_eq!(scene.run(&["policy", "set", scope, policy]).await.code, Some(0), "{scope}");
    }
    let list = scene.run(&["policy", "show"]).await;
    for scope in ["template:welcome ", "template:acme/welcome "] {
        assert!(list.out.lines().any(|line| line.starts_with(scope)), "{scope}: {}", list.out);
    }
    let made = scene.json(&["keys", "create", "--name", "x", "--tenant", "acme"]).await;
    let key = made["key"].as_str().unwrap();
    let list = scene.run(&["policy", "show", "--key", key]).await;
    assert!(
        list.out.contains("template:acme/welcome") && !list.out.contains("template:welcome"),
        "{}",
        list.out
    );
    let shown = scene.json(&["policy", "show", "template:welcome", "--key", key]).await;
    assert_eq!(shown["scope"], "template:acme/welcome", "{shown}");
    let refused = scene.run(&["policy", "set", "template:welcome", policy, "--key", key]).await;
    assert!(refused.code == Some(1) && refused.err.contains("(FORBIDDEN)"), "{refused:?}");
    assert_eq!(scene.run(&["policy", "remove", "template:acme/welcome"]).await.code, Some(0));
    assert_eq!(
        scene.json(&["policy", "show", "template:welcome", "--key", key]).await["policy"],
        Value::Null
    );
}
