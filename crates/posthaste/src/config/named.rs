//! Values that have a meaning of their own: names from a short list, the store's URL, secrets.

use std::fmt;
use std::path::PathBuf;

/// What is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps the text from being shown.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one who needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}

/// Where notifications are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// An SQLite file, relative or absolute.
    Sqlite(PathBuf),
    /// A PostgreSQL server; the URL may hold a password.
    Postgres(Secret),
}

impl StoreUrl {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once("://")? {
            ("sqlite", path) if !path.is_empty() => Some(Self::Sqlite(path.into())),
            ("postgres" | "postgresql", server) if !server.is_empty() => {
                Some(Self::Postgres(Secret::new(text.to_owned())))
            }
            _ => None,
        }
    }
}

/// As people may see it: without the password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(out, "{}", path.display()),
            Self::Postgres(url) => out.write_str(&posthaste_store::postgres::without_password(url.reveal())),
        }
    }
}

/// Defines an enum whose variants have names in the configuration.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$one:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type { $($(#[$one])* $variant,)+ }

        impl $type {
            pub(super) const ALL: &[(&'static str, Self)] = &[$(($name, Self::$variant),)+];
        }
    };
}

names! {
    /// When SQLite waits until the disk has what was written.
    Synchronous {
        /// At every commit: what was acknowledged survives a power cut.
        Full = "full",
        /// At checkpoints only: a power cut loses what was acknowledged last.
        Normal = "normal",
        /// Never: a power cut may lose everything.
        Off = "off",
    }
}

names! {
    /// How much is logged.
    LogLevel {
        /// What went wrong.
        Error = "error",
        /// Also what may go wrong.
        Warn = "warn",
        /// Also what happens.
        Info = "info",
        /// Also why.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

names! {
    /// How a log line looks.
    LogFormat {
        /// For people.
        Text = "text",
        /// For programs: one JSON object a line.
        Json = "json",
    }
}

names! {
    /// What a caller over the rate limit is answered; the notification is accepted and delayed in both cases.
    RateAnswer {
        /// 202 with `deferredUntil`.
        Accepted = "202",
        /// 429 with the accepted id.
        TooMany = "429",
    }
}
