//! The methods of requests that may run twice.

use http::Method;

/// The bits of the methods that RFC 9110 defines.
const GET: u16 = 1;
const HEAD: u16 = 1 << 1;
const OPTIONS: u16 = 1 << 2;
const TRACE: u16 = 1 << 3;
const PUT: u16 = 1 << 4;
const DELETE: u16 = 1 << 5;
const POST: u16 = 1 << 6;
const PATCH: u16 = 1 << 7;
const CONNECT: u16 = 1 << 8;

/// A set of methods: bits for the common ones, a list for the others.
#[derive(Clone, Debug)]
pub(super) struct Methods {
    bits: u16,
    others: Vec<Method>,
}

impl Methods {
    pub(super) fn standard() -> Self {
        let mut methods = Methods { bits: 0, others: Vec::new() };
        for method in
            [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE]
        {
            methods.insert(method);
        }
        methods.insert(query());
        methods
    }

    pub(super) fn insert(&mut self, method: Method) {
        match bit(&method) {
            Some(bit) => self.bits |= bit,
            None if self.others.contains(&method) => {}
            None => self.others.push(method),
        }
    }

    pub(super) fn remove(&mut self, method: &Method) {
        match bit(method) {
            Some(bit) => self.bits &= !bit,
            None => self.others.retain(|other| other != method),
        }
    }

    #[inline]
    pub(super) fn contains(&self, method: &Method) -> bool {
        match bit(method) {
            Some(bit) => self.bits & bit != 0,
            None => self.others.contains(method),
        }
    }
}

#[inline]
fn bit(method: &Method) -> Option<u16> {
    Some(match *method {
        Method::GET => GET,
        Method::HEAD => HEAD,
        Method::OPTIONS => OPTIONS,
        Method::TRACE => TRACE,
        Method::PUT => PUT,
        Method::DELETE => DELETE,
        Method::POST => POST,
        Method::PATCH => PATCH,
        Method::CONNECT => CONNECT,
        _ => return None,
    })
}

/// QUERY, which is safe and idempotent.
fn query() -> Method {
    Method::from_bytes(b"QUERY").expect("a method name")
}

/// Whether a request of this method only reads, so that hedging it cannot change anything.
pub(crate) fn is_safe(method: &Method) -> bool {
    method.is_safe() || method.as_str() == "QUERY"
}

#[cfg(test)]
mod tests {
    use super::*;

    // Decision H2.
    #[test]
    fn methods_that_are_idempotent_are_those_of_the_table() {
        let methods = Methods::standard();
        for name in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"] {
            assert!(methods.contains(&Method::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
        for name in ["POST", "PATCH", "CONNECT", "PROPFIND"] {
            assert!(!methods.contains(&Method::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
    }

    #[test]
    fn methods_can_be_added_and_removed() {
        let mut methods = Methods::standard();
        let lock = Method::from_bytes(b"LOCK").unwrap();
        for _ in 0..2 {
            methods.insert(lock.clone());
            methods.insert(Method::POST);
        }
        assert!(methods.contains(&lock) && methods.contains(&Method::POST));
        methods.remove(&lock);
        methods.remove(&Method::PUT);
        assert!(!methods.contains(&lock) && !methods.contains(&Method::PUT));
    }

    #[test]
    fn methods_that_are_safe_only_read() {
        assert!(is_safe(&Method::GET) && is_safe(&Method::HEAD) && is_safe(&query()));
        assert!(!is_safe(&Method::PUT) && !is_safe(&Method::DELETE) && !is_safe(&Method::POST));
    }
}
