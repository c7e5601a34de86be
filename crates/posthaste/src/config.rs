//! Settings: flags over variables over a file over what is built in.
//!
//! Everything that is given is merged into one table of keys, each with its origin (`layers`); one pass reads the
//! table into the checked [`Config`] (`read`) and complains about what it does not know. What is built in is the
//! embedded `config.default.toml`, which is reference and sample as well.

mod layers;
mod named;
mod nearest;
mod policies;
mod problem;
mod providers;
mod read;
mod sections;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use posthaste_core::channel::Channel;
use posthaste_core::classify::Overrides;
use posthaste_core::policy::PolicySet;

pub use named::{LogFormat, LogLevel, RateAnswer, Secret, StoreUrl, Synchronous};
pub use problem::{ConfigError, Problem};
pub use sections::{
    Alerts, Breaker, EngineSettings, Job, Jobs, Log, Metrics, Provider, Queue, RateLimit, Retention,
    Security, Server, Store,
};

use layers::Layers;

/// What is built in, with a comment on every key.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// The file that is looked for when none is named.
pub const FILE_NAME: &str = "posthaste.toml";

/// Every setting, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How the HTTP server listens.
    pub server: Server,
    /// Where notifications are kept.
    pub store: Store,
    /// How the engine works.
    pub engine: EngineSettings,
    /// What the server may reach.
    pub security: Security,
    /// When a destination is left alone.
    pub breaker: Breaker,
    /// How much a caller may hand in.
    pub rate_limit: RateLimit,
    /// How much may wait.
    pub queue: Queue,
    /// How long things are kept.
    pub retention: Retention,
    /// When the regular work is done.
    pub jobs: Jobs,
    /// Who is told when something goes wrong.
    pub alerts: Alerts,
    /// Whether figures are for everyone.
    pub metrics: Metrics,
    /// What is logged, and how.
    pub log: Log,
    /// The policies of the configuration.
    pub policies: PolicySet,
    /// What single status codes mean on a channel, where that differs from the table.
    pub overrides: BTreeMap<Channel, Overrides>,
    /// Who carries what leaves, by the name that the configuration gives them.
    pub providers: BTreeMap<String, Provider>,
    /// What was set and has no effect, in words.
    pub warnings: Vec<String>,
}

/// Where settings are looked for.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that was named; it must exist.
    pub file: Option<PathBuf>,
    /// Where [`FILE_NAME`] is looked for when no file is named; it may be missing. Empty means the working directory.
    pub directory: PathBuf,
    /// What the command does where nobody says otherwise: a dotted key and its value, over what is built in.
    pub own: Vec<(String, String)>,
    /// The environment. Names that do not begin with `POSTHASTE__` are not settings.
    pub variables: Vec<(OsString, OsString)>,
    /// What the command line says: a dotted key such as `server.listen`, and its value.
    pub flags: Vec<(String, String)>,
}

impl Config {
    /// Reads and checks all sources. Every mistake that was found is in the error.
    pub fn load(sources: Sources) -> Result<Self, ConfigError> {
        let mut layers = Layers::built_in();
        let mut problems = Vec::new();
        layers.add_own(&sources.own, &mut problems);
        match (&sources.file, sources.directory.join(FILE_NAME)) {
            (Some(named), _) => layers.add_file(named, &mut problems),
            (None, found) if found.try_exists().unwrap_or(true) => layers.add_file(&found, &mut problems),
            (None, _) => {}
        }
        layers.add_variables(&sources.variables, &mut problems);
        layers.add_flags(&sources.flags, &mut problems);
        let config = read::config(&layers, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// The settings of a program that was told nothing.
    pub fn defaults() -> Self {
        let mut problems = Vec::new();
        let config = read::config(&Layers::built_in(), &mut problems);
        assert!(problems.is_empty(), "the built-in settings are wrong: {problems:?}");
        config
    }
}
