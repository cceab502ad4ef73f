//! Names that tools read: looked up exactly, and with the nearest known one where there is none.

use std::fmt;

/// No such name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    nearest: Option<&'static str>,
}

impl UnknownName {
    /// The name that was looked for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The known name that is nearest to it, if one is near.
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

/// The item of this name.
pub(crate) fn find<T: Copy>(
    what: &'static str,
    name: &str,
    all: &[T],
    name_of: fn(&T) -> &'static str,
) -> Result<T, UnknownName> {
    let mut nearest = (NEAR_MIN, None);
    for item in all {
        let known = name_of(item);
        if known == name {
            return Ok(*item);
        }
        // The case does not count for nearness: it is the likeliest slip of all.
        let likeness = strsim::normalized_damerau_levenshtein(
            &known.to_ascii_lowercase(),
            &name.to_ascii_lowercase(),
        );
        if likeness > nearest.0 {
            nearest = (likeness, Some(known));
        }
    }
    Err(UnknownName { what, name: name.to_owned(), nearest: nearest.1 })
}

/// How alike two names must be, from 0 to 1, for one to be offered in place of the other.
const NEAR_MIN: f64 = 0.5;
