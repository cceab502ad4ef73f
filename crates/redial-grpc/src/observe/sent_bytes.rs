//! Counts the request bytes of an attempt while its body is read.

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) use on::{ByteCount, SentBytes};

#[cfg(not(any(feature = "metrics", feature = "opentelemetry")))]
pub(crate) use off::SentBytes;

#[cfg(not(any(feature = "metrics", feature = "opentelemetry")))]
mod off {
    /// A no-op counter.
    #[derive(Debug, Default)]
    pub(crate) struct SentBytes(());

    impl SentBytes {
        #[inline(always)]
        pub(crate) fn add(&mut self, _bytes: &[u8]) {}
    }
}

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod on {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::message_size::Framing;

    /// Payload bytes, written by the task of a connection and read when the attempt ends.
    // A counter that publishes no other data, so all accesses are relaxed.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ByteCount(Arc<AtomicU64>);

    impl ByteCount {
        pub(crate) fn bytes(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Counts the payload of an attempt's request, if metrics are enabled.
    #[derive(Debug, Default)]
    pub(crate) struct SentBytes(Option<(Framing, ByteCount)>);

    impl SentBytes {
        pub(crate) fn new(counted: ByteCount) -> Self {
            SentBytes(Some((Framing::default(), counted)))
        }

        pub(crate) fn add(&mut self, bytes: &[u8]) {
            if let Some((framing, counted)) = &mut self.0 {
                counted.0.fetch_add(framing.payload(bytes), Ordering::Relaxed);
            }
        }
    }
}
