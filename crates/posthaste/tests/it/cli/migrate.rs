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
async fn a_server_that_may_not_migrate_makes_no_file() {
    let home = Home::new(&["store.migrate=false"]);
    let mut program = home.spawn();
    assert_eq!(program.ended(super::PATIENCE).await.code(), Some(1));
    drop(program);
    assert!(!home.file().exists());
    assert_eq!(migrate(&home, "up", &[]).await.code, Some(0));
    home.start().await.stop().await;
}
