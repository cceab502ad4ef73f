//! Hedging delays that follow the measured latency of a method: floor, cap, the delay of the config until
//! there are enough samples, and no hedging while hedges do not win. The delay of the config is 20 ms.

use redial::hedging::HedgeDelay;
use redial::{CallLog, Event, StopReason};
use redial_faults::grpc::{Answer, CALL_HEADER, Script, Server, StatusNumber};
use redial_grpc::{ClientOptions, HedgeAt, HedgeAtBuilder, LatencyEstimate, Retries};
use tonic::{Code, Request};

use crate::common::harness::{
    CallOutcome, HEDGE, Harness, RETRY, UNARY, config, config_text, layer, message, ms,
};

/// Hedges at the 90th percentile, once there are twenty samples.
const AT: HedgeAtBuilder = HedgeAt::quantile(0.9).samples(20);

fn adaptive_harness(at: HedgeAtBuilder) -> Harness {
    Harness::with_layer(layer(HEDGE).hedge_at(at.build()).build(), server())
}

/// A server that keeps no record of its many streams.
fn server() -> Server {
    Server::new(Script::new()).streams_kept(1)
}

fn reply(latency: u64) -> Answer {
    Answer::headers().after(ms(latency)).echo_one().trailers(StatusNumber::OK)
}

/// Makes a call with these responses to its attempts.
async fn call(harness: &mut Harness, answers: impl IntoIterator<Item = Answer>) -> CallOutcome {
    let name = harness.server.counts().streams.to_string();
    harness.server.call(&name, answers);
    let mut request = Request::new(message("x"));
    request.metadata_mut().insert(CALL_HEADER, name.parse().unwrap());
    harness.call_with(request).await
}

/// Makes a successful call whose attempts take these times in ms; the last one is used for all further
/// attempts.
async fn slow(harness: &mut Harness, latencies: &[u64]) -> CallOutcome {
    let last = latencies.last().copied();
    let latencies = latencies.iter().copied().chain(last).chain(last);
    let outcome = call(harness, latencies.map(reply).collect::<Vec<_>>()).await;
    assert_eq!(outcome.code(), Code::Ok);
    outcome
}

/// Makes calls whose first attempts take between `latency` and 1.5 times `latency` ms. A hedge succeeds at
/// once, so the latency of a hedged attempt is never measured.
async fn warm(harness: &mut Harness, calls: u64, latency: u64) {
    for turn in 0..calls {
        slow(harness, &[latency + latency * (turn * 7 % 10) / 20, 1]).await;
    }
}

/// The time in ms at which a call that hangs is hedged.
async fn hedged_at(harness: &mut Harness) -> u64 {
    let outcome = slow(harness, &[100_000, 1]).await;
    assert_eq!(outcome.attempts(), 2);
    outcome.starts()[1]
}

fn estimator(harness: &Harness) -> LatencyEstimate {
    harness.control.latency_estimates()[UNARY]
}

fn hedging(outcome: &CallOutcome) -> Option<HedgeDelay> {
    outcome.events.iter().find_map(|(_, event)| match event {
        Event::HedgeDelay(delay) => Some(*delay),
        _ => None,
    })
}

/// Makes calls whose first attempt takes 200 ms once in five, and whose hedges take `hedge` ms; returns the
/// number of hedges.
async fn turns(harness: &mut Harness, turns: u64, hedge: u64) -> u64 {
    let before = harness.statistics().0;
    for turn in 0..turns {
        let first = if turn % 5 == 0 { 200 } else { 10 };
        slow(harness, &[first, hedge]).await;
    }
    harness.statistics().0 - before
}

/// At first every call is hedged at 20 ms and every hedge wins, so no latency is measured directly. The
/// estimate must still converge.
#[tokio::test(start_paused = true)]
async fn hedging_delay_follows_server_latency_up_and_down() {
    let mut harness = adaptive_harness(AT);
    warm(&mut harness, 300, 40).await;
    let at = hedged_at(&mut harness).await;
    assert!((52..=75).contains(&at), "40 to 58 ms: {at}");
    warm(&mut harness, 300, 400).await;
    let at = hedged_at(&mut harness).await;
    assert!((520..=750).contains(&at), "400 to 580 ms: {at}");
    warm(&mut harness, 600, 4).await;
    let at = hedged_at(&mut harness).await;
    assert!((5..=8).contains(&at), "4 to 6 ms: {at}");
}

#[tokio::test(start_paused = true)]
async fn hedging_delay_stays_between_floor_and_cap() {
    let mut harness = adaptive_harness(AT.floor(ms(30)).cap(ms(90)));
    warm(&mut harness, 100, 5).await;
    assert!(estimator(&harness).estimate.unwrap() < ms(10));
    assert_eq!(hedged_at(&mut harness).await, 30);
    // Attempts are cancelled at 91 ms, so the estimate cannot move far above that.
    warm(&mut harness, 200, 400).await;
    assert_eq!(hedged_at(&mut harness).await, 90);
}

#[tokio::test(start_paused = true)]
async fn hedging_delay_of_config_is_used_until_enough_samples() {
    let mut harness = adaptive_harness(AT);
    // Each call ends before its hedge would start.
    warm(&mut harness, 18, 10).await;
    let outcome = slow(&mut harness, &[100_000, 1]).await;
    assert_eq!((outcome.starts(), hedging(&outcome)), (vec![0, 20], None));
    assert_eq!((estimator(&harness).samples, estimator(&harness).delay), (19, None));
    assert_eq!(estimator(&harness).win_rate, None, "a hedge at the config delay is no sample");
    warm(&mut harness, 1, 10).await;
    assert!(matches!(estimator(&harness).delay, Some(HedgeDelay::After(_))));
    let outcome = slow(&mut harness, &[100_000, 1]).await;
    assert_eq!(hedging(&outcome).map(|_| outcome.attempts()), Some(2));
    assert_eq!(estimator(&harness).win_rate, Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn hedging_delay_without_option_comes_from_config() {
    let mut harness = Harness::with_layer(layer(HEDGE).build(), server());
    warm(&mut harness, 50, 5).await;
    let outcome = slow(&mut harness, &[100_000, 1]).await;
    assert_eq!((outcome.starts(), hedging(&outcome)), (vec![0, 20], None));
    assert!(harness.control.latency_estimates().is_empty());
}

/// A retry policy, a failed call, and disabled retries give no samples.
#[tokio::test(start_paused = true)]
async fn hedging_latency_is_not_sampled_without_hedging_or_success() {
    let layer = layer(RETRY).hedge_at(AT.build()).build();
    let mut harness = Harness::with_layer(layer, server());
    warm(&mut harness, 30, 5).await;
    assert!(harness.control.latency_estimates().is_empty());
    harness.control.set_json(&config_text(HEDGE)).unwrap();
    let failed = Answer::trailers_only(StatusNumber::INVALID_ARGUMENT);
    assert_eq!(call(&mut harness, [failed]).await.code(), Code::InvalidArgument);
    harness.control.set_retries(Retries::Off);
    warm(&mut harness, 5, 5).await;
    assert!(harness.control.latency_estimates().is_empty());
    harness.control.set_retries(Retries::All);
    warm(&mut harness, 1, 5).await;
    assert_eq!(estimator(&harness).samples, 1);
}

#[tokio::test(start_paused = true)]
async fn hedging_latency_estimate_survives_a_config_swap() {
    let mut harness = adaptive_harness(AT);
    warm(&mut harness, 100, 5).await;
    let before = estimator(&harness);
    harness.control.set_json(&config_text(&HEDGE.replace("0.02s", "7s"))).unwrap();
    assert_eq!(estimator(&harness), before);
    let at = hedged_at(&mut harness).await;
    assert!(at < 10, "{at}");
    harness.control.set_json(&config_text(RETRY)).unwrap();
    let outcome = slow(&mut harness, &[500]).await;
    assert_eq!((outcome.attempts(), hedging(&outcome)), (1, None));
}

/// A cancelled loser counts as a slow attempt in the estimate.
#[tokio::test(start_paused = true)]
async fn hedging_latency_estimate_includes_cancelled_slow_attempts() {
    let mut harness = adaptive_harness(AT);
    warm(&mut harness, 100, 10).await;
    for turn in 0..400 {
        // One in five is slow, which is more than one in ten: the quantile is the slow latency.
        let first = if turn % 5 == 0 { 100 } else { 10 };
        slow(&mut harness, &[first, 10]).await;
    }
    let estimate = estimator(&harness).estimate.unwrap();
    assert!(estimate > ms(60), "{estimate:?}");
    let won = harness.control.statistics()[UNARY].hedges_won;
    assert!((10..80).contains(&won), "hedges won before the estimate rose: {won}");
}

#[tokio::test(start_paused = true)]
async fn hedging_stops_while_hedges_do_not_win() {
    let mut harness = adaptive_harness(HedgeAt::quantile(0.7).samples(20));
    warm(&mut harness, 20, 10).await;
    // Another backend would be as slow.
    turns(&mut harness, 300, 200).await;
    assert!(estimator(&harness).is_stopped, "{:?}", estimator(&harness));
    let stopped = turns(&mut harness, 300, 200).await;
    assert!((1..=10).contains(&stopped), "a few probes among sixty slow calls: {stopped}");
    assert!(estimator(&harness).is_stopped);
    while estimator(&harness).delay != Some(HedgeDelay::Never) {
        turns(&mut harness, 5, 200).await;
    }
    let outcome = slow(&mut harness, &[200, 1]).await;
    assert_eq!((outcome.starts(), hedging(&outcome)), (vec![0], Some(HedgeDelay::Never)));

    // Now another backend would be fast.
    turns(&mut harness, 400, 10).await;
    assert!(!estimator(&harness).is_stopped, "{:?}", estimator(&harness));
    let on = turns(&mut harness, 100, 10).await;
    assert!(on >= 15, "{on}");
}

#[tokio::test(start_paused = true)]
async fn hedging_stopped_still_sends_attempts_after_failures() {
    let mut harness = adaptive_harness(HedgeAt::quantile(0.7).samples(20));
    warm(&mut harness, 20, 10).await;
    turns(&mut harness, 300, 200).await;
    while estimator(&harness).delay != Some(HedgeDelay::Never) {
        turns(&mut harness, 5, 200).await;
    }
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE).after(ms(50));
    let outcome = call(&mut harness, [busy.clone(), busy.pushback("30"), reply(5)]).await;
    assert_eq!((outcome.starts(), hedging(&outcome)), (vec![0, 50, 130], Some(HedgeDelay::Never)));
}

#[tokio::test(start_paused = true)]
async fn hedging_latency_counts_hung_calls_as_slow() {
    for deadline in [true, false] {
        let mut harness = adaptive_harness(AT);
        warm(&mut harness, 100, 10).await;
        let before = estimator(&harness);
        for turn in 0..20 {
            let name = format!("hangs {turn}");
            harness.server.call(&name, vec![Answer::hang(); 3]);
            let mut request = Request::new(message("x"));
            request.metadata_mut().insert(CALL_HEADER, name.parse().unwrap());
            if deadline {
                request.set_timeout(ms(1_000));
                harness.client.unary(request).await.unwrap_err();
            } else {
                tokio::time::timeout(ms(1_000), harness.client.unary(request)).await.unwrap_err();
            }
        }
        assert_eq!(estimator(&harness).samples, before.samples + 20);
        assert!(estimator(&harness).estimate.unwrap() > 4 * before.estimate.unwrap());
        assert!(estimator(&harness).is_stopped, "no hedge won");
    }
}

#[tokio::test(start_paused = true)]
async fn hedging_delay_is_in_the_call_log() {
    let mut harness = adaptive_harness(AT);
    warm(&mut harness, 100, 5).await;
    let outcome = slow(&mut harness, &[100_000, 1]).await;
    let call_log: CallLog = outcome.events.iter().copied().collect();
    let Some(HedgeDelay::After(delay)) = hedging(&outcome) else { panic!("{call_log}") };
    assert!(delay < 10_000_000, "{delay}");
    assert_eq!(outcome.end().0, StopReason::Succeeded);
    let plan = ClientOptions::default().plan(config(HEDGE).method(UNARY));
    call_log.replay(plan.policy()).unwrap();
    let without =
        call_log.events().iter().filter(|(_, event)| !matches!(event, Event::HedgeDelay(_)));
    let without: CallLog = without.copied().collect();
    without.replay(plan.policy()).unwrap_err();
    assert!(call_log.to_string().contains("hedging delay set to "));
}
