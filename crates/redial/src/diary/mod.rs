//! The diary of a call: its notes in order, written as JSON lines, read back and replayed.

#[cfg(feature = "serde")]
mod lines;
mod replay;

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
/// diary.replay(TWICE.core()).expect("the same decisions");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diary {
    notes: Vec<(Ns, Note)>,
}

impl Diary {
    /// An empty diary.
    #[must_use]
    pub const fn new() -> Self {
        Diary { notes: Vec::new() }
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
}

impl FromIterator<(Ns, Note)> for Diary {
    fn from_iter<I: IntoIterator<Item = (Ns, Note)>>(notes: I) -> Self {
        Diary { notes: notes.into_iter().collect() }
    }
}
