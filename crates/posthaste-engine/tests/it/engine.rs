//! What the engine promises, on paused time.

mod arrivals;
mod ends;
mod policies;
mod retries;
mod tries;

/// One minute between attempts, without chance and without quick tries.
const PLAIN: &str = r#"{"strategy": "fixed", "initialDelay": "60s", "maxAttempts": 3, "jitter": "none",
    "timeout": "10s", "quick": {"tries": 0}}"#;
