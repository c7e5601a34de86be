//! The check of `posthaste doctor` on access tokens: whether the keys that verify them can be read from here.

use super::Finding;
use crate::config::{Config, Jwt};
use crate::tokens::{KeySet, KeySource};

const CHECK: &str = "access tokens";

pub(super) async fn check(config: &Config) -> Option<Finding> {
    let jwt = config.jwt.as_ref()?;
    Some(match KeySource::of(&jwt.keys) {
        Ok(Some(source)) => look(jwt, &source).await,
        Ok(None) => {
            Finding::ok(CHECK, format!("{} is verified with a key of the settings", jwt.algorithm.name()))
        }
        Err(bad) => Finding::fail(
            CHECK,
            format!("auth.jwt.root_certificates holds a certificate that cannot be used: {bad}"),
        ),
    })
}

async fn look(jwt: &Jwt, source: &KeySource) -> Finding {
    let (name, algorithm) = (source.name(), jwt.algorithm.name());
    let read = source.read().await.map_err(|error| error.to_string());
    let read = read.and_then(|set| KeySet::read(jwt.algorithm, &set).map_err(|bad| bad.to_string()));
    match read.map(|set| set.count()) {
        Ok(0) => {
            let text = format!(
                "{name} holds no key for {algorithm}, so every access token is refused: auth.jwt.algorithm must be that of the keys"
            );
            Finding::fail(CHECK, text)
        }
        Ok(1) => Finding::ok(CHECK, format!("{name} holds a key for {algorithm}")),
        Ok(count) => Finding::ok(CHECK, format!("{name} holds {count} keys for {algorithm}")),
        Err(error) => {
            let text = format!(
                "{name} {error}\na server that runs keeps the keys that it knows; one that starts refuses access tokens until it \
                 can read them"
            );
            Finding::fail(CHECK, text)
        }
    }
}
