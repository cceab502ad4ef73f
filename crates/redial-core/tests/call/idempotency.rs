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
