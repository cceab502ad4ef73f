//! Order in which timers fire.

use super::*;

// Decision P4.
#[test]
fn timers_due_together_fire_by_number_and_hedge_last() {
    // At 20 ms the attempt timeout and the timer of the next hedge are due together.
    let rules = Rules { attempt_timeout: Some(ms(20)), hedge: Some(ms(20)), ..BASE };
    hedge(rules, |driver| {
        driver.reach(20);
        driver.wake();
        let events: Vec<Event> = driver.env.call_log.iter().map(|(_, event)| *event).collect();
        let timed_out =
            events.iter().position(|event| *event == Event::AttemptTimedOut { attempt: 1 });
        let started = events
            .iter()
            .position(|event| matches!(event, Event::AttemptStarted { attempt: 2, .. }));
        assert!(timed_out.unwrap() < started.unwrap());
        // The hedge that follows the failure replaces the one that was due.
        assert_eq!(driver.starts(), [0.0, 20.0]);
    });
}

// Decision P4.
#[test]
fn timers_fire_in_order_of_time_then_number() {
    let timed_out = |driver: &TestDriver<'_, '_, '_>| -> Vec<u32> {
        let timed_out = |(_, event): &(Ns, Event)| match event {
            Event::AttemptTimedOut { attempt } => Some(*attempt),
            _ => None,
        };
        driver.env.call_log.iter().filter_map(timed_out).collect()
    };
    let rules = Rules { attempt_timeout: Some(ms(20)), ..BASE };
    hedge(Rules { hedge: Some(Duration::ZERO), ..rules }, |driver| {
        driver.pass(at(20));
        assert_eq!(timed_out(driver), [1, 2, 3, 4]);
        assert_eq!(
            driver.ended(),
            Some((StopReason::AttemptsExhausted, Some(4))),
            "the last failure (G21)"
        );
    });
    // A late driver catches up in order of time.
    hedge(Rules { hedge: Some(ms(5)), ..rules }, |driver| {
        driver.pass(at(15));
        driver.oversleep(at(100));
        driver.wake();
        assert_eq!(timed_out(driver), [1, 2, 3, 4]);
    });
    // One timer at a time: an outcome in between comes first.
    hedge(Rules { hedge: Some(Duration::ZERO), ..rules }, |driver| {
        driver.reach(20);
        assert!(driver.wake_once());
        driver.report(2, Directive::Succeed);
        assert_eq!(
            (timed_out(driver), driver.stop_reason()),
            (vec![1], Some(StopReason::Succeeded))
        );
        assert!(!driver.wake_once());
    });
}
