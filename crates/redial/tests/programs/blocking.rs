//! Blocking calls, on threads of their own and of rayon.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use redial::throttle::RetryBudget;
use redial::{Policy, Throttle, ms};

static BUDGET: RetryBudget = RetryBudget::new(100.0, 0.1);
static READ: Policy =
    Policy::constant(ms(1)).attempts(3).throttle(Throttle::budget(&BUDGET)).build();

/// Fails the first time for each file.
fn read(file: u32, tries: &mut u32) -> Result<u32, &'static str> {
    *tries += 1;
    if *tries == 1 { Err("locked") } else { Ok(file * 2) }
}

fn read_with_retries(file: u32) -> Result<u32, redial::Error<&'static str>> {
    let mut tries = 0;
    READ.retry(|| read(file, &mut tries)).when(|error| *error == "locked").call()
}

#[test]
fn program_retries_on_threads() {
    let threads: Vec<_> =
        (0..4).map(|file| thread::spawn(move || read_with_retries(file))).collect();
    let values: Vec<_> =
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    assert_eq!(values, [0, 2, 4, 6]);
}

#[test]
fn program_retries_in_a_parallel_iterator() {
    let values: Result<Vec<_>, _> = (0..32).into_par_iter().map(read_with_retries).collect();
    assert_eq!(values.unwrap(), (0..32).map(|file| file * 2).collect::<Vec<_>>());
}

/// A running attempt cannot be cancelled, so the operation gets the remaining time.
#[test]
fn program_passes_the_remaining_time_to_a_blocking_operation() {
    static QUERY: Policy = Policy::immediate().deadline(ms(50)).build();
    let attempts = AtomicU32::new(0);
    let call = QUERY.retry_with(|attempt| {
        attempts.fetch_add(1, Ordering::Relaxed);
        let timeout = attempt.remaining().expect("there is a deadline");
        assert!(timeout <= ms(50));
        thread::sleep(timeout);
        Err::<(), _>("timed out")
    });
    let error = call.when(|_| true).call().unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(attempts.into_inner(), error.attempts());
}
