//! Decision P6: what was taken for a retry that never starts is given back, whatever ends the call.

use super::*;

/// Where a retry is paid for and waits at moment 0.
fn waiting(rules: Rules, story: impl FnOnce(&mut Play<'_, '_, '_, 1>)) {
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    tell(rules, CallParams::default(), (spec, &[]), |play| {
        play.report(1, FAILED);
        assert_eq!(play.tokens(), 1.0, "a retry is paid for when it is decided");
        story(play);
    });
}

#[test]
fn a_cancelled_call_gives_back_what_its_retry_took_and_counts_nothing() {
    waiting(BASE, |play| {
        play.cancel();
        assert_eq!(play.tokens(), 2.0);
        assert_eq!(play.ended(), Some((StopReason::Cancelled, None)));
    });
    let spec = Spec::Tokens { max: 10.0, ratio: 1.0 };
    tell::<1>(BASE, CallParams::default(), (spec, &[]), |play| {
        play.cancel();
        assert_eq!((play.tokens(), play.book.failed), (10.0, 0), "never a failure");
    });
}

#[test]
fn a_dropped_call_gives_back_what_its_retry_took() {
    let budget = RetryBudget::try_new(2.0, 0.0).unwrap();
    let shared = Shared::Budget(budget);
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    let (policy, mut model) = (policy(BASE), Model::new(spec));
    let book = TestEnvironment::new(&spec, &shared, 1);
    let mut play = Play::<1>::begin(&policy, CallParams::default(), 0, book, &mut model);
    play.report(1, FAILED);
    assert_eq!(shared.tokens(0), Some(1.0));
    play.drop_it();
    assert_eq!(shared.tokens(0), Some(2.0));
}

#[test]
fn a_deadline_gives_back_what_the_waiting_retry_took() {
    waiting(
        Rules { deadline: Some(ms(7)), deadline_action: DeadlineAction::WaitForDeadline, ..BASE },
        |play| {
            play.reach(7);
            play.wake();
            assert_eq!((play.stop_reason(), play.tokens()), (Some(StopReason::Deadline), 2.0));
        },
    );
}

#[test]
fn a_retry_that_has_started_is_not_given_back() {
    waiting(BASE, |play| {
        play.pass(at(10));
        play.cancel();
        assert_eq!((play.numbers(), play.tokens()), (vec![1, 2], 1.0));
    });
}

#[test]
fn a_debt_that_the_deadline_does_not_allow_is_given_back() {
    // 10 ms of backoff fit before the deadline; what the bucket adds to them does not.
    for (charge_at, moment, left) in
        [(ChargeAt::Decision, 0, -10.0), (ChargeAt::AfterBackoff, 10, 0.0)]
    {
        indebted(Rules { charge_at, deadline: Some(ms(15)), ..BASE }, 2, |play| {
            play.report(1, FAILED);
            play.reach(moment);
            play.wake();
            assert_eq!(play.ended(), Some((StopReason::Deadline, Some(1))), "{charge_at:?}");
            assert_eq!(play.tokens(), left, "{charge_at:?}");
        });
    }
}

#[test]
fn a_grant_that_comes_too_late_is_given_back() {
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    let cancelled = |play: &mut Play<'_, '_, '_, 4>| play.cancel();
    let won = |play: &mut Play<'_, '_, '_, 4>| play.report(1, Directive::Succeed);
    let committed = |play: &mut Play<'_, '_, '_, 4>| play.headers(play.slot(1));
    let refused = |play: &mut Play<'_, '_, '_, 4>| {
        play.report(1, failed_with(Failure::server().stop()));
    };
    let ways: [&dyn Fn(&mut Play<'_, '_, '_, 4>); 4] = [&cancelled, &won, &committed, &refused];
    for (i, way) in ways.into_iter().enumerate() {
        tell::<4>(HEDGED, CallParams::default(), (spec, &[true]), |play| {
            play.pass(at(10));
            assert!(play.awaiting.is_some(), "the hedge is asked for");
            way(play);
            play.grant();
            if play.end.is_none() {
                assert_eq!(play.tokens(), 1.0, "held until the call ends");
                play.cancel();
            }
            assert_eq!((play.starts().len(), play.tokens()), (1, 2.0), "way {i}");
        });
    }
}

#[test]
fn a_hedge_that_waits_for_its_debt_is_given_back_when_another_attempt_decides_the_call() {
    let spec = Spec::Costs(CostBucketConfig { capacity: 10.0, success: 0.0, ..COSTS });
    let ways: [&dyn Fn(&mut Play<'_, '_, '_, 4>); 4] = [
        &|play| play.report(1, Directive::Succeed),
        &|play| play.report(1, Directive::Fail),
        &|play| {
            play.headers(play.slot(1));
            play.report(1, Directive::Succeed);
        },
        &|play| play.cancel(),
    ];
    for (i, way) in ways.into_iter().enumerate() {
        let rules = Rules { hedge: Some(Duration::ZERO), ..BASE };
        tell::<4>(rules, CallParams::default(), (spec, &[]), |play| {
            // The second took all there was; the third is lent what comes back in 10 ms.
            assert_eq!((play.starts(), play.tokens()), (vec![0.0, 0.0], -10.0));
            way(play);
            // S3: a success gives back what the second took as well.
            let expected =
                if play.stop_reason() == Some(StopReason::Succeeded) { 10.0 } else { 0.0 };
            assert_eq!(play.tokens(), expected, "way {i}");
        });
    }
}

/// A hedged call whose driver takes one start of a moment, so that something else comes before the
/// next one; the budget holds four.
fn one_at_a_time(delay: Duration, story: impl FnOnce(&mut Play<'_, '_, '_, 4>)) {
    let spec = Spec::Budget { reserve: 4.0, ratio: 0.0 };
    let rules = Rules { hedge: Some(delay), deadline: Some(ms(100)), ..BASE };
    let (policy, shared, mut model) = (policy(rules), spec.build(), Model::new(spec));
    let book = TestEnvironment::new(&spec, &shared, 1);
    let mut play =
        Play::begin_taking(Starts::One, &policy, CallParams::default(), 0, book, &mut model);
    story(&mut play);
    play.drop_it();
}

/// Every way in which a call can end before the driver takes the next start.
const ENDS: [fn(&mut Play<'_, '_, '_, 4>); 4] = [
    |play| play.report(1, Directive::Succeed),
    |play| play.report(1, Directive::Fail),
    |play| play.cancel(),
    |play| {
        play.reach(100);
        play.wake();
    },
];

#[test]
fn hedging_without_delay_starts_and_pays_only_what_is_taken() {
    for (i, end) in ENDS.into_iter().enumerate() {
        one_at_a_time(Duration::ZERO, |play| {
            assert_eq!((play.starts(), play.tokens()), (vec![0.0], 4.0), "the first is free");
            end(play);
            assert!(play.end.is_some(), "way {i}");
            assert_eq!((play.starts(), play.tokens()), (vec![0.0], 4.0), "way {i}");
            assert_eq!((play.call.started(), play.call.counters().attempts), (1, 1), "way {i}");
        });
    }
    one_at_a_time(Duration::ZERO, |play| {
        play.oversleep(0);
        assert!(!play.wake_once(), "nothing is due; the second is taken");
        assert_eq!((play.starts().len(), play.tokens()), (2, 3.0));
        play.report(2, Directive::Fail);
        assert_eq!((play.starts().len(), play.tokens()), (2, 3.0));
        assert_eq!(play.cancels(), [(1, 0.0)], "what never started is not cancelled");
    });
}

#[test]
fn hedging_start_that_is_paid_and_not_taken_is_refunded() {
    // The second attempt fails, and the hedge that answers it is paid for and not taken.
    let policy = policy(Rules { hedge: Some(ms(10)), deadline: Some(ms(100)), ..BASE });
    let shared = Shared::Budget(RetryBudget::try_new(4.0, 0.0).unwrap());
    let ends: [fn(&mut Call<&Policy, 4>, &mut TestEnvironment<'_>); 4] = [
        |call, book| call.outcome(0, Directive::Succeed.into(), at(11), book),
        |call, book| call.outcome(0, Directive::Fail.into(), at(11), book),
        |call, book| call.cancel(at(11), book),
        |call, book| assert!(call.wake_once(at(100), book)),
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let mut book = TestEnvironment::new(&Spec::Budget { reserve: 4.0, ratio: 0.0 }, &shared, 1);
        let mut call = Call::<_, 4>::begin(&policy, CallParams::default(), 0, &mut book);
        while call.command(&mut book).is_some() {}
        assert!(call.wake_once(at(10), &mut book));
        while call.command(&mut book).is_some() {}
        assert_eq!((call.started(), shared.tokens(0)), (2, Some(3.0)));
        call.outcome(1, FAILED.into(), at(11), &mut book);
        assert_eq!((call.started(), shared.tokens(0)), (2, Some(2.0)), "paid, and to be taken");
        end(&mut call, &mut book);
        assert_eq!((call.started(), shared.tokens(0)), (2, Some(3.0)), "way {i}");
        let command = call.command(&mut book);
        assert!(matches!(command, Some(Command::Cancel(0) | Command::End(_))), "way {i}");
        drop(book);
        // The second attempt was used; the next call finds a full budget again.
        shared.refund(redial_core::Withdrawal(1000));
    }
}

#[test]
fn hedging_start_that_is_paid_and_not_taken_waits_for_a_pushback() {
    let policy = policy(HEDGED);
    let shared = Shared::Budget(RetryBudget::try_new(4.0, 0.0).unwrap());
    let mut book = TestEnvironment::new(&Spec::Budget { reserve: 4.0, ratio: 0.0 }, &shared, 1);
    let mut call = Call::<_, 4>::begin(&policy, CallParams::default(), 0, &mut book);
    while call.command(&mut book).is_some() {}
    assert!(call.wake_once(at(10), &mut book));
    while call.command(&mut book).is_some() {}
    // A driver may report two outcomes before it takes what the first one commanded.
    call.outcome(0, FAILED.into(), at(11), &mut book);
    call.outcome(1, failed_with(Failure::server().retry_after(ms(5))), at(11), &mut book);
    assert_eq!((call.command(&mut book), call.wake_at()), (None, Some(at(16))));
    assert!(call.wake_once(at(16), &mut book));
    assert!(matches!(call.command(&mut book), Some(Command::Start(start)) if start.number == 3));
    assert_eq!(shared.tokens(0), Some(2.0), "paid once");
}

#[test]
fn hedging_start_that_is_paid_and_not_taken_is_paid_once() {
    let policy = policy(HEDGED);
    let shared = Shared::Budget(RetryBudget::try_new(4.0, 0.0).unwrap());
    let mut book = TestEnvironment::new(&Spec::Budget { reserve: 4.0, ratio: 0.0 }, &shared, 1);
    let mut call = Call::<_, 4>::begin(&policy, CallParams::default(), 0, &mut book);
    while call.command(&mut book).is_some() {}
    assert!(call.wake_once(at(10), &mut book));
    while call.command(&mut book).is_some() {}
    // Both failures are answered by the hedge that waits to be taken; the rhythm goes on from there.
    call.outcome(0, FAILED.into(), at(11), &mut book);
    call.outcome(1, FAILED.into(), at(11), &mut book);
    assert_eq!(shared.tokens(0), Some(2.0), "the second attempt, and one hedge");
    assert!(matches!(call.command(&mut book), Some(Command::Start(start)) if start.number == 3));
    assert_eq!((call.command(&mut book), call.wake_at()), (None, Some(at(21))));
}
