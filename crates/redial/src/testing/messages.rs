//! What an application wrote and a call keeps for a repetition (rulings G23 to G25).
//!
//! Invariant: what is kept is at most the call's and the channel's limit, and nothing is kept after
//! commit or end.

use std::cell::Cell;

/// What all calls of a play keep together.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) bytes_max: u64,
    kept: Cell<u64>,
}

impl Channel {
    pub(super) const fn new(bytes_max: u64) -> Self {
        Channel { bytes_max, kept: Cell::new(0) }
    }
}

/// What one call has written and keeps.
pub(super) struct Messages<'a> {
    channel: &'a Channel,
    bytes_max: u64,
    kept: u64,
    /// Whether messages are still kept: no more after the first that did not fit.
    keeps: bool,
    /// How many messages the application has written.
    pub(super) written: u64,
}

impl<'a> Messages<'a> {
    pub(super) const fn new(channel: &'a Channel, bytes_max: u64) -> Self {
        Messages { channel, bytes_max, kept: 0, keeps: true, written: 0 }
    }

    /// Keeps a message if it fits; false if it is the one that does not.
    pub(super) fn write(&mut self, bytes: u64) -> bool {
        self.written += 1;
        if !self.keeps {
            return true;
        }
        let call = self.kept.saturating_add(bytes);
        let all = self.channel.kept.get().saturating_add(bytes);
        if call > self.bytes_max || all > self.channel.bytes_max {
            self.keeps = false;
            return false;
        }
        self.kept = call;
        self.channel.kept.set(all);
        true
    }

    /// The call has committed or ended: nothing counts against the limits any more.
    pub(super) fn free(&mut self) {
        self.keeps = false;
        self.channel.kept.set(self.channel.kept.get() - self.kept);
        self.kept = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_passed_by_more_than_it() {
        let channel = Channel::new(150);
        let (mut one, mut other) = (Messages::new(&channel, 100), Messages::new(&channel, 100));
        assert!(one.write(60) && one.write(40));
        assert!(other.write(50));
        assert!(!other.write(1), "the channel is full");
        assert!(other.write(1000), "what comes after it is not kept at all");
        one.free();
        assert_eq!(channel.kept.get(), 50);
        other.free();
        other.free();
        assert_eq!(channel.kept.get(), 0);
        let mut third = Messages::new(&channel, 100);
        assert!(!third.write(101));
        assert_eq!((third.written, channel.kept.get()), (1, 0));
    }
}
