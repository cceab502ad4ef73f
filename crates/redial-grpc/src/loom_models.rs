//! Loom models of the state that several tasks share: the replay buffer with its wakers, the buffer
//! limit, the throttle, the method table and the current config. Loom explores all interleavings with
//! at most [`PREEMPTIONS`] preemptions. A lost wakeup shows up as a deadlock and aborts the test,
//! because destructors take locks too.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p redial-grpc --release --lib
//! --no-default-features loom_models`

mod config;
mod replay_buffer;

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

/// Maximum number of preemptions per execution.
const PREEMPTIONS: usize = 4;

fn model(steps: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(steps);
}

/// A task that sleeps until it is woken.
#[derive(Default)]
struct Sleeper {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.wakes.notify_one();
    }
}

/// Polls like an executor: again only after a wake.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let task = Arc::new(Sleeper::default());
    let waker = Waker::from(task.clone());
    loop {
        if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let mut woken = task.woken.lock().unwrap();
        while !*woken {
            woken = task.wakes.wait(woken).unwrap();
        }
        *woken = false;
    }
}
