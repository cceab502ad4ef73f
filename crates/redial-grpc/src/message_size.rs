//! Message sizes in a gRPC byte stream. Each message has a five-byte prefix: a flag and a length.
//!
//! HTTP frames and gRPC messages are independent: one frame may contain several messages, or a part of
//! one.

/// A message exceeds the size limit (decision G41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    /// Size of the message without its prefix.
    pub(crate) size: u32,

    pub(crate) limit: u32,
}

/// Parses the message prefixes of a stream and skips the payload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Framing {
    /// Payload bytes still to come.
    payload: u32,
    /// The part of the next prefix that has arrived.
    prefix: [u8; 5],
    have: usize,
}

impl Framing {
    /// Number of payload bytes among the next bytes of the stream.
    pub(crate) fn payload(&mut self, bytes: &[u8]) -> u64 {
        self.scan(bytes, |_, _| Ok::<_, std::convert::Infallible>(()))
            .unwrap_or_else(|it| match it {})
    }

    /// Scans the next bytes of the stream. Calls `begins` for each message that starts in them, with its
    /// size and the number of bytes before it; returns the number of payload bytes.
    fn scan<E>(
        &mut self,
        mut bytes: &[u8],
        mut begins: impl FnMut(u32, usize) -> Result<(), E>,
    ) -> Result<u64, E> {
        let all = bytes.len();
        let mut payload = 0;
        while !bytes.is_empty() {
            if self.payload > 0 {
                let skip = bytes.len().min(self.payload as usize);
                // The cast is lossless: `skip` is at most `payload`.
                self.payload -= skip as u32;
                payload += skip as u64;
                bytes = &bytes[skip..];
                continue;
            }
            let take = bytes.len().min(5 - self.have);
            self.prefix[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            if self.have == 5 {
                self.have = 0;
                let [_flag, length @ ..] = self.prefix;
                let size = u32::from_be_bytes(length);
                // A prefix that started in an earlier chunk has no bytes before it in this one.
                begins(size, (all - bytes.len()).saturating_sub(5))?;
                self.payload = size;
            }
        }
        Ok(payload)
    }
}

/// Enforces a message size limit on a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageSizeLimit {
    limit: u32,
    framing: Framing,
    /// A violation found behind valid bytes, which are forwarded first.
    found: Option<TooLarge>,
}

impl MessageSizeLimit {
    pub(crate) fn new(limit: u32) -> Self {
        MessageSizeLimit { limit, framing: Framing::default(), found: None }
    }

    /// Scans the next bytes of the stream.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let limit = self.limit;
        let fits = |size, _| if size > limit { Err(TooLarge { size, limit }) } else { Ok(()) };
        self.framing.scan(bytes, fits).map(drop)
    }

    /// Like [`check`](MessageSizeLimit::check), but returns the number of valid bytes before a violation. If
    /// that is less than all of them, [`found`](MessageSizeLimit::found) returns the violation afterwards.
    pub(crate) fn scan_prefix(&mut self, bytes: &[u8]) -> Result<usize, TooLarge> {
        let limit = self.limit;
        let mut valid_len = bytes.len();
        let scanned = self.framing.scan(bytes, |size, begins| {
            if size <= limit {
                return Ok(());
            }
            valid_len = begins;
            Err(TooLarge { size, limit })
        });
        match scanned {
            Err(too_large) if valid_len == 0 => return Err(too_large),
            Err(too_large) => self.found = Some(too_large),
            Ok(_) => {}
        }
        Ok(valid_len)
    }

    /// The violation that followed valid bytes.
    pub(crate) fn found(&self) -> Option<TooLarge> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(size.to_be_bytes());
        bytes.extend(vec![7; size as usize]);
        bytes
    }

    #[test]
    fn message_size_limit_is_inclusive() {
        for cut in 1..12 {
            let stream = [message(3), message(0), message(4)].concat();
            let mut size_limit = MessageSizeLimit::new(4);
            assert!(stream.chunks(cut).all(|part| size_limit.check(part).is_ok()), "cut by {cut}");
            let too_large = message(5);
            let found = too_large.chunks(cut).find_map(|part| size_limit.check(part).err());
            assert_eq!(found, Some(TooLarge { size: 5, limit: 4 }), "cut by {cut}");
        }
    }

    #[test]
    fn message_size_scan_keeps_bytes_before_the_violation() {
        let good = [message(3), message(4)].concat();
        let stream = [good.clone(), message(5)].concat();
        for cut in 1..=stream.len() {
            let mut size_limit = MessageSizeLimit::new(4);
            let mut valid_len = 0;
            let found = stream.chunks(cut).find_map(|part| match size_limit.scan_prefix(part) {
                Ok(some) => {
                    valid_len += some;
                    size_limit.found()
                }
                Err(too_large) => Some(too_large),
            });
            assert_eq!(found, Some(TooLarge { size: 5, limit: 4 }), "cut by {cut}");
            // The first part of a split prefix has been forwarded before the length could be read.
            assert!((good.len()..good.len() + 5).contains(&valid_len), "{valid_len}, cut by {cut}");
            assert!(valid_len == good.len() || (good.len() / cut + 1) * cut < good.len() + 5);
        }
    }

    #[test]
    fn message_framing_counts_payload_for_any_chunking() {
        let stream = [message(3), message(0), message(4), vec![0, 0, 0]].concat();
        for cut in 1..stream.len() {
            let mut framing = Framing::default();
            let payload: u64 = stream.chunks(cut).map(|part| framing.payload(part)).sum();
            assert_eq!(payload, 7, "cut by {cut}");
        }
    }

    #[test]
    fn message_size_largest_length_is_parsed() {
        let mut size_limit = MessageSizeLimit::new(u32::MAX);
        assert_eq!(size_limit.check(&[0, 255, 255, 255, 255, 1, 2]), Ok(()));
        assert_eq!(
            MessageSizeLimit::new(u32::MAX - 1).check(&[0, 255, 255, 255, 255]).unwrap_err().size,
            u32::MAX
        );
    }
}
