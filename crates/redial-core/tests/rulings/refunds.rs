//! Ruling P6: what was taken for a retry that never starts is given back, whatever ends the call.

use super::*;

/// Where a retry is paid for and waits at moment 0.
fn waiting(rules: Rules, story: impl FnOnce(&mut Play<'_, '_, '_, 1>)) {
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    tell(rules, Terms::default(), (spec, &[]), |play| {
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
        assert_eq!(play.ended(), Some((Why::Cancelled, None)));
    });
    let spec = Spec::Tokens { max: 10.0, ratio: 1.0 };
    tell::<1>(BASE, Terms::default(), (spec, &[]), |play| {
        play.cancel();
        assert_eq!((play.tokens(), play.book.failed), (10.0, 0), "never a failure");
    });
}

#[test]
fn a_dropped_call_gives_back_what_its_retry_took() {
    let budget = Budget::new(2.0, 0.0).unwrap();
    let shared = Shared::Budget(budget);
    let spec = Spec::Budget { reserve: 2.0, ratio: 0.0 };
    let (policy, mut model) = (policy(BASE), Model::new(spec));
    let book = Book::new(&spec, &shared, 1);
    let mut play = Play::<1>::begin(&policy, Terms::default(), 0, book, &mut model);
    play.report(1, FAILED);
    assert_eq!(shared.tokens(0), Some(1.0));
    play.drop_it();
    assert_eq!(shared.tokens(0), Some(2.0));
}

#[test]
fn a_deadline_gives_back_what_the_waiting_retry_took() {
    waiting(Rules { deadline: Some(ms(7)), late: Late::Wait, ..BASE }, |play| {
        play.reach(7);
        play.wake();
        assert_eq!((play.why(), play.tokens()), (Some(Why::Deadline), 2.0));
    });
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
    for (pay, moment, left) in [(Pay::Deciding, 0, -10.0), (Pay::AfterBackoff, 10, 0.0)] {
        indebted(Rules { pay, deadline: Some(ms(15)), ..BASE }, 2, |play| {
            play.report(1, FAILED);
            play.reach(moment);
            play.wake();
            assert_eq!(play.ended(), Some((Why::Deadline, Some(1))), "{pay:?}");
            assert_eq!(play.tokens(), left, "{pay:?}");
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
        tell::<4>(HEDGED, Terms::default(), (spec, &[true]), |play| {
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
    let spec = Spec::Costs(CostsSpec { capacity: 10.0, success: 0.0, ..COSTS });
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
        tell::<4>(rules, Terms::default(), (spec, &[]), |play| {
            // The second took all there was; the third is lent what comes back in 10 ms.
            assert_eq!((play.starts(), play.tokens()), (vec![0.0, 0.0], -10.0));
            way(play);
            // S3: a success gives back what the second took as well.
            let expected = if play.why() == Some(Why::Succeeded) { 10.0 } else { 0.0 };
            assert_eq!(play.tokens(), expected, "way {i}");
        });
    }
}
