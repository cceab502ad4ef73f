//! The name of a policy, for logs, metrics and traces.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The name of a policy: a custom name, or the place in the source where it was built.
///
/// ```
/// use redial::{Policy, ms};
///
/// static FETCH: Policy = Policy::exponential(ms(100)).name("fetch").build();
/// assert_eq!(format!("retry by {}", FETCH.name()), "retry by fetch");
/// ```
#[derive(Clone)]
pub struct PolicyName(Source);

#[derive(Clone)]
enum Source {
    Static(&'static str),
    Shared(Arc<str>),
    CallSite(&'static Location<'static>),
    /// A policy that was loaded without a name.
    #[cfg(feature = "serde")]
    Unnamed,
}

impl PolicyName {
    #[cfg(feature = "serde")]
    pub(crate) const UNNAMED: PolicyName = PolicyName(Source::Unnamed);

    pub(crate) const fn new(name: &'static str) -> Self {
        PolicyName(Source::Static(name))
    }

    pub(crate) const fn shared(name: Arc<str>) -> Self {
        PolicyName(Source::Shared(name))
    }

    pub(crate) const fn of_call_site(location: &'static Location<'static>) -> Self {
        PolicyName(Source::CallSite(location))
    }

    #[track_caller]
    pub(crate) const fn here() -> Self {
        PolicyName::of_call_site(Location::caller())
    }

    /// The custom name of the policy; `None` if it has only its place in the source.
    ///
    /// ```
    /// use redial::{Policy, ms};
    ///
    /// assert_eq!(Policy::constant(ms(1)).name("poll").build().name().custom(), Some("poll"));
    /// assert_eq!(Policy::constant(ms(1)).build().name().custom(), None);
    /// ```
    #[must_use]
    pub fn custom(&self) -> Option<&str> {
        match &self.0 {
            Source::Static(name) => Some(name),
            Source::Shared(name) => Some(name),
            Source::CallSite(_) => None,
            #[cfg(feature = "serde")]
            Source::Unnamed => None,
        }
    }
}

/// Two names are equal if they are the same custom name, or the same place.
impl PartialEq for PolicyName {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Source::CallSite(location), Source::CallSite(other)) => location == other,
            (Source::CallSite(_), _) | (_, Source::CallSite(_)) => false,
            _ => self.custom() == other.custom(),
        }
    }
}

impl Eq for PolicyName {}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Static(name) => f.pad(name),
            Source::Shared(name) => f.pad(name),
            Source::CallSite(location) => write!(f, "{}:{}", location.file(), location.line()),
            #[cfg(feature = "serde")]
            Source::Unnamed => f.pad("unnamed"),
        }
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
