//! The operation of every case: a future of 64 bytes that is opaque to the optimiser.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

/// How many more times the operation fails.
pub static FAILURES: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, Debug)]
pub struct Busy;

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("busy")
    }
}

impl std::error::Error for Busy {}

pub fn is_transient(_error: &Busy) -> bool {
    true
}

/// 64 bytes: seven of payload and whether it pends once.
pub struct Operation {
    payload: [u64; 7],
    pends: u64,
}

#[inline(never)]
pub fn operation(seed: &u64, pends: &u64) -> Operation {
    Operation { payload: [black_box(*seed); 7], pends: *pends }
}

/// The same, blocking.
#[inline(never)]
pub fn blocking(seed: &u64) -> Result<u64, Busy> {
    answer(black_box(*seed))
}

#[inline(always)]
fn answer(value: u64) -> Result<u64, Busy> {
    let left = FAILURES.load(Ordering::Relaxed);
    if left > 0 {
        FAILURES.store(left - 1, Ordering::Relaxed);
        return Err(Busy);
    }
    Ok(value)
}

impl Future for Operation {
    type Output = Result<u64, Busy>;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.pends > 0 {
            self.pends -= 1;
            return Poll::Pending;
        }
        Poll::Ready(answer(black_box(self.payload)[3]))
    }
}
