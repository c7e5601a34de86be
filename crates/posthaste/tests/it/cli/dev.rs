//! `posthaste dev` as a newcomer meets it: what it prints is pasted into a shell.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PATIENCE, Talk, posthaste};

/// What `dev` said when it was ready.
struct Greeting {
    text: String,
}

impl Greeting {
    fn of(talk: &mut Talk) -> Self {
        let mut text = String::new();
        // The policy is the last thing that it prints.
        while !text.lines().any(|line| line.starts_with("  --policy ")) {
            let line = talk.line();
            text.push_str(&line);
            text.push('\n');
        }
        Self { text }
    }

    /// The block that begins with this, up to the next empty line.
    fn block(&self, start: &str) -> &str {
        let blocks = self.text.split("\n\n").map(str::trim_end);
        let mut found = blocks.filter(|block| block.starts_with(start));
        found.next().unwrap_or_else(|| panic!("no block begins with {start}:\n{}", self.text))
    }

    /// What a block prints in a shell.
    fn paste(&self, start: &str, id: &str) -> String {
        let script = self.block(start).replace("/ID", &format!("/{id}"));
        let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{script}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// The command that sends a text message.
    fn text_message(&self) -> String {
        let line = self.text.lines().find(|line| line.contains(r#""channel":"sms""#)).unwrap();
        self.text.split("\n\n").find(|block| block.contains(line)).unwrap().to_owned()
    }

    /// The status of the page that logs in by itself.
    fn log_in(&self) -> String {
        let line = self.text.lines().find(|line| line.starts_with("  pages ")).unwrap();
        let address = line.split_whitespace().nth(1).unwrap();
        let ran =
            Command::new("curl").args(["-s", "-o", "/dev/null", "-w", "%{http_code}", address]).output();
        String::from_utf8(ran.unwrap().stdout).unwrap()
    }

    fn shown(&self, id: &str) -> Value {
        let curl = "curl -s ";
        let look = self.text.lines().find(|line| line.starts_with(curl) && line.contains("/ID ")).unwrap();
        serde_json::from_str(&self.paste(look, id)).unwrap()
    }
}

fn dev(directory: &Path, more: &[&str]) -> tokio::process::Command {
    let mut command =
        posthaste(&[&["dev", "--listen", "127.0.0.1:0", "--sink", "127.0.0.1:0"], more].concat());
    command.current_dir(directory).env_remove("POSTHASTE_ADMIN_KEY");
    command
}

fn codes(shown: &Value) -> Vec<u64> {
    let attempts = shown["attempts"].as_array().unwrap();
    attempts.iter().map(|attempt| attempt["statusCode"].as_u64().unwrap()).collect()
}

#[test]
fn what_dev_prints_can_be_pasted_and_what_was_sent_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(dev(directory.path(), &[]));
    let greeting = Greeting::of(&mut talk);
    let taken: Value = serde_json::from_str(&greeting.paste("curl -s ", "")).unwrap();
    let id = taken["notificationId"].as_str().unwrap_or_else(|| panic!("{taken}")).to_owned();
    let until = Instant::now() + PATIENCE;
    let mut shown = greeting.shown(&id);
    while shown["state"] != "succeeded" {
        assert!(Instant::now() < until, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
        shown = greeting.shown(&id);
    }
    assert_eq!(codes(&shown), [503, 503, 200], "{shown}");
    greeting.paste(&greeting.text_message(), "");
    let mut printed = talk.line();
    while printed.is_empty() {
        printed = talk.line();
    }
    assert!(printed.starts_with("[log] sms to +15550100 (ntf_"), "{printed}");
    assert_eq!(talk.line(), "  hello");
    assert!(greeting.text.contains("/sink)"), "{}", greeting.text);
    assert_eq!((greeting.log_in(), greeting.log_in()), ("303".to_owned(), "403".to_owned()));
    let watched = greeting.paste("export ", "");
    assert_eq!(watched.lines().last(), Some("Delivered"), "{watched}");
    assert_eq!(watched.matches("HTTP 503").count(), 2, "{watched}");
    talk.signal("INT");
    let (code, said) = talk.end();
    assert_eq!(code, Some(0), "{said}");

    assert!(directory.path().join("posthaste-dev.db").exists());
    let mut talk = Talk::start(dev(directory.path(), &[]));
    let again = Greeting::of(&mut talk).shown(&id);
    assert_eq!((&again["state"], codes(&again)), (&shown["state"], codes(&shown)));
    talk.signal("INT");
    assert_eq!(talk.end().0, Some(0));
}

#[test]
fn dev_ends_with_code_1_when_a_loop_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = dev(directory.path(), &[]);
    command.env("POSTHASTE_PLANTED", "loop");
    let mut talk = Talk::start(command);
    Greeting::of(&mut talk);
    // The drain hands in an empty request, at which the loop panics.
    talk.signal("INT");
    let (code, said) = talk.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("part=\"accept\""), "{said}");
}

#[test]
fn dev_heeds_flags_over_variables_over_the_file_and_says_what_has_no_effect() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("posthaste.toml"),
        "[store]\nurl = \"sqlite://file.db\"\n[providers.mail]\nchannel = \"email\"\nkind = \"smtp\"\nurl = \"smtp://127.0.0.1:2525\"\n[security]\nallow_subnets = [\"10.0.0.0/8\"]\n",
    )
    .unwrap();
    let store_of = |variable: Option<&str>, more: &[&str]| {
        let mut command = dev(directory.path(), more);
        command.envs(variable.map(|url| ("POSTHASTE__STORE__URL", url)));
        let mut talk = Talk::start(command);
        let greeting = Greeting::of(&mut talk);
        // The sink on loopback can be reached, whatever else is allowed.
        assert!(greeting.paste("curl -s ", "").contains("queued"));
        talk.signal("INT");
        let (code, said) = talk.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("providers.mail has no effect"), "{said}");
        let line = greeting.text.lines().find_map(|line| line.strip_prefix("  store  ")).unwrap();
        line.to_owned()
    };
    assert_eq!(store_of(None, &[]), "file.db");
    assert_eq!(store_of(Some("sqlite://variable.db"), &[]), "variable.db");
    assert_eq!(store_of(Some("sqlite://variable.db"), &["--store", "flag.db"]), "flag.db");
}
