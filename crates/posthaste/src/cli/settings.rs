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
    /// The store (store.url)
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Any other setting, by its name; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

impl StoreArgs {
    /// The settings that `serve` would use. Prints the warnings about the store.
    pub(crate) fn load(self) -> anyhow::Result<Config> {
        let flags = self.store.map(|store| ("store.url".to_owned(), store)).into_iter().collect();
        let config = Config::load(serve::sources(self.config, flags, &self.set)?)?;
        for warning in config.warnings.iter().filter(|warning| warning.contains(": store.")) {
            note(&format!("warning: {warning}"));
        }
        Ok(config)
    }
}
