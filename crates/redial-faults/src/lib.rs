//! Scripted servers for tests: peers that fail on demand, in exactly the way a test asks for.
//!
//! They are doubles. No real server resets its third stream after 40 ms with a GOAWAY behind it
//! because somebody needs that just now; these do, and note what their clients did. What a real
//! server does under load, or with real work, they do not show.
//!
//! - [`grpc`] is an HTTP/2 server that plays the attempts of gRPC calls. The command
//!   `redial faults grpc` runs it for clients in any language.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod grpc;
