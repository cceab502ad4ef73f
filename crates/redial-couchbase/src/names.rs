//! Lookup of names, with a "did you mean" suggestion for unknown ones.

use std::fmt;

/// The error of an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    nearest: Option<&'static str>,
}

impl UnknownName {
    /// The unknown name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The closest known name, if one is similar enough.
    #[must_use]
    pub const fn nearest(&self) -> Option<&'static str> {
        self.nearest
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}", self.what, self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest:?}?"))
    }
}

impl std::error::Error for UnknownName {}

/// Finds the item with this name.
pub(crate) fn find<T: Copy>(
    what: &'static str,
    name: &str,
    all: &[T],
    name_of: fn(&T) -> &'static str,
) -> Result<T, UnknownName> {
    let mut nearest = (SIMILARITY_MIN, None);
    for item in all {
        let known = name_of(item);
        if known == name {
            return Ok(*item);
        }
        // Case is ignored: wrong case is the most common typo.
        let similarity = strsim::normalized_damerau_levenshtein(
            &known.to_ascii_lowercase(),
            &name.to_ascii_lowercase(),
        );
        if similarity > nearest.0 {
            nearest = (similarity, Some(known));
        }
    }
    Err(UnknownName { what, name: name.to_owned(), nearest: nearest.1 })
}

/// The minimum similarity, from 0 to 1, for a suggestion.
const SIMILARITY_MIN: f64 = 0.5;
