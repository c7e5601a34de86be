//! A store that cannot be used: every command says at once what was tried and how to mend it, and never the password.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use posthaste_store::postgres::own::OwnServer;

use super::{database, shared};
use crate::cli::{Ended, run};
use crate::program::{Home, eventually, get, sink};

/// How long each may look for a server; and how much longer the whole may take on a busy machine.
const CONNECT: &str = "store.connect_timeout=2s";
const AT_ONCE: Duration = Duration::from_secs(2 + 15);

/// The commands that need the store, and where each says what is wrong with it.
const COMMANDS: [&[&str]; 5] = [
    &["serve", "--listen", "127.0.0.1:0"],
    &["dev", "--listen", "127.0.0.1:0", "--sink", "127.0.0.1:0"],
    &["migrate", "status"],
    &["migrate", "up"],
    &["doctor"],
];

async fn each_says(store: &str, code: i32, words: &[&str]) {
    for command in COMMANDS {
        let began = Instant::now();
        let ended = run(&[command, &["--store", store, "--set", CONNECT]].concat()).await;
        assert!(began.elapsed() < AT_ONCE, "{command:?} took {:?} for {store}", began.elapsed());
        assert_eq!(ended.code, Some(code), "{command:?} {store}: {ended:?}");
        let Ended { out, err, .. } = &ended;
        let said = if command == ["doctor"] && code == 1 { out } else { err };
        for word in words {
            assert!(said.contains(word), "{command:?} {store} does not say `{word}`:\n{said}");
        }
        assert!(!out.contains("secret") && !err.contains("secret"), "the password is told: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_leads_nowhere_says_what_was_tried() {
    // Free after the drop, so that nobody answers there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = &[&*format!("PostgreSQL cannot be reached at {free} as ada"), "refused", "Start it"];
    each_says(&format!("postgres://ada:secret@{free}/posthaste"), 1, words).await;
    // Somebody takes the connection and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let words = &[&*format!("cannot be reached at {at}"), "no answer in time", "host and port"];
    each_says(&format!("postgres://ada:secret@{at}/posthaste"), 1, words).await;
    let words = &["cannot be reached at no-such-host.invalid:5432 as ada", "correct the host"];
    each_says("postgres://ada:secret@no-such-host.invalid/posthaste", 1, words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_let_one_in_says_what_to_correct() {
    let (port, name) = (shared().port(), database());
    let nowhere = format!("postgres://postgres:secret@127.0.0.1:{port}/nowhere");
    each_says(&nowhere, 1, &["has no database `nowhere`", "`createdb nowhere`"]).await;
    shared().sql("postgres", "create role locked login password 'right'").unwrap();
    for user in ["locked:secret", "locked", "nobody:secret"] {
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}");
        let who = user.split(':').next().unwrap();
        let words = &[&*format!("127.0.0.1:{port} as {who}"), "refuses the user", "pg_hba.conf"];
        each_says(&url, 1, words).await;
    }
    let url = format!("postgres://postgres:secret@127.0.0.1:{port}/{name}?sslmode=require");
    each_says(&url, 1, &["TLS to PostgreSQL at", "does not support TLS", "ssl = on", "sslmode"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_no_postgresql_is_told_apart_from_one() {
    let sink = sink().await;
    let at = sink.url("").replace("http://", "");
    for tls in ["", "?sslmode=disable"] {
        let url = format!("postgres://ada:secret@{at}/posthaste{tls}");
        each_says(&url, 1, &[&format!("the server at {at}"), "is not PostgreSQL"]).await;
    }
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_url_of_a_store_is_refused_with_a_sample() {
    let sample = "postgres://user:password@host:5432/database";
    for text in ["postgres://", "mysql://ada:secret@db/x", "postgres:/ada:secret@db/x", "ada:secret@db/x", ""]
    {
        each_says(text, 2, &["flag for store.url: store.url must be sqlite:// and a path", sample]).await;
    }
    for (url, what) in [
        ("postgres://ada:secret@db.example", "it names no database"),
        ("postgres:///posthaste", "it names no host"),
        ("postgres://ada:secret@db.example:port/posthaste", "port"),
        ("postgres://ada:secret@db.example/posthaste?colour=red", "colour"),
        ("postgres://ada:p@secret@db.example/posthaste", "%40"),
        ("postgres://ada:p@secret/secret@db.example/posthaste", "%40"),
        ("postgres://db.example:5432/posthaste?password=p@secret", "%40"),
        ("postgres://db.example?password=p&password=secret", "it names no database"),
    ] {
        each_says(url, 1, &["is not the URL of a PostgreSQL database", what, sample]).await;
    }
    let url = shared().url(&database());
    let args = ["migrate", "status", "--store", &url, "--set", "store.root_certificates=/no/such.pem"];
    let ended = run(&args).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("/no/such.pem") && ended.err.contains("store.root_certificates"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_what_it_acknowledged_is_refused() {
    let server = OwnServer::start(&std::env::temp_dir(), "fsync = off").unwrap();
    let url = server.url("postgres");
    let words = &["fsync=off", "set fsync = on and reload it", "store.unsafe_durability = true"];
    each_says(&url, 1, words).await;
    // Whoever accepts that can go on, and is told so all the same.
    let accepted = ["--store", &url, "--set", "store.unsafe_durability=true"];
    assert_eq!(run(&[&["migrate", "up"], &accepted[..]].concat()).await.code, Some(0));
    let ended = run(&[&["doctor"], &accepted[..]].concat()).await;
    assert!(ended.out.contains("warn  store disk"), "{ended:?}");
    let home =
        Home::new(&["store.unsafe_durability=true"]).with_database(url, "127.0.0.1:0".parse().unwrap());
    let program = home.start().await;
    assert_eq!(get(&program.client(), "/healthz").await["durability"], "unsafe");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_and_keeps_nothing_is_refused_and_probes_say_why() {
    let server = OwnServer::start(&std::env::temp_dir(), "").unwrap();
    let home = Home::new(&[]).with_database(server.url("postgres"), "127.0.0.1:0".parse().unwrap());
    let mut program = home.start().await;
    let client = program.client();
    assert_eq!(get(&client, "/healthz").await["durability"], "full");
    let set = |value: &str| {
        server.sql("postgres", &format!("alter system set fsync = {value}")).unwrap();
        server.sql("postgres", "select pg_reload_conf()").unwrap();
    };
    set("off");
    let others =
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid()";
    let refused = eventually(async || {
        // Only who connects is asked.
        server.sql("postgres", &format!("{others} and backend_type = 'client backend'")).unwrap();
        let body = client.get("/readyz").await.ok()?.json::<serde_json::Value>().ok()?;
        body["reason"].as_str()?.contains("fsync").then_some(())
    });
    refused.await.expect("the probe says why the database is not used");
    assert_eq!(get(&client, "/healthz").await["durability"], "refused");
    set("on");
    program.ready().await;
    assert_eq!(get(&client, "/healthz").await["durability"], "full");
    program.stop().await;
}
