//! Where a policy applies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::channel::Channel;

/// The longest name of a tenant or template in a scope.
const LONGEST_NAME: usize = 128;

/// A scope of policies, from the widest to the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everything.
    Global,
    /// One channel.
    Channel(Channel),
    /// One tenant.
    Tenant(String),
    /// One template.
    Template(String),
}

/// A text that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scope: `{given}` {reason}")]
pub struct BadScope {
    given: String,
    reason: &'static str,
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => out.write_str("global"),
            Self::Channel(channel) => write!(out, "channel:{channel}"),
            Self::Tenant(name) => write!(out, "tenant:{name}"),
            Self::Template(name) => write!(out, "template:{name}"),
        }
    }
}

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        let bad = |reason| BadScope { given: text.chars().take(64).collect(), reason };
        if text == "global" {
            return Ok(Self::Global);
        }
        let (kind, name) =
            text.split_once(':').ok_or_else(|| bad("is none of global, channel:x, tenant:x, template:x"))?;
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(bad("has no name of 1 to 128 printable bytes after the colon"));
        }
        match kind {
            "channel" => name.parse().map(Self::Channel).map_err(|_| bad("names no channel")),
            "tenant" => Ok(Self::Tenant(name.to_owned())),
            "template" => Ok(Self::Template(name.to_owned())),
            _ => Err(bad("is none of global, channel:x, tenant:x, template:x")),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_lead_back_to_their_text() {
        for text in ["global", "channel:webhook", "tenant:acme", "template:a:b", "tenant:München"] {
            let scope: Scope = text.parse().unwrap();
            assert_eq!(scope.to_string(), text);
        }
        let long = format!("tenant:{}", "x".repeat(129));
        for text in ["", "Global", "channel:fax", "tenant:", "template", "user:x", "tenant:a\nb", &long] {
            assert!(text.parse::<Scope>().unwrap_err().to_string().starts_with("scope: `"), "{text}");
        }
    }
}
