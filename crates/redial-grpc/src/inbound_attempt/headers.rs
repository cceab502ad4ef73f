//! The headers of a call that arrived, whichever library it comes from.

use http::HeaderMap;
use tonic::metadata::MetadataMap;

/// Whatever has the headers of a call: a request of tonic or of http, or its metadata alone.
pub trait Headers: private::Headers {}

mod private {
    use http::HeaderMap;

    pub trait Headers {
        fn header_map(&self) -> &HeaderMap;
    }
}

impl<T> Headers for tonic::Request<T> {}
impl<B> Headers for http::Request<B> {}
impl Headers for MetadataMap {}
impl Headers for HeaderMap {}

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
