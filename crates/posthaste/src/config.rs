//! Configuration: flags override variables, which override the file, which overrides the defaults.
//!
//! All sources are merged into one table of keys, each with its origin (`layers`). One pass reads the table
//! into the checked [`Config`] (`read`) and reports unknown keys. The defaults are the embedded
//! `config.default.toml`, which is reference and sample as well.

mod client_certificates;
mod destinations;
mod jwt;
mod layers;
mod named;
mod nearest;
mod notify;
mod policies;
mod problem;
mod providers;
mod read;
mod secret_text;
mod sections;
mod settings;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use posthaste_core::breaker::BreakerSettings;
use posthaste_core::channel::Channel;
use posthaste_core::classify::Overrides;
use posthaste_core::destination::{DestinationName, SendLimits};
use posthaste_core::policy::PolicySet;
use posthaste_core::provider::{self, Pools};

pub use client_certificates::{CertificateSource, ClientCertificates};
pub use jwt::{Jwt, JwtKeys};
pub use named::{LogFormat, LogLevel, RateAnswer, Secret, StoreUrl, Synchronous};
pub use problem::{ConfigError, ConfigProblem};
pub use secret_text::secret_text;
pub use sections::{
    Alerts, EngineSettings, Jobs, Log, Metrics, Provider, Queue, RateLimit, Retention, Security,
    ServerSettings, StoreSettings, Webhooks,
};
pub use settings::{Setting, SettingSource};

use layers::Layers;

/// The defaults, with a comment on every key.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// The default name of the configuration file.
pub const FILE_NAME: &str = "posthaste.toml";

/// All settings, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub server: ServerSettings,
    pub store: StoreSettings,
    pub engine: EngineSettings,
    pub security: Security,
    /// None if no access token is accepted.
    pub jwt: Option<Jwt>,
    pub webhooks: Webhooks,
    pub breaker: BreakerSettings,
    pub rate_limit: RateLimit,
    pub queue: Queue,
    pub retention: Retention,
    pub jobs: Jobs,
    pub alerts: Alerts,
    pub metrics: Metrics,
    pub log: Log,
    pub policies: PolicySet,
    /// Status codes whose meaning on a channel differs from the default.
    pub overrides: BTreeMap<Channel, Overrides>,
    /// By the names that the configuration gives them.
    pub providers: BTreeMap<String, Provider>,
    /// What may be sent to single destinations.
    pub destinations: BTreeMap<DestinationName, SendLimits>,
    /// What webhooks show to single origins.
    pub client_certificates: ClientCertificates,
    /// The files that hold secrets.
    pub secret_files: Vec<PathBuf>,
    /// One text for each setting that has no effect.
    pub warnings: Vec<String>,
    /// What a start says about the settings without being asked.
    pub notices: Vec<String>,
    /// Every key with its value and where it came from, without secrets.
    pub settings: Vec<Setting>,
}

/// The sources of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// An explicit file. It must exist.
    pub file: Option<PathBuf>,
    /// The directory of [`FILE_NAME`], which may be missing, if `file` is not set. Empty means the working
    /// directory.
    pub directory: PathBuf,
    /// Defaults of the command, as dotted keys and values. They override the built-in defaults.
    pub own: Vec<(String, String)>,
    /// The environment. Names that begin with `POSTHASTE__` are settings, and S3's variables are a policy.
    pub variables: Vec<(OsString, OsString)>,
    /// From the command line: a dotted key such as `server.listen`, and its value.
    pub flags: Vec<(String, String)>,
}

impl Config {
    /// Reads and checks all sources. The error lists every mistake.
    pub fn load(sources: Sources) -> Result<Self, ConfigError> {
        let mut layers = Layers::built_in();
        let mut problems = Vec::new();
        layers.add_command_defaults(&sources.own, &mut problems);
        match (&sources.file, sources.directory.join(FILE_NAME)) {
            (Some(named), _) => layers.add_file(named, &mut problems),
            (None, found) if found.try_exists().unwrap_or(true) => layers.add_file(&found, &mut problems),
            (None, _) => {}
        }
        let notify = notify::add(&mut layers, &sources.variables, &mut problems);
        layers.add_variables(&sources.variables, &mut problems);
        layers.add_flags(&sources.flags, &mut problems);
        let mut config = read::config(&layers, &mut problems);
        config.notices.extend(notify.notice);
        config.warnings.extend(notify.warnings);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// The providers whose kind is built.
    pub fn pools(&self) -> Pools {
        let built = self.providers.iter().filter_map(|(name, configured)| {
            let (name, channel, priority) = (name.as_str().into(), configured.channel, configured.priority);
            Some(provider::Provider { name, channel, kind: configured.built()?, priority })
        });
        Pools::new(built)
    }

    /// The built-in defaults.
    pub fn defaults() -> Self {
        let mut problems = Vec::new();
        let config = read::config(&Layers::built_in(), &mut problems);
        assert!(problems.is_empty(), "the built-in settings are wrong: {problems:?}");
        config
    }
}
