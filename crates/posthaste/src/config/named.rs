//! Types of single values: names from a short list, the store's URL, secrets.

use std::fmt;
use std::path::PathBuf;

/// A text that is never shown or logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A path, relative or absolute.
    Sqlite(PathBuf),
    /// The URL may hold a password.
    Postgres(Secret),
}

impl StoreUrl {
    /// The kind of store.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }

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

/// Without the password.
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
    /// When SQLite waits for the disk.
    Synchronous {
        /// At every commit: acknowledged notifications survive a power cut.
        Full = "full",
        /// At checkpoints only: a power cut loses the last acknowledged notifications.
        Normal = "normal",
        /// Never: a power cut may lose everything.
        Off = "off",
    }
}

names! {
    LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

names! {
    LogFormat {
        /// For people.
        Text = "text",
        /// For programs: one JSON object a line.
        Json = "json",
    }
}

names! {
    /// The response to a caller over the rate limit. The notification is accepted and delayed in both cases.
    RateAnswer {
        /// 202 with `deferredUntil`.
        Accepted = "202",
        /// 429 with the accepted id.
        TooMany = "429",
    }
}
