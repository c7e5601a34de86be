//! Where a policy applies.

use std::fmt;
use std::str::FromStr;

use crate::as_text::as_text;
use crate::channel::Channel;
use crate::notification::Tenant;

/// In bytes.
const MAX_NAME: usize = 128;

/// The same rule as in `Tenant`.
const BAD_TENANT: &str =
    "names no tenant: a name is 1 to 64 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`";

/// A scope of policies, from the widest to the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Global,
    Channel(Channel),
    Tenant(String),
    Template(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scope: `{given}` {reason}")]
pub struct BadScope {
    given: String,
    reason: &'static str,
}

impl BadScope {
    /// The error without the name of the field.
    pub fn reason(&self) -> String {
        format!("`{}` {}", self.given, self.reason)
    }
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
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(bad("has no name of 1 to 128 printable bytes after the colon"));
        }
        match kind {
            "channel" => name.parse().map(Self::Channel).map_err(|_| bad("names no channel")),
            "tenant" => match name.parse::<Tenant>() {
                Ok(_) => Ok(Self::Tenant(name.to_owned())),
                Err(_) => Err(bad(BAD_TENANT)),
            },
            "template" => Ok(Self::Template(name.to_owned())),
            _ => Err(bad("is none of global, channel:x, tenant:x, template:x")),
        }
    }
}

as_text!(Scope);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_lead_back_to_their_text() {
        for text in ["global", "channel:webhook", "tenant:acme.B_2-x", "template:a:b", "template:München"] {
            let scope: Scope = text.parse().unwrap();
            assert_eq!(scope.to_string(), text);
        }
        let long = format!("tenant:{}", "x".repeat(129));
        for text in ["", "Global", "channel:fax", "tenant:", "template", "user:x", "tenant:a\nb", &long] {
            assert!(text.parse::<Scope>().unwrap_err().to_string().starts_with("scope: `"), "{text}");
        }
    }

    #[test]
    fn a_tenant_that_cannot_exist_has_no_scope() {
        let longest = format!("tenant:{}", "x".repeat(Tenant::MAX_LENGTH));
        assert!(longest.parse::<Scope>().is_ok());
        for text in ["tenant:München", "tenant:a b", "tenant:a:b", "tenant:a/b", &format!("{longest}x")] {
            let error = text.parse::<Scope>().unwrap_err().to_string();
            assert!(error.contains("names no tenant: a name is 1 to 64"), "{error}");
        }
        assert!(BAD_TENANT.contains(&format!("1 to {} ", Tenant::MAX_LENGTH)));
    }
}
