//! Errors of a call in functions that return `anyhow`, `eyre`, `thiserror`, `Box<dyn Error>` and
//! `io::Error`: with `?` alone, or with the one line that the language requires.

use std::error::Error;
use std::io;

use redial::{Policy, Throttle};

static FETCH: Policy = Policy::immediate().attempts(2).throttle(Throttle::none()).build();

fn refused() -> io::Result<u32> {
    Err(io::ErrorKind::ConnectionRefused.into())
}

fn is_transient(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

const TEXT: &str = "connection refused (2 attempts in ";

#[test]
fn program_returns_anyhow_errors_with_a_question_mark() {
    fn fetch() -> anyhow::Result<u32> {
        Ok(FETCH.retry(refused).when(is_transient).call()?)
    }
    let error = fetch().unwrap_err();
    assert!(error.to_string().starts_with(TEXT), "{error}");
    let call: &redial::Error<io::Error> = error.downcast_ref().expect("the error of the call");
    assert_eq!(call.last().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(call.attempts(), 2);
}

#[test]
fn program_prints_each_cause_once_with_anyhow() {
    #[derive(Debug, thiserror::Error)]
    #[error("the query failed")]
    struct QueryError(#[source] io::Error);

    use anyhow::Context as _;
    fn query() -> anyhow::Result<u32> {
        let call = FETCH.retry(|| refused().map_err(QueryError)).when(|_| true).call();
        call.context("loading user 7")
    }
    let error = query().unwrap_err();
    let text = format!("{error:#}");
    assert!(text.starts_with("loading user 7: the query failed (2 attempts in "), "{text}");
    assert!(text.ends_with("; gave up: no attempt left): connection refused"), "{text}");
    assert_eq!(text.matches("the query failed").count(), 1, "{text}");
    // The causes can be found by type.
    assert!(error.chain().any(<dyn Error>::is::<io::Error>));
    let call = error.downcast_ref::<redial::Error<QueryError>>().expect("below the context");
    assert_eq!(call.last().unwrap().0.kind(), io::ErrorKind::ConnectionRefused);
}

/// `anyhow::Error` does not implement `Error`, so the error of a call around it needs `boxed`.
#[test]
fn program_retries_operations_that_return_anyhow_errors() {
    fn operation() -> anyhow::Result<u32> {
        Err(anyhow::Error::new(refused().unwrap_err()).context("connecting"))
    }
    fn fetch() -> anyhow::Result<u32> {
        let call = FETCH.retry(operation).when(anyhow::Error::is::<io::Error>);
        Ok(call.call().map_err(redial::Error::boxed)?)
    }
    let text = format!("{:#}", fetch().unwrap_err());
    assert!(text.starts_with("connecting (2 attempts in "), "{text}");
    assert!(text.ends_with("no attempt left): connection refused"), "{text}");
}

#[test]
fn program_returns_eyre_errors_with_a_question_mark() {
    fn fetch() -> eyre::Result<u32> {
        Ok(FETCH.retry(refused).when(is_transient).call()?)
    }
    let error = fetch().unwrap_err();
    assert!(error.to_string().starts_with(TEXT), "{error}");
    assert!(error.downcast_ref::<redial::Error<io::Error>>().is_some());
}

/// A handler that maps causes to answers keeps working around a retried call.
#[test]
fn program_finds_the_error_of_a_call_in_a_chain() {
    #[derive(Debug, thiserror::Error)]
    #[error("loading user 7")]
    struct LoadError(#[source] redial::Error<io::Error>);

    type BoxedError = Box<dyn Error + Send + Sync>;
    let call = || FETCH.retry(refused).when(is_transient).call().unwrap_err();
    let until = FETCH.retry(refused).until(|_| false).when(is_transient).call().unwrap_err();
    let operation = || -> Result<(), BoxedError> { Err(refused().unwrap_err().into()) };
    let boxed = FETCH.retry(operation).when(|_| true).call().map_err(redial::Error::boxed);

    let chains: [BoxedError; 6] = [
        refused().unwrap_err().into(),
        call().into(),
        LoadError(call()).into(),
        until.map_value(|_| ()).into(),
        boxed.unwrap_err().into(),
        io::Error::other(LoadError(call())).into(),
    ];
    for chain in chains {
        assert!(redial::find_error::<io::Error>(&*chain).is_some(), "{chain:?}");
        assert!(redial::find_error::<std::fmt::Error>(&*chain).is_none(), "{chain:?}");
    }
    let error: anyhow::Error = anyhow::Error::new(call()).context("loading user 7");
    let found = redial::find_error::<io::Error>(&*error).expect("below the context");
    assert_eq!(found.kind(), io::ErrorKind::ConnectionRefused);
    let error: eyre::Report = eyre::Report::new(LoadError(call()));
    assert!(redial::find_error::<io::Error>(&*error).is_some());
}

#[test]
fn program_returns_boxed_errors_with_a_question_mark() {
    fn plain() -> Result<u32, Box<dyn Error>> {
        Ok(FETCH.retry(refused).when(is_transient).call()?)
    }
    fn send() -> Result<u32, Box<dyn Error + Send + Sync>> {
        Ok(FETCH.retry(refused).when(is_transient).call()?)
    }
    assert!(plain().unwrap_err().to_string().starts_with(TEXT));
    assert!(send().unwrap_err().to_string().starts_with(TEXT));

    // The operation itself returns a boxed error.
    fn operation() -> Result<u32, Box<dyn Error + Send + Sync>> {
        Ok(refused()?)
    }
    fn boxed() -> Result<u32, Box<dyn Error + Send + Sync>> {
        Ok(FETCH.retry(operation).when(|_| true).call().map_err(redial::Error::boxed)?)
    }
    assert!(boxed().unwrap_err().to_string().starts_with(TEXT));
}

#[test]
fn program_has_an_error_type_of_its_own() {
    /// With `#[from]` the error keeps the attempts and the stop reason.
    #[derive(Debug, thiserror::Error)]
    enum AppError {
        #[error("loading failed")]
        Load(#[from] redial::Error<io::Error>),
        #[error(transparent)]
        Job(#[from] redial::Error<io::Error, u32>),
    }
    fn load() -> Result<u32, AppError> {
        Ok(FETCH.retry(refused).when(is_transient).call()?)
    }
    fn wait() -> Result<u32, AppError> {
        Ok(FETCH.retry(refused).until(|value| *value > 3).when(is_transient).call()?)
    }
    let error = load().unwrap_err();
    assert_eq!(error.to_string(), "loading failed");
    assert!(error.source().unwrap().to_string().starts_with(TEXT));
    let error = wait().unwrap_err();
    assert!(error.to_string().starts_with(TEXT), "{error}");
    assert!(matches!(error, AppError::Job(error) if error.attempts() == 2));
}

/// The operation's own error type, with one `From`, where callers match on it.
#[test]
fn program_gives_the_operations_error_back() {
    #[derive(Debug, PartialEq)]
    enum DbError {
        Busy,
        GaveUp,
    }
    impl From<redial::Error<DbError>> for DbError {
        fn from(error: redial::Error<DbError>) -> Self {
            error.into_last().unwrap_or(DbError::GaveUp)
        }
    }
    fn user() -> Result<u32, DbError> {
        Ok(FETCH.retry(|| Err(DbError::Busy)).when(|error| *error == DbError::Busy).call()?)
    }
    assert_eq!(user(), Err(DbError::Busy));
}

/// `io::Error` has this `From` already.
#[test]
fn program_returns_io_errors_with_a_question_mark() {
    fn fetch() -> io::Result<u32> {
        Ok(FETCH.retry(refused).when(is_transient).call()?)
    }
    let error = fetch().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().starts_with(TEXT), "{error}");
}
