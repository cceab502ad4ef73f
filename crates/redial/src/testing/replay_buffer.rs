//! The replay buffer: messages that a call keeps for a retry (decisions G23 to G25).
//!
//! Invariant: the buffered bytes never exceed the limit of the call or of the channel, and the buffer is
//! empty after the call has committed or ended.

use std::cell::Cell;

/// The bytes that all calls of a play buffer together.
#[derive(Debug)]
pub(super) struct ChannelBuffer {
    pub(super) bytes_max: u64,
    kept: Cell<u64>,
}

impl ChannelBuffer {
    pub(super) const fn new(bytes_max: u64) -> Self {
        ChannelBuffer { bytes_max, kept: Cell::new(0) }
    }
}

/// The messages of one call.
pub(super) struct ReplayBuffer<'a> {
    channel: &'a ChannelBuffer,
    bytes_max: u64,
    kept: u64,
    /// Whether messages are still buffered. They are not after the first one that did not fit.
    is_recording: bool,
    /// The number of messages that the application has written.
    pub(super) written: u64,
}

impl<'a> ReplayBuffer<'a> {
    pub(super) const fn new(channel: &'a ChannelBuffer, bytes_max: u64) -> Self {
        ReplayBuffer { channel, bytes_max, kept: 0, is_recording: true, written: 0 }
    }

    /// Buffers a message; returns false for the first one that does not fit.
    pub(super) fn write(&mut self, bytes: u64) -> bool {
        self.written += 1;
        if !self.is_recording {
            return true;
        }
        // A sum that overflows exceeds every limit.
        let within = |kept: u64, most: u64| kept.checked_add(bytes).filter(|all| *all <= most);
        let call = within(self.kept, self.bytes_max);
        let all = within(self.channel.kept.get(), self.channel.bytes_max);
        let (Some(call), Some(all)) = (call, all) else {
            self.is_recording = false;
            return false;
        };
        self.kept = call;
        self.channel.kept.set(all);
        true
    }

    /// Empties the buffer after the call has committed or ended.
    pub(super) fn release(&mut self) {
        self.is_recording = false;
        self.channel.kept.set(self.channel.kept.get() - self.kept);
        self.kept = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn testing_replay_buffer_limit_is_inclusive() {
        let channel = ChannelBuffer::new(150);
        let (mut one, mut other) =
            (ReplayBuffer::new(&channel, 100), ReplayBuffer::new(&channel, 100));
        assert!(one.write(60) && one.write(40));
        assert!(other.write(50));
        assert!(!other.write(1), "the channel is full");
        assert!(other.write(1000), "later messages are not buffered");
        one.release();
        assert_eq!(channel.kept.get(), 50);
        other.release();
        other.release();
        assert_eq!(channel.kept.get(), 0);
        let mut third = ReplayBuffer::new(&channel, 100);
        assert!(!third.write(101));
        assert_eq!((third.written, channel.kept.get()), (1, 0));
    }

    #[test]
    fn testing_replay_buffer_sum_overflow_exceeds_the_limit() {
        let channel = ChannelBuffer::new(u64::MAX);
        let mut calls =
            [ReplayBuffer::new(&channel, u64::MAX), ReplayBuffer::new(&channel, u64::MAX)];
        assert!(calls[0].write(u64::MAX), "the limit itself is allowed");
        assert!(!calls[1].write(1) && !calls[0].write(1));
        for call in &mut calls {
            call.release();
        }
        assert_eq!(channel.kept.get(), 0);
    }
}
