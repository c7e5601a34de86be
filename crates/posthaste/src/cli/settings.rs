//! The flags of commands that open the store of the server.

use std::path::PathBuf;

use clap::Args;

use super::output::note;
use super::serve;
use crate::config::Config;

#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The file with the settings [default: posthaste.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store: an SQLite file, or a URL (store.url)
    #[arg(long, value_name = "PATH|URL")]
    store: Option<String>,
    /// Any other setting, by its name; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

impl StoreArgs {
    /// The settings that `serve` would use. Prints the warnings about the store.
    pub(crate) fn load(self) -> anyhow::Result<Config> {
        let flags = self.store.map(|store| ("store.url".to_owned(), store_url(&store))).into_iter().collect();
        let config = Config::load(serve::sources(self.config, flags, &self.set)?)?;
        for warning in config.warnings.iter().filter(|warning| warning.contains(": store.")) {
            note(&format!("warning: {warning}"));
        }
        Ok(config)
    }
}

/// The URL for the value of `--store`, which is a path or a URL.
///
/// A URL with a mistake is not taken for a path, so that the settings refuse it without showing its password.
pub(crate) fn store_url(given: &str) -> String {
    let given = given.trim();
    let is_path = given.starts_with(['/', '.']);
    let is_url = given.contains("://")
        || ["sqlite:", "postgres:", "postgresql:", "env:", "file:"]
            .iter()
            .any(|scheme| given.starts_with(scheme))
        || given.contains("password=")
        || given.split_once('@').is_some_and(|(before, _)| before.contains(':'));
    if given.is_empty() || (is_url && !is_path) { given.to_owned() } else { format!("sqlite://{given}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_path_or_a_url() {
        for path in ["posthaste.db", "/var/lib/p.db", "./a:b@c.db", "../x=y.db", "postgres", "a b.db"] {
            assert_eq!(store_url(path), format!("sqlite://{path}"));
        }
        for url in [
            "sqlite://p.db",
            "sqlite:///p.db",
            "postgres://u:secret@h/d",
            "postgresql://h/d",
            "env:URL",
            "file:url",
        ] {
            assert_eq!(store_url(url), url);
        }
    }

    #[test]
    fn a_url_with_a_mistake_is_not_taken_for_a_path() {
        for bad in
            ["", "postgres:/u:secret@h/d", "u:secret@h/d", "host=h password=secret", "mysql://u:secret@h/d"]
        {
            assert_eq!(store_url(bad), bad);
        }
    }
}
