//! The diary of a call: its notes in order, written as JSON lines, read back and replayed.

#[cfg(feature = "serde")]
mod lines;
#[cfg(feature = "serde")]
mod note;
mod replay;

use std::collections::BTreeMap;
use std::fmt;

use redial_core::{Note, Ns};

#[cfg(feature = "serde")]
pub use lines::DiaryError;
pub use replay::Divergence;

/// The ordered notes of a call: what happened, when, and why.
///
/// ```
/// use redial::{Diary, Note, Policy, Why, ms};
///
/// static TWICE: Policy = Policy::constant(ms(10)).attempts(2).checked();
///
/// let mut diary = Diary::new();
/// let result = TWICE.retry(|| Err::<(), _>("busy")).when(|_| true).diary(&mut diary).call();
/// assert_eq!(result.unwrap_err().why(), Why::Attempts);
/// assert!(matches!(diary.notes().last(), Some((_, Note::Ended { why: Why::Attempts, .. }))));
/// // Any surprise can be played again: with the same inputs come the same decisions.
/// diary.replay(&TWICE).expect("the same decisions");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diary {
    notes: Vec<(Ns, Note)>,
    /// By the index of their note.
    details: BTreeMap<usize, NoteDetail>,
}

/// What is known about a note besides the decision: the machine sees no error and no backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoteDetail {
    /// The error of an attempt, as text.
    pub error: Option<Box<str>>,
    /// The backend that an attempt went to.
    pub backend: Option<Box<str>>,
}

impl NoteDetail {
    /// Nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        NoteDetail { error: None, backend: None }
    }

    /// With the error of an attempt.
    #[must_use]
    pub fn error(mut self, text: impl Into<Box<str>>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// With the backend that an attempt went to.
    #[must_use]
    pub fn backend(mut self, name: impl Into<Box<str>>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// Whether nothing is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.error.is_none() && self.backend.is_none()
    }
}

impl fmt::Display for NoteDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            write!(f, ": {error}")?;
        }
        self.backend.as_ref().map_or(Ok(()), |backend| write!(f, " (backend {backend})"))
    }
}

impl Diary {
    /// An empty diary.
    #[must_use]
    pub const fn new() -> Self {
        Diary { notes: Vec::new(), details: BTreeMap::new() }
    }

    /// The notes with their moments.
    #[must_use]
    pub fn notes(&self) -> &[(Ns, Note)] {
        &self.notes
    }

    /// Adds a note.
    pub fn push(&mut self, at: Ns, note: Note) {
        self.notes.push((at, note));
    }

    /// Adds a detail to the last note; an empty one, or one without a note, is left out.
    pub fn annotate(&mut self, detail: NoteDetail) {
        if let Some(last) = self.notes.len().checked_sub(1)
            && !detail.is_empty()
        {
            self.details.insert(last, detail);
        }
    }

    /// The detail of the note at this index of [`Diary::notes`].
    #[must_use]
    pub fn detail(&self, index: usize) -> Option<&NoteDetail> {
        self.details.get(&index)
    }
}

impl FromIterator<(Ns, Note)> for Diary {
    fn from_iter<I: IntoIterator<Item = (Ns, Note)>>(notes: I) -> Self {
        Diary { notes: notes.into_iter().collect(), details: BTreeMap::new() }
    }
}

/// What people read of it: a line for each note, after the milliseconds since the call began. Spans
/// are rounded down to the microsecond; a deadline is counted from the beginning too.
///
/// ```
/// use redial::{Diary, Jitter, Policy, ms};
///
/// static TWICE: Policy =
///     Policy::constant(ms(10)).jitter(Jitter::None).attempts(2).deadline(ms(500)).checked();
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let mut diary = Diary::new();
/// let busy = || async { Err::<(), _>("busy") };
/// TWICE.retry(busy).when(|_| true).diary(&mut diary).await.unwrap_err();
/// let text = diary.to_string();
/// let lines: Vec<_> = text.lines().map(str::trim_start).collect();
/// assert_eq!(lines, [
///     "0.000 ms  call started (idempotent), deadline at 500ms",
///     "0.000 ms  attempt 1 started",
///     "0.000 ms  attempt 1 failed: a server failure",
///     "0.000 ms  the throttle agreed",
///     "0.000 ms  a retry follows in 10ms because of a server failure",
///     "10.000 ms  attempt 2 started",
///     "10.000 ms  attempt 2 failed: a server failure",
///     "10.000 ms  the call ended with attempt 2: no attempt left",
/// ]);
/// # }
/// ```
impl fmt::Display for Diary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let began = self.notes.first().map_or(0, |(at, _)| *at);
        for (index, (at, note)) in self.notes.iter().enumerate() {
            let line_end = if index > 0 { "\n" } else { "" };
            let us = at.saturating_sub(began) / 1_000;
            write!(f, "{line_end}{:>6}.{:03} ms  ", us / 1_000, us % 1_000)?;
            match *note {
                // The clock of a driver counts from a moment that means nothing to a reader.
                Note::Began { deadline: Some(deadline), idempotent } => {
                    let deadline = Some(deadline.saturating_sub(began));
                    write!(f, "{}", Note::Began { deadline, idempotent })?;
                }
                note => write!(f, "{note}")?,
            }
            if let Some(detail) = self.detail(index) {
                write!(f, "{detail}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial_core::Why;

    #[test]
    fn details_belong_to_the_last_note_and_are_printed_behind_it() {
        let mut diary = Diary::new();
        diary.annotate(NoteDetail::new().error("lost"));
        diary.push(0, Note::Sealed);
        diary.annotate(NoteDetail::new());
        assert_eq!(diary.detail(0), None, "an empty one is left out");
        diary.push(1_000, Note::Cancelled { attempt: 1 });
        diary.annotate(NoteDetail::new().error("busy").backend("10.0.0.1:1"));
        assert_eq!(diary.detail(1).and_then(|it| it.error.as_deref()), Some("busy"));
        let text = diary.to_string();
        assert!(text.ends_with("attempt 1 was cancelled: busy (backend 10.0.0.1:1)"), "{text}");
    }

    #[test]
    fn a_diary_is_read_from_the_beginning_of_its_call() {
        let ended = Note::Ended { why: Why::Deadline, attempt: None };
        let diary: Diary = [
            (7_000_000_000, Note::Began { deadline: Some(9_000_000_000), idempotent: true }),
            (7_000_001_999, Note::Started { attempt: 1, number: 1 }),
            (9_000_000_000, ended),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            diary.to_string(),
            "     0.000 ms  call started (idempotent), deadline at 2s\n     \
             0.001 ms  attempt 1 started\n  \
             2000.000 ms  the call ended: no time left before the deadline"
        );
        assert_eq!(Diary::new().to_string(), "");
    }
}
