//! `posthaste backup`: a copy of the file of a program that is busy, from which another one goes on.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fastrand::Rng;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::cli::{Ended, run};
use super::kept::Kept;
use super::load::{Aim, Load};
use super::program::{Home, PATIENCE, eventually, post, sink};

async fn backup(store: &str, to: &Path) -> Ended {
    run(&["backup", "--store", store, "--to", to.to_str().unwrap(), "--output", "json"]).await
}

fn at(home: &Home) -> String {
    format!("sqlite://{}", home.file().display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_made_under_load_delivers_what_was_acknowledged_before_it_began() {
    let (home, sink, mut rng) = (Home::new(&["engine.concurrency=16"]), sink().await, Rng::new());
    let program = home.start().await;
    // What cannot be delivered before the copy is made: its time comes later.
    let client = program.client();
    let mut waiting = BTreeSet::new();
    for number in 0..50 {
        let body = json!({"channel": "webhook", "to": sink.url("/ok"), "body": number, "notBefore": "2100-01-01T00:00:00Z"});
        let sent = post(&client, "/v1/notifications", &body).await;
        waiting.insert(sent["notificationId"].as_str().unwrap().to_owned());
    }
    let aim = || Aim { sink: sink.url(""), paths: &["/ok", "/flaky/20", "/delay/20ms"], bytes: 2_000 };
    let load = Load::start(&program, aim(), &mut rng);
    eventually(async || (sink.received() > 300).then_some(())).await.expect("it is delivered");
    let acknowledged = load.stop().await;
    let load = Load::start(&program, aim(), &mut rng);

    let copy = home.path().join("copy.db");
    let before = sink.received();
    let ended = backup(&at(&home), &copy).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(told["bytes"], copy.metadata().unwrap().len());
    assert!(told["waiting"].as_u64().unwrap() >= 50 && told["schema"].as_u64().unwrap() >= 1, "{told}");
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    eventually(async || (sink.received() > before + 100).then_some(())).await.expect("the server went on");
    let ledger = load.stop().await;
    assert!(ledger.refused.is_empty(), "the copy was in nobody's way");
    program.kill();

    // What waits in the copy is due now, and another server starts on it.
    let conn = Connection::open(&copy).unwrap();
    assert_eq!(conn.execute("update queue set due = 0 where due > 4000000000000000", []).unwrap(), 50);
    drop(conn);
    // The key is not in the copy, and the copy is refused without it.
    let restored = Home::new(&[]).with_file(copy.clone());
    let mut refused = restored.spawn();
    assert_eq!(refused.ended(PATIENCE).await.code(), Some(1));
    assert!(refused.log().contains("copy.db.key, and that file is gone"), "{}", refused.log());
    std::fs::copy(told["keyFile"].as_str().unwrap(), format!("{}.key", copy.display())).unwrap();
    let program = restored.start().await;
    program.rest().await;
    program.stop().await;
    Kept::read(restored.file()).check(&acknowledged);
    let arrived: BTreeSet<String> = sink.arrivals().into_iter().filter_map(|arrival| arrival.id).collect();
    let missing: Vec<_> = waiting.difference(&arrived).collect();
    assert!(missing.is_empty(), "{missing:?}");
    sink.stop().await;
}

#[tokio::test]
async fn a_copy_is_never_put_over_something_and_leaves_nothing_half_done() {
    let home = Home::new(&[]);
    let (directory, copy) = (home.path(), home.path().join("copy.db"));
    let ended = backup(&at(&home), &copy).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("does not exist") && ended.err.contains("--store"), "{ended:?}");

    home.start().await.stop().await;
    std::fs::write(&copy, "precious").unwrap();
    let ended = backup(&at(&home), &copy).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("is not overwritten: name another file"), "{ended:?}");
    assert_eq!(std::fs::read(&copy).unwrap(), b"precious");

    let ended = backup(&at(&home), &directory.join("nowhere/copy.db")).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("cannot be written: name a file in a directory that exists"), "{ended:?}");

    let empty = directory.join("empty.db");
    std::fs::write(&empty, "").unwrap();
    let ended = backup(&format!("sqlite://{}", empty.display()), &directory.join("other.db")).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("holds no store") && !ended.err.contains("disk"), "{ended:?}");

    let foreign = directory.join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("create table mine (x)").unwrap();
    let ended = backup(&format!("sqlite://{}", foreign.display()), &directory.join("other.db")).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("of another program"), "{ended:?}");
    let unfinished = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().contains("unfinished");
    assert!(!std::fs::read_dir(directory).unwrap().any(|entry| unfinished(&entry.unwrap())));
    assert!(!directory.join("other.db").exists());
}

#[tokio::test]
async fn a_damaged_file_has_no_copy() {
    let (home, sink) = (Home::new(&[]), sink().await);
    let program = home.start().await;
    for number in 0..200 {
        let body = json!({"channel": "webhook", "to": sink.url("/ok"), "body": number});
        post(&program.client(), "/v1/notifications", &body).await;
    }
    program.rest().await;
    program.stop().await;
    let mut bytes = std::fs::read(home.file()).unwrap();
    let half = bytes.len() / 2;
    bytes[half..half + 20_000].fill(0xaa);
    std::fs::write(home.file(), bytes).unwrap();
    let copy = home.path().join("copy.db");
    let ended = backup(&at(&home), &copy).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("is damaged") && ended.err.contains("restore an older backup"), "{ended:?}");
    assert!(!copy.exists());
    sink.stop().await;
}

#[tokio::test]
async fn a_store_in_postgresql_has_programs_of_its_own_for_that() {
    let ended = backup("postgres://ada:secret@db.example/posthaste", Path::new("copy.dump")).await;
    assert_eq!(ended.code, Some(1));
    assert!(!ended.err.contains("secret"), "{ended:?}");
    let command = "pg_dump --format=custom --file=copy.dump postgres://ada:***@db.example/posthaste";
    for word in [command, "pg_basebackup", "archive_command"] {
        assert!(ended.err.contains(word), "{word}: {ended:?}");
    }
}
