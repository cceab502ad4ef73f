//! The shapes of operations: `&mut self`, borrowed arguments, async closures, owned captures, futures that
//! are not `Send`, trait objects and generic helpers.

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use redial::{Hedged, Policy, ms};

static QUERY: Policy = Policy::constant(ms(1)).attempts(3).build();

fn is_transient(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

/// A connection that loses its first query.
struct Connection {
    queries: u32,
}

impl Connection {
    async fn run(&mut self, sql: &str) -> io::Result<usize> {
        self.queries += 1;
        if self.queries == 1 { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(sql.len()) }
    }

    /// An argument by reference, and `&mut self`.
    async fn query(&mut self, sql: &str) -> io::Result<usize> {
        Ok(QUERY
            .retry_on(self, async |connection| connection.run(sql).await)
            .when(is_transient)
            .await?)
    }

    /// The same where the future is spawned or boxed.
    async fn query_in_a_task(&mut self, sql: &str) -> io::Result<usize> {
        Ok(QUERY
            .retry_with_context((self, sql), |(connection, sql), _attempt| async move {
                let result = connection.run(sql).await;
                ((connection, sql), result)
            })
            .when(is_transient)
            .await?)
    }
}

#[tokio::test]
async fn program_borrows_mutably() {
    assert_eq!(Connection { queries: 0 }.query("select").await.unwrap(), 6);
    let task = tokio::spawn(async { Connection { queries: 0 }.query_in_a_task("select").await });
    assert_eq!(task.await.unwrap().unwrap(), 6);
}

/// An async closure that borrows, and one that owns what each attempt needs.
#[tokio::test]
async fn program_uses_async_closures_and_owned_captures() {
    let calls = Cell::new(0);
    let value = QUERY
        .retry(async || {
            calls.set(calls.get() + 1);
            if calls.get() < 2 { Err("busy") } else { Ok(calls.get()) }
        })
        .when(|_| true)
        .await;
    assert_eq!(value.ok(), Some(2));

    let url = String::from("/index");
    let call = QUERY.retry(move || {
        let url = url.clone();
        async move { Ok::<_, io::Error>(url.len()) }
    });
    assert_eq!(tokio::spawn(call.when(is_transient).into_future()).await.unwrap().unwrap(), 6);
}

#[tokio::test]
async fn program_retries_futures_that_are_not_send() {
    let shared = Rc::new(Cell::new(0));
    let local = tokio::task::LocalSet::new();
    let counter = shared.clone();
    let call = QUERY.retry(move || {
        let counter = counter.clone();
        async move {
            counter.set(counter.get() + 1);
            if counter.get() < 3 { Err(()) } else { Ok(counter.get()) }
        }
    });
    let value = local.run_until(async { call.when(|()| true).await }).await;
    assert_eq!((value.ok(), shared.get()), (Some(3), 3));
}

type BoxedGet<'a> =
    Pin<Box<dyn Future<Output = Result<u32, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

trait Store: Send + Sync {
    fn get<'a>(&'a self, key: &'a str) -> BoxedGet<'a>;
}

struct Memory;

impl Store for Memory {
    fn get<'a>(&'a self, key: &'a str) -> BoxedGet<'a> {
        Box::pin(async move { key.parse().map_err(Into::into) })
    }
}

/// A store that retries another: the decorator of a trait object.
struct Retried {
    inner: Arc<dyn Store>,
}

impl Store for Retried {
    fn get<'a>(&'a self, key: &'a str) -> BoxedGet<'a> {
        Box::pin(async move {
            let value = QUERY.retry(|| self.inner.get(key)).when(|error| error.is::<io::Error>());
            value.await.map_err(|error| error.boxed().into())
        })
    }
}

#[tokio::test]
async fn program_decorates_a_trait_object() {
    let store: Arc<dyn Store> = Arc::new(Retried { inner: Arc::new(Memory) });
    let task = tokio::spawn(async move { (store.get("7").await.ok(), store.get("x").await) });
    let (value, error) = task.await.unwrap();
    assert_eq!(value, Some(7));
    let error = error.expect_err("not a number").to_string();
    assert!(error.starts_with("invalid digit found in string (1 attempt in "), "{error}");
}

/// A helper that takes a policy and an operation.
async fn with_policy<T, F, A>(policy: &Policy, operation: F) -> io::Result<T>
where
    F: FnMut() -> A,
    A: Future<Output = io::Result<T>>,
{
    Ok(policy.retry(operation).when(is_transient).await?)
}

/// The same for a hedged policy, with the attempt.
async fn with_hedges<T, F, A>(policy: &Hedged, operation: F) -> io::Result<T>
where
    F: FnMut(redial::Attempt) -> A,
    A: Future<Output = io::Result<T>>,
{
    Ok(policy.retry_with(operation).when(is_transient).await?)
}

#[tokio::test]
async fn program_takes_policies_in_generic_helpers() {
    static READ: Hedged = Policy::hedged(ms(20)).attempts(2).build();
    assert_eq!(with_policy(&QUERY, || async { Ok(7) }).await.unwrap(), 7);
    let number = with_hedges(&READ, |attempt| async move { Ok(attempt.number()) });
    assert_eq!(number.await.unwrap(), 1);
}
