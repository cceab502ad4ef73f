//! The middleware for clients of reqwest-middleware.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Extensions;
use redial_http::{RequestOptions, RetryMiddleware};
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};

use crate::server::{Answer, Server, client, fast};

/// Counts what passes, in itself and in the extensions.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU32>);

#[derive(Clone)]
struct Seen(u32);

#[async_trait::async_trait]
impl Middleware for Counting {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        extensions.insert(Seen(self.0.fetch_add(1, Ordering::Relaxed) + 1));
        next.run(request, extensions).await
    }
}

fn with_middleware() -> (ClientWithMiddleware, Counting, Counting) {
    let (outside, inside) = (Counting::default(), Counting::default());
    let client = ClientBuilder::new(client())
        .with(outside.clone())
        .with(RetryMiddleware::new(fast()))
        .with(inside.clone())
        .build();
    (client, outside, inside)
}

#[tokio::test]
async fn middleware_retries_below_itself() {
    let server = Server::answering([Answer::status(503), Answer::Close, Answer::status(200)]).await;
    let (client, outside, inside) = with_middleware();
    let mut extensions = Extensions::new();
    let request = client.get(server.url("/")).build().unwrap();
    let response = client.execute_with_extensions(request, &mut extensions).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(redial_http::attempts(response.extensions()), 3);
    assert_eq!((outside.0.load(Ordering::Relaxed), inside.0.load(Ordering::Relaxed)), (1, 3));
    assert_eq!(
        extensions.get::<Seen>().unwrap().0,
        3,
        "the extensions are those of the last attempt"
    );
}

#[tokio::test]
async fn middleware_takes_options_from_the_extensions() {
    let server = Server::answering([Answer::status(503), Answer::status(200)]).await;
    let (client, ..) = with_middleware();
    let once = client.get(server.url("/")).with_extension(RequestOptions::new().no_retries());
    assert_eq!(once.send().await.unwrap().status(), 503);
    let server = Server::answering([Answer::status(503), Answer::status(200)]).await;
    let post = client.post(server.url("/")).with_extension(RequestOptions::new().idempotent());
    assert_eq!(post.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn middleware_returns_the_error_of_one_attempt_as_it_is() {
    let server = Server::answering([Answer::Close]).await;
    let (client, ..) = with_middleware();
    let error = client.post(server.url("/")).send().await.unwrap_err();
    assert!(matches!(error, Error::Reqwest(_)), "{error:?}");
    let error = client.get(server.url("/")).send().await.unwrap_err();
    let Error::Middleware(error) = error else { panic!("{error:?}") };
    let error = error.downcast_ref::<redial_http::Error<Error>>().unwrap();
    assert_eq!(error.attempts(), 4);
    assert_eq!(server.requests(), 5);
}
