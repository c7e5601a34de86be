//! Code that both stores share because it does not depend on the SQL dialect.

pub(crate) mod attempts;
pub(crate) mod counters;
pub(crate) mod damage;
pub(crate) mod destinations;
pub(crate) mod groups;
pub(crate) mod inbound;
pub(crate) mod jobs;
pub(crate) mod operations;
pub(crate) mod places;
pub(crate) mod records;
pub(crate) mod replies;
pub(crate) mod retention;
pub(crate) mod series;
pub(crate) mod values;
