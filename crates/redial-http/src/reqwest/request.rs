//! `reqwest::Request` as a request of the layer.

use http::{HeaderMap, Method};
use reqwest::Request;
use url::Position;

use crate::options::RequestOptions;
use crate::request::HttpRequest;

impl HttpRequest for Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn host(&self) -> &str {
        &self.url()[Position::BeforeHost..Position::AfterPort]
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    /// The extensions of a request of reqwest are private: `send_with_options` takes options.
    fn options(&self) -> Option<&RequestOptions> {
        None
    }

    fn try_copy(&self, options: Option<&RequestOptions>) -> Option<Self> {
        let made = options.and_then(RequestOptions::new_body);
        if made.is_none() && self.body().is_some() {
            return self.try_clone();
        }
        // `try_clone` allocates a map for the timeout even if there is none.
        let mut copy = Request::new(self.method().clone(), self.url().clone());
        *copy.headers_mut() = self.headers().clone();
        *copy.version_mut() = self.version();
        *copy.body_mut() = made;
        if let Some(timeout) = self.timeout() {
            *copy.timeout_mut() = Some(*timeout);
        }
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial::s;
    use reqwest::Body;

    // Decision H4.
    #[test]
    fn reqwest_copy_has_everything_of_the_original() {
        let mut request =
            Request::new(Method::PUT, "http://user@Example.com:81/x?y=1".parse().unwrap());
        request.headers_mut().insert("x-a", "1".parse().unwrap());
        *request.version_mut() = http::Version::HTTP_10;
        *request.timeout_mut() = Some(s(3));
        *request.body_mut() = Some(Body::from("body"));
        let copy = request.try_copy(None).unwrap();
        assert_eq!(
            (copy.method(), copy.url(), copy.version()),
            (request.method(), request.url(), request.version())
        );
        assert_eq!((copy.headers(), copy.timeout()), (request.headers(), request.timeout()));
        assert_eq!(copy.body().unwrap().as_bytes(), Some(&b"body"[..]));
        assert_eq!(HttpRequest::host(&copy), "example.com:81");
    }

    #[test]
    fn reqwest_copy_of_a_stream_needs_a_factory() {
        let mut request = Request::new(Method::PUT, "http://example.com".parse().unwrap());
        assert!(request.try_copy(None).unwrap().body().is_none());
        *request.body_mut() =
            Some(Body::wrap(http_body_util::StreamBody::new(tokio_stream::empty::<
                Result<http_body::Frame<bytes::Bytes>, std::io::Error>,
            >())));
        assert!(request.try_copy(None).is_none());
        let options = RequestOptions::new().body_factory(|| Body::from("made"));
        let copy = request.try_copy(Some(&options)).unwrap();
        assert_eq!(copy.body().unwrap().as_bytes(), Some(&b"made"[..]));
    }
}
