//! A hand-written loop on the core, which needs no `std`: for a device, a simulator or another language.

use redial_core::throttle::{Bucket, RetryBudget};
use redial_core::{
    Advice, CallCounters, CallEnvironment, Environment, Failure, NEVER, Ns, Policy, Random, Rules,
    StopReason, Verdict, decide, ms,
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

#[test]
fn program_runs_a_loop_on_the_core() {
    let mut device = Device { now: 0 };
    let mut answers = [Err("busy"), Err("busy"), Ok(7)].into_iter();
    assert_eq!(run(&mut device, || answers.next().unwrap()), Ok(7));
    assert!(device.now > 0 && device.now < redial_core::ns(ms(300)), "{}", device.now);
    assert_eq!(BUDGET.tokens(device.now).map(|tokens| tokens < 9.0), Some(true));
    let gave_up = run(&mut device, || Err::<(), _>("down"));
    assert_eq!(gave_up, Err(("down", StopReason::AttemptsExhausted)));
}

/// For a loop that needs the delays alone.
#[test]
fn program_uses_the_delays_of_a_policy() {
    use redial::{Jitter, Policy};
    static CONNECT: Policy = Policy::exponential(ms(10)).jitter(Jitter::None).attempts(4).build();
    let mut slept = Vec::new();
    let mut delays = CONNECT.delays();
    let mut answers = [Err("refused"), Err("refused"), Ok(7)].into_iter();
    let connection = loop {
        match answers.next().unwrap() {
            Ok(connection) => break Ok(connection),
            Err(error) => match delays.next() {
                Some(delay) => slept.push(delay),
                None => break Err(error),
            },
        }
    };
    assert_eq!((connection, slept), (Ok(7), vec![ms(10), ms(20)]));
}
