//! The commands of docs/deploy.md, run against a server. Its curl lines are run with those of README.md (`api/docs.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use posthaste::http::openapi::document;

use super::read;
use crate::cli::page::call;
use crate::program::{Home, KEY};

#[tokio::test]
async fn the_commands_of_the_page_about_deployment_run() {
    let home = Home::new(&[]);
    let program = home.start().await;
    let (file, place) = (home.file().to_owned(), home.path().to_owned());
    let config = place.join("deploy.toml");
    fs::write(&config, format!("[store]\nurl = \"sqlite://{}\"\n", file.display())).unwrap();
    let names = [
        ("/var/lib/posthaste/posthaste.db", file.display().to_string()),
        ("/etc/posthaste/posthaste.toml", config.display().to_string()),
        ("/backup/", format!("{}/", place.display())),
    ];
    let page = read("docs/deploy.md");
    let calls: Vec<Vec<String>> = page.lines().filter_map(call).collect();
    let called: BTreeSet<&str> = calls.iter().map(|call| call[1].as_str()).collect();
    assert!(called.is_superset(&["backup", "doctor", "keys", "migrate"].into()), "{called:?}");
    for words in &calls {
        let real = words[1..]
            .iter()
            .map(|word| names.iter().fold(word.clone(), |word, (name, real)| word.replace(name, real)));
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command.args(real).current_dir(&place).env_clear();
        command.env("POSTHASTE_URL", format!("http://{}", program.address())).env("POSTHASTE_KEY", KEY);
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(ran.status.success(), "{words:?}: {said:?}");
    }
    assert!(place.join("posthaste-monday.db").exists());
    program.stop().await;
}

#[tokio::test]
async fn a_probe_needs_no_key_and_fails_where_nobody_answers() {
    let home = Home::new(&[]);
    let program = home.start().await;
    let url = format!("http://{}", program.address());
    let probe = async |of: &'static str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command.args(["doctor", "--probe", of, "--url", &url]).env_remove("POSTHASTE_KEY");
        tokio::task::spawn_blocking(move || command.output().unwrap().status.code()).await.unwrap()
    };
    assert_eq!((probe("healthz").await, probe("readyz").await), (Some(0), Some(0)));
    assert_eq!(probe("metrics").await, Some(2));
    program.stop().await;
    assert_eq!((probe("healthz").await, probe("readyz").await), (Some(1), Some(1)));
}

/// The page names addresses, settings and figures that change elsewhere.
#[test]
fn the_page_says_what_is_so() {
    let page = read("docs/deploy.md");
    let config = super::settings(&[]);
    let drain = config.server.drain_timeout.as_secs();
    assert!(page.contains(&format!("`server.drain_timeout` ({drain} s)")));
    let files = config.server.connections + 2 * config.engine.concurrency + 64;
    assert_eq!(files, 1_600);
    assert!(page.contains("so 1,600 as it comes") && page.contains(&config.server.listen.to_string()));
    for path in ["/healthz", "/readyz", "/metrics", "/docs"] {
        assert!(page.contains(path) && document().routes.find(&http::Method::GET, path).is_some(), "{path}");
    }
    let measured = read("docs/performance.md");
    for figure in ["108 MB", "112 MB", "55 MB", "620 bytes"] {
        assert!(page.contains(figure.trim_end_matches(" MB")) && measured.contains(figure), "{figure}");
    }
    assert!(page.contains(&format!("posthaste-{}-x86_64-linux.tar.gz", env!("CARGO_PKG_VERSION"))));
}
