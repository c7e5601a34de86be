//! The built program and its master key: the file beside the store, refusals at the start, the log, a kill in a rotation.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::cli;
use super::program::{Home, KEY, PATIENCE, eventually, get, json as read, sink};

const SECRET: &str = "planted-in-the-program-0123456789";

fn key_file(home: &Home) -> std::path::PathBuf {
    let mut name = home.file().as_os_str().to_owned();
    name.push(".key");
    name.into()
}

fn webhook(to: &str) -> serde_json::Value {
    json!({"channel": "webhook", "to": to, "body": "x", "headers": {"authorization": format!("Bearer {SECRET}")},
        "policy": {"strategy": "fixed", "initialDelay": "20ms", "maxAttempts": 2, "jitter": "none", "quick": {"tries": 0}}})
}

/// The log of a program that is refused.
async fn refused(home: &Home) -> String {
    let mut program = home.spawn();
    let status = program.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(1));
    program.log()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_a_file_beside_the_store_that_belongs_to_it() {
    let sink = sink().await;
    let home = Home::new(&["log.level=debug"]);
    let program = home.start().await;
    let path = key_file(&home);
    assert!(program.log().contains("made the master key"), "{}", program.log());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let client = program.client();
    let answer = client.post("/v1/notifications", &webhook(&sink.url("/status/503"))).await.unwrap();
    let id = read(&answer, StatusCode::ACCEPTED)["notificationId"].as_str().unwrap().to_owned();
    let shown = eventually(async || {
        let shown = get(&client, &format!("/v1/notifications/{id}")).await;
        (shown["state"] == "deadLetter").then_some(shown)
    });
    assert_eq!(shown.await.unwrap()["headers"]["authorization"], "Bearer ***");
    let key = std::fs::read_to_string(&path).unwrap();
    let bytes = key.lines().last().unwrap().to_owned();
    let log = program.log();
    assert!(!log.contains(SECRET) && !log.contains(&bytes), "{log}");
    let settings = get(&client, "/v1/settings").await.to_string();
    assert!(!settings.contains(&bytes));
    program.stop().await;
    for ending in ["", "-wal"] {
        let mut file = home.file().as_os_str().to_owned();
        file.push(ending);
        let kept = std::fs::read(&file).unwrap_or_default();
        for secret in [SECRET, &bytes] {
            assert!(!kept.windows(secret.len()).any(|text| text == secret.as_bytes()), "{ending}");
        }
    }
    // Without its file the store is refused, and with another key as well.
    let aside = path.with_extension("aside");
    std::fs::rename(&path, &aside).unwrap();
    let log = refused(&home).await;
    assert!(log.contains("that file is gone") && log.contains("posthaste.db.key"), "{log}");
    assert!(!path.exists(), "no other key is made in its place");
    std::fs::write(&path, "ab".repeat(32)).unwrap();
    let log = refused(&home).await;
    assert!(log.contains("are sealed under the master key") && !log.contains("abababab"), "{log}");
    std::fs::remove_file(&path).unwrap();
    let home = home.with_variables(vec![("POSTHASTE_MASTER_KEY", bytes)]);
    home.start().await.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_is_killed_is_ended_by_the_next_one() {
    let sink = sink().await;
    let home = Home::new(&[]);
    let mut texts = vec![];
    for pause in [0, 1, 3, 6, 10, 15] {
        let program = home.start().await;
        let client = program.client();
        let answer = client.post("/v1/notifications", &webhook(&sink.url("/status/400"))).await.unwrap();
        texts.push(read(&answer, StatusCode::ACCEPTED)["notificationId"].as_str().unwrap().to_owned());
        let nothing = json!({});
        let rotating = client.post("/v1/master-key/rotate", &nothing);
        // Killed at another moment of it each time.
        let _ = tokio::time::timeout(Duration::from_millis(pause), rotating).await;
        program.kill();
    }
    let program = home.start().await;
    let client = program.client();
    let answer = client.post("/v1/master-key/rotate", &json!({})).await.unwrap();
    let to = read(&answer, StatusCode::OK)["to"].clone();
    program.stop().await;
    let keys = std::fs::read_to_string(key_file(&home)).unwrap();
    assert_eq!(keys.lines().filter(|line| !line.starts_with('#')).count(), 1, "one key is left");
    let program = home.start().await;
    let client = program.client();
    assert_eq!(get(&client, "/v1/master-key").await["known"], json!([to]));
    let before = sink.received();
    for id in &texts {
        let shown = get(&client, &format!("/v1/notifications/{id}")).await;
        let letter = shown["deadLetterId"].as_str().unwrap();
        let path = format!("/v1/dead-letters/{letter}/requeue");
        read(&client.post(&path, &json!({})).await.unwrap(), StatusCode::ACCEPTED);
    }
    program.rest().await;
    assert_eq!(sink.received() - before, texts.len() as u64, "each was sent with its header");
    program.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_say_where_the_key_is_and_change_it() {
    let home = Home::new(&[]);
    let program = home.start().await;
    let url = format!("http://{}", program.address());
    let ask = async |args: &[&str]| cli::run(&[args, &["--url", &url, "--key", KEY]].concat()).await;
    let key_file = key_file(&home).display().to_string();
    let doctor = ask(&["doctor"]).await;
    assert!(
        doctor.out.contains("sealed under the master key") && doctor.out.contains(&key_file),
        "{doctor:?}"
    );
    let rotated = ask(&["keys", "rotate-master"]).await;
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    assert!(rotated.out.contains("is in force; 0 data keys were wrapped again"), "{rotated:?}");
    let (store, copy) = (format!("sqlite://{}", home.file().display()), home.path().join("copy.db"));
    let backup = cli::run(&["backup", "--store", &store, "--to", copy.to_str().unwrap()]).await;
    assert_eq!(backup.code, Some(0), "{backup:?}");
    assert!(
        backup.err.contains("the master key is not in the copy") && backup.err.contains(&key_file),
        "{backup:?}"
    );
    program.stop().await;
}
