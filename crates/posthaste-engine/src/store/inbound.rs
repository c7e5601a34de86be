//! Inbound limits: what is taken of them, and how full the main lane is.

use posthaste_core::inbound::{AllTaken, InboundKey, InboundLimits, Reserved, Wanted};
use posthaste_core::time::Timestamp;

use super::slice::slice;

slice! {
    /// What all nodes together let in.
    pub trait Inbound {
        /// Reserves a time for each of these, in their order, as `posthaste_core::inbound::reserve` says. Reservations of all nodes
        /// follow each other. One that is lost because its answer was makes the limit stricter, never looser. Rows that nothing has
        /// been taken of for a while are removed, some at each call.
        write Reserve: fn reserve(
            wanted: Vec<Wanted>,
            limits: InboundLimits,
            now: Timestamp,
        ) -> Vec<Reserved>;

        /// What is taken of these limits. One that was never used, or not for a while, is left out.
        read Taken: fn inbound_taken(keys: Vec<InboundKey>) -> AllTaken;

        /// How many rows of all tenants the main lane has, those that are being sent included: a kept counter.
        read MainLane: fn main_lane() -> u64;
    }
}
