//! How a result is judged: succeed, fail, or try again because of something.
//!
//! The whole result is judged, value or error, so that a waiter ("until this value") and a retry
//! ("when this error") are the same machine.

pub use redial_core::{Classification, Proof};

use redial_core::{Directive, Failure};

/// What a closure may say about a result: whether to try again, because of what, or a directive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether to try again",
    label = "this closure must say whether to try again",
    note = "it returns `true` or `false`, a `Failure`, an `Option<Failure>` or a `Directive`"
)]
pub trait IntoDirective {
    /// The word as a directive.
    fn directive(self) -> Directive;
}

impl IntoDirective for bool {
    #[inline]
    fn directive(self) -> Directive {
        if self { Directive::Retry(Failure::server()) } else { Directive::Fail }
    }
}

impl IntoDirective for Failure {
    #[inline]
    fn directive(self) -> Directive {
        Directive::Retry(self)
    }
}

impl IntoDirective for Option<Failure> {
    #[inline]
    fn directive(self) -> Directive {
        self.map_or(Directive::Fail, Directive::Retry)
    }
}

impl IntoDirective for Directive {
    #[inline]
    fn directive(self) -> Directive {
        self
    }
}

/// An error that knows whether trying again can help. With it no `.when(..)` is needed, except that
/// [`Policy::retry_on`](crate::Policy::retry_on) is awaited by it.
///
/// ```
/// use redial::{Failure, Transient};
///
/// #[derive(Debug)]
/// enum MyError { Busy, NotFound }
///
/// impl Transient for MyError {
///     fn failure(&self) -> Option<Failure> {
///         match self {
///             MyError::Busy => Some(Failure::throttling()),
///             MyError::NotFound => None,
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use redial::Policy;
///
/// static GET: Policy = Policy::immediate().attempts(2).build();
/// let gone = GET.retry(async || Err::<(), _>(MyError::NotFound)).await;
/// assert_eq!(gone.unwrap_err().attempts(), 1);
///
/// let mut tries = 0;
/// let busy = GET
///     .retry_on(&mut tries, async |tries| {
///         *tries += 1;
///         Err::<(), _>(MyError::Busy)
///     })
///     .when(Transient::failure)
///     .await;
/// assert_eq!((busy.unwrap_err().attempts(), tries), (2, 2));
/// # }
/// ```
pub trait Transient {
    /// What is known of it if trying again can help; `None` if it cannot.
    fn failure(&self) -> Option<Failure>;
}

/// The last outcome of a call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last<E, V> {
    /// An error.
    Error(E),
    /// A value that was not accepted.
    Value(V),
}

/// In place of a value where values are always accepted; there is none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {}

/// A judged result, with what is handed on.
#[derive(Clone, Debug)]
pub enum Classified<T, E, V> {
    /// It is what was asked for.
    Succeed(T),
    /// An error that ends the call as it should (decision P11).
    SucceedWith(E),
    /// It does not get better.
    Fail(Last<E, V>),
    /// It may get better.
    Retry(Failure, Last<E, V>),
}

/// How a call judges its results: whether one is what was asked for, and if not, what it is.
///
/// Two steps, so that a success is not held up by what is only said of other results.
pub trait Classify<T, E> {
    /// What an error keeps of a value that was not accepted.
    type Kept;
    /// A result that is not simply accepted.
    type Rejected;

    /// The value, if it is what was asked for.
    ///
    /// # Errors
    /// What is left of the result, to be judged.
    fn accept(&mut self, result: Result<T, E>) -> Result<T, Self::Rejected>;

    /// Judges a result that was not accepted.
    fn judge(&mut self, rejected: Self::Rejected) -> Classified<T, E, Self::Kept>;

    /// Both steps.
    fn classify(&mut self, result: Result<T, E>) -> Classified<T, E, Self::Kept> {
        match self.accept(result) {
            Ok(value) => Classified::Succeed(value),
            Err(rejected) => self.judge(rejected),
        }
    }
}

/// The classifier of a call that has not said which errors may be repeated. It works where the
/// error says so itself ([`Transient`]); elsewhere the compiler names this type.
#[derive(Clone, Copy, Debug)]
pub struct CallWhenToSayWhichErrorsAreRetried;

impl<T, E: Transient> Classify<T, E> for CallWhenToSayWhichErrorsAreRetried {
    type Kept = NoValue;
    type Rejected = E;

    #[inline]
    fn accept(&mut self, result: Result<T, E>) -> Result<T, E> {
        result
    }

    #[inline]
    fn judge(&mut self, error: E) -> Classified<T, E, NoValue> {
        let directive = error.failure().directive();
        judged(error, directive)
    }
}

/// `.when(..)`: which errors may be repeated; every value is accepted.
#[derive(Clone, Copy, Debug)]
pub struct When<F>(pub(crate) F);

impl<T, E, W: IntoDirective, F: FnMut(&E) -> W> Classify<T, E> for When<F> {
    type Kept = NoValue;
    type Rejected = E;

    #[inline]
    fn accept(&mut self, result: Result<T, E>) -> Result<T, E> {
        result
    }

    #[inline]
    fn judge(&mut self, error: E) -> Classified<T, E, NoValue> {
        let directive = (self.0)(&error).directive();
        judged(error, directive)
    }
}

#[inline]
fn judged<T, E, V>(error: E, directive: Directive) -> Classified<T, E, V> {
    match directive {
        Directive::Succeed => Classified::SucceedWith(error),
        Directive::Fail => Classified::Fail(Last::Error(error)),
        Directive::Retry(failure) => Classified::Retry(failure, Last::Error(error)),
    }
}

/// `.until(..)`: values are asked for again until one is right; errors as the inner one says.
#[derive(Clone, Copy, Debug)]
pub struct Until<F, C>(pub(crate) F, pub(crate) C);

impl<T, E, F, C> Classify<T, E> for Until<F, C>
where
    F: FnMut(&T) -> bool,
    C: Classify<T, E, Kept = NoValue>,
{
    type Kept = T;
    /// A value that is not right, or what the inner one rejects.
    type Rejected = Result<T, C::Rejected>;

    fn accept(&mut self, result: Result<T, E>) -> Result<T, Self::Rejected> {
        match self.1.accept(result) {
            Ok(value) if (self.0)(&value) => Ok(value),
            rejected => Err(rejected),
        }
    }

    fn judge(&mut self, rejected: Self::Rejected) -> Classified<T, E, T> {
        match rejected.map_err(|rejected| self.1.judge(rejected)) {
            // The inner one has no value to accept: it has rejected an error.
            Ok(value) | Err(Classified::Succeed(value)) => {
                Classified::Retry(Failure::server(), Last::Value(value))
            }
            Err(Classified::SucceedWith(error)) => Classified::SucceedWith(error),
            Err(Classified::Fail(last)) => Classified::Fail(widen(last)),
            Err(Classified::Retry(failure, last)) => Classified::Retry(failure, widen(last)),
        }
    }
}

fn widen<E, V>(last: Last<E, NoValue>) -> Last<E, V> {
    match last {
        Last::Error(error) => Last::Error(error),
        Last::Value(value) => match value {},
    }
}

/// A rule that may have nothing to say about a result; chains ask the next one then.
pub trait ClassifyRule<T, E> {
    /// Its word, or `None`.
    fn judge(&mut self, result: &Result<T, E>) -> Option<Directive>;

    /// This rule, then the other: the first that has something to say decides.
    fn or<R: ClassifyRule<T, E>>(self, other: R) -> Or<Self, R>
    where
        Self: Sized,
    {
        Or(self, other)
    }
}

impl<T, E, F: FnMut(&Result<T, E>) -> Option<Directive>> ClassifyRule<T, E> for F {
    fn judge(&mut self, result: &Result<T, E>) -> Option<Directive> {
        self(result)
    }
}

/// Two rules, asked in order.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(A, B);

impl<T, E, A: ClassifyRule<T, E>, B: ClassifyRule<T, E>> ClassifyRule<T, E> for Or<A, B> {
    fn judge(&mut self, result: &Result<T, E>) -> Option<Directive> {
        self.0.judge(result).or_else(|| self.1.judge(result))
    }
}

/// `.classify(..)`: a chain of rules judges the whole result. If none has anything to say, a value
/// succeeds and an error fails.
#[derive(Clone, Copy, Debug)]
pub struct Chain<R>(pub(crate) R);

impl<T, E, R: ClassifyRule<T, E>> Classify<T, E> for Chain<R> {
    type Kept = T;
    type Rejected = (Result<T, E>, Directive);

    fn accept(&mut self, result: Result<T, E>) -> Result<T, Self::Rejected> {
        let directive = self.0.judge(&result);
        match (result, directive) {
            (Ok(value), None | Some(Directive::Succeed)) => Ok(value),
            (result, directive) => Err((result, directive.unwrap_or(Directive::Fail))),
        }
    }

    fn judge(&mut self, (result, directive): Self::Rejected) -> Classified<T, E, T> {
        match (result, directive) {
            (Err(error), directive) => judged(error, directive),
            (Ok(value), Directive::Succeed) => Classified::Succeed(value),
            (Ok(value), Directive::Fail) => Classified::Fail(Last::Value(value)),
            (Ok(value), Directive::Retry(failure)) => {
                Classified::Retry(failure, Last::Value(value))
            }
        }
    }
}
