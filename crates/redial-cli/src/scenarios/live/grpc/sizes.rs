//! How large the messages are that the application writes.
//!
//! What counts is a message and its prefix of five bytes (decision G23). A scenario may say less than
//! five, and an encoded message cannot have every size: where that could make the difference at a
//! limit, all sizes and limits are so many times larger that the prefixes together do not matter.

use prost::Message;
use redial_echo::EchoRequest;
use redial_service_config::{ClientOptions, Retries};

use crate::scenarios::model::Scenario;

/// What gRPC puts before each message.
pub(in crate::scenarios) const PREFIX_BYTES: u64 = 5;
/// The most bytes that the application writes in one scenario.
pub(in crate::scenarios) const WRITTEN_MAX: u64 = 64 << 20;

/// How large messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) enum Sizes {
    /// As the scenario says; what cannot be so small is as small as it can be.
    Exact,
    /// So many times larger, and the prefix on top. What the limits lose by that is less than what
    /// one byte of the scenario is.
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

    /// What is counted of a message that the scenario says has so many bytes.
    pub(in crate::scenarios) fn counted(self, bytes: u64) -> u64 {
        match self {
            Sizes::Exact if bytes < PREFIX_BYTES => PREFIX_BYTES,
            // No message has one byte.
            Sizes::Exact if bytes == PREFIX_BYTES + 1 => bytes + 1,
            Sizes::Exact => bytes,
            Sizes::Larger(times) => bytes.saturating_mul(times).saturating_add(PREFIX_BYTES),
        }
    }

    /// How many bytes the encoding of a message has that is counted like that.
    pub(in crate::scenarios) fn encoded(self, bytes: u64) -> u64 {
        self.counted(bytes) - PREFIX_BYTES
    }

    /// A message that is counted like that.
    pub(super) fn message(self, bytes: u64) -> EchoRequest {
        of_size(usize::try_from(self.encoded(bytes)).unwrap_or(usize::MAX))
    }

    /// The client, with limits to match.
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

/// A message whose encoding has so many bytes; one byte more if there is none.
fn of_size(bytes: usize) -> EchoRequest {
    let payload = |bytes: usize| {
        // A tag and a length come before the payload, and no payload has neither.
        let lengths = (1..=9).map(|length| bytes.checked_sub(1 + length));
        let sizes = lengths.flatten().filter(|size| *size > 0);
        let messages = sizes
            .map(|size| EchoRequest { payload: vec![0; size].into(), ..EchoRequest::default() });
        messages.into_iter().find(|message| message.encoded_len() == bytes)
    };
    // Where the length of a length changes a size is left out, which a field of two bytes fills.
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

    /// The sizes of messages of so many bytes each, of which a call may keep so many.
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
    fn sizes_are_exact_unless_a_limit_is_near_that_they_cannot_meet() {
        assert_eq!(sizes(&[60, 40], 99), Some(Sizes::Exact));
        assert_eq!(sizes(&[60, 1], 65), Some(Sizes::Exact), "five in place of one still fit");
        assert_eq!(sizes(&[60, 1], 64), Some(Sizes::Larger(11)));
    }

    #[test]
    fn so_much_is_written_and_no_more() {
        assert_eq!(sizes(&[WRITTEN_MAX], 100), Some(Sizes::Exact));
        assert_eq!(sizes(&[WRITTEN_MAX - 7, 8], 100), None);
        assert_eq!(sizes(&[u64::MAX, u64::MAX], 100), None);
    }

    #[test]
    fn there_is_a_message_of_every_size_but_one() {
        for bytes in (0..400).chain(16_300..16_500).chain([1 << 20]) {
            let size = of_size(bytes).encoded_len();
            assert_eq!(size, if bytes == 1 { 2 } else { bytes });
        }
    }

    #[test]
    fn what_is_counted_is_what_the_scenario_says_where_that_can_be() {
        for (bytes, counted) in [(0, 5), (4, 5), (5, 5), (6, 7), (7, 7), (100, 100)] {
            assert_eq!(Sizes::Exact.counted(bytes), counted);
            let encoded = Sizes::Exact.message(bytes).encoded_len() as u64;
            assert_eq!(encoded + PREFIX_BYTES, counted);
        }
    }

    #[test]
    fn larger_sizes_pass_a_limit_where_the_sizes_do() {
        let client = ClientOptions::builder().per_rpc_buffer_limit_in_bytes(100).build();
        for (sizes, fits) in [([60, 40, 0], true), ([60, 40, 1], false), ([99, 0, 1], true)] {
            let larger = Sizes::Larger(PREFIX_BYTES * 3 + 1);
            let limit = larger.client(client).per_rpc_buffer_limit_in_bytes;
            let sum: u64 = sizes.into_iter().map(|bytes| larger.counted(bytes)).sum();
            assert_eq!(sum <= limit, fits, "{sizes:?}");
        }
    }
}
