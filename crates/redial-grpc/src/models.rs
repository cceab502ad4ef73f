//! Goal: what several tasks touch at once is right however their steps interleave: the tape with its
//! wakers, the meter, the throttle, the table of methods and the config in force. Method: loom plays
//! the interleavings with at most [`PREEMPTIONS`] preemptions, which finds every bug that so many
//! switches at the worst moments can show; a task that is never woken again is a deadlock there, and
//! an abort, since destructors lock too. Each model names a one-line change that it is known to catch.
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p redial-grpc --release --lib
//! --no-default-features models`

mod config;
mod replay_buffer;

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

/// How often all tasks together may be interrupted.
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

/// Polls as an executor does: again only when it was woken.
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
