//! API keys: who calls, and whose notifications they may touch.
