//! What a server is handed, whichever library it comes from.

use http::{Extensions, HeaderMap};
use tonic::metadata::MetadataMap;

/// Whatever has the headers of a call: a request of tonic or of http, or its metadata alone.
pub trait Headers: private::Headers {}

/// A call that arrived: a request of tonic or of http.
pub trait Incoming: Headers + private::Extended {}

pub(super) mod private {
    use http::{Extensions, HeaderMap};

    pub trait Headers {
        fn header_map(&self) -> &HeaderMap;
    }

    pub trait Extended {
        fn extension_map(&self) -> &Extensions;
    }
}

impl<T> Headers for tonic::Request<T> {}
impl<B> Headers for http::Request<B> {}
impl Headers for MetadataMap {}
impl Headers for HeaderMap {}

impl<T> Incoming for tonic::Request<T> {}
impl<B> Incoming for http::Request<B> {}

impl<T> private::Headers for tonic::Request<T> {
    fn header_map(&self) -> &HeaderMap {
        self.metadata().as_ref()
    }
}

impl<B> private::Headers for http::Request<B> {
    fn header_map(&self) -> &HeaderMap {
        self.headers()
    }
}

impl private::Headers for MetadataMap {
    fn header_map(&self) -> &HeaderMap {
        self.as_ref()
    }
}

impl private::Headers for HeaderMap {
    fn header_map(&self) -> &HeaderMap {
        self
    }
}

impl<T> private::Extended for tonic::Request<T> {
    fn extension_map(&self) -> &Extensions {
        self.extensions()
    }
}

impl<B> private::Extended for http::Request<B> {
    fn extension_map(&self) -> &Extensions {
        self.extensions()
    }
}
