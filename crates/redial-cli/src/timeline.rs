//! Draws a call log as bars on a time axis.
//!
//! One row per attempt: `·` is backoff, `█` is running, and the mark is the outcome: `✓` success,
//! `✗` failure, `⧖` attempt timeout, `╳` cancelled because another attempt won or the call ended.

use std::fmt::Write as _;

use redial::{Directive, Event, StopReason, time::Ns};

/// The largest and smallest width of the axis, in characters.
const WIDTH_MAX: usize = 60;
const WIDTH_MIN: usize = 10;

/// The width of a row without its bar and label: number, mark and blanks.
const MARGINS: usize = 8;

/// The row of one attempt.
struct AttemptRow {
    attempt: u32,
    waits_from: Ns,
    start: Ns,
    end: Ns,
    mark: char,
    text: String,
}

/// The call log as text for this many columns, with the stop reason in the last line.
#[must_use]
pub fn timeline(events: &[(Ns, Event)], columns: usize) -> String {
    let Some(&(begin, _)) = events.first() else { return String::from("  nothing happened\n") };
    // A log that a program has put together need not be in order.
    let end = events.iter().map(|&(at, _)| at).fold(begin, Ns::max);
    let rows = rows(events, begin, end);
    let words = rows.iter().map(|row| row.text.chars().count()).max().unwrap_or(0);
    let width = columns.saturating_sub(MARGINS + words).clamp(WIDTH_MIN, WIDTH_MAX);
    let mut text = String::new();
    let column = |at: Ns| {
        let span = end.saturating_sub(begin).max(1);
        // A share of the width: `f64` is precise enough for numbers below 2^53.
        ((at.saturating_sub(begin)) as f64 / span as f64 * width as f64) as usize
    };
    for row in &rows {
        let (from, start, stop) = (column(row.waits_from), column(row.start), column(row.end));
        let length = stop.saturating_sub(start).max(1);
        let bar = "█".repeat(length);
        let dots = "·".repeat(start.saturating_sub(from));
        let gap = " ".repeat(from);
        let rest = " ".repeat((width + 1).saturating_sub(start + length));
        let AttemptRow { attempt, mark, text: word, .. } = row;
        let _ = writeln!(text, "  {attempt:>2} {gap}{dots}{bar}{mark}{rest} {word}");
    }
    let _ = writeln!(text, "     {}", axis(end.saturating_sub(begin), width));
    let _ = writeln!(text, "     {}", ending(events, begin, end));
    text
}

fn rows(events: &[(Ns, Event)], begin: Ns, end: Ns) -> Vec<AttemptRow> {
    let mut rows: Vec<AttemptRow> = Vec::new();
    let mut decided = begin;
    for &(at, event) in events {
        let (attempt, mark, text) = match event {
            Event::AttemptStarted { attempt, .. } => {
                let text = String::from("still running");
                let waits_from = decided.min(at);
                rows.push(AttemptRow { attempt, waits_from, start: at, end, mark: '…', text });
                // A hedge without a delay has no waiting time.
                decided = at;
                continue;
            }
            Event::AttemptOutcome { attempt, classification } => match classification.directive {
                Directive::Succeed => (attempt, '✓', String::from("succeeded")),
                Directive::Fail => (attempt, '✗', String::from("failed, not retryable")),
                Directive::Retry(failure) => {
                    let kind = format!("{:?}", failure.kind).to_lowercase();
                    let text = failure.reason.map_or(kind, |reason| reason.name().to_owned());
                    (attempt, '✗', text)
                }
            },
            Event::AttemptTimedOut { attempt } => (attempt, '⧖', String::from("timed out")),
            Event::AttemptCancelled { attempt } => (attempt, '╳', String::from("cancelled")),
            Event::RetryScheduled { .. } => {
                decided = at;
                continue;
            }
            _ => continue,
        };
        let row = rows.iter_mut().find(|row| row.attempt == attempt && row.mark == '…');
        if let Some(row) = row {
            (row.end, row.mark, row.text) = (at, mark, text);
        }
    }
    rows
}

/// Up to four ticks with their times, as many as fit.
fn axis(span: Ns, width: usize) -> String {
    let ticks = (width / 10).clamp(1, 4);
    let mut line = String::new();
    for tick in 0..=ticks {
        let at = tick * width / ticks;
        let label = human(span / ticks as u64 * tick as u64);
        while line.chars().count() < at {
            line.push(' ');
        }
        let _ = write!(line, "│{label}");
    }
    line
}

fn ending(events: &[(Ns, Event)], begin: Ns, end: Ns) -> String {
    let started =
        events.iter().filter(|(_, event)| matches!(event, Event::AttemptStarted { .. })).count();
    let attempts = if started == 1 { "1 attempt" } else { &format!("{started} attempts") };
    let took = human(end.saturating_sub(begin));
    match events.last() {
        Some((_, Event::CallEnded { stop_reason: StopReason::Succeeded, .. })) => {
            format!("succeeded after {attempts} in {took}")
        }
        Some((_, Event::CallEnded { stop_reason, .. })) => {
            format!("ended after {attempts} in {took}: {stop_reason}")
        }
        _ => format!("{attempts} in {took}, not ended"),
    }
}

/// A duration in a readable unit.
fn human(span: Ns) -> String {
    match span {
        0 => String::from("0"),
        1..1_000_000 => format!("{} µs", span / 1000),
        1_000_000..10_000_000 => format!("{:.1} ms", span as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", span / 1_000_000),
        _ => format!("{:.2} s", span as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use redial::testing;
    use redial::{Failure, Hedged, Jitter, Policy, Reason, ms};

    use super::*;

    #[test]
    fn timeline_of_an_empty_call_log_is_empty() {
        assert_eq!(timeline(&[], 80), "  nothing happened\n");
    }

    #[test]
    fn timeline_of_times_out_of_order_is_drawn() {
        let started = |attempt| Event::AttemptStarted { attempt, number: attempt };
        for times in [[0, u64::MAX, 1], [u64::MAX, 0, 1], [5, 3, 4], [5, 9, 0]] {
            let events = [
                (times[0], started(1)),
                (times[1], started(2)),
                (times[2], Event::AttemptTimedOut { attempt: 2 }),
            ];
            let text = timeline(&events, 80);
            assert!(text.contains("2 attempts in"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
        }
    }

    #[test]
    fn timeline_shows_backoff_as_dots_and_attempts_as_bars() {
        static POLICY: Policy = Policy::constant(ms(30)).jitter(Jitter::None).build();
        let script = [testing::fails().after(ms(15)), testing::succeeds().after(ms(15))];
        let text = timeline(testing::play(&POLICY, script).call_log().events(), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let count = |line: &str, mark: char| line.chars().filter(|c| *c == mark).count();
        assert_eq!((count(lines[0], '█'), count(lines[0], '·')), (15, 0), "{text}");
        assert_eq!((count(lines[1], '█'), count(lines[1], '·')), (15, 30), "{text}");
        assert!(lines[0].contains('✗') && lines[0].ends_with("server"), "{text}");
        assert!(lines[1].contains('✓') && lines[1].ends_with("succeeded"), "{text}");
        assert!(lines[3].ends_with("succeeded after 2 attempts in 60 ms"), "{text}");
    }

    #[test]
    fn timeline_rows_fit_the_narrowest_page() {
        static POLICY: Policy = Policy::constant(ms(30)).jitter(Jitter::None).build();
        let refused = Failure::client().because(Reason::new("CONNECTION_REFUSED"));
        let script = || [testing::fails_with(refused).after(ms(15)), testing::succeeds()];
        let played = testing::play(&POLICY, script());
        let widest = |columns: usize| {
            let text = timeline(played.call_log().events(), columns);
            // The last line is plain text and may be longer.
            let rows = text.lines().take(3).map(|line| line.chars().count());
            rows.max().expect("there are rows")
        };
        let narrowest = MARGINS + WIDTH_MIN + "CONNECTION_REFUSED".len();
        for columns in narrowest..=120 {
            assert!(widest(columns) <= columns, "{columns}");
        }
        assert_eq!((widest(0), widest(80)), (narrowest, 80));
    }

    #[test]
    fn timeline_crosses_out_the_losing_hedge() {
        static HEDGED: Hedged = Policy::hedged(ms(20)).attempts(2).build();
        let script = [testing::hangs(), testing::succeeds().after(ms(20))];
        let text = timeline(testing::play(&HEDGED, script).call_log().events(), 80);
        assert!(text.lines().next().is_some_and(|line| line.contains('╳')), "{text}");
        assert!(text.contains("succeeded after 2 attempts in 40 ms"), "{text}");
    }

    #[test]
    fn timeline_ends_with_the_stop_reason() {
        static ONCE: Policy = Policy::constant(ms(1)).attempts(1).build();
        let text = timeline(testing::play(&ONCE, [testing::fails()]).call_log().events(), 80);
        assert!(text.contains("ended after 1 attempt in 0: no attempt left"), "{text}");
    }
}
