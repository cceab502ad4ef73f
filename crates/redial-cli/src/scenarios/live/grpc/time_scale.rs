//! The time scale of a live run.
//!
//! The layer uses tokio's clock, which rounds every sleep up to a millisecond. A scenario in whole
//! milliseconds runs unscaled; any other is slowed down so that a millisecond of the clock is a
//! microsecond of the scenario. All durations are scaled: config, client options, pushback,
//! deadlines. Constants inside the layer cannot be scaled.

use std::time::Duration;

use redial::{Event, time::Ns};
use redial_service_config::{ClientOptions, Pushback, ServiceConfig};
use serde_json::Value;

use super::super::{HORIZON, SLOWDOWN};
use crate::scenarios::model::Scenario;
use crate::scenarios::play::{Actual, ActualCall};

const MILLISECOND: Ns = 1_000_000;
const NS_PER_SECOND: u128 = 1_000_000_000;

/// The slowdown of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) struct TimeScale(Ns);

impl TimeScale {
    /// A slowdown by this factor.
    pub(in crate::scenarios) const fn slower_by(times: Ns) -> Self {
        TimeScale(times)
    }

    /// The time scale of a scenario; `core` is the result of the core level.
    pub(in crate::scenarios) fn of(scenario: &Scenario, core: &Actual) -> Self {
        let is_whole = |at: Ns| at.is_multiple_of(MILLISECOND);
        let written = scenario.calls.iter().all(|call| {
            let messages = call.grpc.iter().flat_map(|grpc| &grpc.messages);
            is_whole(call.at)
                && call.cancel.is_none_or(is_whole)
                && messages.clone().all(|(at, _)| is_whole(*at))
        });
        let happens = core.calls.iter().flat_map(ActualCall::moments).all(is_whole);
        TimeScale(if written && happens { 1 } else { SLOWDOWN })
    }

    pub(in crate::scenarios) const fn slowdown(self) -> Ns {
        self.0
    }

    /// The scenario time after which an open call counts as never ending.
    pub(in crate::scenarios) const fn horizon(self) -> Ns {
        HORIZON.saturating_mul(SLOWDOWN / self.0)
    }

    /// Converts scenario time to clock time.
    pub(in crate::scenarios) const fn span(self, span: Ns) -> Duration {
        Duration::from_nanos(span.saturating_mul(self.0))
    }

    /// Converts clock time to scenario time.
    pub(in crate::scenarios) fn scenario(self, span: Duration) -> Ns {
        redial::testing::nanoseconds(span) / self.0
    }

    /// Whether the layer's own fixed pauses (before transparent retries) would distort a scaled
    /// scenario.
    pub(in crate::scenarios) fn meets_pauses(self, core: &Actual) -> bool {
        let mut events = core.calls.iter().flat_map(ActualCall::events);
        self.0 > 1
            && events.any(|(_, event)| {
                matches!(event, Event::TransparentRetryScheduled { after: 1.., .. })
            })
    }

    /// Whether deadlines survive the eight digits of `grpc-timeout` with an error below a
    /// millisecond of scenario time.
    pub(in crate::scenarios) fn carries_deadlines(self, scenario: &Scenario) -> bool {
        // Milliseconds of up to eight digits are exact, seconds to within one.
        let coarse = |span: Ns| {
            let ns = u128::from(span) * u128::from(self.0);
            let unit = [1, 1_000, 1_000_000, NS_PER_SECOND, 60 * NS_PER_SECOND]
                .into_iter()
                .find(|unit| ns / unit <= 99_999_999);
            unit.is_none_or(|unit| ns % unit > u128::from(MILLISECOND) * u128::from(self.0))
        };
        !scenario.calls.iter().filter_map(|call| call.deadline).any(coarse)
    }

    /// The client options with scaled durations.
    pub(super) fn client(self, client: ClientOptions) -> ClientOptions {
        let mut slow = client;
        slow.pushback_max = client
            .pushback_max
            .map(|span| Duration::from_nanos(redial::testing::nanoseconds(span)))
            .map(|span| span.saturating_mul(u32::try_from(self.0).unwrap_or(u32::MAX)));
        slow
    }

    /// The values of a pushback header with a scaled number; `None` if it is not a valid header.
    pub(in crate::scenarios) fn pushback(self, texts: &[String]) -> Option<Vec<String>> {
        let is_header = |text: &String| {
            text.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
        };
        if !texts.iter().all(is_header) {
            return None;
        }
        match Pushback::parse(texts.iter().map(String::as_bytes)) {
            Pushback::After(span) => {
                let ms = span.as_millis().checked_mul(self.0.into())?;
                i32::try_from(ms).ok().map(|ms| vec![ms.to_string()])
            }
            Pushback::Stop | Pushback::None => Some(texts.to_vec()),
        }
    }

    /// The config with scaled durations; `None` if they exceed the limits of a config.
    pub(in crate::scenarios) fn config(self, text: &str) -> Option<ServiceConfig> {
        ServiceConfig::parse(&self.config_text(text)?).ok()
    }

    /// The text of a config with scaled durations; `None` if it is not JSON or a duration is
    /// invalid.
    pub(in crate::scenarios) fn config_text(self, text: &str) -> Option<String> {
        if self.0 == 1 {
            return Some(text.to_owned());
        }
        let mut config: Value = serde_json::from_str(text).ok()?;
        let entries = config.get_mut("methodConfig").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            for pointer in [
                "/timeout",
                "/retryPolicy/initialBackoff",
                "/retryPolicy/maxBackoff",
                "/hedgingPolicy/hedgingDelay",
            ] {
                if let Some(Value::String(duration)) = entry.pointer_mut(pointer) {
                    *duration = self.duration(duration)?;
                }
            }
        }
        Some(config.to_string())
    }

    /// A scaled duration in config notation: seconds with up to nine decimals, and an `s`.
    fn duration(self, text: &str) -> Option<String> {
        let number = text.strip_suffix('s')?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let ns = whole.parse::<u128>().ok()?.checked_mul(NS_PER_SECOND)?;
        let ns = ns + format!("{decimals:0<9}").parse::<u128>().ok()?;
        let slow = ns.checked_mul(self.0.into())?;
        Some(format!("{}.{:09}s", slow / NS_PER_SECOND, slow % NS_PER_SECOND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_scale_multiplies_durations_exactly() {
        let slow = TimeScale(1_000);
        for (text, longer) in [
            ("0s", "0.000000000s"),
            ("1s", "1000.000000000s"),
            ("0.1s", "100.000000000s"),
            ("0.000000001s", "0.000001000s"),
            ("12.345678912s", "12345.678912000s"),
        ] {
            assert_eq!(slow.duration(text).as_deref(), Some(longer), "{text}");
        }
        assert_eq!(slow.duration("1m"), None);
    }

    #[test]
    fn time_scale_multiplies_all_durations_of_a_config() {
        let text = r#"{"methodConfig": [{"name": [{}], "timeout": "2s", "retryPolicy": {
            "maxAttempts": 3, "initialBackoff": "0.5s", "maxBackoff": "1s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"]}}],
            "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5466}}"#;
        let slower = r#"{"methodConfig": [{"name": [{}], "timeout": "2000s", "retryPolicy": {
            "maxAttempts": 3, "initialBackoff": "500s", "maxBackoff": "1000s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"]}}],
            "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5466}}"#;
        let slow = TimeScale(1_000).config(text).expect("it is valid");
        let expected = ServiceConfig::parse(slower).expect("it is valid");
        assert_eq!(format!("{:?}", slow.method("/a/b")), format!("{:?}", expected.method("/a/b")));
        assert_eq!(slow.retry_throttling(), expected.retry_throttling());
        // The longest allowed duration cannot be scaled.
        let longest = r#"{"methodConfig": [{"name": [{}], "timeout": "315576000000s"}]}"#;
        assert!(TimeScale(1).config(longest).is_some());
        assert!(TimeScale(1_000).config(longest).is_none());
    }

    #[test]
    fn time_scale_multiplies_only_positive_pushback() {
        let slow = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(ToString::to_string).collect();
            TimeScale(1_000).pushback(&texts)
        };
        assert_eq!(slow(&["7"]), Some(vec!["7000".to_owned()]));
        assert_eq!(slow(&["0"]), Some(vec!["0".to_owned()]));
        assert_eq!(slow(&["2147483"]), Some(vec!["2147483000".to_owned()]));
        assert_eq!(slow(&["2147484"]), None, "it does not fit into 32 bits");
        assert_eq!(slow(&["-5"]), Some(vec!["-5".to_owned()]));
        assert_eq!(slow(&["5", "5"]), Some(vec!["5".to_owned(), "5".to_owned()]));
        assert_eq!(slow(&[]), Some(Vec::new()));
        assert_eq!(slow(&["5\n"]), None, "no header holds it");
    }
}
