//! How `serve` starts: its surroundings, its first key and what it is told.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use posthaste::wiring::KEY_FILE;
use rusqlite::Connection;
use serde_json::Value;
use tokio::process::Command;

use super::{Talk, finish, posthaste};
use crate::program::Home;

/// Bytes that are no text.
fn no_text() -> &'static OsStr {
    OsStr::from_bytes(b"\xff\xfe")
}

/// `serve` on any port with a file in that directory, which is where it runs.
fn serve(directory: &Path, more: &[&str]) -> Command {
    let mut command =
        posthaste(&[&["serve", "--listen", "127.0.0.1:0", "--store", "sqlite://p.db"], more].concat());
    command.current_dir(directory).env_remove("POSTHASTE_ADMIN_KEY");
    command
}

#[test]
fn surroundings_that_are_no_text_are_no_reason_to_fail() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve(directory.path(), &[]);
    command.env("WHATEVER", no_text()).env(no_text(), "x");
    let mut talk = Talk::start(command);
    assert!(talk.line().starts_with("The first admin key is in /"));
    talk.signal("TERM");
    let (code, said) = talk.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn the_variables_of_the_notify_service_are_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve(directory.path(), &[]);
    command.env("NOTIFY_MAX_RETRIES", "7");
    let mut talk = Talk::start(command);
    assert!(talk.line().starts_with("The first admin key is in /"));
    talk.signal("TERM");
    let (code, said) = talk.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the policy of the scope global is set by NOTIFY_MAX_RETRIES: {"), "{said}");
    assert!(said.contains("\"maxAttempts\":7"), "{said}");
}

#[tokio::test]
async fn a_setting_that_is_no_text_is_told_as_a_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = serve(directory.path(), &[]);
    command.env("POSTHASTE__ENGINE__NAME", no_text());
    let ended = finish(command, "").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.err, "error: variable POSTHASTE__ENGINE__NAME: it is not UTF-8 text\n");
}

#[tokio::test]
async fn an_admin_key_that_no_request_can_carry_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let long = "0123456789abcdef0123456789abcdef";
    let cases = [
        ("short".to_owned(), "at least 32"),
        (format!("{long}\n"), "begins or ends with a space or a line break"),
        (format!(" {long}"), "begins or ends with a space or a line break"),
        (format!("{long}\u{e9}"), "contains `\\u{e9}`"),
        (format!("{long}\t{long}"), "contains `\\t`"),
    ];
    for (key, said) in cases {
        let mut command = serve(directory.path(), &[]);
        command.env("POSTHASTE_ADMIN_KEY", &key);
        let ended = finish(command, "").await;
        assert_eq!(ended.code, Some(1), "{key:?}: {ended:?}");
        assert!(ended.err.contains(said), "{key:?}: {}", ended.err);
        assert!(!ended.err.contains(long), "the key is not to be shown: {}", ended.err);
    }
    let mut command = serve(directory.path(), &[]);
    command.env("POSTHASTE_ADMIN_KEY", no_text());
    let ended = finish(command, "").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("POSTHASTE_ADMIN_KEY is not text"), "{}", ended.err);
}

/// The key in the file that a first start writes.
fn first_key(directory: &Path) -> String {
    let text = std::fs::read_to_string(directory.join(KEY_FILE)).unwrap();
    text.strip_suffix('\n').unwrap().to_owned()
}

/// Logs and pipes go where many can read them, and programs read logs line by line.
#[test]
fn the_first_key_is_in_a_file_of_its_owner_and_neither_in_the_logs_nor_in_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(serve(directory.path(), &["--set", "log.format=json"]));
    let line = talk.line();
    let file = directory.path().join(KEY_FILE);
    let shown = file.display();
    assert_eq!(
        line,
        format!(
            "The first admin key is in {shown}. Commands use it after: export POSTHASTE_KEY=file:{shown}"
        )
    );
    let key = first_key(directory.path());
    assert!(key.starts_with("phk_") && key.len() == 68, "{key}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    talk.signal("TERM");
    let mut rest = String::new();
    talk.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    let (code, said) = talk.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains(&key) && said.contains("posthaste-admin.key"), "{said}");
    for line in said.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(event["message"].is_string(), "{line}");
    }
    assert!(said.contains("ready"), "{said}");
    let mut again = Talk::start(serve(directory.path(), &[]));
    again.signal("TERM");
    let mut rest = String::new();
    again.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "the key is made once");
    assert_eq!(first_key(directory.path()), key);
}

/// The key is stored by then, so an error would leave a node that ends for nothing.
#[test]
fn a_first_start_whose_stdout_is_closed_serves_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = serve(directory.path(), &[]).into_std().spawn().unwrap();
    drop(child.stdout.take());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let is_ready = said.by_ref().lines().any(|line| line.unwrap().contains("ready"));
    let kill = format!("kill -TERM {}", child.id());
    std::process::Command::new("sh").args(["-c", &kill]).status().unwrap();
    said.read_to_string(&mut String::new()).unwrap();
    assert_eq!((child.wait().unwrap().code(), is_ready), (Some(0), true));
    assert!(first_key(directory.path()).starts_with("phk_"));
}

/// `script` runs a command with a terminal.
#[test]
fn the_first_key_is_printed_to_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_posthaste");
    let serve = format!("exec {program} serve --listen 127.0.0.1:0 --store sqlite://p.db 2>log");
    let mut command = Command::new("script");
    command.args(["-qec", &serve, "/dev/null"]).current_dir(directory.path());
    command.env_remove("POSTHASTE_ADMIN_KEY").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut talk = Talk::start(command);
    let line = talk.line();
    assert_eq!(line, format!("admin key, shown this once: {}", first_key(directory.path())));
    assert!(talk.line().starts_with("The first admin key is in /"));
}

fn kept_keys(directory: &Path) -> u32 {
    let store = Connection::open(directory.join("p.db")).unwrap();
    store.query_row("select count(*) from setting where name like 'key:%'", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_key_file_that_exists_or_cannot_be_written_ends_the_start_and_nothing_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(KEY_FILE);
    std::fs::write(&file, "what was there").unwrap();
    let ended = finish(serve(directory.path(), &[]), "").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("posthaste-admin.key exists already") && ended.err.contains("POSTHASTE_ADMIN_KEY"),
        "{}",
        ended.err
    );
    assert_eq!(
        (std::fs::read_to_string(&file).unwrap().as_str(), kept_keys(directory.path())),
        ("what was there", 0)
    );
    // A link to nowhere counts as a file that exists.
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/nowhere/key", &file).unwrap();
    let ended = finish(serve(directory.path(), &[]), "").await;
    assert_eq!((ended.code, kept_keys(directory.path())), (Some(1), 0), "{ended:?}");
    std::fs::remove_file(&file).unwrap();
    let mut talk = Talk::start(serve(directory.path(), &[]));
    assert!(talk.line().starts_with("The first admin key is in /"));
    talk.signal("TERM");
    assert_eq!((talk.end().0, kept_keys(directory.path())), (Some(0), 1));
}

#[tokio::test]
async fn the_admin_key_and_that_of_a_command_may_stand_in_a_file_or_in_a_variable() {
    let home = Home::new(&[]);
    let (file, key) = (home.path().join("secret"), "an-admin-key-of-32-characters-or-more");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let named = format!("file:{}", file.display());
    for given in [named.clone(), "env:THE_KEY".to_owned()] {
        let variables = vec![("POSTHASTE_ADMIN_KEY", given), ("THE_KEY", key.to_owned())];
        let home = Home::new(&[]).with_variables(variables);
        let mut program = home.spawn();
        program.listens().await;
        let url = format!("http://{}", program.address());
        for (flag, code) in
            [(key, 0), (named.as_str(), 0), ("env:THE_KEY", 0), ("env:NO_SUCH_KEY", 1), ("wrong", 1)]
        {
            let mut command = posthaste(&["stats", "--url", &url, "--key", flag]);
            command.env("THE_KEY", key);
            let ended = finish(command, "").await;
            assert_eq!(ended.code, Some(code), "{flag}: {ended:?}");
            if flag == "env:NO_SUCH_KEY" {
                assert_eq!(
                    ended.err,
                    "error: --key or POSTHASTE_KEY names the variable NO_SUCH_KEY, which is not set, or not text\n"
                );
            }
        }
        let mut command = posthaste(&["stats", "--url", &url]);
        command.env("POSTHASTE_KEY", &named);
        assert_eq!(finish(command, "").await.code, Some(0));
    }
    for (given, said) in [
        ("file:/nowhere/key", "POSTHASTE_ADMIN_KEY names the file /nowhere/key, which cannot be read"),
        ("env:NO_SUCH_KEY", "POSTHASTE_ADMIN_KEY names the variable NO_SUCH_KEY, which is not set"),
    ] {
        let mut command = serve(home.path(), &[]);
        command.env("POSTHASTE_ADMIN_KEY", given);
        let ended = finish(command, "").await;
        assert!(ended.code == Some(1) && ended.err.contains(said), "{ended:?}");
    }
}

#[tokio::test]
async fn a_wrong_flag_is_wrong_use_and_a_wrong_file_or_variable_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    std::fs::write(&file, "[engine]\nconcurrency = 0\n").unwrap();
    let file = file.to_str().unwrap();
    for command in ["serve", "dev"] {
        for (args, code) in [
            (&["--set", "engine.concurency=5"][..], 2),
            (&["--set", "engine.concurrency=many"], 2),
            (&["--set", "engine.concurrency"], 2),
            (&["--config", file], 1),
            (&["--config", "/nowhere/posthaste.toml"], 1),
        ] {
            let mut command = posthaste(&[&[command], args].concat());
            command.current_dir(directory.path());
            let ended = finish(command, "").await;
            assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
            assert!(ended.err.starts_with("error: "), "{args:?}: {}", ended.err);
        }
        let mut command = posthaste(&[command]);
        command.current_dir(directory.path()).env("POSTHASTE__ENGINE__CONCURRENCY", "0");
        let ended = finish(command, "").await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains("variable POSTHASTE__ENGINE__CONCURRENCY"), "{}", ended.err);
    }
}

#[tokio::test]
async fn a_node_is_called_as_it_is_told_or_else_as_its_host() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (settings, wanted) in [(&[][..], host.trim()), (&["engine.name=east-1"], "east-1")] {
        let home = Home::new(settings);
        // A crash leaves the node where it can be seen.
        home.start().await.kill();
        let kept = Connection::open(home.file()).unwrap();
        let name: String = kept.query_row("select name from node", [], |row| row.get(0)).unwrap();
        assert_eq!(name, wanted);
    }
}

/// A store is a path or a URL for every command, and the start says what runs.
#[test]
fn serve_and_dev_take_the_same_stores_and_names_to_listen_on_and_say_what_runs() {
    for (command, store) in [
        (&["serve"][..], "p.db"),
        (&["serve"], "sqlite://p.db"),
        (&["dev", "--sink", "localhost:0"], "p.db"),
        (&["dev", "--sink", "localhost:0"], "sqlite://p.db"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let log = ["--listen", "localhost:0", "--store", store, "--set", "log.level=info"];
        let mut start = posthaste(&[command, &log].concat());
        start.current_dir(directory.path()).env_remove("POSTHASTE_ADMIN_KEY");
        let mut talk = Talk::start(start);
        // Both print something once they are ready.
        assert!(!talk.line().is_empty());
        talk.signal("TERM");
        let (code, said) = talk.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(directory.path().join("p.db").exists(), "{command:?} {store}");
        let version = env!("CARGO_PKG_VERSION");
        let line = format!("started version=\"{version}\" store=\"SQLite\" url=p.db node=1");
        assert!(said.contains(&line), "{command:?} {store}: {said}");
        if command[0] == "serve" {
            assert!(said.contains("ready address=127.0.0.1:"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_name_without_an_address_cannot_be_listened_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = posthaste(&["serve", "--listen", "no-such-host.invalid:0", "--store", "p.db"]);
    command.current_dir(directory.path());
    let ended = finish(command, "").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("no-such-host.invalid:0: the name cannot be looked up"), "{}", ended.err);
}
