//! Calls that fail for ever on virtual time, and what became of them.

use std::cell::RefCell;
use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::{Builder, Diary, Error, Failure, Jitter, Note, Ns, Policy, Sleeper, Throttle, Why};

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Became {
    /// When its attempts started.
    pub(crate) starts: Vec<Duration>,
    pub(crate) why: Why,
    pub(crate) elapsed: Duration,
}

impl Became {
    /// The waits between attempts that take no time.
    pub(crate) fn delays(&self) -> Vec<Duration> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// Each attempt takes so long and fails like this.
#[derive(Clone, Copy)]
pub(crate) struct Fails(pub(crate) Duration, pub(crate) Failure);

impl Fails {
    pub(crate) const AT_ONCE: Fails = Fails(Duration::ZERO, Failure::server());
}

/// Runs a call of the policy: with and without a machine, which must not differ.
pub(crate) fn run(policy: &Policy, fails: Fails) -> Became {
    let plain = run_one(policy, fails, None);
    let mut diary = Diary::new();
    assert_eq!(run_one(policy, fails, Some(&mut diary)), plain, "with a machine");
    plain
}

/// Runs a call of the policy on this thread's virtual clock.
pub(crate) fn run_one(policy: &Policy, fails: Fails, diary: Option<&mut Diary>) -> Became {
    let began = Clock.now();
    let starts = RefCell::new(Vec::new());
    let call = policy.retry(|| {
        starts.borrow_mut().push(Duration::from_nanos(Clock.now() - began));
        assert!(starts.borrow().len() < 10_000, "it goes on for ever");
        async move {
            if !fails.0.is_zero() {
                Clock.sleep(fails.0).await;
            }
            Err::<(), _>(())
        }
    });
    let call = call.when(|()| Some(fails.1)).sleeping_on(Clock);
    let call = match diary {
        Some(diary) => call.diary(diary),
        None => call,
    };
    let error: Error<()> = block_on(call.into_future()).expect_err("it fails for ever");
    Became { starts: starts.into_inner(), why: error.why(), elapsed: error.elapsed() }
}

/// The builder's policy without a throttle, made at run time.
pub(crate) fn free(builder: Builder<Policy>) -> Policy {
    builder.throttle(Throttle::none()).build().expect("valid")
}

/// The same without jitter.
pub(crate) fn exact(builder: Builder<Policy>) -> Policy {
    free(builder.jitter(Jitter::None))
}

/// The delays that the notes announce.
pub(crate) fn announced(diary: &Diary) -> Vec<Duration> {
    let after = |(_, note): &(Ns, Note)| match note {
        Note::Retrying { after, .. } => Some(Duration::from_nanos(*after)),
        _ => None,
    };
    diary.notes().iter().filter_map(after).collect()
}
