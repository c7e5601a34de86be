//! Destinations: what this node knows of their health and limits, and what people see and do.

mod people;

pub use self::people::{DestinationError, DestinationTarget, DestinationView, PARKED_COUNTED};
