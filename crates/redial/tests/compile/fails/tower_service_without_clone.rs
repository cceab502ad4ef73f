//! A service that cannot be cloned.
use redial::tower::RetryLayer;
use redial::{Policy, ms};
use tower::Layer;

static FETCH: Policy = Policy::exponential(ms(100)).build();

struct Connection;

fn main() {
    let layer = RetryLayer::new(&FETCH).when(|_: &std::io::Error| true);
    let _ = layer.layer(Connection);
}
