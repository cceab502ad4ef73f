//! The sizes of request messages.
//!
//! A message counts with its prefix of five bytes (decision G23). A scenario may use smaller sizes,
//! and an encoded message cannot have every size: where this could matter at a limit, all sizes and
//! limits are scaled up until the prefixes are negligible.

use prost::Message;
use redial_echo::EchoRequest;
use redial_service_config::{ClientOptions, Retries};

use crate::scenarios::model::Scenario;

/// The gRPC message prefix.
pub(in crate::scenarios) const PREFIX_BYTES: u64 = 5;
/// The largest number of bytes that a scenario may write.
pub(in crate::scenarios) const WRITTEN_MAX: u64 = 64 << 20;

/// The mapping from scenario sizes to message sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) enum Sizes {
    /// As in the scenario; impossible sizes are rounded up.
    Exact,
    /// Scaled by this factor, plus the prefix. The error is less than one byte of the scenario.
    Larger(u64),
}

impl Sizes {
    /// The sizes for this scenario; `None` if it writes more than [`WRITTEN_MAX`].
    pub(in crate::scenarios) fn of(scenario: &Scenario, client: &ClientOptions) -> Option<Self> {
        let messages = || scenario.calls.iter().filter_map(|call| call.grpc.as_ref());
        let messages = || messages().flat_map(|grpc| &grpc.messages).map(|(_, bytes)| *bytes);
        let total = |sizes: Sizes| {
            messages().fold(0_u64, |sum, bytes| sum.saturating_add(sizes.counted(bytes)))
        };
        let exact = messages().all(|bytes| Sizes::Exact.counted(bytes) == bytes);
        let limit = client.per_rpc_buffer_limit_in_bytes.min(client.retry_buffer_size_in_bytes);
        let far = client.retries == Retries::Off || total(Sizes::Exact) <= limit;
        let sizes = if exact || far {
            Sizes::Exact
        } else {
            Sizes::Larger(PREFIX_BYTES * messages().count() as u64 + 1)
        };
        (total(sizes) <= WRITTEN_MAX).then_some(sizes)
    }

    /// The counted size of a message with this size in the scenario.
    pub(in crate::scenarios) fn counted(self, bytes: u64) -> u64 {
        match self {
            Sizes::Exact if bytes < PREFIX_BYTES => PREFIX_BYTES,
            // A message of one byte cannot be encoded.
            Sizes::Exact if bytes == PREFIX_BYTES + 1 => bytes + 1,
            Sizes::Exact => bytes,
            Sizes::Larger(times) => bytes.saturating_mul(times).saturating_add(PREFIX_BYTES),
        }
    }

    /// The encoded size of such a message.
    pub(in crate::scenarios) fn encoded(self, bytes: u64) -> u64 {
        self.counted(bytes) - PREFIX_BYTES
    }

    /// A message with this counted size.
    pub(super) fn message(self, bytes: u64) -> EchoRequest {
        of_size(usize::try_from(self.encoded(bytes)).unwrap_or(usize::MAX))
    }

    /// The client options with scaled limits.
    pub(in crate::scenarios) fn client(self, client: ClientOptions) -> ClientOptions {
        let mut fitting = client;
        if let Sizes::Larger(times) = self {
            let larger = |limit: u64| limit.saturating_mul(times).saturating_add(times - 1);
            fitting.per_rpc_buffer_limit_in_bytes = larger(client.per_rpc_buffer_limit_in_bytes);
            fitting.retry_buffer_size_in_bytes = larger(client.retry_buffer_size_in_bytes);
        }
        fitting
    }
}

/// A message with this encoded size, or one byte more if that is impossible.
fn of_size(bytes: usize) -> EchoRequest {
    let payload = |bytes: usize| {
        // Tag and length precede the payload; an empty payload has neither.
        let lengths = (1..=9).map(|length| bytes.checked_sub(1 + length));
        let sizes = lengths.flatten().filter(|size| *size > 0);
        let messages = sizes
            .map(|size| EchoRequest { payload: vec![0; size].into(), ..EchoRequest::default() });
        messages.into_iter().find(|message| message.encoded_len() == bytes)
    };
    // Where the varint of the length grows, one size is impossible; a second field of two bytes
    // fills the gap.
    let filled = |bytes: usize| {
        let rest = bytes.checked_sub(2)?;
        let message = if rest == 0 { EchoRequest::default() } else { payload(rest)? };
        Some(EchoRequest { failures: 1, ..message })
    };
    match bytes {
        0 => EchoRequest::default(),
        bytes => payload(bytes).or_else(|| filled(bytes)).unwrap_or_else(|| of_size(bytes + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::load::load;
    use crate::scenarios::source::Source;

    /// The sizes for these messages and this buffer limit.
    fn sizes(messages: &[u64], kept: u64) -> Option<Sizes> {
        let list: Vec<_> = messages.iter().map(|bytes| format!("{{\"bytes\": {bytes}}}")).collect();
        let list = list.join(", ");
        let text = format!(
            r#"{{"scenarios": [{{"name": "one", "policy": {{"grpc": {{"config": {{}}}}}}, "calls": [
                {{"method": "/a/b", "messages": [{list}], "attempts": [{{"outcome": "OK"}}]}}]}}]}}"#
        );
        let file = load(&Source::new("text", text)).expect("it is right");
        let client = ClientOptions::builder().per_rpc_buffer_limit_in_bytes(kept).build();
        Sizes::of(&file.scenarios[0], &client)
    }

    #[test]
    fn message_sizes_are_exact_unless_a_limit_is_near() {
        assert_eq!(sizes(&[60, 40], 99), Some(Sizes::Exact));
        assert_eq!(sizes(&[60, 1], 65), Some(Sizes::Exact), "five in place of one still fit");
        assert_eq!(sizes(&[60, 1], 64), Some(Sizes::Larger(11)));
    }

    #[test]
    fn message_sizes_never_exceed_the_scenario() {
        assert_eq!(sizes(&[WRITTEN_MAX], 100), Some(Sizes::Exact));
        assert_eq!(sizes(&[WRITTEN_MAX - 7, 8], 100), None);
        assert_eq!(sizes(&[u64::MAX, u64::MAX], 100), None);
    }

    #[test]
    fn message_sizes_can_be_encoded_except_one() {
        for bytes in (0..400).chain(16_300..16_500).chain([1 << 20]) {
            let size = of_size(bytes).encoded_len();
            assert_eq!(size, if bytes == 1 { 2 } else { bytes });
        }
    }

    #[test]
    fn message_sizes_count_as_in_the_scenario() {
        for (bytes, counted) in [(0, 5), (4, 5), (5, 5), (6, 7), (7, 7), (100, 100)] {
            assert_eq!(Sizes::Exact.counted(bytes), counted);
            let encoded = Sizes::Exact.message(bytes).encoded_len() as u64;
            assert_eq!(encoded + PREFIX_BYTES, counted);
        }
    }

    #[test]
    fn message_sizes_cross_limits_where_the_scenario_does() {
        let client = ClientOptions::builder().per_rpc_buffer_limit_in_bytes(100).build();
        for (sizes, fits) in [([60, 40, 0], true), ([60, 40, 1], false), ([99, 0, 1], true)] {
            let larger = Sizes::Larger(PREFIX_BYTES * 3 + 1);
            let limit = larger.client(client).per_rpc_buffer_limit_in_bytes;
            let sum: u64 = sizes.into_iter().map(|bytes| larger.counted(bytes)).sum();
            assert_eq!(sum <= limit, fits, "{sizes:?}");
        }
    }
}
