//! Calls that the application cancels.

use super::*;

// Decision P6.
#[test]
fn cancellation_before_start_records_only_start_and_end() {
    let spec = Spec::Free;
    let (policy, shared) = (policy(Rules { deadline: Some(ms(5)), ..HEDGED }), spec.build());
    let mut env = TestEnvironment::new(&spec, &shared, 1);
    let params = CallParams {
        not_replayable: true,
        hedge: Some(HedgeDelay::After(at(7))),
        ..CallParams::default()
    };
    let mut call: Call<_> = Call::cancelled_before_start(&policy, params, at(3), &mut env);
    let events: Vec<_> = env.call_log.iter().map(|(when, event)| (*when, *event)).collect();
    let (stop_reason, attempt) = (StopReason::Cancelled, None);
    let expected = [
        Event::CallStarted { deadline: Some(at(8)), idempotent: true },
        Event::HedgeDelay(HedgeDelay::After(at(7))),
        Event::NotReplayable,
        Event::CallEnded { stop_reason, attempt },
    ];
    assert_eq!(events, expected.map(|event| (at(3), event)));
    assert_eq!((call.started(), call.wake_at()), (0, None));
    let ended = call.command(&mut env);
    assert!(
        matches!(ended, Some(Command::End(end)) if end.stop_reason == stop_reason),
        "{ended:?}"
    );
    assert_eq!(call.command(&mut env), None);
}
