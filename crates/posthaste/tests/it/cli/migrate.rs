//! `posthaste migrate` on an SQLite file.

use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use super::{Ended, finish, posthaste};
use crate::postgres::schema::back;
use crate::program::Home;

async fn migrate(home: &Home, what: &str, more: &[&str]) -> Ended {
    let store = format!("sqlite://{}", home.file().display());
    let mut command = posthaste(&[&["migrate", what, "--store", &store], more].concat());
    command.current_dir(home.path());
    finish(command, "").await
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_look_at_the_schema_changes_nothing_and_up_takes_every_step_once() {
    let home = Home::new(&[]);
    let ended = migrate(&home, "status", &[]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.out.contains("1     0001_first") && ended.out.contains("`posthaste migrate up`"),
        "{ended:?}"
    );
    assert!(names(home.path()).is_empty(), "{:?}", names(home.path()));

    let ended = migrate(&home, "up", &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("took step 1, 0001_first\n"), "{ended:?}");
    assert_eq!(names(home.path()), ["posthaste.db"]);
    let made = std::fs::read(home.file()).unwrap();

    let ended = migrate(&home, "up", &[]).await;
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "in order: there was no step to take"));
    let ended = migrate(&home, "status", &["--output", "json"]).await;
    let status: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, &status["inOrder"]), (Some(0), &Value::Bool(true)), "{status}");
    assert!(status["steps"].as_array().unwrap().iter().all(|step| step["applied"] == true), "{status}");
    assert_eq!(
        (names(home.path()), std::fs::read(home.file()).unwrap()),
        (vec!["posthaste.db".to_owned()], made)
    );
}

#[tokio::test]
async fn steps_can_be_taken_back_as_the_page_says_and_are_taken_again() {
    let home = Home::new(&[]);
    assert_eq!(migrate(&home, "up", &[]).await.code, Some(0));
    Connection::open(home.file()).unwrap().execute_batch(&back()[1]).unwrap();
    let ended = migrate(&home, "status", &[]).await;
    assert!(ended.code == Some(1) && ended.out.contains("lacks step 0003_room_to_grow"), "{ended:?}");
    let ended = migrate(&home, "up", &[]).await;
    assert!(ended.code == Some(0) && ended.out.starts_with("took step 3, 0003_room_to_grow\n"), "{ended:?}");
    home.start().await.stop().await;
}

#[tokio::test]
async fn a_file_in_use_can_be_looked_at_and_is_in_order() {
    let home = Home::new(&[]);
    let program = home.start().await;
    for what in ["status", "up"] {
        assert_eq!(migrate(&home, what, &[]).await.code, Some(0), "{what}");
    }
    program.stop().await;
}

#[tokio::test]
async fn a_file_that_is_newer_or_foreign_is_refused_with_what_helps() {
    let home = Home::new(&[]);
    assert_eq!(migrate(&home, "up", &[]).await.code, Some(0));
    Connection::open(home.file()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    for what in ["status", "up"] {
        let Ended { code, out, err } = migrate(&home, what, &[]).await;
        let said = if what == "status" { out } else { err };
        assert_eq!(code, Some(1), "{what}: {said}");
        assert!(said.contains("has schema 99") && said.contains("run the newer Posthaste"), "{what}: {said}");
    }
    std::fs::remove_file(home.file()).unwrap();
    Connection::open(home.file()).unwrap().execute_batch("create table mine (x)").unwrap();
    for what in ["status", "up"] {
        let Ended { code, out, err } = migrate(&home, what, &[]).await;
        let said = if what == "status" { out } else { err };
        assert_eq!(code, Some(1), "{what}: {said}");
        assert!(said.contains("of another program"), "{what}: {said}");
    }
}

#[tokio::test]
async fn a_file_that_nobody_uses_is_rewritten_without_its_free_space() {
    let home = Home::new(&[]);
    let missing = migrate(&home, "vacuum", &[]).await;
    assert!(missing.code == Some(1) && missing.err.contains("does not exist"), "{missing:?}");
    assert!(!home.file().exists());
    // A file of a version that gave no space back.
    let conn = Connection::open(home.file()).unwrap();
    conn.execute_batch("pragma auto_vacuum = none; vacuum; pragma application_id = 1886352244").unwrap();
    drop(conn);
    assert_eq!(migrate(&home, "up", &[]).await.code, Some(0));
    let conn = Connection::open(home.file()).unwrap();
    let fill = "with recursive number (n) as (select 1 union all select n + 1 from number where n < 200)
        insert into setting (name, value) select 'x' || n, hex(zeroblob(5000)) from number";
    conn.execute_batch(&format!("{fill}; delete from setting")).unwrap();
    let kept = |conn: &Connection| -> (i64, i64) {
        let pragma = |name: &str| conn.pragma_query_value(None, name, |row| row.get(0)).unwrap();
        (pragma("freelist_count"), pragma("auto_vacuum"))
    };
    assert!(kept(&conn).0 > 100 && kept(&conn).1 == 0, "{:?}", kept(&conn));
    drop(conn);
    let size = home.file().metadata().unwrap().len();
    let program = home.start().await;
    let in_use = migrate(&home, "vacuum", &[]).await;
    assert!(in_use.code == Some(1) && in_use.err.contains("in use by another process"), "{in_use:?}");
    program.stop().await;
    let done = migrate(&home, "vacuum", &["--output", "json"]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let about: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(about["bytesBefore"], size);
    assert_eq!(about["bytesAfter"], home.file().metadata().unwrap().len());
    assert!(about["bytesAfter"].as_u64() < Some(size / 2), "{about}");
    assert_eq!(kept(&Connection::open(home.file()).unwrap()), (0, 2));
    home.start().await.stop().await;
}

#[tokio::test]
async fn a_server_that_may_not_migrate_makes_no_file() {
    let home = Home::new(&["store.migrate=false"]);
    let mut program = home.spawn();
    assert_eq!(program.ended(super::PATIENCE).await.code(), Some(1));
    drop(program);
    assert!(!home.file().exists());
    assert_eq!(migrate(&home, "up", &[]).await.code, Some(0));
    home.start().await.stop().await;
}
