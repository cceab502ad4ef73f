//! A layer without a classification, around a service whose error does not implement `Transient`.
use redial::tower::RetryLayer;
use redial::{Policy, ms};
use std::io;
use tower::{ServiceBuilder, ServiceExt, service_fn};

static FETCH: Policy = Policy::exponential(ms(100)).build();

async fn page(path: &'static str) -> io::Result<&'static str> {
    Ok(path)
}

fn main() {
    let client = ServiceBuilder::new().layer(RetryLayer::new(&FETCH)).service(service_fn(page));
    let _ = client.oneshot("/index");
}
