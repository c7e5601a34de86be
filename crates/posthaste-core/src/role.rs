//! What a key may do.

use serde::{Deserialize, Serialize};

/// The role of a key. The names are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends, and looks at one notification.
    Sender,
    /// Reads everything but keys and secrets.
    Reader,
    /// Reads, and acts on what was sent.
    Operator,
    /// A tenant's key without a role: what sender and operator may, and the policy of its tenant. No key is
    /// given this role by name: a key of a tenant has it while it has no other one.
    #[serde(skip)]
    Tenant,
    /// Everything.
    Admin,
}

impl Role {
    pub const ALL: [Self; 5] = [Self::Sender, Self::Reader, Self::Operator, Self::Tenant, Self::Admin];

    /// The roles that a new key can be given by name.
    pub const NAMED: [Self; 4] = [Self::Sender, Self::Reader, Self::Operator, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Tenant => "tenant",
            Self::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether it may do what needs the other role.
    pub const fn includes(self, needed: Self) -> bool {
        match self {
            Self::Sender => matches!(needed, Self::Sender),
            Self::Reader => matches!(needed, Self::Reader),
            Self::Operator => matches!(needed, Self::Reader | Self::Operator),
            Self::Tenant => matches!(needed, Self::Sender | Self::Reader | Self::Operator | Self::Tenant),
            Self::Admin => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_includes_itself_and_what_the_contract_names() {
        use Role::{Admin, Operator, Reader, Sender, Tenant};
        let table: [(Role, &[Role]); 5] = [
            (Sender, &[Sender]),
            (Reader, &[Reader]),
            (Operator, &[Reader, Operator]),
            (Tenant, &[Sender, Reader, Operator, Tenant]),
            (Admin, &[Sender, Reader, Operator, Tenant, Admin]),
        ];
        for (held, wanted) in table {
            let included: Vec<Role> = Role::ALL.into_iter().filter(|needed| held.includes(*needed)).collect();
            assert_eq!(included, wanted, "{held:?}");
        }
    }

    #[test]
    fn a_role_is_found_by_its_name() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        assert_eq!(Role::from_name("Admin"), None);
    }
}
