//! Policies by name.
