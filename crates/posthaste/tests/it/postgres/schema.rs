//! The schema: who starts first makes it, and what is not as this program knows it is refused with the command that helps.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use super::{database, shared};
use crate::cli::run;
use crate::program::{Home, eventually};

async fn migrate(what: &str, url: &str) -> (Option<i32>, Value) {
    let ended = run(&["migrate", what, "--store", url, "--output", "json"]).await;
    (ended.code, serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_nodes_that_start_at_once_on_an_empty_database_all_come_up() {
    let name = database();
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let homes: Vec<Home> = (0..10)
        .map(|_| Home::new(&["store.connections=4"]).with_database(shared().url(&name), anywhere))
        .collect();
    let mut programs: Vec<_> = homes.iter().map(Home::spawn).collect();
    for program in &mut programs {
        program.ready().await;
    }
    assert_eq!(shared().sql(&name, "select count(*) from node").unwrap(), "10");
    let (code, status) = migrate("status", &shared().url(&name)).await;
    assert_eq!((code, &status["inOrder"]), (Some(0), &Value::Bool(true)), "{status}");
    for program in programs {
        program.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_bring_it_up_to_date_at_once_one_takes_each_step() {
    let url = shared().url(&database());
    let (code, status) = migrate("status", &url).await;
    assert_eq!(code, Some(1), "{status}");
    let steps = status["steps"].as_array().unwrap().clone();
    assert!(steps.iter().all(|step| step["applied"] == false && step["appliedAt"].is_null()), "{status}");
    assert!(status["problem"].as_str().unwrap().contains("`posthaste migrate up`"), "{status}");
    let mut running = JoinSet::new();
    for _ in 0..5 {
        let url = url.clone();
        running.spawn(async move { migrate("up", &url).await });
    }
    let mut taken = 0;
    for (code, told) in running.join_all().await {
        assert_eq!(code, Some(0), "{told}");
        taken += told["taken"].as_array().unwrap().len();
    }
    assert_eq!(taken, steps.len());
    let (code, status) = migrate("status", &url).await;
    assert_eq!((code, &status["problem"]), (Some(0), &Value::Null), "{status}");
    for step in status["steps"].as_array().unwrap() {
        assert!(step["appliedAt"].as_str().unwrap().starts_with("20"), "{status}");
    }
}

/// The server refuses it, and so does whoever would bring it up to date; nothing in it is changed.
async fn refused(name: &str, words: &[&str]) {
    let url = shared().url(name);
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate", "up"]] {
        let ended = run(&[command, &["--store", &url]].concat()).await;
        assert_eq!(ended.code, Some(1), "{command:?}: {ended:?}");
        for word in words {
            assert!(ended.err.contains(word), "{command:?} does not say `{word}`: {}", ended.err);
        }
    }
    let (code, status) = migrate("status", &url).await;
    assert_eq!((code, &status["inOrder"]), (Some(1), &Value::Bool(false)), "{status}");
    let doctor = run(&["doctor", "--store", &url]).await;
    assert_eq!(doctor.code, Some(1));
    for word in words {
        assert!(status["problem"].as_str().unwrap().contains(word), "{status}");
        assert!(doctor.out.contains(word), "{doctor:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_newer_half_migrated_or_foreign_is_refused_by_every_command() {
    let name = database();
    let url = shared().url(&name);
    assert_eq!(migrate("up", &url).await.0, Some(0));
    shared().sql(&name, "insert into schema_migration values (99, '0099_later', 'x')").unwrap();
    refused(&name, &["has schema 99", "run the newer Posthaste again", "`posthaste migrate status`"]).await;
    let (_, status) = migrate("status", &url).await;
    assert_eq!(status["steps"].as_array().unwrap().last().unwrap()["name"], "0099_later");

    shared().sql(&name, "delete from schema_migration where version = 99").unwrap();
    shared().sql(&name, "update schema_migration set checksum = 'x' where version = 1").unwrap();
    refused(&name, &["half migrated", "0001_first", "Restore a backup", "`posthaste migrate up`"]).await;

    let name = database();
    shared().sql(&name, "create table queue (message text)").unwrap();
    refused(&name, &["tables of another program (queue)", "a database of its own"]).await;
    let tables = "select string_agg(relname, ' ') from pg_class where relnamespace = 'public'::regnamespace";
    assert_eq!(shared().sql(&name, tables).unwrap(), "queue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_make_tables_is_told_who_has_to() {
    let name = database();
    shared().sql("postgres", "create role guest login").unwrap();
    shared().sql(&name, "revoke create on schema public from public").unwrap();
    let url = shared().url(&name).replace("postgres@", "guest@");
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate", "up"]] {
        let ended = run(&[command, &["--store", &url]].concat()).await;
        assert_eq!(ended.code, Some(1), "{command:?}: {ended:?}");
        for word in ["step 0001_first", "permission denied", "owner", "`posthaste migrate up`"] {
            assert!(ended.err.contains(word), "{command:?} does not say `{word}`: {}", ended.err);
        }
    }
    shared().sql("postgres", &format!("alter database {name} owner to guest")).unwrap();
    shared().sql(&name, "alter schema public owner to guest").unwrap();
    assert_eq!(migrate("up", &url).await.0, Some(0));
}

/// The statements of the page about migrations by which the newest steps are taken back: on PostgreSQL, and in a file.
pub(crate) fn back() -> [String; 2] {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut blocks = page.split("```sql").skip(1).map(|sql| sql.split("```").next().unwrap().to_owned());
    [blocks.next().unwrap(), blocks.next().unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_can_be_taken_back_as_the_page_says_and_is_taken_again_beside_a_long_reader() {
    let name = database();
    let url = shared().url(&name);
    assert_eq!(migrate("up", &url).await.0, Some(0));
    shared().sql(&name, &back()[0]).unwrap();
    let (code, status) = migrate("status", &url).await;
    assert!(
        status["problem"].as_str().unwrap().contains("lacks step 0003_room_to_grow"),
        "{code:?} {status}"
    );
    // As pg_dump does, somebody reads the table in a transaction that lasts.
    let reading = "begin; lock table node in access share mode; select pg_sleep(12); commit";
    let reader = std::thread::spawn({
        let name = name.clone();
        move || shared().sql(&name, reading).unwrap()
    });
    let held = "select count(*) from pg_locks where relation = 'node'::regclass and granted and pid <> pg_backend_pid()";
    let holds = eventually(async || (shared().sql(&name, held).unwrap() != "0").then_some(()));
    holds.await.expect("the reader reads");
    let mut running = JoinSet::new();
    running.spawn(async move { migrate("up", &url).await });
    // Whoever wants the table meanwhile waits behind the step only shortly.
    while !reader.is_finished() {
        let asked = Instant::now();
        shared().sql(&name, "select count(*) from node").unwrap();
        assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    reader.join().unwrap();
    let (code, told) = running.join_next().await.unwrap().unwrap();
    assert_eq!((code, &told["taken"][0]["name"]), (Some(0), &Value::from("0003_room_to_grow")), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_for_another_one_says_so() {
    let name = database();
    let holder = std::thread::spawn({
        let name = name.clone();
        let holding = "begin; select pg_advisory_xact_lock(x'706f737468617374'::bigint); select pg_sleep(5)";
        move || shared().sql(&name, holding).unwrap()
    });
    let held = "select count(*) from pg_locks l join pg_database d on d.oid = l.database and datname = current_database()
        where locktype = 'advisory' and granted";
    let holds = eventually(async || (shared().sql(&name, held).unwrap() != "0").then_some(()));
    holds.await.expect("somebody changes the schema");
    let home = Home::new(&[]).with_database(shared().url(&name), "127.0.0.1:0".parse().unwrap());
    let mut program = home.spawn();
    let told =
        eventually(async || program.log().contains("another node is changing the schema").then_some(()));
    told.await.expect("the start says what it waits for");
    program.ready().await;
    holder.join().unwrap();
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_not_migrate_waits_for_whoever_does() {
    let url = shared().url(&database());
    let home = Home::new(&["store.migrate=false"]).with_database(url.clone(), "127.0.0.1:0".parse().unwrap());
    let mut program = home.spawn();
    let status = program.ended(crate::program::PATIENCE).await;
    assert_eq!(status.code(), Some(1));
    drop(program);
    let ended =
        run(&["serve", "--listen", "127.0.0.1:0", "--store", &url, "--set", "store.migrate=false"]).await;
    assert!(
        ended.err.contains("lacks step 0001_first") && ended.err.contains("`posthaste migrate up`"),
        "{ended:?}"
    );
    assert_eq!(migrate("up", &url).await.0, Some(0));
    home.start().await.stop().await;
}
