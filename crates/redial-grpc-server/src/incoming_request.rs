//! What a server is handed, whichever library it comes from.

use http::Extensions;

use super::Headers;

/// A call that arrived: a request of tonic or of http.
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
