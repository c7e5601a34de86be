//! Where a policy applies.

use std::fmt;
use std::str::FromStr;

use crate::as_text::as_text;
use crate::channel::Channel;
use crate::notification::Tenant;

/// In bytes.
const MAX_NAME: usize = 128;

/// Stands for every tenant in the scope of a template.
const EVERY_TENANT: &str = "*";
const FOR_EVERY_TENANT: &str = "template:*/";

/// The same rule as in `Tenant`.
const BAD_TENANT: &str =
    "names no tenant: a name is 1 to 64 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`";

/// A scope of policies, from the widest to the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Global,
    Channel(Channel),
    Tenant(String),
    /// The template of one tenant, or the template of that name of every tenant.
    Template {
        /// `None` for every tenant.
        tenant: Option<String>,
        name: String,
    },
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
            Self::Template { tenant: Some(tenant), name } => write!(out, "template:{tenant}/{name}"),
            // A name with a slash would read as one of a tenant.
            Self::Template { tenant: None, name } if name.contains('/') => {
                write!(out, "template:{EVERY_TENANT}/{name}")
            }
            Self::Template { tenant: None, name } => write!(out, "template:{name}"),
        }
    }
}

impl Scope {
    /// The template of that name of every tenant.
    pub fn template(name: &str) -> Self {
        Self::Template { tenant: None, name: name.to_owned() }
    }

    /// Reads what a caller wrote. `template:x` is a template of the caller's tenant. A caller for all tenants, and the
    /// configuration file, mean the template of every tenant by it.
    pub fn read(text: &str, own: Option<&Tenant>) -> Result<Self, BadScope> {
        let scope: Self = text.parse()?;
        match (scope, own) {
            (Self::Template { tenant: None, name }, Some(own)) if !text.starts_with(FOR_EVERY_TENANT) => {
                Ok(Self::Template { tenant: Some(own.as_str().to_owned()), name })
            }
            (scope, _) => Ok(scope),
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
        let (of, name) = match name.split_once('/') {
            Some((of, name)) if kind == "template" => (Some(of), name),
            Some(_) | None => (None, name),
        };
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(bad("has no name of 1 to 128 printable bytes after the colon"));
        }
        let is_tenant = |name: &str| name.parse::<Tenant>().is_ok();
        match kind {
            "channel" => name.parse().map(Self::Channel).map_err(|_| bad("names no channel")),
            "tenant" if is_tenant(name) => Ok(Self::Tenant(name.to_owned())),
            "template" => match of.filter(|of| *of != EVERY_TENANT) {
                None => Ok(Self::template(name)),
                Some(of) if is_tenant(of) => {
                    Ok(Self::Template { tenant: Some(of.to_owned()), name: name.to_owned() })
                }
                Some(_) => Err(bad(BAD_TENANT)),
            },
            "tenant" => Err(bad(BAD_TENANT)),
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
        for text in [
            "global",
            "channel:webhook",
            "tenant:acme.B_2-x",
            "template:a:b",
            "template:München",
            "template:acme/München",
            "template:acme/a/b",
            "template:*/a/b",
            "template:*/*/b",
        ] {
            let scope: Scope = text.parse().unwrap();
            assert_eq!(scope.to_string(), text);
        }
        let long = format!("tenant:{}", "x".repeat(129));
        for text in ["", "Global", "channel:fax", "tenant:", "template", "user:x", "tenant:a\nb", &long] {
            assert!(text.parse::<Scope>().unwrap_err().to_string().starts_with("scope: `"), "{text}");
        }
    }

    #[test]
    fn a_template_belongs_to_one_tenant_or_to_all() {
        let acme: Tenant = "acme".parse().unwrap();
        let of = |tenant: Option<&str>, name: &str| Scope::Template {
            tenant: tenant.map(str::to_owned),
            name: name.to_owned(),
        };
        let table = [
            // What is written, what it is to all, what it is to the tenant acme.
            ("template:x", of(None, "x"), of(Some("acme"), "x")),
            ("template:*/x", of(None, "x"), of(None, "x")),
            ("template:acme/x", of(Some("acme"), "x"), of(Some("acme"), "x")),
            ("template:other/x", of(Some("other"), "x"), of(Some("other"), "x")),
            ("template:*/a/b", of(None, "a/b"), of(None, "a/b")),
            ("template:acme/a/b", of(Some("acme"), "a/b"), of(Some("acme"), "a/b")),
            ("tenant:acme", Scope::Tenant("acme".to_owned()), Scope::Tenant("acme".to_owned())),
        ];
        for (text, to_all, to_acme) in table {
            assert_eq!(Scope::read(text, None).unwrap(), to_all, "{text}");
            assert_eq!(text.parse::<Scope>().unwrap(), to_all, "{text}");
            assert_eq!(Scope::read(text, Some(&acme)).unwrap(), to_acme, "{text}");
            assert_eq!(to_all.to_string().parse::<Scope>().unwrap(), to_all, "{text}");
        }
        assert_eq!(of(None, "x").to_string(), "template:x");
        for text in ["template:/x", "template:acme/", "template:*/", "template:a b/x", "template:**/x"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
        let longest = "x".repeat(MAX_NAME);
        assert!(format!("template:acme/{longest}").parse::<Scope>().is_ok());
        assert!(format!("template:acme/{longest}x").parse::<Scope>().is_err());
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
