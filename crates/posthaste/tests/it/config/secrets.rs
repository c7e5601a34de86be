//! Where secrets may stand, and the client certificates of destinations.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use posthaste::config::{Config, Sources, StoreUrl};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use super::load;

/// Values that some setting takes.
const VALUES: [&str; 3] =
    ["hunter2", "http://me@proxy.example.com:3128", "postgres://me:hunter2@db.example.com/x"];

fn with(key: &str, value: &str) -> Option<Config> {
    let mut flags = vec![(key.to_owned(), value.to_owned())];
    if key == "webhooks.proxy_password" {
        flags.push(("webhooks.proxy".to_owned(), VALUES[1].to_owned()));
    }
    if let Some((provider, _)) = key.rsplit_once('.').filter(|_| key.starts_with("providers.")) {
        flags.extend(
            [("channel", "email"), ("kind", "smtp")]
                .map(|(field, value)| (format!("{provider}.{field}"), value.to_owned())),
        );
    }
    // Nothing is found in an empty directory.
    let directory = tempfile::tempdir().unwrap();
    Config::load(Sources { directory: directory.path().to_owned(), flags, ..Sources::default() }).ok()
}

fn without_sources(config: Config) -> Config {
    Config { settings: vec![], secret_files: vec![], ..config }
}

/// Every key that exists, with its value if that is a secret: those are the ones whose values are not shown.
fn secrets() -> Vec<(String, &'static str)> {
    let fixed = Config::defaults().settings.into_iter().map(|setting| setting.key);
    let fields = ["url", "base_url", "from", "account_sid", "auth_token", "token"];
    let keys = fixed.chain(fields.map(|field| format!("providers.mail.{field}")));
    let secret = |key: String| {
        let is_masked = |value: &&str| {
            let shown = with(&key, value)
                .and_then(|config| config.settings.into_iter().find(|setting| setting.key == key));
            shown.is_some_and(|setting| setting.value == json!("***") || (key == "store.url"))
        };
        let value = VALUES.into_iter().find(is_masked)?;
        Some((key, value))
    };
    keys.filter_map(secret).collect()
}

#[test]
fn every_secret_may_stand_in_a_file_or_in_a_variable() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("secret");
    let secrets = secrets();
    for known in [
        "alerts.pagerduty_key",
        "alerts.slack_url",
        "alerts.webhook_url",
        "providers.mail.auth_token",
        "providers.mail.token",
        "providers.mail.url",
        "store.url",
        "webhooks.proxy",
        "webhooks.proxy_password",
    ] {
        assert!(secrets.iter().any(|(key, _)| key == known), "{known} is shown: {secrets:?}");
    }
    for (key, value) in secrets {
        fs::write(&file, format!("{value}\n")).unwrap();
        let named = format!("file:{}", file.display());
        let config = with(&key, &named).unwrap_or_else(|| panic!("{key} = {named}"));
        assert!(config.secret_files.contains(&file), "{key}");
        let shown = config.settings.iter().find(|setting| setting.key == key).unwrap();
        assert_eq!(shown.value, json!(named));
        assert_eq!(without_sources(config), without_sources(with(&key, value).unwrap()), "{key}");
        // Cargo sets it for every test, and it is no value of these.
        let missing = with(&key, "env:NO_SUCH_VARIABLE_OF_POSTHASTE");
        assert!(missing.is_none() && with(&key, "file:/nowhere/secret").is_none(), "{key}");
    }
}

#[test]
fn what_is_wrong_with_the_place_of_a_secret_is_said_and_never_what_is_in_it() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("secret");
    let at = file.display();
    let named = format!("[alerts]\nslack_url = \"file:{at}\"");
    for (content, said) in [
        (
            &b"hunter2 \xff"[..],
            format!(
                "alerts.slack_url names the file {at}, which cannot be read: stream did not contain valid UTF-8"
            ),
        ),
        (b"", format!("alerts.slack_url names the file {at}, which is empty")),
        (&[b'x'; 65_537], format!("alerts.slack_url names the file {at}, which has more than 65536 bytes")),
    ] {
        fs::write(&file, content).unwrap();
        let error = load(&named, &[], &[]).unwrap_err();
        assert!(error.contains(&said) && !error.contains("hunter2"), "{error}");
    }
    fs::write(&file, "hunter2").unwrap();
    let error = load(&format!("[store]\nurl = \"file:{at}\""), &[], &[]).unwrap_err();
    assert!(error.contains("store.url must be sqlite://") && !error.contains("hunter2"), "{error}");
    let error = load("[store]\nurl = \"env:NO_SUCH\"", &[], &[]).unwrap_err();
    assert!(error.contains("store.url names the variable NO_SUCH, which is not set"), "{error}");
    for place in ["env", "file"] {
        let error = load(&format!("[store]\nurl = \"{place}:\""), &[], &[]).unwrap_err();
        assert!(error.contains(&format!("store.url names nothing after `{place}:`")), "{error}");
    }
    fs::write(&file, "sqlite:///var/lib/p.db\n").unwrap();
    let config = load(&format!("[store]\nurl = \"file:{at}\""), &[], &[]).unwrap();
    assert_eq!(config.store.url, StoreUrl::Sqlite("/var/lib/p.db".into()));
}

/// Writes a certificate and its key, for themselves and together.
fn write_certificate(directory: &Path) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["posthaste.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (chain, key) = (certificate.pem(), key.serialize_pem());
    for (name, text) in [
        ("both.pem", format!("{chain}{key}")),
        ("chain.pem", chain),
        ("key.pem", key),
        ("other.pem", KeyPair::generate().unwrap().serialize_pem()),
        ("nonsense.pem", "hunter2".to_owned()),
    ] {
        fs::write(directory.join(name), text).unwrap();
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn a_client_certificate_is_for_one_origin_and_its_key_may_stand_apart() {
    let place = tempfile::tempdir().unwrap();
    write_certificate(place.path());
    let at = place.path().display();
    let both = format!("client_certificate = \"{at}/both.pem\"");
    let apart =
        format!("client_certificate = \"file:{at}/chain.pem\"\nclient_key = \"{at}/key.pem\"\nrate = 5");
    let file = format!(
        "[destinations.\"https://A.example\"]\n{both}\n[destinations.\"https://a.example:8443/\"]\n{apart}"
    );
    let config = load(&file, &[], &[]).unwrap();
    let origins: Vec<&str> = config.client_certificates.keys().map(String::as_str).collect();
    assert_eq!(origins, ["https://a.example:443", "https://a.example:8443"]);
    let limited: Vec<&str> = config.destinations.keys().map(|name| &*name.name).collect();
    assert_eq!(limited, ["https://a.example:8443"], "a certificate is no limit");
    assert_eq!(config.secret_files, [place.path().join("both.pem"), place.path().join("key.pem")]);
    let [one, two] =
        ["https://a.example:443", "https://a.example:8443"].map(|origin| &config.client_certificates[origin]);
    assert_eq!(one.read, two.read);
    for (more, wanted) in [
        (format!("{both}\nclient_key = \"\""), None),
        ("client_certificate = \"\"".to_owned(), None),
        (
            "client_certificate = \"/nowhere.pem\"".to_owned(),
            Some("client_certificate names the file /nowhere.pem, which cannot be read: ".to_owned()),
        ),
        (
            format!("client_certificate = \"{at}/nonsense.pem\""),
            Some(format!(
                "client_certificate names {at}/nonsense.pem, which holds no certificate in PEM form"
            )),
        ),
        (
            format!("client_certificate = \"{at}/chain.pem\""),
            Some(format!("client_certificate names {at}/chain.pem, which holds no private key in PEM form")),
        ),
        (
            format!("{both}\nclient_key = \"/nowhere.pem\""),
            Some("client_key names the file /nowhere.pem, which cannot be read: ".to_owned()),
        ),
        (
            format!("{both}\nclient_key = \"{at}/other.pem\""),
            Some(format!(
                "client_key names {at}/other.pem, which holds a private key that does not belong to the first certificate"
            )),
        ),
        (
            format!("client_key = \"{at}/key.pem\""),
            Some("client_key is the key of a certificate: set client_certificate as well".to_owned()),
        ),
        (
            "client_certificate = \"env:NO_SUCH\"".to_owned(),
            Some("client_certificate names the variable NO_SUCH, which is not set".to_owned()),
        ),
        ("client_certificate = 5".to_owned(), Some("client_certificate must be a text, not 5".to_owned())),
    ] {
        let loaded = load(&format!("[destinations.\"https://a.example\"]\n{more}"), &[], &[]);
        match wanted {
            None => drop(loaded.unwrap()),
            Some(wanted) => {
                let error = loaded.unwrap_err();
                let wanted = format!("FILE: destinations.\"https://a.example\".{wanted}");
                assert!(error.starts_with(&wanted) && !error.contains("hunter2"), "{error}\n{wanted}");
            }
        }
    }
    for destination in ["\"http://a.example\"", "mail"] {
        let mail = "[providers.mail]\nchannel = \"email\"\nkind = \"log\"\n";
        let error = load(&format!("{mail}[destinations.{destination}]\n{both}"), &[], &[]).unwrap_err();
        assert!(error.contains("client_certificate is for webhooks over TLS: the destination must be a URL that starts with https://"), "{error}");
    }
}
