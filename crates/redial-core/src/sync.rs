//! The atomics of this crate: those of `core`, or loom's in model tests.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Makes a function `const`, except under loom, where atomics register themselves at run time.
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $vis const fn $name($($arg: $type),*) -> $out $body

        #[cfg(loom)]
        $(#[$attribute])*
        $vis fn $name($($arg: $type),*) -> $out $body
    };
}

pub(crate) use const_unless_loom;
