//! Stored form of what is taken of inbound limits.

use posthaste_core::inbound::{InboundKey, Taken};

use super::damage::{Damaged, Result};
use super::values;

/// The module of the row for all notifications of a tenant. No module can have this name.
const WHOLE_TENANT: &str = "";

pub(crate) fn module_text(key: &InboundKey) -> &str {
    key.module.as_deref().unwrap_or(WHOLE_TENANT)
}

/// A row without a text is new.
pub(crate) fn read(tenant: &str, module: &str, taken: &str) -> Result<(InboundKey, Taken)> {
    let module = (module != WHOLE_TENANT).then(|| module.into());
    let key = InboundKey { tenant: values::tenant(tenant)?, module };
    let taken = match taken {
        "" => Some(Taken::default()),
        text => Taken::from_text(text),
    };
    Ok((key, taken.ok_or_else(|| Damaged("what is taken of an inbound limit".to_owned()))?))
}
