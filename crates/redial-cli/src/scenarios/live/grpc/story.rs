//! What a diary tells of a call that does not depend on who tells it.
//!
//! The layer's diary and that of the first level may order what happens at one moment differently,
//! and a network knows later than a script that something cannot be kept. All else must be the same.

use redial::{Diary, Directive, Note, Ns};

use crate::scenarios::time::to_ms;

/// Something that happened, and when, since the call began.
pub(super) type Told = (String, Ns);

/// What happened, in an order of its own.
pub(super) fn story(began: Ns, diary: &Diary) -> Vec<Told> {
    let notes = diary.notes().iter();
    let mut story: Vec<_> = notes
        .filter_map(|(at, note)| told(note).map(|told| (told, at.saturating_sub(began))))
        .collect();
    story.sort();
    story
}

fn told(note: &Note) -> Option<String> {
    Some(match note {
        Note::Started { attempt, number } => {
            format!("attempt {attempt} starts, number {number}")
        }
        Note::Outcome { attempt, judgement } => {
            let how = match judgement.directive {
                Directive::Succeed => "succeeds",
                Directive::Fail => "fails, not retryable",
                Directive::Retry(_) => "fails, retryable",
            };
            let proof = judgement.proof.map_or(String::new(), |proof| format!(", {proof:?}"));
            let drains = if judgement.drains { ", drains" } else { "" };
            format!("attempt {attempt} {how}{proof}{drains}")
        }
        Note::Cancelled { attempt } => format!("attempt {attempt} is cancelled"),
        Note::Drew(draw) => format!("draw {draw}"),
        Note::Retrying { .. } => "a retry follows".to_owned(),
        Note::Replacing { attempt, proof, .. } => {
            format!("attempt {attempt} is replaced, {proof:?}")
        }
        Note::Ended { why, attempt } => format!("ends with {attempt:?}, {}", why.name()),
        _ => return None,
    })
}

/// The first thing in which two stories differ by more than `tolerance`: what one tells, and what the
/// other.
pub(super) fn differs(one: &[Told], other: &[Told], tolerance: Ns) -> Option<(String, String)> {
    let text = |told: Option<&Told>| {
        told.map_or("nothing more".to_owned(), |(what, at)| format!("{what} at {}", to_ms(*at)))
    };
    let length = one.len().max(other.len());
    let mut pairs = (0..length).map(|at| (one.get(at), other.get(at)));
    let found = pairs.find(|pair| match pair {
        (Some(one), Some(other)) => one.0 != other.0 || one.1.abs_diff(other.1) > tolerance,
        _ => true,
    });
    found.map(|(one, other)| (text(one), text(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial::Why;

    fn notes(list: impl IntoIterator<Item = (Ns, Note)>) -> Vec<Told> {
        story(100, &list.into_iter().collect())
    }

    #[test]
    fn the_order_of_one_moment_makes_no_difference_and_all_else_does() {
        let start = (100, Note::Started { attempt: 1, number: 1 });
        let cancel = (105, Note::Cancelled { attempt: 1 });
        let end = (105, Note::Ended { why: Why::Deadline, attempt: None });
        let told = notes([start, cancel, end]);
        assert_eq!(differs(&told, &notes([start, end, cancel]), 0), None);
        assert_eq!(differs(&told, &notes([start, (104, Note::Sealed), cancel, end]), 0), None);
        let later = notes([start, (107, cancel.1), end]);
        assert_eq!(differs(&told, &later, 2), None);
        let text = |text: &str| text.to_owned();
        let expected = (
            text("attempt 1 is cancelled at 0.000005"),
            text("attempt 1 is cancelled at 0.000007"),
        );
        assert_eq!(differs(&told, &later, 1), Some(expected));
        let (one, other) = differs(&told, &notes([start, cancel]), 0).expect("it lacks the end");
        assert_eq!((&*one, &*other), ("ends with None, deadline at 0.000005", "nothing more"));
    }
}
