//! The drivers run on every executor: here on one of sixty lines, whose timers are threads.

use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use redial::testing::nanoseconds;
use redial::time::{Ns, SleepFn, Sleeper, SleepingOn, sleep_fn};
use redial::{AnyPolicy, Hedged, Policy, StopReason, ms, s};

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The system clock; each timer is a thread.
#[derive(Clone, Copy)]
struct Threads;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Threads {
    fn sleep(self, span: Duration) -> Timer {
        self.sleep_until(self.now() + nanoseconds(span))
    }
}

impl Sleeper for Threads {
    type Sleep = Timer;
    fn now(&self) -> Ns {
        nanoseconds(ORIGIN.elapsed())
    }
    fn sleep_until(&self, at: Ns) -> Timer {
        Timer { at, waker: Arc::default(), armed: false }
    }
}

struct Timer {
    at: Ns,
    waker: Arc<Mutex<Option<Waker>>>,
    armed: bool,
}

impl Future for Timer {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.at.saturating_sub(Threads.now());
        if left == 0 {
            return Poll::Ready(());
        }
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        if !std::mem::replace(&mut self.armed, true) {
            let waker = self.waker.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_nanos(left));
                let waker = waker.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            });
        }
        Poll::Pending
    }
}

#[test]
fn executor_retries_use_the_named_sleeper() {
    static QUICK: Policy = Policy::constant(ms(2)).build();
    let mut calls = 0;
    let (value, report) = block_on(
        QUICK
            .retry(|| {
                calls += 1;
                let call = calls;
                async move {
                    Threads.sleep(ms(1)).await;
                    if call < 3 { Err("busy") } else { Ok(call) }
                }
            })
            .when(|_| true)
            .sleeping_on(Threads)
            .with_report()
            .into_future(),
    )
    .expect("the third succeeds");
    assert_eq!((value, report.attempts), (3, 3));
    assert!(report.elapsed >= ms(2 + 2 + 1 + 1), "{report:?}");
}

#[test]
fn executor_hedges_run_without_tokio() {
    static HEDGED: Hedged = Policy::hedged(ms(1)).attempts(2).build();
    let mut calls = 0;
    let winner = block_on(
        HEDGED
            .retry(|| {
                calls += 1;
                let call = calls;
                async move {
                    if call == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, ()>(call)
                }
            })
            .when(|()| true)
            .sleeping_on(Threads)
            .into_future(),
    );
    assert_eq!(winner.expect("the hedge answers"), 2);
}

#[test]
fn executor_deadline_cancels_a_hanging_attempt() {
    static SHORT: Policy = Policy::constant(ms(1)).deadline(ms(3)).build();
    let hangs = || std::future::pending::<Result<(), ()>>();
    let call = SHORT.retry(hangs).when(|()| true).sleeping_on(Threads);
    let error = block_on(call.into_future()).expect_err("nothing ever comes");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Deadline, 1));
    assert!(error.elapsed() >= ms(3) && error.elapsed() < s(60), "{error:?}");
}

#[test]
fn executor_borrowing_call_runs_without_tokio() {
    static TIMED: Policy = Policy::immediate().attempt_timeout(ms(2)).retry_timeouts().build();
    let mut calls = 0;
    let call = TIMED.retry_on(&mut calls, async |calls| {
        *calls += 1;
        if *calls == 1 {
            std::future::pending::<()>().await;
        }
        Ok::<_, ()>(*calls)
    });
    let value = block_on(call.sleeping_on(Threads).when(|()| true));
    assert_eq!(value.expect("the second answers"), 2);
}

/// Fails at first, then returns the number of attempts.
fn second_succeeds() -> impl FnMut() -> std::future::Ready<Result<u32, &'static str>> {
    let mut calls = 0;
    move || {
        calls += 1;
        std::future::ready(if calls < 2 { Err("busy") } else { Ok(calls) })
    }
}

static QUICK: SleepingOn<Policy, Threads> =
    Policy::constant(ms(1)).attempts(3).build().sleeping_on(Threads);

#[test]
fn executor_default_sleeper_serves_every_call_of_a_policy() {
    let call = QUICK.retry(second_succeeds()).when(|_| true);
    assert_eq!(block_on(call.into_future()).unwrap(), 2);

    let call = QUICK.retry_with(|attempt| {
        let number = attempt.number();
        async move { if number < 3 { Err("busy") } else { Ok(number) } }
    });
    assert_eq!(block_on(call.when(|_| true).into_future()).unwrap(), 3);

    let (mut calls, again) = (0, async |calls: &mut u32| {
        *calls += 1;
        if *calls < 2 { Err("busy") } else { Ok(*calls) }
    });
    assert_eq!(block_on(QUICK.retry_on(&mut calls, again).when(|_| true)).unwrap(), 2);

    let call = QUICK.retry_with_context(1, |calls, _| async move {
        (calls + 1, if calls < 2 { Err("busy") } else { Ok(calls) })
    });
    assert_eq!(block_on(call.when(|_| true).into_future()).unwrap(), 2);

    let call = QUICK.policy().retry(|| Ok::<_, &str>(7)).when(|_| true);
    assert_eq!(call.call().unwrap(), 7, "a blocking call waits in its thread");
}

#[test]
fn executor_default_sleeper_serves_hedged_and_loaded_policies() {
    static HEDGED: SleepingOn<Hedged, Threads> =
        Policy::hedged(ms(1)).attempts(2).build().sleeping_on(Threads);
    let mut calls = 0;
    let hangs_once = || {
        calls += 1;
        let call = calls;
        async move {
            if call == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, &str>(call)
        }
    };
    let call = HEDGED.retry(hangs_once).when(|_| true);
    assert_eq!(block_on(call.into_future()).unwrap(), 2);

    let loaded = AnyPolicy::Policy(QUICK.policy().clone()).sleeping_on(Threads);
    let call = loaded.retry(second_succeeds()).when(|_| true);
    assert_eq!(block_on(call.into_future()).unwrap(), 2);
}

#[test]
fn executor_sleeper_can_be_a_function() {
    /// A future whose output is not `()`.
    type Sleep = std::pin::Pin<Box<dyn Future<Output = Instant> + Send>>;
    type Sleeps = SleepFn<fn(Duration) -> Sleep>;
    fn sleep(span: Duration) -> Sleep {
        let timer = Threads.sleep(span);
        Box::pin(async {
            timer.await;
            Instant::now()
        })
    }
    static FETCH: SleepingOn<Policy, Sleeps> =
        Policy::constant(ms(2)).deadline(s(60)).build().sleeping_on(sleep_fn(sleep));
    let call = FETCH.retry(second_succeeds()).when(|_| true).with_report();
    let (value, report) = block_on(call.into_future()).unwrap();
    assert!(value == 2 && report.elapsed >= ms(2), "{report:?}");
}
