//! A hand-written loop that takes its delays from a policy.

use redial::{Jitter, Policy, ms};

#[test]
fn program_uses_the_delays_of_a_policy() {
    static CONNECT: Policy = Policy::exponential(ms(10)).jitter(Jitter::None).attempts(4).build();
    let mut slept = Vec::new();
    let mut delays = CONNECT.delays();
    let mut answers = [Err("refused"), Err("refused"), Ok(7)].into_iter();
    let connection = loop {
        match answers.next().unwrap() {
            Ok(connection) => break Ok(connection),
            Err(error) => match delays.next() {
                Some(delay) => slept.push(delay),
                None => break Err(error),
            },
        }
    };
    assert_eq!((connection, slept), (Ok(7), vec![ms(10), ms(20)]));
}
