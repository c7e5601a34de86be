//! `posthaste destinations`: by id, by URL, by the name of a provider; tables and JSON.

use serde_json::Value;

use super::served::Scene;

const SEVERAL: &str = "several tenants send to";

#[tokio::test]
async fn a_destination_is_limited_blocked_and_let_go_by_its_url() {
    let scene = Scene::start().await;
    let url = scene.sink.url("/ok?x=1");
    let listed = scene.run(&["destinations", "list"]).await;
    assert_eq!((listed.code, listed.err.trim()), (Some(0), "nothing found"), "{listed:?}");
    let unknown = scene.run(&["destinations", "block", &url]).await;
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.err.contains("name the tenant with --tenant"), "{}", unknown.err);

    // Before anything was sent, the tenant has to be named.
    let limited =
        ["destinations", "limit", &url, "--rate", "12.5", "--concurrency", "3", "--tenant", "default"];
    let limited = scene.run(&limited).await;
    assert_eq!(limited.code, Some(0), "{limited:?}");
    assert!(limited.out.ends_with(": closed, 12.5/s, 3 at a time\n"), "{}", limited.out);
    let id = limited.out.split(' ').next().unwrap();
    let sent = scene.run(&["send", "--to", &url, "--body", "Hi", "--watch"]).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let blocked = scene.run(&["destinations", "block", &url, "--reason", "they asked us to"]).await;
    assert_eq!(blocked.code, Some(0), "{blocked:?}");
    assert!(blocked.out.contains("blocked by admin"), "{}", blocked.out);
    let again = scene.run(&["destinations", "block", id]).await;
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("is blocked already"), "{}", again.err);
    let table = scene.run(&["destinations", "list"]).await.out;
    for column in ["ID", "NAME", "STATE", "PARKED", "blocked by admin", "12.5/s, 3 at a time", id] {
        assert!(table.contains(column), "{column}: {table}");
    }
    let doctor = scene.run(&["doctor"]).await;
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    for words in ["has been blocked by admin (they asked us to) for ", &format!("destinations unblock {id}")]
    {
        assert!(doctor.out.contains(words), "{words}: {}", doctor.out);
    }
    let shown = scene.run(&["destinations", "show", &url]).await.out;
    for line in ["blockReason", "they asked us to", "History", "limited", "blocked"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let shown = scene.json(&["destinations", "show", id]).await;
    assert_eq!((&shown["id"], &shown["history"][0]["event"]), (&id.into(), &"blocked".into()));
    let unblocked = scene.json(&["destinations", "unblock", id]).await;
    assert_eq!(unblocked["blockedBy"], Value::Null);
    let reset = scene.run(&["destinations", "reset", &url]).await;
    assert!(reset.out.contains(": closed, "), "{reset:?}");
    let cleared = scene.run(&["destinations", "limit", &url, "--clear"]).await;
    assert!(cleared.out.ends_with(": closed, no limits\n"), "{cleared:?}");
    assert_eq!(scene.json(&["destinations", "list"]).await["data"], serde_json::json!([]));
    assert_eq!(scene.json(&["destinations", "list", "--known"]).await["data"][0]["id"], id);
}

#[tokio::test]
async fn what_is_not_clear_is_asked_for_and_what_is_wrong_is_named() {
    let scene = Scene::start().await;
    let url = scene.sink.url("/ok");
    for tenant in ["acme", "other"] {
        let sent = scene.run(&["send", "--to", &url, "--body", "Hi", "--tenant", tenant, "--watch"]).await;
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let block = scene.run(&["destinations", "block", &url]).await;
    assert_eq!(block.code, Some(2), "{block:?}");
    assert!(block.err.contains(SEVERAL) && block.err.contains("acme, other"), "{}", block.err);
    let block = scene.json(&["destinations", "block", &url, "--tenant", "other"]).await;
    assert_eq!(block["tenant"], "other");
    for (args, code, words) in [
        (&["destinations", "limit", url.as_str()][..], 2, "--rate"),
        (&["destinations", "limit", url.as_str(), "--rate", "1", "--clear"][..], 2, "cannot be used with"),
        (&["destinations", "limit", url.as_str(), "--rate", "0", "--tenant", "other"][..], 1, "rate must be"),
        (&["destinations", "show", "nobody"][..], 1, "there is no destination"),
        (&["destinations", "show", "a b"][..], 1, "must be a URL"),
        (&["destinations", "reset", "dst_00000000000000000000000000"][..], 1, "there is no destination"),
    ] {
        let ended = scene.run(args).await;
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(ended.err.contains(words), "{args:?}: {}", ended.err);
    }
}
