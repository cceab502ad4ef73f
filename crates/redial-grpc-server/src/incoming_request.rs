//! Requests of tonic and http, as the functions of this crate accept them.

use http::Extensions;

use super::Headers;

/// An incoming request: [`tonic::Request`] or [`http::Request`].
pub trait IncomingRequest: Headers + private::RequestExtensions {}

mod private {
    use http::Extensions;

    pub trait RequestExtensions {
        fn extension_map(&self) -> &Extensions;
    }
}

impl<T> IncomingRequest for tonic::Request<T> {}
impl<B> IncomingRequest for http::Request<B> {}

impl<T> private::RequestExtensions for tonic::Request<T> {
    fn extension_map(&self) -> &Extensions {
        self.extensions()
    }
}

impl<B> private::RequestExtensions for http::Request<B> {
    fn extension_map(&self) -> &Extensions {
        self.extensions()
    }
}
