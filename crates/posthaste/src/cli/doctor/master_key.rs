//! The checks of `posthaste doctor` on secrets at rest.

use serde_json::Value;

use super::Finding;
use crate::cli::reach::Session;
use crate::config::{Config, StoreUrl};
use crate::master_key::{self, HOW_TO_SET};

const CHECK: &str = "master key";

/// What the server says. Only an admin key for all tenants may ask.
pub(super) async fn check(session: &Session) -> Option<Finding> {
    let told: Value = session.get("/v1/master-key").await.ok()?.json().ok()?;
    Some(finding(&told))
}

fn finding(told: &Value) -> Finding {
    let (in_force, next) = (told["inForce"].as_str(), told["next"].as_str());
    match (in_force, next, told["sealing"] == true) {
        (None, ..) => Finding::warn(
            CHECK,
            format!(
                "the server has no master key: webhooks are not signed, and headers such as authorization are kept as they are\n{HOW_TO_SET}"
            ),
        ),
        (Some(key), Some(next), _) => Finding::warn(
            CHECK,
            format!(
                "the change of the master key from {key} to {next} was begun and not ended\nrun `posthaste keys rotate-master` again"
            ),
        ),
        (Some(key), None, false) => Finding::warn(
            CHECK,
            format!(
                "nothing is sealed: a live node does not know the master key {key}, or is of an older version\n\
                 set the same POSTHASTE_MASTER_KEY or security.master_key on every node, and restart them"
            ),
        ),
        (Some(key), None, true) => {
            let file = told["file"].as_str().map_or_else(String::new, |file| format!(", which is in {file}"));
            Finding::ok(CHECK, format!("they are sealed under the master key {key}{file}"))
        }
    }
}

/// What the settings say, where no server was asked.
pub(super) fn configured(config: &Config, is_known: bool) -> Vec<Finding> {
    let mut found = vec![];
    match &config.store.url {
        StoreUrl::Postgres(_) if config.security.master_keys.is_empty() && !is_known => {
            found.push(Finding::warn(CHECK, format!("the settings have no master key\n{HOW_TO_SET}")));
        }
        StoreUrl::Sqlite(file) => {
            let path = master_key::beside(file);
            if master_key::is_open_to_others(&path) {
                let path = path.display();
                let text =
                    format!("others than its owner may read the master key\n`chmod 600 {path}` ends that");
                found.push(Finding::warn("key file", text));
            }
        }
        StoreUrl::Postgres(_) => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Mark;
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        for (told, mark, says) in [
            (json!({"sealing": false, "inForce": null, "next": null}), Mark::Warn, "openssl rand -hex 32"),
            (json!({"sealing": true, "inForce": "a", "next": "b"}), Mark::Warn, "keys rotate-master"),
            (json!({"sealing": false, "inForce": "a", "next": null}), Mark::Warn, "does not know"),
            (json!({"sealing": true, "inForce": "a", "next": null, "file": "/x.key"}), Mark::Ok, "/x.key"),
        ] {
            let found = finding(&told);
            assert_eq!(found.mark, mark, "{told}");
            assert!(found.text.contains(says), "{}", found.text);
        }
    }
}
