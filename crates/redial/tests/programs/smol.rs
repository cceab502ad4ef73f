//! Another executor: the timer of smol.

use std::io;
use std::sync::LazyLock;
use std::time::Instant;

use async_io::Timer;
use redial::time::{Ns, Sleeper, SleepingOn, duration};
use redial::{Policy, ms};

/// The clock and the timer of `async-io`, which smol uses.
#[derive(Clone, Copy, Debug)]
struct Smol;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Sleeper for Smol {
    type Sleep = Sleep;

    fn now(&self) -> Ns {
        redial::time::ns(ORIGIN.elapsed())
    }

    fn sleep_until(&self, at: Ns) -> Sleep {
        Sleep(Timer::at(*ORIGIN + duration(at)))
    }
}

/// A timer whose output is `()`.
struct Sleep(Timer);

impl Future for Sleep {
    type Output = ();

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

static FETCH: SleepingOn<Policy, Smol> =
    Policy::constant(ms(5)).attempts(3).build().sleeping_on(Smol);

#[test]
fn program_runs_on_the_executor_of_smol() {
    let start = Instant::now();
    let mut answers = [Err("busy"), Err("busy"), Ok(7)].into_iter();
    let value = async_io::block_on(async {
        FETCH
            .retry(|| std::future::ready(answers.next().expect("an answer")))
            .when(|_| true)
            .await
            .map_err(|error| io::Error::other(error.to_string()))
    });
    assert_eq!(value.unwrap(), 7);
    assert!(start.elapsed() >= ms(10), "two delays of 5 ms");
}
