//! The written form of policies.
