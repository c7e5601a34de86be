//! What people touch: HTTP API, CLI, configuration and wiring. Empty until the first product lands.
