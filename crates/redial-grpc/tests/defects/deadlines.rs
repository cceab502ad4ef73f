//! Deadlines and timeouts.

use redial::StopReason;
use redial::testing::{Play, Script as Played, hangs, meets, succeeds};
use redial_core::Random;
use redial_faults::grpc::{Answer, Server, StatusNumber as Peer};
use redial_grpc::{ClientOptions, ServiceConfig};
use redial_service_config::{Code as Status, Pushback};
use tonic::Code;

use super::rig::{RETRY, Rig, UNARY, config, config_text, endpoint, layer, ms};

/// C-core's `perAttemptRecvTimeout` hangs or crashes on the last attempt (grpc#39935, #38908). It is
/// no part of gRPC's config, so that it is an unknown field here; what tonic has is a timeout of its
/// channel, which holds for each attempt and ends the last one like any other.
///
/// Red: wait for our own deadline, of which there is none (no `&& state.is_late()` in
/// `Pending::outcome`).
#[tokio::test(start_paused = true)]
async fn per_attempt_timeout_on_last_attempt_returns() {
    let unknown = RETRY.replace("{ ", r#"{ "perAttemptRecvTimeout": "1s", "#);
    let checked = ServiceConfig::parse(&config_text(&unknown)).unwrap();
    assert!(checked.warnings().iter().any(|it| it.path.ends_with("perAttemptRecvTimeout")));

    let busy = || Answer::trailers_only(Peer::UNAVAILABLE);
    let server = Server::new([busy(), busy(), Answer::hang()]);
    let mut rig = Rig::over(&endpoint().timeout(ms(40)), layer(RETRY).build(), server);
    let told = tokio::time::timeout(ms(5_000), rig.call()).await.expect("it ends");
    assert_eq!(
        (told.code(), told.end()),
        (Code::DeadlineExceeded, (StopReason::NotRetryable, 190))
    );
    assert_eq!(told.starts(), [0, 50, 150]);
}

/// In grpc-java a deadline that races with a retry that is due loses the call's end (#12620, #10838,
/// #12185).
///
/// Red: let a retry without a delay start at the deadline (no `&& now < self.deadline` in
/// `Call::retry_after`).
#[test]
fn deadline_race_with_backoff_timer_always_completes() {
    let fields = RETRY.replace(r#""maxAttempts": 3"#, r#""maxAttempts": 5"#);
    let config = config(&fields);
    let plan = ClientOptions::default().plan(config.method(UNARY));
    let policy = plan.to_policy(None);
    let (mut raced, mut ended) = (0, [0; 2]);
    for seed in 0..10_000 {
        let mut random = Random::new(seed);
        let mut whole = |most: u64| (random.draw() * most as f64) as u64;
        // Few moments, so that many of them coincide: the pushback is due when the deadline is.
        let deadline = ms(10 * (1 + whole(12)));
        let attempts: Vec<_> = (0..5)
            .map(|_| {
                let after = ms(10 * whole(4));
                let pushback = Pushback::After(ms(10 * whole(6)));
                match whole(8) {
                    0 => hangs(),
                    1 => succeeds().after(after),
                    2 | 3 => meets(plan.classify(Status::Unavailable, Pushback::None)).after(after),
                    _ => meets(plan.classify(Status::Unavailable, pushback)).after(after),
                }
            })
            .collect();
        let draws = [whole(5) as f64 / 5.0];
        let call = Played::new(&policy, attempts).deadline(deadline);
        let played = Play::new().draws(draws).call(call).run().remove(0);
        let end = played.end().unwrap_or_else(|| panic!("seed {seed}: it never ended"));
        assert!(end.at <= deadline, "seed {seed}: {end:?} after {deadline:?}");
        let late = played.starts().into_iter().filter(|at| *at >= deadline).count();
        assert_eq!(late, 0, "seed {seed}: something started at the deadline");
        ended[usize::from(end.stop_reason == StopReason::Deadline)] += 1;
        raced += u32::from(end.stop_reason == StopReason::Deadline && end.at == deadline);
    }
    assert!(ended.iter().all(|count| *count > 1_000), "both ends are common: {ended:?}");
    assert!(raced > 1_000, "{raced}");
}
