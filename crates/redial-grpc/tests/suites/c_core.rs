//! After.
