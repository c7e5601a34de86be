//! Code that both stores share because it does not depend on the SQL dialect.

pub(crate) mod attempts;
pub(crate) mod counters;
pub(crate) mod damage;
pub(crate) mod places;
pub(crate) mod records;
pub(crate) mod replies;
pub(crate) mod values;
