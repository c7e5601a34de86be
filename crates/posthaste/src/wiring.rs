//! Puts the parts together: the one place that names concrete types.
