//! What both stores share: forms in which values are kept that are no dialect of SQL.

pub(crate) mod attempts;
pub(crate) mod counters;
pub(crate) mod damage;
pub(crate) mod places;
pub(crate) mod records;
pub(crate) mod replies;
pub(crate) mod values;
