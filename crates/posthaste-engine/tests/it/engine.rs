//! What the engine promises, on paused time.

mod acts;
mod arrivals;
mod breakers;
mod broken;
mod budget;
mod dead_letters;
mod destinations;
mod drain;
mod ends;
mod faults;
mod hints;
mod inbound;
mod jobs;
mod journal;
mod leases;
mod limits;
mod live;
mod metrics;
mod nodes;
mod operation_breakers;
mod operation_events;
mod operation_selections;
mod operations;
mod policies;
mod prefetched;
mod ready;
mod retention;
mod retries;
mod saved_views;
mod series;
mod settings;
mod signing;
mod slow_answers;
mod story;
mod sweeping;
mod tries;
mod turns;
mod vault;
mod vault_rotation;
mod zgw;

/// One minute between attempts, without chance and without quick tries.
const PLAIN: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 3, "jitter": "none",
    "timeout": "10s", "quick": {"tries": 0}}"#;
