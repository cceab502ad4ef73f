//! Calls among other futures: `join!`, `select!` and `timeout` take a call as it is; functions that want a
//! `Future` (`spawn`, `JoinSet`, `join_all`, `FuturesUnordered`) take `.into_future()`.

use futures_util::StreamExt;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use redial::{Policy, ms, s};
use tokio::task::JoinSet;

static FETCH: Policy = Policy::constant(ms(10)).attempts(3).build();

async fn page(number: u32) -> Result<u32, &'static str> {
    tokio::time::sleep(ms(u64::from(number))).await;
    if number == 13 { Err("not found") } else { Ok(number * 10) }
}

#[tokio::test(start_paused = true)]
async fn program_joins_selects_and_limits_calls() {
    let (one, two) = tokio::join!(
        FETCH.retry(|| page(1)).when(|_| true),
        FETCH.retry(|| page(2)).when(|_| true),
    );
    assert_eq!((one.ok(), two.ok()), (Some(10), Some(20)));

    let first = tokio::select! {
        one = FETCH.retry(|| page(100)).when(|_| true) => one,
        two = FETCH.retry(|| page(5)).when(|_| true) => two,
    };
    assert_eq!(first.ok(), Some(50));

    let call = FETCH.retry(|| page(1000)).when(|_| true);
    assert!(tokio::time::timeout(ms(100), call).await.is_err(), "dropped after 100 ms");
    // A deadline of the call does the same, and returns an error with the attempts.
    let error = FETCH.retry(|| page(1000)).when(|_| true).deadline(ms(100)).await;
    assert!(error.expect_err("it takes a second").is_timeout());
}

#[tokio::test(start_paused = true)]
async fn program_joins_a_list_of_calls() {
    let calls = (1..=4).map(|number| FETCH.retry(move || page(number)).when(|_| false));
    let pages = join_all(calls.map(IntoFuture::into_future)).await;
    let pages: Vec<u32> = pages.into_iter().filter_map(Result::ok).collect();
    assert_eq!(pages, [10, 20, 30, 40]);

    let calls = (12..=14).map(|number| FETCH.retry(move || page(number)).when(|_| false));
    let failed = try_join_all(calls.map(IntoFuture::into_future)).await;
    assert_eq!(failed.expect_err("page 13 is missing").into_last(), Some("not found"));
}

#[tokio::test(start_paused = true)]
async fn program_collects_calls_in_the_order_of_their_ends() {
    let calls = [3, 1, 2].map(|number| FETCH.retry(move || page(number)).when(|_| true));
    let mut running: FuturesUnordered<_> = calls.into_iter().map(IntoFuture::into_future).collect();
    let mut pages = Vec::new();
    while let Some(page) = running.next().await {
        pages.push(page.unwrap());
    }
    assert_eq!(pages, [10, 20, 30]);
}

#[tokio::test(start_paused = true)]
async fn program_spawns_calls() {
    let mut tasks = JoinSet::new();
    for number in [3, 1, 2] {
        tasks.spawn(FETCH.retry(move || page(number)).when(|_| true).into_future());
    }
    let mut pages: Vec<u32> = tasks.join_all().await.into_iter().map(Result::unwrap).collect();
    pages.sort_unstable();
    assert_eq!(pages, [10, 20, 30]);
}

/// Shutting down: the call is dropped, and with it the running attempt.
#[tokio::test(start_paused = true)]
async fn program_stops_retrying_when_it_shuts_down() {
    static RECONNECT: Policy = Policy::constant(s(1)).forever().build();
    let (shutdown, mut stopped) = tokio::sync::watch::channel(false);
    let task = tokio::spawn(async move {
        tokio::select! {
            _ = RECONNECT.retry(|| async { Err::<(), _>("connection lost") }).when(|_| true) => "done",
            _ = stopped.wait_for(|stopped| *stopped) => "shut down",
        }
    });
    tokio::time::sleep(s(5)).await;
    shutdown.send(true).unwrap();
    assert_eq!(task.await.unwrap(), "shut down");
}
