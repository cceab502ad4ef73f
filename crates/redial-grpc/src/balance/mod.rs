//! A channel over several backends (feature `balance`).

mod resolve;

pub use resolve::{ADDRESSES_MAX, Resolution, Resolve, Resolving};
