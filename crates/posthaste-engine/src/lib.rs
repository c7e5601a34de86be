//! What is done: the loops that accept, claim, send and settle, and the seams they need.
