//! Payments: repeated only if the failed attempt provably did not run.

use redial::{Failure, Policy, Stage, StopReason, ms};

static PAY: Policy = Policy::constant(ms(10)).attempts(3).build();

#[derive(Debug)]
enum PayError {
    Refused,
    ConnectionLost,
    Declined,
}

/// How far the request got.
fn proof(error: &PayError) -> Option<Failure> {
    match error {
        PayError::Refused => Some(Failure::client().at(Stage::Unsent)),
        PayError::ConnectionLost => Some(Failure::client().at(Stage::InFlight)),
        PayError::Declined => None,
    }
}

async fn pay(
    answers: &mut dyn Iterator<Item = Result<u32, PayError>>,
) -> Result<u32, redial::Error<PayError>> {
    let call = PAY.retry(|| std::future::ready(answers.next().expect("an answer")));
    call.when(proof).not_idempotent().await
}

#[tokio::test(start_paused = true)]
async fn program_repeats_a_payment_only_with_proof() {
    let refused = || Err(PayError::Refused);
    let receipt = pay(&mut [refused(), refused(), Ok(7)].into_iter()).await;
    assert_eq!(receipt.expect("nothing was sent before"), 7);

    let mut answers = [Err(PayError::ConnectionLost), Ok(8)].into_iter();
    let error = pay(&mut answers).await.expect_err("it may have been paid");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::NotIdempotent, 1));

    let error = pay(&mut [Err(PayError::Declined)].into_iter()).await.expect_err("declined");
    assert_eq!(error.stop_reason(), StopReason::NotRetryable);
}
