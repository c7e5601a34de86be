//! `posthaste doctor` on a store in PostgreSQL.

use serde_json::Value;

use super::{database, shared};
use crate::cli::run;
use crate::program::{Home, KEY};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_looks_at_the_server_and_at_its_database() {
    let url = shared().url(&database());
    let home = Home::new(&[]).with_database(url.clone(), "127.0.0.1:0".parse().unwrap());
    let program = home.start().await;
    let api = format!("http://{}", program.address());
    let args = ["doctor", "--store", &url, "--url", &api, "--key", KEY, "--output", "json"];
    let ended = run(&args).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    let results: Vec<(&str, &str)> = told["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["check"].as_str().unwrap(), check["result"].as_str().unwrap()))
        .collect();
    for check in
        ["server", "ready", "key", "store", "store disk", "schema", "store clock", "connections", "wake-ups"]
    {
        assert!(results.contains(&(check, "ok")), "{check}: {results:?}");
    }
    // More connections than the server takes at all.
    let ended = run(&[&args[..], &["--set", "store.connections=1000"]].concat()).await;
    assert!(ended.out.contains("max_connections"), "{ended:?}");
    program.stop().await;
}

#[tokio::test]
async fn the_doctor_says_which_step_is_missing_and_who_takes_it() {
    let url = shared().url(&database());
    let ended = run(&["doctor", "--store", &url]).await;
    let line = ended.out.lines().find(|line| line.contains("schema")).unwrap();
    assert!(line.starts_with("warn") && line.contains("or start a server"), "{line}");
    let ended = run(&["doctor", "--store", &url, "--set", "store.migrate=false"]).await;
    let line = ended.out.lines().find(|line| line.contains("schema")).unwrap();
    assert!(line.starts_with("fail") && line.ends_with("`posthaste migrate up`"), "{line}");
}

#[tokio::test]
async fn the_doctor_names_what_a_server_lacks_and_not_its_disk() {
    let name = database();
    let recode =
        format!("drop database {name}; create database {name} encoding 'SQL_ASCII' template template0");
    for sql in recode.split("; ") {
        shared().sql("postgres", sql).unwrap();
    }
    let ended = run(&["doctor", "--store", &shared().url(&name)]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.out.lines().find(|line| line.contains("createdb")).unwrap();
    assert!(line.starts_with("fail  store encoding"), "{line}");
    assert!(ended.out.contains("ok    store disk"), "{ended:?}");
}

#[tokio::test]
async fn the_doctor_says_that_a_node_without_sessions_does_not_listen() {
    let url = shared().url(&database());
    let ended = run(&["doctor", "--store", &url, "--set", "store.prepared=false"]).await;
    let line = ended.out.lines().find(|line| line.contains("wake-ups")).unwrap();
    assert!(line.starts_with("warn") && line.contains("does not LISTEN"), "{line}");
}
