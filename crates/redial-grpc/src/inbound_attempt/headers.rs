//! Access to the headers of an inbound request of any library.

use http::HeaderMap;
use tonic::metadata::MetadataMap;

/// Types with request headers: requests of tonic or http, or their metadata.
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
