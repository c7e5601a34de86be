//! What is done: the loops that accept, claim, send and settle, and the seams they need.
//!
//! Invariant: no SQL, no sockets and no HTTP here. The engine owns the seams; stores and channels implement them.

pub mod accept;
pub mod acts;
mod age;
mod alarm;
mod catch_panic;
#[warn(missing_docs)]
pub mod channel;
mod claim;
#[warn(missing_docs)]
pub mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod destinations;
mod dispatch;
pub mod engine;
mod expire;
mod flow_names;
mod gather;
pub mod groups;
mod heartbeat;
mod hints;
mod inbound;
pub mod jobs;
mod journal;
mod leases;
pub mod live;
pub mod log_throttle;
pub mod metrics;
#[cfg(feature = "testing")]
pub mod model_store;
mod node;
pub mod operations;
mod outage;
mod outcome;
pub mod planted;
pub mod policies;
mod prefetched;
mod queue_limit;
pub mod reads;
mod reclaim;
mod replace;
mod retention;
pub mod saved_views;
mod series;
pub mod settings;
mod settle;
mod signal;
pub mod signing;
mod slots;
#[warn(missing_docs)]
pub mod store;
mod sweep;
pub mod vault;
mod wake;
