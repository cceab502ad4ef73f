//! The diary of a call: its notes in order, written, read and replayed.

use redial_core::{Note, Ns};

/// The ordered notes of a call.
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

/// Where a replay differs from the diary.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// The index of the note that differs.
    pub index: usize,
    /// What the diary says.
    pub written: Option<(Ns, Note)>,
    /// What the replay did.
    pub played: Option<(Ns, Note)>,
}
