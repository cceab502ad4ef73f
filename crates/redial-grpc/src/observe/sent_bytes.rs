//! Counts the request bytes of an attempt while its body is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::message_size::Framing;

/// Payload bytes, written by the task of a connection and read when the attempt ends.
// A counter that publishes no other data, so all accesses are relaxed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteCount(Arc<AtomicU64>);

impl ByteCount {
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts the payload of an attempt's request, if a sink asks for it.
#[derive(Debug, Default)]
pub(crate) struct SentBytes(Option<Box<(Framing, ByteCount)>>);

impl SentBytes {
    #[cfg(any(feature = "metrics", feature = "opentelemetry"))]
    pub(crate) fn new(counted: ByteCount) -> Self {
        SentBytes(Some(Box::new((Framing::default(), counted))))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if let Some(counter) = &mut self.0 {
            let (framing, counted) = &mut **counter;
            counted.0.fetch_add(framing.payload(bytes), Ordering::Relaxed);
        }
    }
}
