//! A loop of your own on the core, which needs no `std`: for a device, a simulator or another language.
//!
//! The loop owns the clock, the sleep and the operation; `decide` says what follows a failure.
//!
//! `cargo run -p redial-core --example own_loop`

use redial_core::throttle::{Bucket, RetryBudget};
use redial_core::{
    Advice, CallCounters, CallEnvironment, Environment, Failure, NEVER, Ns, Policy, Random, Rules,
    StopReason, Verdict, decide, ms, ns,
};

static POLICY: Policy = Policy::new(Rules { attempts: Some(4), ..Rules::DEFAULT });
static BUDGET: RetryBudget = RetryBudget::standard();

/// A clock that sleeps by moving on.
struct Device {
    now: Ns,
}

/// Runs an operation until it succeeds, or the policy or the budget ends the call.
fn run<T, E>(
    device: &mut Device,
    mut operation: impl FnMut() -> Result<T, E>,
) -> Result<T, (E, StopReason)> {
    let mut env = CallEnvironment::new(&BUDGET, Random::new(7));
    let mut counters = CallCounters::new(device.now);
    loop {
        counters.count();
        let error = match operation() {
            Ok(value) => {
                env.succeeded();
                return Ok(value);
            }
            Err(error) => error,
        };
        let failure = Failure::server();
        let now = device.now;
        let verdict = decide(&POLICY, &mut counters, &failure, Advice::None, now, NEVER, &mut env);
        match verdict {
            Verdict::Retry { after, .. } => {
                device.now += after;
                env.started();
            }
            Verdict::End(stop_reason) => return Err((error, stop_reason)),
            Verdict::Ask | Verdict::Later { .. } => unreachable!("no strategy, and a budget"),
        }
    }
}

fn main() {
    let mut device = Device { now: 0 };
    let mut answers = [Err("busy"), Err("busy"), Ok(7)].into_iter();
    let result = run(&mut device, || answers.next().unwrap_or(Err("no more answers")));
    println!("{result:?} after {} ms", device.now / ns(ms(1)));
    let result = run(&mut device, || Err::<u32, _>("down"));
    println!("{result:?} at {} ms", device.now / ns(ms(1)));
    println!("{} tokens are left", BUDGET.tokens(device.now).unwrap_or_default());
}

#[test]
fn own_loop_example_retries_until_success_or_exhaustion() {
    let mut device = Device { now: 0 };
    let mut answers = [Err("busy"), Err("busy"), Ok(7)].into_iter();
    assert_eq!(run(&mut device, || answers.next().unwrap()), Ok(7));
    assert!(device.now > 0 && device.now < ns(ms(300)), "{}", device.now);
    assert_eq!(BUDGET.tokens(device.now).map(|tokens| tokens < 9.0), Some(true));
    let gave_up = run(&mut device, || Err::<(), _>("down"));
    assert_eq!(gave_up, Err(("down", StopReason::AttemptsExhausted)));
}
