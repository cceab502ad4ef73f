//! Retries of calls that are not idempotent.

use super::*;

// Decision P8.
#[test]
fn idempotency_non_idempotent_call_retries_only_with_proof() {
    let proves = Reason::new("DID_NOT_RUN").allow_non_idempotent();
    let table = [
        (Failure::server(), false),
        (Failure::timeout(), false),
        (Failure::server().at(Stage::InFlight), false),
        (Failure::server().because(Reason::new("PROVES_NOTHING")), false),
        (Failure::server().retry_after(ms(1)), false),
        (Failure::client().at(Stage::Unsent), true),
        (Failure::server().because(proves), true),
        (Failure::timeout().because(proves), true),
    ];
    for (failure, repeated) in table {
        let once = CallParams { idempotent: false, ..CallParams::default() };
        run_call(BASE, once, (Spec::Free, &[]), |driver| {
            driver.report(1, failed_with(failure));
            let end = if repeated { None } else { Some((StopReason::NotIdempotent, Some(1))) };
            assert_eq!(driver.ended(), end, "{failure:?}");
        });
    }
}

// Decision P8: neither time nor a failure starts a hedge, even with proof.
#[test]
fn idempotency_non_idempotent_call_is_never_hedged() {
    let once = CallParams { idempotent: false, ..CallParams::default() };
    let at_once = Rules { hedge: Some(Duration::ZERO), ..BASE };
    let unsent = failed_with(Failure::client().at(Stage::Unsent));
    let outcomes = [FAILED.into(), unsent, failed_with(Failure::server().retry_after(ms(1)))];
    for (rules, outcome) in [HEDGED, at_once].into_iter().flat_map(|it| outcomes.map(|o| (it, o))) {
        run_call(rules, once, (Spec::Free, &[]), |driver| {
            assert_eq!(driver.call.wake_at(), None, "no hedge is due");
            driver.pass(at(100));
            driver.report(1, outcome);
            assert_eq!(driver.ended(), Some((StopReason::NotIdempotent, Some(1))));
        });
    }
    let times_out = Rules { attempt_timeout: Some(ms(15)), ..HEDGED };
    run_call(times_out, once, (Spec::Free, &[]), |driver| {
        driver.pass(at(100));
        assert_eq!(driver.starts(), [0.0]);
        assert_eq!(driver.ended(), Some((StopReason::NotIdempotent, Some(1))));
    });
}
