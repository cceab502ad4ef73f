//! Hedges that follow the latency of their method: the delay, its bounds, what it is until enough is
//! known, and how hedging stops where hedges do not win. The config's own delay is 20 ms.

use redial::{CallLog, Event, StopReason, hedging::HedgeDelay};
use redial_faults::grpc::{Answer, CALL_HEADER, Script, Server, StatusNumber as Peer};
use redial_grpc::{ClientOptions, HedgeAt, HedgeAtBuilder, LatencyEstimate, Retries};
use tonic::{Code, Request};

use super::rig::{HEDGE, RETRY, Rig, Told, UNARY, config, config_text, layer, message, ms};

/// The 90th percentile, from twenty samples on.
const AT: HedgeAtBuilder = HedgeAt::quantile(0.9).samples(20);

fn rig(at: HedgeAtBuilder) -> Rig {
    Rig::of(layer(HEDGE).hedge_at(at.build()).build(), server())
}

/// A server for many calls.
fn server() -> Server {
    Server::new(Script::new()).streams_kept(1)
}

fn reply(latency: u64) -> Answer {
    Answer::headers().after(ms(latency)).echo_one().trailers(Peer::OK)
}

/// Makes a call whose attempts get these answers.
async fn call(rig: &mut Rig, answers: impl IntoIterator<Item = Answer>) -> Told {
    let name = rig.server.counts().streams.to_string();
    rig.server.call(&name, answers);
    let mut request = Request::new(message("x"));
    request.metadata_mut().insert(CALL_HEADER, name.parse().unwrap());
    rig.call_with(request).await
}

/// Makes a call whose attempts answer after so many ms, the last one of these as often as needed.
async fn slow(rig: &mut Rig, latencies: &[u64]) -> Told {
    let last = latencies.last().copied();
    let latencies = latencies.iter().copied().chain(last).chain(last);
    let told = call(rig, latencies.map(reply).collect::<Vec<_>>()).await;
    assert_eq!(told.code(), Code::Ok);
    told
}

/// Makes so many calls whose first attempts take from so many ms to half as many more. A hedge
/// answers at once, so that no attempt that is hedged is ever heard of again.
async fn warm(rig: &mut Rig, calls: u64, latency: u64) {
    for turn in 0..calls {
        slow(rig, &[latency + latency * (turn * 7 % 10) / 20, 1]).await;
    }
}

/// When the hedge of a call that hangs is sent, in ms.
async fn hedged_at(rig: &mut Rig) -> u64 {
    let told = slow(rig, &[100_000, 1]).await;
    assert_eq!(told.attempts(), 2);
    told.starts()[1]
}

fn estimator(rig: &Rig) -> LatencyEstimate {
    rig.control.latency_estimates()[UNARY]
}

fn hedging(told: &Told) -> Option<HedgeDelay> {
    told.events.iter().find_map(|(_, event)| match event {
        Event::HedgeDelay(delay) => Some(*delay),
        _ => None,
    })
}

/// At first every call is hedged at 20 ms, and all hedges win: none of those calls says how long it
/// takes, and yet the delay comes to be followed.
///
/// Red if `State::begin` left the delay to the policy, or `LatencyEstimator::longer` did not count what it cannot
/// place.
#[tokio::test(start_paused = true)]
async fn the_delay_follows_the_latency_of_the_server_up_and_down() {
    let mut rig = rig(AT);
    warm(&mut rig, 300, 40).await;
    let at = hedged_at(&mut rig).await;
    assert!((52..=75).contains(&at), "40 to 58 ms: {at}");
    warm(&mut rig, 300, 400).await;
    let at = hedged_at(&mut rig).await;
    assert!((520..=750).contains(&at), "400 to 580 ms: {at}");
    warm(&mut rig, 600, 4).await;
    let at = hedged_at(&mut rig).await;
    assert!((5..=8).contains(&at), "4 to 6 ms: {at}");
}

#[tokio::test(start_paused = true)]
async fn floor_and_cap_hold_through_the_layer() {
    let mut rig = rig(AT.floor(ms(30)).cap(ms(90)));
    warm(&mut rig, 100, 5).await;
    assert!(estimator(&rig).estimate.unwrap() < ms(10));
    assert_eq!(hedged_at(&mut rig).await, 30);
    // What is cancelled at 91 ms may have taken longer or not, and so the estimate stays near.
    warm(&mut rig, 200, 400).await;
    assert_eq!(hedged_at(&mut rig).await, 90);
}

#[tokio::test(start_paused = true)]
async fn the_configs_delay_is_used_until_there_are_enough_samples() {
    let mut rig = rig(AT);
    // Each of them answers before its hedge would be sent.
    warm(&mut rig, 18, 10).await;
    let told = slow(&mut rig, &[100_000, 1]).await;
    assert_eq!((told.starts(), hedging(&told)), (vec![0, 20], None));
    assert_eq!((estimator(&rig).samples, estimator(&rig).delay), (19, None));
    assert_eq!(estimator(&rig).win_rate, None, "it says nothing about hedges at the quantile");
    warm(&mut rig, 1, 10).await;
    assert!(matches!(estimator(&rig).delay, Some(HedgeDelay::After(_))));
    let told = slow(&mut rig, &[100_000, 1]).await;
    assert_eq!(hedging(&told).map(|_| told.attempts()), Some(2));
    assert_eq!(estimator(&rig).win_rate, Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn without_the_option_the_delay_is_the_configs_and_nothing_is_observed() {
    let mut rig = Rig::of(layer(HEDGE).build(), server());
    warm(&mut rig, 50, 5).await;
    let told = slow(&mut rig, &[100_000, 1]).await;
    assert_eq!((told.starts(), hedging(&told)), (vec![0, 20], None));
    assert!(rig.control.latency_estimates().is_empty());
}

/// A method with a retry policy, one without hedges by the word of its call, and one that fails.
#[tokio::test(start_paused = true)]
async fn what_is_not_hedged_or_fails_is_not_observed() {
    let layer = layer(RETRY).hedge_at(AT.build()).build();
    let mut rig = Rig::of(layer, server());
    warm(&mut rig, 30, 5).await;
    assert!(rig.control.latency_estimates().is_empty());
    rig.control.set_json(&config_text(HEDGE)).unwrap();
    let failed = Answer::trailers_only(Peer::INVALID_ARGUMENT);
    assert_eq!(call(&mut rig, [failed]).await.code(), Code::InvalidArgument);
    rig.control.set_retries(Retries::Off);
    warm(&mut rig, 5, 5).await;
    assert!(rig.control.latency_estimates().is_empty());
    rig.control.set_retries(Retries::All);
    warm(&mut rig, 1, 5).await;
    assert_eq!(estimator(&rig).samples, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_stays_when_a_config_is_swapped() {
    let mut rig = rig(AT);
    warm(&mut rig, 100, 5).await;
    let before = estimator(&rig);
    rig.control.set_json(&config_text(&HEDGE.replace("0.02s", "7s"))).unwrap();
    assert_eq!(estimator(&rig), before);
    let at = hedged_at(&mut rig).await;
    assert!(at < 10, "{at}");
    rig.control.set_json(&config_text(RETRY)).unwrap();
    let told = slow(&mut rig, &[500]).await;
    assert_eq!((told.attempts(), hedging(&told)), (1, None));
}

/// The first headers win: what the application sees of the attempt that lost is nothing, and what
/// the pace hears of it is that it was slow.
#[tokio::test(start_paused = true)]
async fn a_tail_that_hedges_cut_off_is_still_known() {
    let mut rig = rig(AT);
    warm(&mut rig, 100, 10).await;
    for turn in 0..400 {
        // One in five is slow, which is more than one in ten: the quantile is among the slow ones.
        let first = if turn % 5 == 0 { 100 } else { 10 };
        slow(&mut rig, &[first, 10]).await;
    }
    let estimate = estimator(&rig).estimate.unwrap();
    assert!(estimate > ms(60), "{estimate:?}");
    let won = rig.control.statistics()[UNARY].hedges_won;
    assert!((10..80).contains(&won), "on the way there they won: {won}");
}

/// Plays calls of which one in five takes 200 ms, whoever is asked; what a hedge is answered with
/// says whether that is so.
async fn turns(rig: &mut Rig, turns: u64, hedge: u64) -> u64 {
    let before = rig.statistics().0;
    for turn in 0..turns {
        let first = if turn % 5 == 0 { 200 } else { 10 };
        slow(rig, &[first, hedge]).await;
    }
    rig.statistics().0 - before
}

/// Red if a lap told no lost races; and if nothing resumed it, the last lines would be.
#[tokio::test(start_paused = true)]
async fn hedging_stops_where_hedges_do_not_win_and_goes_on_where_they_do() {
    let mut rig = rig(HedgeAt::quantile(0.7).samples(20));
    warm(&mut rig, 20, 10).await;
    // Another replica would answer as late.
    turns(&mut rig, 300, 200).await;
    assert!(estimator(&rig).is_stopped, "{:?}", estimator(&rig));
    let stopped = turns(&mut rig, 300, 200).await;
    assert!((1..=10).contains(&stopped), "a few probes among sixty that are slow: {stopped}");
    assert!(estimator(&rig).is_stopped);
    while estimator(&rig).delay != Some(HedgeDelay::Never) {
        turns(&mut rig, 5, 200).await;
    }
    let told = slow(&mut rig, &[200, 1]).await;
    assert_eq!((told.starts(), hedging(&told)), (vec![0], Some(HedgeDelay::Never)));

    // Now another replica would answer at once.
    turns(&mut rig, 400, 10).await;
    assert!(!estimator(&rig).is_stopped, "{:?}", estimator(&rig));
    let on = turns(&mut rig, 100, 10).await;
    assert!(on >= 15, "{on}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_hedge_by_time_is_still_repeated_when_it_fails() {
    let mut rig = rig(HedgeAt::quantile(0.7).samples(20));
    warm(&mut rig, 20, 10).await;
    turns(&mut rig, 300, 200).await;
    while estimator(&rig).delay != Some(HedgeDelay::Never) {
        turns(&mut rig, 5, 200).await;
    }
    let busy = Answer::trailers_only(Peer::UNAVAILABLE).after(ms(50));
    let told = call(&mut rig, [busy.clone(), busy.pushback("30"), reply(5)]).await;
    assert_eq!((told.starts(), hedging(&told)), (vec![0, 50, 130], Some(HedgeDelay::Never)));
}

#[tokio::test(start_paused = true)]
async fn calls_that_hang_until_they_are_dropped_or_their_deadline_comes_count_as_slow() {
    for deadline in [true, false] {
        let mut rig = rig(AT);
        warm(&mut rig, 100, 10).await;
        let before = estimator(&rig);
        for turn in 0..20 {
            let name = format!("hangs {turn}");
            rig.server.call(&name, vec![Answer::hang(); 3]);
            let mut request = Request::new(message("x"));
            request.metadata_mut().insert(CALL_HEADER, name.parse().unwrap());
            if deadline {
                request.set_timeout(ms(1_000));
                rig.client.unary(request).await.unwrap_err();
            } else {
                tokio::time::timeout(ms(1_000), rig.client.unary(request)).await.unwrap_err();
            }
        }
        assert_eq!(estimator(&rig).samples, before.samples + 20);
        assert!(estimator(&rig).estimate.unwrap() > 4 * before.estimate.unwrap());
        assert!(estimator(&rig).is_stopped, "and no hedge helped");
    }
}

#[tokio::test(start_paused = true)]
async fn the_diary_has_the_delay_so_that_a_replay_decides_the_same() {
    let mut rig = rig(AT);
    warm(&mut rig, 100, 5).await;
    let told = slow(&mut rig, &[100_000, 1]).await;
    let call_log: CallLog = told.events.iter().copied().collect();
    let Some(HedgeDelay::After(delay)) = hedging(&told) else { panic!("{call_log}") };
    assert!(delay < 10_000_000, "{delay}");
    assert_eq!(told.end().0, StopReason::Succeeded);
    let plan = ClientOptions::default().plan(config(HEDGE).method(UNARY));
    call_log.replay(plan.policy()).unwrap();
    let without =
        call_log.events().iter().filter(|(_, event)| !matches!(event, Event::HedgeDelay(_)));
    let without: CallLog = without.copied().collect();
    without.replay(plan.policy()).unwrap_err();
    assert!(call_log.to_string().contains("hedging delay set to "));
}
