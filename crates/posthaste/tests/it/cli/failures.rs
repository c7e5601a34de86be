//! What a failing command prints: text for people, JSON for programs, and no password.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::served::Scene;
use super::{Ended, finish, posthaste, run};

/// The one JSON object on stderr.
fn error(ended: &Ended) -> Value {
    assert_eq!(ended.err.trim_end().lines().count(), 1, "{}", ended.err);
    serde_json::from_str(&ended.err).unwrap_or_else(|_| panic!("{}", ended.err))
}

#[tokio::test]
async fn the_problem_of_the_server_is_handed_on_as_it_is() {
    let scene = Scene::start().await;
    let args = ["send", "--to", "http://10.0.0.1/", "--body", "x", "--output", "json"];
    let refused = scene.run(&args).await;
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""));
    let problem = error(&refused);
    assert_eq!((&problem["code"], &problem["pointer"]), (&json!("DESTINATION_FORBIDDEN"), &json!("/to")));
    assert_eq!((&problem["status"], problem["type"].is_string()), (&json!(422), true), "{problem}");

    let refused = scene.run(&["dead-letters", "requeue", "dl_unknown", "--output=json"]).await;
    assert_eq!((refused.code, &error(&refused)["code"]), (Some(1), &json!("not-found")));
    let answers: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!(answers["data"][0]["id"], "dl_unknown", "{answers}");
    assert_eq!(answers["data"][0]["problem"]["code"], "not-found", "{answers}");
}

#[tokio::test]
async fn other_failures_have_a_code_and_a_text_as_well() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{free}");
    for (args, exit, code, said) in [
        (&["stats", "--url", &nobody, "--output", "json"][..], 1, "NO_ANSWER", "cannot connect"),
        (&["stats", "--url", "127.0.0.1", "--output", "json"], 2, "WRONG_USE", "such as http://"),
        (&["send", "--output", "json"], 2, "WRONG_USE", "--to <RECIPIENT>"),
        (&["--output=json", "sned"], 2, "WRONG_USE", "unrecognized subcommand"),
        (&["policy", "import", "/nowhere", "--output", "json"], 1, "FAILED", "cannot read /nowhere"),
        (&["migrate", "status", "--store", "/nowhere/p.db", "--output", "json"], 1, "FAILED", "/nowhere"),
    ] {
        let ended = run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(exit), ""), "{args:?}: {ended:?}");
        let error = error(&ended);
        assert_eq!(error["code"], code, "{args:?}: {error}");
        assert!(error["detail"].as_str().unwrap().contains(said), "{args:?}: {error}");
    }
    let help = run(&["stats", "--help", "--output", "json"]).await;
    assert!(help.code == Some(0) && help.out.contains("Usage: "), "{help:?}");
}

/// With the server in the environment clap would name its flags in each of these.
#[tokio::test]
async fn a_usage_line_has_only_what_is_needed() {
    for (args, usage) in [
        (
            &["send", "--body", "x"][..],
            "posthaste send [OPTIONS] <--to <RECIPIENT>|--user-id <ID>|--batch <FILE|->>",
        ),
        (&["notifications", "retry", "--output", "table"], "posthaste notifications retry [OPTIONS] <ID>..."),
        (&["notifications", "list", "--all", "--limit", "4"], "posthaste notifications list [OPTIONS]"),
        (&["policy", "set", "global"], "posthaste policy set [OPTIONS] <SCOPE> <JSON|@FILE|->"),
        (&["stats", "--nope"], "posthaste stats [OPTIONS]"),
    ] {
        let mut command = posthaste(args);
        command.env("POSTHASTE_URL", "http://127.0.0.1:1").env("POSTHASTE_KEY", "a-key");
        let ended = finish(command, "").await;
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        let line = ended.err.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap();
        assert_eq!(line, usage, "{args:?}: {}", ended.err);
    }
}

#[tokio::test]
async fn no_command_prints_a_password() {
    let store = "postgres://ada:secret@db.invalid/posthaste";
    let within = "store.connect_timeout=2s";
    for args in [
        &["backup", "--to", "/tmp/copy.db", "--store", store][..],
        &["backup", "--to", "/tmp/copy.db", "--store", store, "--output", "json"],
        &["migrate", "status", "--store", store, "--set", within, "--output", "json"],
        &["migrate", "up", "--store", store, "--set", within],
        &["doctor", "--store", store, "--set", within, "--output", "json"],
        &["dev", "--listen", "127.0.0.1:0", "--sink", "127.0.0.1:0", "--store", store, "--set", within],
        &["serve", "--listen", "127.0.0.1:0", "--store", "ada:secret@db.invalid/posthaste"],
        &["serve", "--listen", "127.0.0.1:0", "--store", "postgres:/ada:secret@db.invalid/posthaste"],
        &["serve", "--listen", "127.0.0.1:0", "--store", "host=db.invalid password=secret"],
        &["serve", store],
        &["serve", store, "--output", "json"],
        &["serve", "--set", store],
        &["bench", "--store", store],
        &["stats", "--url", "http://ada:secret@127.0.0.1:1/"],
    ] {
        let ended = run(args).await;
        assert_ne!(ended.code, Some(0), "{args:?}: {ended:?}");
        assert!(!ended.out.contains("secret") && !ended.err.contains("secret"), "{args:?}: {ended:?}");
    }
    let mut help = posthaste(&["stats", "--help"]);
    help.env("POSTHASTE_URL", "http://ada:secret@127.0.0.1:1/");
    assert!(!finish(help, "").await.out.contains("secret"));
}
