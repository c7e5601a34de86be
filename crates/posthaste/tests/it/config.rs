//! Settings: every source, their order, and the page about them.

mod mistakes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posthaste::config::{
    Config, DEFAULTS, FILE_NAME, LogFormat, LogLevel, RateAnswer, SettingSource, Sources, StoreUrl,
    Synchronous,
};
use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel;
use posthaste_core::job::Schedule;
use posthaste_core::policy::Scope;
use posthaste_core::rate::Rate;
use serde_json::json;
use tempfile::TempDir;

/// The configuration of the contract, as it is written there.
const CONTRACT: &str = r#"
[server]
listen = "127.0.0.1:7780"
[store]
url = "sqlite://posthaste.db"  # what follows is a path, relative or absolute; or postgres://..
unsafe_durability = false
[engine]
concurrency = 256
longest_timeout = "60s"        # what a message, template or tenant may ask for
[security]
allow_subnets = []             # the SSRF guard's exceptions; `dev` allows loopback; configured providers are not guarded
[breaker]
failure_threshold = 10
first_break = "10s"
break_duration = "5m"
forget_after = "10m"
[destinations."https://api.example.com:443"]
rate = 50                      # a second, over all nodes
concurrency = 20
[rate_limit]
per_tenant_per_minute = 0      # 0 = off
per_module_per_minute = 0
answer = "202"                 # or "429"
[queue]
limit = 0                      # 0 = no limit
[retention]                    # the periods of section 6
[policies.webhook]             # a channel's policy, fields in snake_case
preset = "webhook"
[providers.mail]               # any name; several per channel are ordered by `priority`
channel = "email"
kind = "smtp"                  # smtp:// plain with opportunistic STARTTLS, smtps:// TLS
url = "smtp://127.0.0.1:2525"
from = "Posthaste <no-reply@example.com>"
priority = 1
[providers.texts]
channel = "sms"
kind = "twilio"
account_sid = ".."
auth_token = ".."
from = "+15550100"
base_url = ".."                # settable for every HTTP provider
[providers.bot]
channel = "telegram"
kind = "telegram"
token = ".."
"#;

/// A directory with a configuration file in it.
fn directory(text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(FILE_NAME), text).unwrap();
    directory
}

fn pairs(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn load(file: &str, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, String> {
    load_pairs(file, pairs(variables), pairs(flags))
}

fn load_pairs(
    file: &str,
    variables: Vec<(String, String)>,
    flags: Vec<(String, String)>,
) -> Result<Config, String> {
    let directory = directory(file);
    let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let directory_path = directory.path().to_owned();
    let sources = Sources { directory: directory_path, variables, flags, ..Sources::default() };
    let place = directory.path().join(FILE_NAME).display().to_string();
    Config::load(sources).map_err(|error| error.to_string().replace(&place, "FILE"))
}

fn layer(config: &Config, scope: &str) -> serde_json::Value {
    let scope: Scope = scope.parse().unwrap();
    serde_json::to_value(config.policies.layer(&scope).unwrap()).unwrap()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_program_that_is_told_nothing_has_the_defaults_of_the_contract() {
    let config = Config::defaults();
    assert_eq!(config.server.listen, SocketAddr::from(([127, 0, 0, 1], 7780)).into());
    assert_eq!(config.server.connections, 1024);
    let server = &config.server;
    let timeouts = [server.header_timeout, server.body_timeout, server.idle_timeout, server.drain_timeout];
    assert_eq!(timeouts, [10, 30, 60, 30].map(secs));
    assert_eq!(config.store.url, StoreUrl::Sqlite("posthaste.db".into()));
    let store = &config.store;
    assert_eq!((store.unsafe_durability, store.synchronous, store.migrate), (false, Synchronous::Full, true));
    let waits = [store.connect_timeout, store.statement_timeout, store.lock_timeout];
    assert_eq!((store.connections, waits, store.prepared), (10, [5, 10, 5].map(secs), true));
    assert_eq!(store.root_certificates, None);
    assert_eq!((config.engine.concurrency, &config.engine.name), (256, &None));
    assert_eq!((config.engine.longest_timeout, config.policies.longest_timeout()), (secs(60), secs(60)));
    assert!(config.security.allow_subnets.is_empty());
    assert_eq!(config.breaker, BreakerSettings::default());
    let breaker = &config.breaker;
    let figures =
        (breaker.failure_threshold, breaker.first_break, breaker.break_duration, breaker.forget_after);
    assert_eq!(figures, (10, secs(10), secs(300), secs(600)));
    assert!(config.destinations.is_empty());
    assert_eq!(config.rate_limit.answer, RateAnswer::Accepted);
    assert_eq!(config.retention.periods, posthaste_core::retention::Periods::default());
    assert_eq!(config.jobs.dead_letter_cleanup.as_ref().map(Schedule::as_str), Some("0 2 * * *"));
    assert_eq!((&config.jobs.expire_failed, config.jobs.expire_failed_after), (&None, secs(7 * 86_400)));
    assert!(!config.metrics.require_key);
    assert_eq!((config.log.level, config.log.format), (LogLevel::Info, LogFormat::Text));
    assert!(
        config.policies.scopes().is_empty() && config.overrides.is_empty() && config.providers.is_empty()
    );
    assert_eq!(config.warnings, Vec::<String>::new());
    let nothing =
        Config::load(Sources { directory: tempfile::tempdir().unwrap().path().into(), ..Sources::default() });
    assert_eq!(nothing, Ok(config));
}

#[test]
fn the_configuration_of_the_contract_loads_with_warnings_about_what_is_not_built() {
    let config = load(CONTRACT, &[], &[]).unwrap();
    let about: Vec<_> = config.warnings.iter().map(|warning| warning.split(": ").nth(1).unwrap()).collect();
    assert_eq!(
        about,
        ["providers.bot has no effect", "providers.mail has no effect", "providers.texts has no effect"]
    );
    assert_eq!(layer(&config, "channel:webhook"), json!({"preset": "webhook"}));
    let texts = &config.providers["texts"];
    assert_eq!((texts.channel, texts.kind.as_str(), texts.priority), (Channel::Sms, "twilio", 1));
    assert_eq!(texts.auth_token.as_ref().unwrap().reveal(), "..");
}

#[test]
fn the_samples_in_the_comments_of_the_default_file_can_be_used() {
    let (_, samples) = DEFAULTS.split_once("# Policies:").unwrap();
    let is_setting = |line: &&str| {
        (line.starts_with('[') && line.ends_with(']'))
            || line.split_once(" = ").is_some_and(|(key, _)| !key.contains([' ', ',']))
    };
    let lines: Vec<&str> =
        samples.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_setting).collect();
    let config = load(&lines.join("\n"), &[], &[]).unwrap();
    assert_eq!(config.providers.len(), 4);
    assert_eq!(config.overrides.len(), 1);
    assert_eq!(layer(&config, "channel:webhook")["quick"]["statusCodes"], json!([404]));
}

#[test]
fn the_file_may_give_a_tenant_a_longer_timeout_than_the_tenant_may_ask_for() {
    let file = "[engine]\nlongest_timeout = \"20s\"\n[policies.\"tenant:acme\"]\ntimeout = \"10m\"";
    let config = load(file, &[], &[]).unwrap();
    assert_eq!((config.engine.longest_timeout, config.policies.longest_timeout()), (secs(20), secs(20)));
    let own = serde_json::from_value(json!({"timeout": "30s"})).unwrap();
    let timeout = |tenant, own| config.policies.resolve(Channel::Webhook, tenant, None, own).timeout;
    assert_eq!((timeout("acme", None), timeout("acme", Some(&own))), (secs(600), secs(20)));
    for (least, most) in [("1s", 1), ("10m", 600)] {
        let config = load("", &[("POSTHASTE__ENGINE__LONGEST_TIMEOUT", least)], &[]).unwrap();
        assert_eq!(config.policies.longest_timeout(), secs(most));
    }
}

#[test]
fn flags_go_over_variables_over_the_file_over_what_is_built_in() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\nconnections = 11\nidle_timeout = 11";
    let variables = [("POSTHASTE__SERVER__LISTEN", "127.0.0.1:2"), ("POSTHASTE__server__Connections", "22")];
    let config = load(file, &variables, &[("server.listen", "127.0.0.1:3")]).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.connections, 22);
    assert_eq!(config.server.idle_timeout, secs(11));
    assert_eq!(config.server.body_timeout, secs(30));
}

#[test]
fn variables_and_flags_are_text_whatever_the_key_means() {
    let variables = [
        ("POSTHASTE__SECURITY__ALLOW_SUBNETS", "10.0.0.0/8, 127.0.0.1"),
        ("POSTHASTE__METRICS__REQUIRE_KEY", "true"),
        ("POSTHASTE__ENGINE__NAME", "42"),
        ("POSTHASTE__SERVER__DRAIN_TIMEOUT", "5"),
        ("POSTHASTE__LOG__FORMAT", "json"),
        ("POSTHASTE__STORE__URL", "sqlite:///var/x.db"),
        ("POSTHASTE__POLICIES__WEBHOOK__MAX_ATTEMPTS", "7"),
        ("POSTHASTE__POLICIES__WEBHOOK__SCHEDULE", "1m, 5m"),
        ("POSTHASTE__POLICIES__WEBHOOK__DEAD_LETTER", "false"),
        ("POSTHASTE__POLICIES__WEBHOOK__QUICK__STATUS_CODES", "404,409"),
        ("POSTHASTE__POLICIES__WEBHOOK__JITTER__PERCENT", "10"),
        ("POSTHASTE__POLICIES__TENANT:Acme__TIMEOUT", "5"),
        ("POSTHASTE__OVERRIDES__WEBHOOK__404", "rate_limit"),
    ];
    let config = load("", &variables, &[("log.level", "debug")]).unwrap();
    let subnets: Vec<_> = config.security.allow_subnets.iter().map(ToString::to_string).collect();
    assert_eq!(subnets, ["10.0.0.0/8", "127.0.0.1/32"]);
    assert!(config.metrics.require_key);
    assert_eq!(config.engine.name.as_deref(), Some("42"));
    assert_eq!(config.server.drain_timeout, secs(5));
    assert_eq!((config.log.level, config.log.format), (LogLevel::Debug, LogFormat::Json));
    assert_eq!(config.store.url, StoreUrl::Sqlite("/var/x.db".into()));
    let webhook = json!({"maxAttempts": 7, "schedule": ["1m", "5m"], "deadLetter": false,
        "quick": {"statusCodes": [404, 409]}, "jitter": {"percent": 10}});
    assert_eq!(layer(&config, "channel:webhook"), webhook);
    assert_eq!(layer(&config, "tenant:Acme"), json!({"timeout": "5s"}));
    assert_eq!(
        serde_json::to_value(&config.overrides[&Channel::Webhook]).unwrap(),
        json!({"404": "rateLimit"})
    );
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn variables_that_are_not_settings_are_left_alone() {
    let variables = [
        ("POSTHASTE_ADMIN_KEY", "x"),
        ("POSTHASTE_URL", "x"),
        ("POSTHASTE_KEY", "x"),
        ("POSTHASTE_SERVICE_HOST", "10.0.0.1"),
        ("PATH", "/bin"),
    ];
    assert_eq!(load("", &variables, &[]), Ok(Config::defaults()));
}

#[test]
fn a_policy_takes_fields_of_several_sources_and_the_stronger_way_to_say_the_same() {
    let file = "[policies.global]\ntimeout = \"4s\"\n[policies.\"tenant:Acme\"]\nmax_retries = 4\njitter = \"full\"\n\
                [policies.\"template:a.b\"]\nmaxAttempts = 3\n[policies.\"channel:webhook\"]\nmultiplier = 3\n\
                [policies.\"template:*/a.b\"]\ntimeout = \"2s\"\n[policies.\"template:acme/a.b\"]\nmax_attempts = 2";
    let variables = [
        ("POSTHASTE__POLICIES__TENANT:ACME__MAX_ATTEMPTS", "9"),
        ("POSTHASTE__POLICIES__TENANT:ACME__JITTER__PLUS", "1s"),
        ("POSTHASTE__POLICIES__GLOBAL__DEAD_LETTER", "false"),
        ("POSTHASTE__POLICIES__WEBHOOK__STRATEGY", "fixed"),
    ];
    let config = load(file, &variables, &[]).unwrap();
    assert_eq!(layer(&config, "global"), json!({"timeout": "4s", "deadLetter": false}));
    assert_eq!(layer(&config, "tenant:Acme"), json!({"maxAttempts": 9, "jitter": {"plus": "1s"}}));
    assert_eq!(layer(&config, "template:a.b"), json!({"maxAttempts": 3, "timeout": "2s"}));
    assert_eq!(layer(&config, "template:acme/a.b"), json!({"maxAttempts": 2}));
    assert_eq!(layer(&config, "channel:webhook"), json!({"multiplier": 3, "strategy": "fixed"}));
}

#[test]
fn a_master_key_has_a_variable_of_its_own_and_is_never_shown() {
    let (one, two) = ("ab".repeat(32), "cd".repeat(32));
    let both = format!("{one}, {two}");
    let variables =
        [("POSTHASTE_MASTER_KEY", both.as_str()), ("POSTHASTE__SECURITY__SENSITIVE_HEADERS", "X-A,x-b")];
    let config = load("", &variables, &[]).unwrap();
    let keys: Vec<String> = config.security.master_keys.iter().map(|key| key.to_hex().to_string()).collect();
    assert_eq!(keys, [one.as_str(), two.as_str()]);
    assert_eq!(config.security.sensitive_headers, ["X-A", "x-b"]);
    let shown = config.settings.iter().find(|one| one.key == "security.master_key").unwrap();
    assert_eq!((&shown.value, shown.place.as_deref()), (&json!("***"), Some("POSTHASTE_MASTER_KEY")));
    assert!(!format!("{config:?}").contains("abab"));
    assert_eq!(load("", &[("POSTHASTE_MASTER_KEY", "")], &[]), Ok(Config::defaults()));
    let twice = [("POSTHASTE_MASTER_KEY", one.as_str()), ("POSTHASTE__SECURITY__MASTER_KEY", two.as_str())];
    let error = load("", &twice, &[]).unwrap_err();
    assert!(error.contains("security.master_key is given twice") && !error.contains("cdcd"), "{error}");
}

#[test]
fn the_variables_of_the_notify_service_are_the_global_policy() {
    let file =
        "[policies.global]\nmax_retries = 2\ndead_letter = false\n[policies.webhook]\ntimeout = \"3s\"";
    let variables = [
        ("NOTIFY_MAX_RETRIES", "7"),
        ("NOTIFY_BACKOFF_BASE_SEC", "600"),
        ("NOTIFY_ADAPTER_TIMEOUT_SEC", ""),
        ("NOTIFY_SOCKET", "/run/systemd/notify"),
        ("POSTHASTE__POLICIES__GLOBAL__JITTER", "full"),
    ];
    let config = load(file, &variables, &[("policies.global.multiplier", "3")]).unwrap();
    let expected = json!({"strategy": "exponential", "initialDelay": "10m", "multiplier": 3, "maximumDelay": "10m",
        "maxAttempts": 7, "jitter": "full", "timeout": "10s", "deadLetter": false});
    assert_eq!(layer(&config, "global"), expected);
    assert_eq!(layer(&config, "channel:webhook"), json!({"timeout": "3s"}));
    let setting = |key: &str| {
        let found = config.settings.iter().find(|one| one.key == format!("policies.global.{key}")).unwrap();
        (found.source, found.place.as_deref())
    };
    assert_eq!(setting("max_attempts"), (SettingSource::Variable, Some("NOTIFY_MAX_RETRIES")));
    assert_eq!(setting("strategy"), (SettingSource::Variable, Some("NOTIFY_*")));
    let said = "the policy of the scope global is set by NOTIFY_BACKOFF_BASE_SEC, NOTIFY_MAX_RETRIES: {";
    assert!(config.notices.len() == 1 && config.notices[0].starts_with(said), "{:?}", config.notices);
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn a_mistake_in_a_variable_of_the_notify_service_is_told_by_its_name() {
    for (variable, text, told) in [
        ("NOTIFY_MAX_RETRIES", "many", "variable NOTIFY_MAX_RETRIES: must be a whole number"),
        ("NOTIFY_MAX_RETRIES", "0", "variable NOTIFY_MAX_RETRIES: must be 1 to 1000"),
        (
            "NOTIFY_ADAPTER_TIMEOUT_SEC",
            "10s",
            "variable NOTIFY_ADAPTER_TIMEOUT_SEC: must be a number of seconds",
        ),
        ("NOTIFY_BACKOFF_BASE_SEC", "-1", "variable NOTIFY_BACKOFF_BASE_SEC: `-1` is negative"),
        ("NOTIFY_BACKOFF_JITTER_PERCENT", "101", "variable NOTIFY_BACKOFF_JITTER_PERCENT: must be 0 to 100"),
    ] {
        let refused = load("", &[(variable, text)], &[]).unwrap_err();
        assert!(refused.contains(told), "{variable}={text}: {refused}");
    }
    let config = load("", &[("NOTIFY_MAX_RETRY", "3")], &[]).unwrap();
    assert_eq!(
        config.warnings,
        ["variable NOTIFY_MAX_RETRY has no effect; did you mean NOTIFY_MAX_RETRIES?"]
    );
    assert!(config.policies.scopes().is_empty() && config.notices.is_empty());
}

#[test]
fn what_is_set_and_not_built_is_said_once_each_unless_it_changes_nothing() {
    let file = "[breaker]\nforget_after = \"1h\"\n[jobs]\nretry_expire = {cron = \"never\"}\n\
                block_failing_subscriptions = {cron = \"never\"}\n[retention]\noperations = \"9d\"\nfailed = \"9d\"\n\
                [policies.email]\npreset = \"story\"\nmax_attempts = 4\n[overrides.sms]\n404 = \"permanent\"\n\
                [alerts]\nslack_url = \"https://hooks.example/xyz\"";
    let variables = [("POSTHASTE__QUEUE__LIMIT", "10"), ("POSTHASTE__ALERTS__BEHIND_AFTER", "10m")];
    let config = load(file, &variables, &[]).unwrap();
    let about = |warning: &String| warning.split(": ").skip(1).collect::<Vec<_>>().join(": ");
    let warnings: Vec<_> = config.warnings.iter().map(about).collect();
    assert_eq!(
        warnings,
        [
            "jobs.block_failing_subscriptions.cron has no effect: this job is not built yet",
            "alerts.slack_url has no effect: alerts are not built yet",
            "alerts.behind_after has no effect: alerts are not built yet",
            "policies.email has no effect: no provider is configured for email",
            "overrides.sms has no effect: no provider is configured for sms",
        ]
    );
    assert!(config.warnings[2].starts_with("variable POSTHASTE__ALERTS__BEHIND_AFTER: "));
    assert_eq!(config.queue.limit, 10);
    assert_eq!(config.jobs.retry_expire, None);
}

#[test]
fn what_is_set_for_the_other_kind_of_store_is_said_to_have_no_effect() {
    let postgres = "[store]\nconnections = 20\nconnect_timeout = \"1s\"\nstatement_timeout = \"1m\"\nlock_timeout = 9\n\
                    prepared = false\nroot_certificates = \"ca.pem\"\nmigrate = false\n";
    let config = load(postgres, &[], &[]).unwrap();
    let about = |warning: &String| warning.split(": ").nth(1).unwrap().to_owned();
    let warned: Vec<String> = config.warnings.iter().map(about).collect();
    let idle = [
        "connections",
        "connect_timeout",
        "statement_timeout",
        "lock_timeout",
        "prepared",
        "root_certificates",
    ];
    assert_eq!(warned, idle.map(|key| format!("store.{key} has no effect")));
    assert!(config.warnings[0].ends_with("it is for PostgreSQL, and the store is SQLite"));
    let url = [("POSTHASTE__STORE__URL", "postgres://me@db/posthaste")];
    let config = load(postgres, &url, &[]).unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    let store = &config.store;
    assert_eq!((store.connections, store.prepared, store.migrate), (20, false, false));
    let waits = [store.connect_timeout, store.statement_timeout, store.lock_timeout];
    assert_eq!(waits, [secs(1), secs(60), secs(9)]);
    assert_eq!(store.root_certificates.as_deref(), Some(Path::new("ca.pem")));
    // What SQLite is told about the disk is not weighed where there is none.
    let config = load("[store]\nsynchronous = \"off\"", &url, &[]).unwrap();
    assert!(
        config.warnings[0]
            .contains("store.synchronous has no effect: it is for SQLite, and the store is PostgreSQL")
    );
}

#[test]
fn a_file_that_was_named_must_be_there_and_one_that_was_not_may_be_missing() {
    let empty = tempfile::tempdir().unwrap();
    let named = empty.path().join("other.toml");
    let sources = |file: Option<PathBuf>, directory: &Path| Sources {
        file,
        directory: directory.to_owned(),
        ..Sources::default()
    };
    let error = Config::load(sources(Some(named.clone()), empty.path())).unwrap_err();
    assert_eq!(error.problems[0].source, named.display().to_string());
    assert!(error.problems[0].reason.starts_with("the file cannot be read: "), "{error}");
    assert!(Config::load(sources(None, empty.path())).is_ok());

    let found = directory("[engine]\nconcurrency = 5");
    assert_eq!(Config::load(sources(None, found.path())).unwrap().engine.concurrency, 5);
    std::fs::write(&named, "[engine]\nconcurrency = 6").unwrap();
    assert_eq!(Config::load(sources(Some(named), found.path())).unwrap().engine.concurrency, 6);
}

/// The page shows each key with its default, so that it cannot go stale.
#[test]
fn the_page_about_settings_names_every_key_with_its_default() {
    fn rows(prefix: &str, table: &toml::Table) -> Vec<String> {
        let row = |(key, value): (&String, &toml::Value)| match value {
            toml::Value::Table(inner) => rows(&format!("{prefix}{key}."), inner),
            value => vec![format!("| `{prefix}{key}` | `{}` |", json!(value))],
        };
        table.iter().flat_map(row).collect()
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/configuration.md")).unwrap();
    let all = rows("", &DEFAULTS.parse().unwrap());
    assert!(all.len() > 30);
    let missing: Vec<_> = all.iter().filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/configuration.md lacks {missing:#?}");
}

#[test]
fn limits_are_for_the_origin_of_a_url_or_for_a_provider() {
    let file = "[destinations.\"https://Bücher.example/in?x\"]\nrate = 0.5\n[destinations.mail]\nconcurrency = 20\n\
                [providers.mail]\nchannel = \"email\"\nkind = \"log\"\n[destinations.\"http://a.example:8080\"]";
    let config = load(file, &[("POSTHASTE__DESTINATIONS__MAIL__RATE", "2.5")], &[]).unwrap();
    let shown: Vec<_> = config
        .destinations
        .iter()
        .map(|(name, limits)| (&*name.name, limits.rate.map(Rate::as_per_second), limits.concurrency))
        .collect();
    assert_eq!(
        shown,
        [
            ("http://a.example:8080", None, None),
            ("https://xn--bcher-kva.example:443", Some(0.5), None),
            ("mail", Some(2.5), Some(20)),
        ]
    );
    assert_eq!(config.warnings, Vec::<String>::new());
}
