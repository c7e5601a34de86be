//! What is kept: the stores behind the `Store` seam.
