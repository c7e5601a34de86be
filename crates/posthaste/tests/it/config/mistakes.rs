//! What is said about settings that cannot be used.

use posthaste::config::{StoreUrl, Synchronous};
use posthaste_wire::http::Proxy;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::load;

/// What a file says, and how the complaint begins.
const FILES: &[(&str, &str)] = &[
    (
        "[breaker]\nbrake_duration = \"1m\"",
        "FILE: breaker.brake_duration is unknown; did you mean `break_duration`?",
    ),
    ("[brekaer]\nx = 1\ny = 2", "FILE: brekaer is unknown; did you mean `breaker`?"),
    ("[brekaer]", "FILE: brekaer is unknown; did you mean `breaker`?"),
    ("listen = \"127.0.0.1:1\"", "FILE: listen is unknown; did you mean `server.listen`?"),
    ("[metrics]\ncolour = 1", "FILE: metrics.colour is unknown; the known names are require_key"),
    (
        "[jobs.retry_procesor]\ncron = \"never\"",
        "FILE: jobs.retry_procesor is unknown; did you mean `retry_processor`?",
    ),
    (
        "[jobs]\nretry_expire = \"never\"",
        "FILE: jobs.retry_expire must be a section with keys in it, not a value",
    ),
    ("server = \"x\"", "FILE: server must be a section with keys in it, not a value"),
    ("policies = 1", "FILE: policies must be a section with keys in it, not a value"),
    ("[server.listen]\nport = 1", "FILE: server.listen must be a value, not a section"),
    (
        "[server.listen]",
        "FILE: server.listen must be an address and a port such as 127.0.0.1:7780 or localhost:7780, not a section",
    ),
    (
        "[server]\nlisten = \"7780\"",
        "FILE: server.listen must be an address and a port such as 127.0.0.1:7780 or localhost:7780, not `7780`",
    ),
    (
        "[server]\nconnections = -1",
        "FILE: server.connections must be a whole number from 1 to 1000000, not -1",
    ),
    (
        "[server]\nconnections = \"5\"",
        "FILE: server.connections must be a whole number from 1 to 1000000, not `5`",
    ),
    (
        "[server]\nconnections = 1.5",
        "FILE: server.connections must be a whole number from 1 to 1000000, not 1.5",
    ),
    ("[server]\nbody_timeout = -5", "FILE: server.body_timeout cannot be used: `-5` is negative"),
    ("[server]\nbody_timeout = 0", "FILE: server.body_timeout must be longer than 0s"),
    (
        "[store]\nunsafe_durability = \"true\"",
        "FILE: store.unsafe_durability must be true or false, not `true`",
    ),
    ("[store]\nconnections = 3", "FILE: store.connections must be a whole number from 4 to 1000, not 3"),
    ("[store]\nconnect_timeout = 0", "FILE: store.connect_timeout must be from 1ms to 1d, not 0"),
    ("[store]\nstatement_timeout = \"0s\"", "FILE: store.statement_timeout must be from 1ms to 1d, not `0s`"),
    ("[store]\nlock_timeout = \"2d\"", "FILE: store.lock_timeout must be from 1ms to 1d, not `2d`"),
    ("[store]\nlock_timeout = \"soon\"", "FILE: store.lock_timeout cannot be used: "),
    ("[store]\nprepared = 1", "FILE: store.prepared must be true or false, not 1"),
    ("[store]\nmigrate = \"no\"", "FILE: store.migrate must be true or false, not `no`"),
    ("[store]\nroot_certificates = true", "FILE: store.root_certificates must be a text, not true"),
    ("[store]\npool = 5", "FILE: store.pool is unknown; "),
    (
        "[engine]\nlongest_timeout = \"999ms\"",
        "FILE: engine.longest_timeout must be from 1s to 10m, not `999ms`",
    ),
    ("[engine]\nlongest_timeout = 601", "FILE: engine.longest_timeout must be from 1s to 10m, not 601"),
    ("[engine]\nlongest_timeout = \"never\"", "FILE: engine.longest_timeout cannot be used: "),
    (
        "[policies.\"tenant:acme\"]\ntimeout = \"11m\"",
        "FILE: policies.\"tenant:acme\".timeout must be more than 0s and at most 10m",
    ),
    ("[engine]\nconcurrency = 0", "FILE: engine.concurrency must be a whole number from 1 to 100000, not 0"),
    (
        "[security]\nallow_subnets = [\"10.0.0.1/8\"]",
        "FILE: security.allow_subnets holds a bad subnet: `10.0.0.1/8` does not start its subnet: write 10.0.0.0/8",
    ),
    (
        "[security]\nallow_subnets = \"10.0.0.0/8\"",
        "FILE: security.allow_subnets must be a list of texts, not `10.0.0.0/8`",
    ),
    (
        "[security]\nmaster_key = \"hunter2\"",
        "FILE: security.master_key must be 32 bytes, written as 64 hex digits or as base64; `openssl rand -hex 32` makes one",
    ),
    (
        "[security]\nmaster_key = \"# the key is to follow\"",
        "FILE: security.master_key must be 32 bytes, written as 64 hex digits or as base64; `openssl rand -hex 32` makes one",
    ),
    (
        "[destinations.\"https://a.example:443\"]\nclient_certificate = \"-----BEGIN PRIVATE KEY-----MC4CAQ\"",
        "FILE: destinations.\"https://a.example:443\".client_certificate holds the PEM text itself: give the path of its file, or env:NAME",
    ),
    (
        "[security]\nsensitive_headers = [\"x-a\", \"a b\"]",
        "FILE: security.sensitive_headers holds `a b`, which is not the name of a header",
    ),
    ("[log]\nlevel = \"loud\"", "FILE: log.level must be one of error, warn, info, debug, trace, not `loud`"),
    (
        "[breaker]\nforget_after = \"1m\"",
        "FILE: breaker.forget_after must be at least breaker.break_duration",
    ),
    ("[breaker]\nfirst_break = 0", "FILE: breaker.first_break must be longer than 0s"),
    (
        "[destinations.\"https://a.example\"]\nrate = 0",
        "FILE: destinations.\"https://a.example\".rate must be a number per second from 0.001 to 1000000, not 0",
    ),
    (
        "[destinations.\"https://a.example\"]\nrate = \"fast\"",
        "FILE: destinations.\"https://a.example\".rate must be a number per second from 0.001 to 1000000, not `fast`",
    ),
    (
        "[destinations.\"https://a.example\"]\nconcurrency = 0",
        "FILE: destinations.\"https://a.example\".concurrency must be a whole number from 1 to 1000000, not 0",
    ),
    (
        "[destinations.\"https://a.example\"]\nrat = 5",
        "FILE: destinations.\"https://a.example\".rat is unknown; did you mean `rate`?",
    ),
    (
        "[destinations.\"https://a.example\"]\nrate = {x = 5}",
        "FILE: destinations.\"https://a.example\".rate.x must be a value, not a section",
    ),
    (
        "[destinations]\n\"https://a.example\" = 5",
        "FILE: destinations.\"https://a.example\" must be a section with keys in it, not a value",
    ),
    (
        "[destinations.\"https://a.example\"]\nrate = 5\n[destinations.\"https://A.example:443\"]\nrate = 5",
        "FILE: destinations.\"https://a.example\" is given twice: another section is for the same destination",
    ),
    (
        "[destinations.\"https://me:secret@a.example\"]\nrate = 5",
        "FILE: destinations.\"https://***@a.example\" is no destination: the URL must not hold a user name or password",
    ),
    (
        "[destinations.\"a.example:443\"]\nrate = 5",
        "FILE: destinations.\"a.example:443\" is no destination: use a URL such as ",
    ),
    (
        "[destinations.sub_01]\nrate = 5",
        "FILE: destinations.sub_01 is a subscription: its limits are set by PUT /v1/destinations/{id}",
    ),
    (
        "[destinations.mial]\nrate = 5\n[providers.mail]\nchannel = \"email\"\nkind = \"log\"",
        "FILE: destinations.mial is no provider of this configuration; did you mean `mail`?",
    ),
    (
        "[retention]\npurge_pending_after = 0",
        "FILE: retention.purge_pending_after must be longer than 0s; or `never`",
    ),
    (
        "[jobs]\nretry_expire = {cron = \"hourly\"}",
        "FILE: jobs.retry_expire.cron must be `never` or a cron expression of five fields such as `0 2 * * *`, not `hourly`",
    ),
    (
        "[jobs]\nretry_expire = {cron = \"0 0 30 2 *\"}",
        "FILE: jobs.retry_expire.cron `0 0 30 2 *` never fires: there is no such day",
    ),
    ("[policies.webook]\npreset = \"zgw\"", "FILE: policies.webook is unknown; did you mean `webhook`?"),
    (
        "[policies.webhook]\nmax_atempts = 5",
        "FILE: policies.webhook.max_atempts is unknown; did you mean `max_attempts`?",
    ),
    (
        "[policies.webhook.quick]\ntires = 5",
        "FILE: policies.webhook.quick.tires is unknown; did you mean `tries`?",
    ),
    ("[policies.webhook]\nmultiplier = 0.5", "FILE: policies.webhook.multiplier must be 1 or more, not 0.5"),
    (
        "[policies.webhook]\nschedule = [\"1m\", \"x\"]",
        "FILE: policies.webhook.schedule[1] `x` is not a duration such as",
    ),
    ("[policies.\"template:a\"]\nmax_attempts = 6", "FILE: policies.\"template:a\".max_attempts "),
    ("[policies]\nwebhook = 5", "FILE: policies.webhook must be an object, not 5"),
    (
        "[policies.webhook]\nmax_attempts = 3\nmaxAttempts = 4",
        "FILE: policies.webhook.max_attempts is given twice",
    ),
    (
        "[overrides.webhook]\n404 = \"gone\"",
        "FILE: overrides.webhook.404 must be `delivered` or a failure type such as `temporary`, not `gone`",
    ),
    ("[overrides]\nwebhook = 5", "FILE: overrides.webhook must be a section with keys in it, not a value"),
    ("[overrides.webhook]\n99 = \"temporary\"", "FILE: overrides.webhook.99 is not a code from 100 to 599"),
    ("[overrides.emial]\n404 = \"temporary\"", "FILE: overrides.emial is unknown; did you mean `email`?"),
    ("[providers.mail]\nkind = \"smtp\"", "FILE: providers.mail.channel is missing"),
    ("[providers.mail]\nchannel = \"email\"", "FILE: providers.mail.kind is missing"),
    (
        "[providers.mail]\nchannel = \"fax\"\nkind = \"x\"",
        "FILE: providers.mail.channel must be one of email, sms",
    ),
    (
        "[providers.mail]\nchannel = \"email\"\nkind = \"smtp\"\nurll = \"x\"",
        "FILE: providers.mail.urll is unknown; did you mean `url`?",
    ),
    (
        "[providers.x]\nchannel = \"webhook\"\nkind = \"log\"",
        "FILE: providers.x.channel must be one of email, sms",
    ),
    (
        "[providers.\"a,b\"]\nchannel = \"sms\"\nkind = \"log\"",
        "FILE: providers.\"a,b\" is no name for a provider",
    ),
    (
        "[providers.x]\nchannel = \"sms\"\nkind = \"log\"\nfail = \"bussy\"",
        "FILE: providers.x.fail must be one of bad-credentials, blocked, busy",
    ),
    (
        "[providers.x]\nchannel = \"sms\"\nkind = \"twilio\"\nfail = \"busy\"",
        "FILE: providers.x.fail is for the kind `log` alone",
    ),
    (
        "[webhooks]\nroot_certificates = [\"/nowhere/ca.pem\"]",
        "FILE: webhooks.root_certificates names /nowhere/ca.pem, which cannot be read: ",
    ),
    (
        "[webhooks]\nroot_certificates = [\"/dev/null\"]",
        "FILE: webhooks.root_certificates names /dev/null, which holds no certificate in PEM form",
    ),
    (
        "[webhooks]\nproxy = \"https://proxy:3128\"",
        "FILE: webhooks.proxy must start with http://: the proxy itself is spoken to in plain",
    ),
    (
        "[webhooks]\nproxy_password = \"hunter2\"",
        "FILE: webhooks.proxy_password is set, and webhooks.proxy is not",
    ),
    (
        "[webhooks]\nproxy = \"http://proxy:3128\"\nproxy_password = \"hunter2\"",
        "FILE: webhooks.proxy must name a user",
    ),
    (
        "[webhooks]\nproxy = \"env:POSTHASTE_TEST_NOT_SET\"",
        "FILE: webhooks.proxy names the variable POSTHASTE_TEST_NOT_SET, which is not set",
    ),
    (
        "[webhooks]\nproxy = \"file:/nowhere/secret\"",
        "FILE: webhooks.proxy names the file /nowhere/secret, which cannot be read: ",
    ),
    ("a = 1\n[server\nlisten = 1", "FILE: line 2 is not TOML: "),
    ("[log]\nlevel = \"info\"\nlevel = \"warn\"", "FILE: line 3 is not TOML: "),
];

#[test]
fn a_mistake_in_the_file_is_named_with_its_key_and_what_was_meant() {
    for (file, expected) in FILES {
        let error = load(file, &[], &[]).expect_err(file);
        assert!(error.starts_with(expected), "\n{file}\nsays     {error}\nexpected {expected}");
        assert_eq!(error.lines().count(), 1, "\n{file}\nsays {error}");
    }
}

#[test]
fn a_mistake_in_a_variable_or_a_flag_is_named_with_it() {
    let table = [
        (
            "POSTHASTE__SERVER__LISTEN",
            "here",
            "variable POSTHASTE__SERVER__LISTEN: server.listen must be an address",
        ),
        (
            "POSTHASTE__SERVER__LISEN",
            "x",
            "variable POSTHASTE__SERVER__LISEN: server.lisen is unknown; did you mean `listen`?",
        ),
        ("POSTHASTE__SERVER", "x", "variable POSTHASTE__SERVER: server must be a section"),
        ("POSTHASTE__", "x", "variable POSTHASTE__: \"\" is unknown; the known names are alerts, "),
        (
            "POSTHASTE__ENGINE__CONCURRENCY",
            "many",
            "variable POSTHASTE__ENGINE__CONCURRENCY: engine.concurrency must be a whole number",
        ),
        (
            "POSTHASTE__ENGINE__CONCURRENCY",
            "",
            "variable POSTHASTE__ENGINE__CONCURRENCY: engine.concurrency must be a whole number",
        ),
        (
            "POSTHASTE__METRICS__REQUIRE_KEY",
            "1",
            "variable POSTHASTE__METRICS__REQUIRE_KEY: metrics.require_key must be true or false, not `1`",
        ),
        (
            "POSTHASTE__POLICIES__WEBHOOK__MAX_ATTEMPTS",
            "-1",
            "variable POSTHASTE__POLICIES__WEBHOOK__MAX_ATTEMPTS: policies.webhook.max_attempts must be a whole number",
        ),
        (
            "POSTHASTE__POLICIES__WEBHOOK__QUICK__TIRES",
            "1",
            "variable POSTHASTE__POLICIES__WEBHOOK__QUICK__TIRES: policies.webhook.quick.tires is unknown; did you mean `tries`?",
        ),
    ];
    for (name, value, expected) in table {
        let error = load("", &[(name, value)], &[]).expect_err(name);
        assert!(error.starts_with(expected), "\n{name}={value}\nsays     {error}\nexpected {expected}");
    }
    let error = load("", &[], &[("server.listen", "here")]).unwrap_err();
    assert!(error.starts_with("flag for server.listen: server.listen must be an address"), "{error}");
    let file = "[policies.webhook]\nmax_attempts = 5\nquick = {tries = 1}";
    let error = load(file, &[("POSTHASTE__POLICIES__WEBHOOK__QUICK__TRIES", "900")], &[]).unwrap_err();
    assert!(
        error
            .starts_with("variable POSTHASTE__POLICIES__WEBHOOK__QUICK__TRIES: policies.webhook.quick.tries"),
        "{error}"
    );
}

#[test]
fn one_source_may_not_contradict_itself() {
    let twins = [("POSTHASTE__LOG__LEVEL", "info"), ("POSTHASTE__log__level", "warn")];
    let error = load("", &twins, &[]).unwrap_err();
    assert_eq!(
        error,
        "variable POSTHASTE__log__level: log.level is given twice, also by variable POSTHASTE__LOG__LEVEL"
    );
    let nested = [
        ("POSTHASTE__POLICIES__WEBHOOK__JITTER", "full"),
        ("POSTHASTE__POLICIES__WEBHOOK__JITTER__PERCENT", "10"),
    ];
    assert!(load("", &nested, &[]).unwrap_err().contains("policies.webhook.jitter.percent is given twice"));
}

#[test]
fn all_mistakes_are_told_at_once() {
    let file = "[server]\nlisten = 1\nlisen = 2\n[policies.webhook]\nmax_atempts = 5";
    let error = load(file, &[("POSTHASTE__LOG__LEVEL", "loud")], &[]).unwrap_err();
    assert_eq!(error.lines().count(), 4, "{error}");
}

#[test]
fn less_durability_has_to_be_asked_for_twice() {
    let error = load("[store]\nsynchronous = \"normal\"", &[], &[]).unwrap_err();
    assert!(
        error.contains("store.synchronous must be full") && error.contains("unsafe_durability"),
        "{error}"
    );
    let config = load("[store]\nsynchronous = \"off\"\nunsafe_durability = true", &[], &[]).unwrap();
    assert_eq!(config.store.synchronous, Synchronous::Off);
}

#[test]
fn a_store_is_an_sqlite_file_or_a_postgresql_database_shown_without_its_password() {
    let url = "postgres://me:hunter2@db/posthaste";
    let config = load("", &[("POSTHASTE__STORE__URL", url)], &[]).unwrap();
    assert_eq!(config.store.url.to_string(), "postgres://me:***@db/posthaste");
    assert!(matches!(&config.store.url, StoreUrl::Postgres(kept) if kept.reveal() == url));
    for bad in ["posthaste.db", "sqlite://", "mysql://x", "sqlite:x.db"] {
        let error = load("", &[("POSTHASTE__STORE__URL", bad)], &[]).unwrap_err();
        assert!(error.contains("store.url must be sqlite:// and a path"), "{error}");
    }
}

#[test]
fn a_secret_may_stand_in_a_file_or_in_a_variable() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let text =
        format!("[webhooks]\nproxy = \"http://me@proxy:3128\"\nproxy_password = \"file:{}\"", file.display());
    let expected = Proxy::parse("http://me:hunter2@proxy:3128").unwrap();
    assert_eq!(load(&text, &[], &[]).unwrap().webhooks.proxy, Some(expected));
    // A variable that every test run has.
    let home = std::env::var("PATH").unwrap();
    let text = "[webhooks]\nproxy = \"http://me@proxy:3128\"\nproxy_password = \"env:PATH\"";
    let expected = Proxy::with_password("http://me@proxy:3128", &home).unwrap();
    assert_eq!(load(text, &[], &[]).unwrap().webhooks.proxy, Some(expected));
}

#[test]
fn secrets_are_shown_neither_in_complaints_nor_when_settings_are_printed() {
    let provider = "[providers.mail]\nchannel = \"email\"\nkind = \"smtp\"\nurl = \"smtp://me:hunter2@mail\"\n\
                    auth_token = \"hunter2\"\ntoken = \"hunter2\"\n";
    let alerts =
        "[alerts]\nslack_url = \"hunter2\"\npagerduty_key = \"hunter2\"\nwebhook_url = \"hunter2\"\n";
    let store = "[store]\nurl = \"postgres://me:hunter2@db/x\"\n";
    let webhooks = "[webhooks]\nproxy = \"http://me:hunter2@proxy:3128\"\n";
    let config = load(&format!("{provider}{alerts}{store}{webhooks}"), &[], &[]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    let mistakes = [
        "[store]\nurl = \"hunter2\"",
        "store = \"postgres://me:hunter2@db/x\"",
        "[providers]\nmail = \"smtp://me:hunter2@mail\"",
        "[providers.mail]\nauth_token = [\"hunter2\"]",
        "[providers.mail]\nauth_token = \"hunter2",
        "[providers.mail]\npassword = \"hunter2\"",
        "[webhooks]\nproxy = \"https://me:hunter2@proxy\"",
        "[webhooks]\nproxy = \"http://me:hunter2@proxy\"\nproxy_password = \"hunter2\"",
    ];
    for file in mistakes {
        let error = load(file, &[], &[]).expect_err(file);
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// Keys and values that look a little like settings.
fn settings() -> impl Strategy<Value = Vec<(Vec<&'static str>, &'static str)>> {
    let parts = [
        "policies",
        "webhook",
        "tenant:a",
        "jitter",
        "percent",
        "quick",
        "tries",
        "schedule",
        "server",
        "listen",
        "providers",
        "mail",
        "channel",
        "kind",
        "overrides",
        "404",
        "jobs",
        "retry_expire",
        "cron",
        "destinations",
        "https://a.example",
        "rate",
        "",
    ];
    let values = ["", "1", "-1", "full", "x,y", "true", "email", "1e999", "127.0.0.1:1"];
    vec((vec(select(parts.to_vec()), 1..5), select(values.to_vec())), 0..6)
}

proptest! {
    #[test]
    fn no_settings_make_the_reader_panic(file in settings(), variables in settings(), flags in settings()) {
        let line = |(key, value): &(Vec<&str>, &str)| {
            let quoted: Vec<String> = key.iter().map(|part| format!("\"{part}\"")).collect();
            format!("{} = \"{value}\"\n", quoted.join("."))
        };
        let file: String = file.iter().map(line).collect();
        let join = |given: Vec<(Vec<&str>, &str)>, before: &str, between: &str| -> Vec<(String, String)> {
            let pair = |(key, value): (Vec<&str>, &str)| (format!("{before}{}", key.join(between)), value.to_owned());
            given.into_iter().map(pair).collect()
        };
        let _ = super::load_pairs(&file, join(variables, "POSTHASTE__", "__"), join(flags, "", "."));
    }
}
