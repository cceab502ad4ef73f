//! The loop that drives a call: the order of polls, commands, answers and timers.

use std::task::{Context, Poll, Waker};

use redial_core::{CallStep, Driver, PollLoop, PollStep, RunCommands};

use super::*;

/// A driver whose strategy answers at once or never, and whose timer fires when the test says so.
struct LoopDriver<'a, 'e> {
    call: Call<&'a Policy>,
    env: TestEnvironment<'e>,
    answer: Option<Advice>,
    asked: bool,
    now: Ns,
    timer_polls: u32,
}

impl RunCommands for LoopDriver<'_, '_> {
    fn command(&mut self) -> Option<Command> {
        self.call.command(&mut self.env)
    }
    fn ask(&mut self, _failure: Failure) {
        self.asked = true;
    }
    fn await_grant(&mut self, _cost: Cost) {
        unreachable!("the throttle answers at once");
    }
}

impl Driver for LoopDriver<'_, '_> {
    fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        self.call.running_after(attempt)
    }
    fn poll_answer(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        match self.answer.take() {
            Some(advice) if self.asked => {
                self.call.answered(advice, self.now, &mut self.env);
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }
    fn poll_timer(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        self.timer_polls += 1;
        match self.call.wake_at() {
            Some(at) if at <= self.now => {
                self.call.wake_once(self.now, &mut self.env);
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }
}

/// Runs the steps of a test with a call that has just begun.
fn drive(rules: Rules, steps: impl FnOnce(&mut LoopDriver<'_, '_>)) {
    let (policy, shared) = (policy(rules), Spec::Free.build());
    let mut env = TestEnvironment::new(&Spec::Free, &shared, 1);
    let call = Call::begin(&policy, CallParams::default(), 0, &mut env);
    steps(&mut LoopDriver { call, env, answer: None, asked: false, now: 0, timer_polls: 0 });
}

fn next(position: &mut PollLoop, driver: &mut LoopDriver<'_, '_>) -> Poll<PollStep> {
    position.next_step(driver, &mut Context::from_waker(Waker::noop()))
}

fn started(step: &Poll<PollStep>) -> Option<u32> {
    match step {
        Poll::Ready(PollStep::Command(CallStep::Start(start))) => Some(start.number),
        _ => None,
    }
}

fn fail(position: &mut PollLoop, driver: &mut LoopDriver<'_, '_>, slot: usize) {
    driver.call.outcome(slot, Classification::from(FAILED), driver.now, &mut driver.env);
    position.outcome();
}

#[test]
fn poll_loop_polls_each_attempt_then_waits_for_the_timer() {
    drive(HEDGED, |driver| {
        let mut position = PollLoop::START;
        let position = &mut position;
        assert_eq!(started(&next(position, driver)), Some(1));
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(0)), "the new attempt");
        assert_eq!((next(position, driver), driver.timer_polls), (Poll::Pending, 1));
        driver.now = at(10);
        *position = PollLoop::START;
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(0)));
        assert_eq!(started(&next(position, driver)), None, "outcomes come before the timer");
        assert_eq!(started(&next(position, driver)), Some(2));
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(0)), "all are polled again");
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(1)));
        assert_eq!(next(position, driver), Poll::Pending);
    });
}

#[test]
fn poll_loop_success_cancels_hedges_and_ends_before_timers() {
    drive(HEDGED, |driver| {
        let mut position = PollLoop::START;
        let position = &mut position;
        assert_eq!(started(&next(position, driver)), Some(1));
        driver.now = at(10);
        driver.call.wake_once(driver.now, &mut driver.env);
        *position = PollLoop::AllPending;
        assert_eq!(started(&next(position, driver)), Some(2));
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(0)));
        // The next hedge is due, and the first attempt succeeds.
        driver.now = at(20);
        let polls = driver.timer_polls;
        let won = Classification::from(Directive::Succeed);
        driver.call.outcome(0, won, driver.now, &mut driver.env);
        position.outcome();
        assert_eq!(
            next(position, driver),
            Poll::Ready(PollStep::Command(CallStep::Cancel(1))),
            "the success cancels the hedge"
        );
        let end = next(position, driver);
        assert!(matches!(end, Poll::Ready(PollStep::Command(CallStep::End(_)))), "{end:?}");
        assert_eq!(driver.timer_polls, polls, "no timer after the end");
    });
}

#[test]
fn poll_loop_starts_the_next_attempt_before_polling_others() {
    drive(HEDGED, |driver| {
        let mut position = PollLoop::START;
        let position = &mut position;
        assert_eq!(started(&next(position, driver)), Some(1));
        driver.now = at(10);
        driver.call.wake_once(driver.now, &mut driver.env);
        *position = PollLoop::AllPending;
        assert_eq!(started(&next(position, driver)), Some(2));
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(0)));
        // A failure that hedging allows starts the next hedge at once.
        fail(position, driver, 0);
        assert_eq!(started(&next(position, driver)), Some(3));
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(1)), "from the first on");
    });
}

#[test]
fn poll_loop_waits_for_the_answer_before_the_timer() {
    let rules = Rules { uses_strategy: true, deadline: Some(ms(50)), ..BASE };
    drive(rules, |driver| {
        let mut position = PollLoop::START;
        let position = &mut position;
        assert_eq!(started(&next(position, driver)), Some(1));
        assert_eq!(next(position, driver), Poll::Ready(PollStep::Poll(0)));
        fail(position, driver, 0);
        assert_eq!(next(position, driver), Poll::Pending, "the strategy has not answered");
        assert!(driver.asked);
        // Answer and deadline of one moment: the answer comes first, and its retry is too late.
        driver.answer = Some(Advice::After(0));
        driver.now = at(40);
        let polls = driver.timer_polls;
        *position = PollLoop::START;
        assert_eq!(started(&next(position, driver)), Some(2));
        assert_eq!(driver.timer_polls, polls, "the answer was an input");
    });
}
