//! Durations in proto3 JSON format (decision G34).

use std::time::Duration;

/// The maximum duration in seconds: about 10,000 years.
pub(super) const SECONDS_MAX: u64 = 315_576_000_000;

/// A parsed duration by its sign and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedDuration {
    Positive(Duration),
    Zero,
    Negative,
    /// Beyond [`SECONDS_MAX`] in either direction.
    TooLong,
}

/// Parses a text of the form `-?digits(.1 to 9 digits)s`. As in JSON, the number has no leading zeros.
pub(super) fn parse(text: &str) -> Option<ParsedDuration> {
    let number = text.strip_suffix('s')?;
    let (minus, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let in_form = !whole.is_empty() && !leading_zero && fraction.len() <= 9;
    if !in_form || !digits(whole) || !digits(fraction) {
        return None;
    }
    // A number that does not fit into 64 bits is above the limit.
    let seconds = whole.parse().unwrap_or(u64::MAX);
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    if seconds > SECONDS_MAX || seconds == SECONDS_MAX && nanos > 0 {
        return Some(ParsedDuration::TooLong);
    }
    let duration = Duration::new(seconds, nanos);
    Some(match minus {
        _ if duration.is_zero() => ParsedDuration::Zero,
        true => ParsedDuration::Negative,
        false => ParsedDuration::Positive(duration),
    })
}

/// The correctly formatted duration that the author of an invalid text probably meant.
pub(super) fn suggestion(text: &str) -> Option<String> {
    const UNITS: [(&str, f64); 10] = [
        ("ms", 1e-3),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ns", 1e-9),
        ("sec", 1.0),
        ("min", 60.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("s", 1.0),
        ("", 1.0),
    ];
    let text = text.trim();
    let (number, unit) = UNITS.iter().find_map(|(name, unit)| {
        let number = text.strip_suffix(name)?.trim_end();
        let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        plain.then(|| number.parse::<f64>().ok()).flatten().map(|number| (number, unit))
    })?;
    let duration = Duration::try_from_secs_f64(number * unit).ok()?;
    Some(format_duration(duration))
        .filter(|written| parse(written) != Some(ParsedDuration::TooLong))
}

/// Formats a duration for a config.
pub(super) fn format_duration(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if nanos == 0 {
        return format!("{seconds}s");
    }
    let text = format!("{seconds}.{nanos:09}");
    format!("{}s", text.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_parses_to_the_nanosecond() {
        let positive =
            |seconds, nanos| Some(ParsedDuration::Positive(Duration::new(seconds, nanos)));
        for (text, duration) in [
            ("1s", positive(1, 0)),
            ("0.1s", positive(0, 100_000_000)),
            ("1.5s", positive(1, 500_000_000)),
            ("0.000000001s", positive(0, 1)),
            ("1.123456789s", positive(1, 123_456_789)),
            ("10.050s", positive(10, 50_000_000)),
            ("315576000000s", positive(SECONDS_MAX, 0)),
            ("315575999999.999999999s", positive(SECONDS_MAX - 1, 999_999_999)),
            ("0s", Some(ParsedDuration::Zero)),
            ("-0.000000000s", Some(ParsedDuration::Zero)),
            ("-0.000000001s", Some(ParsedDuration::Negative)),
            ("-315576000000s", Some(ParsedDuration::Negative)),
            ("315576000001s", Some(ParsedDuration::TooLong)),
            ("315576000000.000000001s", Some(ParsedDuration::TooLong)),
            ("99999999999999999999999999s", Some(ParsedDuration::TooLong)),
            ("-315576000001s", Some(ParsedDuration::TooLong)),
        ] {
            assert_eq!(parse(text), duration, "{text:?}");
        }
    }

    #[test]
    fn duration_rejects_other_formats() {
        for text in [
            "",
            "s",
            "-s",
            "1",
            "1S",
            "1 s",
            " 1s",
            "1s ",
            "+1s",
            "--1s",
            ".5s",
            "1.s",
            "1..5s",
            "1.5.5s",
            "1,5s",
            "1e3s",
            "0x1s",
            "100ms",
            "1m",
            "1ss",
            "infs",
            "1.0000000001s",
            "1.0000000000s",
            "00.1s",
            "007s",
            "-01s",
            "00s",
            "000000000000000000000000000001.50s",
            "١s",
            "1\u{a0}s",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn duration_suggestion_is_in_seconds() {
        for (text, suggested_text) in [
            ("100ms", Some("0.1s")),
            ("100 ms", Some("0.1s")),
            ("1500us", Some("0.0015s")),
            ("20ns", Some("0.00000002s")),
            ("2m", Some("120s")),
            ("1h", Some("3600s")),
            ("0.25", Some("0.25s")),
            ("1 s", Some("1s")),
            ("00.1s", Some("0.1s")),
            ("007s", Some("7s")),
            ("315576000001s", None),
            ("soon", None),
            ("", None),
            (".", None),
            ("1e999", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(suggestion(text).as_deref(), suggested_text, "{text:?}");
        }
    }
}
