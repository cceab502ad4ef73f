//! How much of the request an attempt was sent, counted where its body is read.

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
pub(crate) use on::{ByteCount, Sent};

#[cfg(not(any(feature = "metrics", feature = "opentelemetry")))]
pub(crate) use off::Sent;

#[cfg(not(any(feature = "metrics", feature = "opentelemetry")))]
mod off {
    /// Counts nothing.
    #[derive(Debug, Default)]
    pub(crate) struct Sent(());

    impl Sent {
        #[inline(always)]
        pub(crate) fn saw(&mut self, _bytes: &[u8]) {}
    }
}

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod on {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::sizes::Framing;

    /// A count of payload bytes, written by the task of a connection and read when the attempt ends.
    // It publishes nothing but itself, so every access is relaxed.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ByteCount(Arc<AtomicU64>);

    impl ByteCount {
        pub(crate) fn bytes(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Counts what an attempt is sent, if somebody wants to know.
    #[derive(Debug, Default)]
    pub(crate) struct Sent(Option<(Framing, ByteCount)>);

    impl Sent {
        pub(crate) fn into(counted: ByteCount) -> Self {
            Sent(Some((Framing::default(), counted)))
        }

        pub(crate) fn saw(&mut self, bytes: &[u8]) {
            if let Some((framing, counted)) = &mut self.0 {
                counted.0.fetch_add(framing.payload(bytes), Ordering::Relaxed);
            }
        }
    }
}
