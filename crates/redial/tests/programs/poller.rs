//! A poller: asks for the status of a job until it is done, within a total time.

use redial::{Error, Policy, StopReason, Throttle, ms, s};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Job {
    Running(u32),
    Done,
}

/// Waiting for a value does not use the retry budget.
static POLL: Policy = Policy::constant(ms(250))
    .unlimited()
    .deadline(s(60))
    .throttle(Throttle::none())
    .name("poll")
    .build();

async fn wait_for(
    mut status: impl FnMut() -> Result<Job, &'static str>,
) -> Result<Job, Error<&'static str, Job>> {
    POLL.retry(|| std::future::ready(status()))
        .until(|job| *job == Job::Done)
        .when(|error| *error == "busy")
        .await
}

#[tokio::test(start_paused = true)]
async fn program_polls_until_the_job_is_done() {
    let mut polls = 0;
    let job = wait_for(|| {
        polls += 1;
        match polls {
            7 => Err("busy"),
            100 => Ok(Job::Done),
            done => Ok(Job::Running(done)),
        }
    });
    assert_eq!(job.await.ok(), Some(Job::Done));
    assert_eq!(polls, 100);
}

#[tokio::test(start_paused = true)]
async fn program_returns_the_last_status_at_the_deadline() {
    let error = wait_for(|| Ok(Job::Running(40))).await.expect_err("it never ends");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Deadline, 240));
    assert_eq!(error.last_value(), Some(&Job::Running(40)));
    assert!(
        error.to_string().starts_with("no acceptable value (240 attempts in 59.8 s"),
        "{error}"
    );
}
