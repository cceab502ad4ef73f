//! Proof that `redial-core` works without `std`: a static library with its own allocator and panic
//! handler.
//!
//! The build is the check: `cargo build --manifest-path checks/no-std/Cargo.toml`. If the core
//! linked `std`, even by `extern crate std` alone, there would be two panic handlers, and the build
//! would fail with "found duplicate lang item `panic_impl`".
#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use redial_core::throttle::{Bucket, RetryBudget};
use redial_core::{
    Advice, Call, Command, CallEnvironment, Directive, Failure, CallCounters, NEVER, Ns, Policy, Random, Rules,
    CallParams, Verdict, decide, ms,
};

/// A policy and a budget that are built at compile time.
static POLICY: Policy = Policy::new(Rules { deadline: Some(ms(100)), ..Rules::DEFAULT });
static BUDGET: RetryBudget = RetryBudget::standard();

/// The call environment of a device without an operating system.
fn device() -> CallEnvironment<&'static RetryBudget, Random> {
    CallEnvironment::new(&BUDGET, Random::new(7))
}

/// Decides about one failure; the delay in nanoseconds, or [`NEVER`] if there is no retry.
#[unsafe(no_mangle)]
pub extern "C" fn redial_decide(attempts: u32, now: Ns) -> Ns {
    let mut ledger = CallCounters { attempts, ..CallCounters::new(0) };
    let failure = Failure::server();
    match decide(&POLICY, &mut ledger, &failure, Advice::None, now, NEVER, &mut device()) {
        Verdict::Retry { after, .. } => after,
        _ => NEVER,
    }
}

/// Runs a call whose first attempts fail, on a simulated clock; returns the number of attempts.
#[unsafe(no_mangle)]
pub extern "C" fn redial_play(failures: u32) -> u32 {
    let mut world = Box::new(device());
    let mut now = 0;
    let mut call = Call::begin(&POLICY, CallParams::default(), now, &mut *world);
    loop {
        match call.command(&mut *world) {
            Some(Command::Start(start)) if start.attempt <= failures => {
                let failed = Directive::Retry(Failure::server());
                call.outcome(start.slot, failed.into(), now, &mut *world);
            }
            Some(Command::Start(start)) => {
                call.outcome(start.slot, Directive::Succeed.into(), now, &mut *world);
            }
            Some(Command::End(_)) => return call.started(),
            Some(_) => {}
            None => {
                let Some(at) = call.wake_at() else { return call.started() };
                now = at;
                call.wake_once(now, &mut *world);
            }
        }
    }
}

/// The remaining tokens, in thousandths.
#[unsafe(no_mangle)]
pub extern "C" fn redial_budget() -> u32 {
    BUDGET.tokens(0).map_or(0, |tokens| (tokens * 1000.0) as u32)
}

/// A bump allocator in static memory, which never frees.
struct Bump {
    used: AtomicUsize,
    memory: UnsafeCell<[u8; SIZE]>,
}

const SIZE: usize = 16 * 1024;

// SAFETY: each byte is allocated at most once, by the atomic exchange of `used`.
unsafe impl Sync for Bump {}

// SAFETY: a block lies within the memory, is aligned, and overlaps no other.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.memory.get().cast::<u8>();
        let mut start = 0;
        let place = |used: usize| {
            let address =
                base.addr().checked_add(used)?.checked_next_multiple_of(layout.align())?;
            start = address - base.addr();
            start.checked_add(layout.size()).filter(|end| *end <= SIZE)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, place) {
            Ok(_) => base.wrapping_add(start),
            Err(_) => null_mut(),
        }
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Bump = Bump { used: AtomicUsize::new(0), memory: UnsafeCell::new([0; SIZE]) };

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
