//! Smithy.
