//! A small HTTP client for the commands that speak the API.
