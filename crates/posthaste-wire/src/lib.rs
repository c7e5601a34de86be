//! What leaves: channels and their providers. Empty until the first channel lands.
