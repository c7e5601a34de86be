//! What the command line does without a server.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use posthaste::cli;
use posthaste_core::filter::List;
use serde_json::{Value, json};

use super::{finish, posthaste, run};

/// Every command as the words that call it.
fn commands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, words: &[String], all: &mut Vec<Vec<String>>) {
        all.push(words.to_vec());
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            walk(inner, &[words, &[inner.get_name().to_owned()]].concat(), all);
        }
    }
    let mut all = Vec::new();
    walk(&cli::command(), &[], &mut all);
    all
}

#[test]
fn the_flags_do_not_contradict_each_other() {
    cli::command().debug_assert();
}

#[tokio::test]
async fn every_command_has_help_with_examples() {
    let all = commands();
    assert!(all.len() > 30, "{all:?}");
    for words in all {
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        args.push("--help");
        let ended = run(&args).await;
        assert_eq!(ended.code, Some(0), "{words:?}");
        let called = format!("posthaste {}", words.join(" "));
        let (_, examples) =
            ended.out.split_once("Examples:").unwrap_or_else(|| panic!("{called} has no examples"));
        assert!(examples.contains(called.trim()), "{called} does not show itself: {examples}");
    }
}

/// An example that the program itself would refuse helps nobody.
#[test]
fn every_example_of_the_help_can_be_called() {
    let mut seen = 0;
    for words in commands() {
        let mut command = cli::command();
        let mut inner = &mut command;
        for word in &words {
            inner = inner.find_subcommand_mut(word).unwrap();
        }
        let help = inner.get_after_help().unwrap().to_string();
        for call in help.lines().filter_map(super::page::call) {
            let parsed = cli::command().try_get_matches_from(&call);
            assert!(parsed.is_ok(), "{words:?}: {call:?}: {}", parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

#[tokio::test]
async fn wrong_use_ends_with_2_and_says_what_is_right() {
    for (args, said) in [
        (&["send"][..], "--to"),
        (&["sned"], "send"),
        (&[], "Usage"),
        (&["notifications", "retry"], "<ID>"),
        (&["notifications", "list", "--state", "dead"], "deadLetter"),
        (&["notifications", "list", "--limit", "501"], "1..=500"),
        (&["notifications", "list", "--since", "yesterday"], "2026-04-15T10:45:30Z"),
        (&["send", "--to", "x", "--body", "a", "--json", "1"], "cannot be used with"),
        (&["send", "--to", "x", "--json", "{"], "--json is not JSON"),
        (&["send", "--to", "x", "--metadata", "{"], "--metadata is not JSON"),
        (&["send", "--to", "x", "--ttl", "500ms"], "at least one, such as 90s or 1h"),
        (&["serve", "--listen", "7780"], "localhost:7780"),
        (&["sink", "--listen", "127.0.0.256:1"], "localhost:7780"),
        (&["send", "--to", "x", "--header", "nothing"], "Name: value"),
        (&["keys", "create", "--name", "x"], "--tenant"),
        (&["keys", "create", "--name", "x", "--admin", "--tenant", "t"], "cannot be used with"),
        (&["policy", "show", "everything"], "channel:x"),
        (&["policy", "preview", "{"], "is not JSON"),
        (&["stats", "--url", "127.0.0.1:7780"], "such as http://127.0.0.1:7780"),
        (&["stats", "--key", "a\nb"], "key"),
    ] {
        let ended = run(args).await;
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains(said), "{args:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{args:?}");
    }
}

#[tokio::test]
async fn doctor_looks_at_the_proxy_and_the_providers_and_shows_no_password() {
    let set = |pair: &'static str| ["--set", pair];
    let args = [
        &["doctor"][..],
        &set("webhooks.proxy=http://me:hunter2@127.0.0.1:1"),
        &set("providers.texts.channel=sms"),
        &set("providers.texts.kind=log"),
        &set("providers.mail.channel=email"),
        &set("providers.mail.kind=smtp"),
    ];
    let ended = run(&args.concat()).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for said in [
        "cannot connect to http://127.0.0.1:1: ",
        "texts carries sms (kind log)",
        "mail carries email (kind smtp): this kind is not built yet",
    ] {
        assert!(ended.out.contains(said), "{}", ended.out);
    }
    assert!(!ended.out.contains("hunter2") && !ended.err.contains("hunter2"), "{ended:?}");
}

/// Each filter of a list in the API is a flag of the command for that list.
#[test]
fn every_filter_of_a_list_is_a_flag() {
    let lists = [
        (&["notifications", "list"][..], List::Notifications),
        (&["notifications", "failed"], List::Failed),
        (&["retry-queue"], List::RetryQueue),
        (&["dead-letters", "list"], List::DeadLetters),
    ];
    for (words, list) in lists {
        let mut command = cli::command();
        let mut inner = &mut command;
        for word in words {
            inner = inner.find_subcommand_mut(word).unwrap();
        }
        for parameter in list.parameters() {
            let kebab: String = parameter.chars().fold(String::new(), |mut text, character| {
                if character.is_ascii_uppercase() {
                    text.push('-');
                }
                text.push(character.to_ascii_lowercase());
                text
            });
            let has = |flag: &clap::Arg| {
                flag.get_long() == Some(&kebab)
                    || flag.get_short() == kebab.chars().next().filter(|_| kebab.len() == 1)
            };
            assert!(inner.get_arguments().any(has), "{words:?} has no flag for {parameter}");
        }
    }
}

#[tokio::test]
async fn without_a_server_it_says_which_was_tried_and_what_to_do() {
    // Bound and never listened to after the drop, so that nobody answers there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    for args in [
        &["stats"][..],
        &["send", "--to", "http://127.0.0.1:1/", "--body", "x"],
        &["dead-letters", "requeue", "dl_1", "dl_2"],
        &["notifications", "show", "ntf_1", "--watch"],
    ] {
        let ended = run(&[args, &["--url", &url]].concat()).await;
        assert_eq!(ended.code, Some(1), "{args:?}");
        assert!(ended.err.starts_with(&format!("error: cannot connect to {url}: ")), "{}", ended.err);
        assert!(ended.err.contains("posthaste dev") && ended.err.contains("--url"), "{}", ended.err);
        assert_eq!(ended.err.matches("cannot connect").count(), 1, "{}", ended.err);
    }
    let mut told = posthaste(&["doctor"]);
    told.env("POSTHASTE_URL", &url);
    let ended = finish(told, "").await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.out.starts_with(&format!("fail  server  cannot connect to {url}")), "{}", ended.out);
}

#[tokio::test]
async fn a_key_in_the_environment_is_not_shown_in_the_help() {
    let mut command = posthaste(&["stats", "--help"]);
    command.env("POSTHASTE_KEY", "phk_secret");
    let ended = finish(command, "").await;
    assert!(ended.out.contains("POSTHASTE_KEY") && !ended.out.contains("phk_secret"), "{}", ended.out);
}

async fn import(text: &str) -> (Value, String) {
    let ended = finish(posthaste(&["policy", "import", "-"]), text).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    (serde_json::from_str(&ended.out).unwrap(), ended.err)
}

#[tokio::test]
async fn the_configurations_of_other_systems_are_understood() {
    let zgw = r#"{"PollyConfig": {"AddRetryOnHttpStatusCodes": "404;...", "NotificatiesSender": {
            "Retry": {"ShouldRetryAfterHeader": true, "MaxRetryAttempts": 4, "BackoffType": "Exponential",
                "UseJitter": false, "Delay": "00:00:00.500"},
            "Timeout": {"Timeout": "00:00:30"}}},
        "Hangfire": {"RetrySchedule": "0.00:15;0.00:30;0.01:00;0.04:00;1.00:00", "ExpireFailedJobsScanAt": "05:00",
            "ExpireFailedJobAfter": "7.00:00"},
        "CircuitBreaker": {"FailureThreshold": 10, "BreakDuration": "00:05:00", "CacheExpirationMinutes": 10}}"#;
    let (imported, warnings) = import(zgw).await;
    assert_eq!(imported["policy"]["schedule"], json!(["15m", "30m", "1h", "4h", "1d"]), "{imported}");
    assert_eq!(imported["policy"]["quick"]["delay"], "500ms");
    let breaker =
        json!({"failureThreshold": 10, "firstBreak": "5m", "breakDuration": "5m", "forgetAfter": "10m"});
    assert_eq!(imported["breaker"], breaker);
    let ended = finish(posthaste(&["policy", "import", "-", "--toml"]), zgw).await;
    let sections: Vec<&str> = ended.out.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(sections, ["[policies.global]", "[breaker]", "[jobs]"], "{ended:?}");
    assert!(ended.out.contains("\nfirst_break = \"5m\"\n"), "{ended:?}");
    assert!(imported["jobs"]["expireFailed"]["cron"].is_string(), "{imported}");
    assert!(warnings.starts_with("warning: ") && warnings.contains("..."), "{warnings}");

    let (imported, _) = import("# notify\nNOTIFY_MAX_RETRIES=5\nNOTIFY_BACKOFF_BASE_SEC=30\n").await;
    assert_eq!(imported["policy"]["maxAttempts"], 5, "{imported}");
    assert_eq!(imported["policy"]["initialDelay"], "30s");

    let shumoul = r#"{"channel": 1, "enabled": true, "maxRetries": 5, "retryStrategy": 2, "initialDelaySeconds": 60,
        "maximumDelaySeconds": 3600, "backoffMultiplier": 2.0}"#;
    let (imported, said) = import(shumoul).await;
    assert_eq!(imported["policy"]["strategy"], "exponential", "{imported}");
    assert!(said.contains("channel:email"), "{said}");
}

#[tokio::test]
async fn what_is_no_configuration_is_refused_with_the_reason() {
    for (text, said) in [("{}", "PollyConfig"), ("{\"PollyConfig\": ", "not JSON"), ("", "PollyConfig")] {
        let ended = finish(posthaste(&["policy", "import", "-"]), text).await;
        assert_eq!(ended.code, Some(2), "{text}: {ended:?}");
        assert!(ended.err.contains(said), "{text}: {}", ended.err);
    }
    let ended = finish(posthaste(&["policy", "import", "-", "--toml", "--apply", "global"]), "{}").await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let ended = run(&["policy", "import", "/nowhere/policy.json"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.starts_with("error: cannot read /nowhere/policy.json: "), "{}", ended.err);
}

#[tokio::test]
async fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(&["completions", shell]).await;
        assert_eq!(ended.code, Some(0));
        assert!(ended.out.contains("dead-letters") && ended.out.contains("idempotency-key"), "{shell}");
    }
}

/// As with `posthaste completions bash | head -1`.
#[test]
fn an_output_that_is_closed_ends_it_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    // The script is longer than what a pipe and this reader hold, so it is still being written when they close.
    BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

#[tokio::test]
async fn an_outage_is_simulated_without_a_server() {
    let call =
        ["policy", "simulate", "notify", "--rate", "5", "--script", "ok for 5m, 503 for 10m, ok for 15m"];
    let ended = run(&call).await;
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    for part in ["9,000 arrived in 30m: ", "the breaker opened ", "the outage ended at 15m", "PARKED", "####"]
    {
        assert!(ended.out.contains(part), "{part}: {}", ended.out);
    }
    let json = [&call[..], &["--output", "json", "--seed", "3"]].concat();
    let (one, two) = (run(&json).await.out, run(&json).await.out);
    let told: Value = serde_json::from_str(&one).unwrap();
    assert_eq!((&told["arrived"], one == two), (&json!(9_000), true));
    for (wrong, said) in [
        (["--rate", "5", "--script", "503 for ever"], "script: column 9: `ever` is not a duration"),
        (["--rate", "0", "--script", "503 for 5m"], "rate: must be a number per second"),
    ] {
        let ended = run(&[&["policy", "simulate"], &wrong[..]].concat()).await;
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}
