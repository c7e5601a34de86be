//! The file: whose it is, what it survives, and which ones are refused.

use std::path::PathBuf;
use std::time::Duration;

use posthaste_core::filter::{AuditFilter, Filter};
use posthaste_core::id::DeadLetterId;
use posthaste_core::rate::Share;
use posthaste_core::state::{Lane, State};
use posthaste_engine::store::{Audit, LEVEL, Nodes, Pulse, Queue, Reads, Store, StoredSettings};
use posthaste_store::sqlite::{OpenError, Options, Planted, SqliteStore, Synchronous};

use crate::scene::{
    HOLD, Scene, at, beside, buried, delivered, fill, id, key, lease, quota, request, retried,
};

#[tokio::test]
async fn a_thread_that_ends_breaks_the_store_for_good_and_nothing_else_does() {
    let options = Options { planted: Some(Planted::WriterPanics), ..Options::default() };
    let scene = Scene::with(options);
    let (store, acme) = (&scene.store, key("acme", "a"));
    let flow = store.intern(vec![acme.clone()]).await.unwrap()[0];
    let watched = tokio::time::timeout(Duration::from_millis(1), store.broken()).await;
    assert!(watched.is_err(), "it is not broken yet");
    store.accept(vec![request(id(0), &acme, flow, None)], at(0)).await.unwrap_err();
    tokio::time::timeout(Duration::from_secs(60), store.broken()).await.unwrap();
    store.intern(vec![acme]).await.unwrap_err();
}

#[tokio::test]
async fn everything_acknowledged_is_there_after_reopening() {
    let scene = Scene::new();
    let (store, acme) = (&scene.store, key("acme", "a"));
    let node = store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let flow = fill(store, &acme, 0, 10).await;
    let batch = store.claim(vec![quota(flow, Lane::Main, 3)], lease(node, 1), at(1)).await.unwrap().claimed;
    let name = DeadLetterId::new(at(2), 1);
    let outcomes = vec![delivered(&batch[0]), retried(&batch[1], at(60)), buried(&batch[2], name)];
    store.settle(outcomes, at(2)).await.unwrap();
    let audit = Audit {
        key_id: None,
        address: None,
        tenant: None,
        actor: "ann".to_owned(),
        action: "set".to_owned(),
        target: "a".to_owned(),
        at: at(2),
    };
    store.put_setting("policy".to_owned(), Some("{}".to_owned()), audit).await.unwrap();
    let before = everything(store).await;

    let scene = scene.reopen();
    assert_eq!(everything(&scene.store).await, before);
    assert_eq!(scene.store.recount().await.unwrap(), None);
    let states: Vec<State> = [7, 8, 9].map(|_| State::Pending).to_vec();
    let page = scene.store.page(Default::default(), None, 3).await.unwrap();
    assert_eq!(page.rows.iter().map(|view| view.state).collect::<Vec<_>>(), states);
}

/// What the reads answer, as text.
async fn everything(store: &SqliteStore) -> String {
    let page = store.page(Default::default(), None, 100).await.unwrap();
    let retries = store.retry_queue(Filter::default(), None, 100).await.unwrap();
    let letters = store.dead_letters(Default::default(), None, 100).await.unwrap();
    let audit = store.audit(AuditFilter::default(), None, 100).await.unwrap();
    let settings = store.settings(None).await.unwrap();
    let stats = store.stats(None, at(10)).await.unwrap();
    let mut histories = vec![];
    for number in 0..10 {
        histories.push(store.history(id(number)).await.unwrap());
    }
    format!("{page:?} {retries:?} {letters:?} {audit:?} {settings:?} {stats:?} {histories:?}")
}

#[tokio::test]
async fn a_second_opener_is_told_which_file_is_in_use_and_what_to_do() {
    let scene = Scene::new();
    let refused = SqliteStore::open(scene.path(), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::InUse { .. }));
    let text = refused.to_string();
    assert!(text.contains("posthaste.db") && text.contains("stop that one"), "{text}");
    scene.reopen();
}

#[cfg(unix)]
#[test]
fn a_file_is_in_use_under_every_name_that_leads_to_it() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("data")).unwrap();
    let path = root.join("data/x.db");
    symlink("data/x.db", root.join("link.db")).unwrap();
    symlink("link.db", root.join("link of a link.db")).unwrap();
    symlink("data", root.join("elsewhere")).unwrap();
    let from_here = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect::<PathBuf>();
    let names = [
        path.clone(),
        root.join("data/./x.db"),
        root.join("data/../data/x.db"),
        root.join("link.db"),
        root.join("link of a link.db"),
        root.join("elsewhere/x.db"),
        from_here.join(path.strip_prefix("/").unwrap()),
    ];
    // The file does not exist at first, so each link once leads to nothing.
    for first in &names {
        let store = SqliteStore::open(first, Options::default()).unwrap();
        for second in &names {
            let refused = SqliteStore::open(second, Options::default()).err();
            let is_refused = matches!(refused, Some(OpenError::InUse { .. }));
            assert!(is_refused, "{} beside {}: {refused:?}", second.display(), first.display());
        }
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
    symlink("circle.db", root.join("circle.db")).unwrap();
    let refused = SqliteStore::open(root.join("circle.db"), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
}

/// What is in a directory, by name.
fn names_in(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_path_that_leads_to_no_file_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("data")).unwrap();
    std::fs::write(root.join("plain"), "").unwrap();
    std::fs::write(root.join("fixed.db"), "").unwrap();
    let mut rights = std::fs::metadata(root.join("fixed.db")).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(root.join("fixed.db"), rights).unwrap();
    let before = names_in(&root);
    let at = |name: &str| root.join(name).display().to_string();
    let table = [
        (
            "data",
            format!("{} is a directory: name a file in it, such as {}/posthaste.db", at("data"), at("data")),
        ),
        (
            "missing/x.db",
            format!(
                "{} cannot be created because the directory {} does not exist: create it, or name another file",
                at("missing/x.db"),
                at("missing")
            ),
        ),
        (
            "plain/x.db",
            format!(
                "{} cannot be created because the directory {} does not exist: create it, or name another file",
                at("plain/x.db"),
                at("plain")
            ),
        ),
        (
            "fixed.db",
            format!(
                "{} is read-only: let the user of this process write the file and its directory, or name \
                 another file",
                at("fixed.db")
            ),
        ),
    ];
    for (name, text) in table {
        let refused = SqliteStore::open(root.join(name), Options::default()).err().unwrap();
        assert_eq!(refused.to_string(), text);
    }
    assert_eq!(names_in(&root), before);
}

#[cfg(unix)]
#[test]
fn a_refused_open_leaves_no_lock_that_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "dear diary, this is not a database at all".repeat(200)).unwrap();
    assert!(SqliteStore::open(&path, Options::default()).is_err());
    assert_eq!(names_in(directory.path()), ["notes.txt"]);
    // What was there before stays.
    std::fs::write(directory.path().join("notes.txt.lock"), "").unwrap();
    assert!(SqliteStore::open(&path, Options::default()).is_err());
    assert_eq!(names_in(directory.path()), ["notes.txt", "notes.txt.lock"]);
}

#[test]
fn less_than_full_durability_is_refused_unless_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    for weak in [Synchronous::Normal, Synchronous::Off] {
        let path = directory.path().join("weak.db");
        let options = Options { synchronous: weak, ..Options::default() };
        let refused = SqliteStore::open(&path, options.clone()).err().unwrap();
        assert!(matches!(refused, OpenError::NotDurable { .. }));
        assert!(refused.to_string().contains("unsafe_durability = true"), "{refused}");
        SqliteStore::open(&path, Options { unsafe_durability: true, ..options }).unwrap();
    }
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("newer.db");
    drop(SqliteStore::open(&path, Options::default()).unwrap());
    beside(&path, |conn| conn.pragma_update(None, "user_version", 99).unwrap());
    let refused = SqliteStore::open(&path, Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Newer { found: 99, .. }));
    assert!(refused.to_string().contains("run the newer Posthaste"), "{refused}");
    let version: i64 =
        beside(&path, |conn| conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap());
    assert_eq!(version, 99);
}

#[test]
fn a_file_whose_tables_are_not_what_its_steps_have_made_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("lost.db", "drop table queue; drop table counter", "these tables are missing: counter, queue"),
        ("forgot.db", "pragma user_version = 0", "no step was applied, but there are tables"),
        ("made-up.db", "pragma user_version = 5", "these tables are missing: attempt, audit"),
    ];
    for (name, harm, what) in cases {
        let path = directory.path().join(name);
        if name != "made-up.db" {
            drop(SqliteStore::open(&path, Options::default()).unwrap());
        }
        beside(&path, |conn| conn.execute_batch(harm).unwrap());
        let before = std::fs::read(&path).unwrap();
        let refused = SqliteStore::open(&path, Options::default()).err().unwrap();
        assert!(matches!(refused, OpenError::HalfMigrated { .. }), "{name}: {refused}");
        let said = refused.to_string();
        assert!(said.contains(what) && said.contains("Restore a backup"), "{said}");
        let schema = posthaste_store::sqlite::migrate::status(&path).unwrap();
        assert!(matches!(schema.refused, Some(OpenError::HalfMigrated { .. })), "{name}");
        assert!(before == std::fs::read(&path).unwrap(), "{name} was changed");
    }
}

#[test]
fn a_file_of_something_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "dear diary, this is not a database at all".repeat(200)).unwrap();
    assert!(SqliteStore::open(&path, Options::default()).is_err());
}

#[tokio::test]
async fn leases_of_an_earlier_process_are_taken_back_at_once() {
    let scene = Scene::new();
    let acme = key("acme", "a");
    let node = scene.store.join("one".to_owned(), HOLD, at(0)).await.unwrap().node;
    let flow = scene.store.intern(vec![acme.clone()]).await.unwrap()[0];
    let held = Some(lease(node, 1));
    let requests = (0..5).map(|number| request(id(number), &acme, flow, held)).collect();
    scene.store.accept(requests, at(0)).await.unwrap();

    let scene = scene.reopen();
    let store = &scene.store;
    let next = store.join("two".to_owned(), HOLD, at(1)).await.unwrap().node;
    assert!(next > node);
    assert_eq!(store.heartbeat(node, HOLD, at(1)).await.unwrap(), Pulse::Lost);
    let pulse = store.heartbeat(next, HOLD, at(1)).await.unwrap();
    assert_eq!(
        pulse,
        Pulse::Alive { now: at(1), dead: vec![node], level: LEVEL, share: Share::WHOLE, destinations: 0 }
    );
    assert_eq!(store.reclaim(node, 3, at(1)).await.unwrap(), 3);
    assert_eq!(store.reclaim(node, 3, at(1)).await.unwrap(), 2);
    let batch = store.claim(vec![quota(flow, Lane::Main, 9)], lease(next, 1), at(1)).await.unwrap().claimed;
    assert_eq!(batch.len(), 5);
    assert!(batch.iter().all(|claimed| claimed.interruptions == 1));
    let history = store.history(id(0)).await.unwrap();
    assert_eq!(history.events[0].word, "interrupted");
}

#[tokio::test]
async fn a_closed_store_leaves_no_log_behind() {
    let scene = Scene::new();
    fill(&scene.store, &key("acme", "a"), 0, 100).await;
    let (path, directory) = (scene.path(), scene);
    let Scene { store, .. } = &directory;
    let _ = store;
    let reopened = directory.reopen();
    drop(reopened);
    let log = path.with_extension("db-wal");
    assert!(!log.exists() || std::fs::metadata(&log).unwrap().len() == 0);
}

#[test]
fn a_file_of_another_program_is_refused_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("theirs.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("create table customers (name text); insert into customers values ('ada');").unwrap();
    drop(conn);
    let before = std::fs::read(&path).unwrap();
    let error = SqliteStore::open(&path, Options::default()).err().unwrap();
    assert!(
        error.to_string().ends_with("is an SQLite file of another program: give Posthaste a file of its own")
    );
    assert!(std::fs::read(&path).unwrap() == before);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_is_for_its_owner_alone_and_is_refused_under_two_names() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    drop(SqliteStore::open(&path, Options::default()).unwrap());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::hard_link(&path, directory.path().join("b.db")).unwrap();
    for name in ["a.db", "b.db"] {
        let refused = SqliteStore::open(directory.path().join(name), Options::default()).err().unwrap();
        assert!(matches!(refused, OpenError::Linked { .. }), "{refused}");
    }
    std::fs::remove_file(directory.path().join("b.db")).unwrap();
    drop(SqliteStore::open(&path, Options::default()).unwrap());
}
