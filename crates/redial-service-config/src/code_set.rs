//! A set of gRPC status codes.

use std::fmt;

use crate::code::Code;

/// A set of gRPC status codes, stored as a bit mask.
///
/// ```
/// use redial_service_config::{Code, Codes};
///
/// let codes: Codes = [Code::Unavailable, Code::Aborted, Code::Unavailable].into_iter().collect();
/// assert!(codes.contains(Code::Aborted) && !codes.contains(Code::Internal));
/// assert_eq!(codes.to_string(), "ABORTED, UNAVAILABLE");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Codes(u32);

impl Codes {
    /// The empty set.
    pub const NONE: Codes = Codes(0);

    /// Adds a code to the set.
    #[must_use]
    pub const fn with(self, code: Code) -> Codes {
        Codes(self.0 | 1 << code.number())
    }

    /// Whether the code is in the set.
    #[must_use]
    pub const fn contains(self, code: Code) -> bool {
        self.0 & 1 << code.number() != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of codes in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The codes in numeric order.
    pub fn iter(self) -> impl Iterator<Item = Code> {
        Code::ALL.into_iter().filter(move |code| self.contains(*code))
    }
}

impl FromIterator<Code> for Codes {
    fn from_iter<I: IntoIterator<Item = Code>>(codes: I) -> Self {
        codes.into_iter().fold(Codes::NONE, Codes::with)
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, code) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{code}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_hold_each_code_once_in_numeric_order() {
        let all: Codes = Code::ALL.into_iter().rev().chain(Code::ALL).collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), Code::ALL);
        assert_eq!(all.len(), 17);
        for code in Code::ALL {
            let one = Codes::NONE.with(code).with(code);
            assert_eq!((one.len(), one.is_empty()), (1, false));
            assert!(Code::ALL.iter().all(|other| one.contains(*other) == (*other == code)));
        }
        assert!(Codes::NONE.is_empty() && Codes::NONE.iter().next().is_none());
    }

    #[test]
    fn codes_display_lists_names() {
        let codes = Codes::NONE.with(Code::Unavailable).with(Code::Ok);
        assert_eq!(
            (codes.to_string(), Codes::NONE.to_string()),
            ("OK, UNAVAILABLE".into(), String::new())
        );
        assert_eq!(format!("{codes:?}"), "{Ok, Unavailable}");
    }
}
