//! Server pushback: the header `grpc-retry-pushback-ms` (decision G8).

use std::time::Duration;

use redial_core::Hint;

/// The name of the pushback header.
pub const PUSHBACK_HEADER: &str = "grpc-retry-pushback-ms";

/// A server's pushback: when, or whether, the client may retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pushback {
    /// No pushback: the policy's backoff applies.
    #[default]
    None,
    /// Retry after exactly this delay.
    After(Duration),
    /// Do not retry.
    Stop,
}

impl Pushback {
    /// Parses the values of the header. Without a value the result is [`Pushback::None`]. A value of the
    /// grammar `0|-?[1-9][0-9]*` within 32 bits is a number of milliseconds, and [`Pushback::Stop`] if
    /// negative. Any other value, or more than one value, is [`Pushback::Stop`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use redial_service_config::Pushback;
    ///
    /// let parse = |values: &[&'static str]| Pushback::parse(values.iter().map(|it| it.as_bytes()));
    /// assert_eq!(parse(&["150"]), Pushback::After(Duration::from_millis(150)));
    /// assert_eq!(parse(&["-1"]), Pushback::Stop);
    /// assert_eq!(parse(&["soon"]), Pushback::Stop);
    /// assert_eq!(parse(&["150", "150"]), Pushback::Stop);
    /// assert_eq!(parse(&[]), Pushback::None);
    /// ```
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Pushback {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Pushback::None,
            (Some(value), None) => Pushback::parse_one(value),
            (Some(_), Some(_)) => Pushback::Stop,
        }
    }

    fn parse_one(value: &[u8]) -> Pushback {
        // A leading zero, a plus sign and a negative number all mean "do not retry".
        let digits = matches!(value, [b'0'] | [b'1'..=b'9', ..]);
        let text = std::str::from_utf8(value).unwrap_or_default();
        match text.parse::<i32>() {
            Ok(ms) if digits => {
                Pushback::After(Duration::from_millis(u64::from(ms.unsigned_abs())))
            }
            _ => Pushback::Stop,
        }
    }

    /// The pushback as the core's [`Hint`].
    #[must_use]
    pub const fn hint(self) -> Hint {
        match self {
            Pushback::None => Hint::None,
            Pushback::After(span) => Hint::After(span),
            Pushback::Stop => Hint::Stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&'static str]) -> Pushback {
        Pushback::parse(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn pushback_parses_milliseconds() {
        let after = |ms| Pushback::After(Duration::from_millis(ms));
        for (text, ms) in
            [("0", 0), ("1", 1), ("9", 9), ("10", 10), ("777", 777), ("2147483647", 2_147_483_647)]
        {
            assert_eq!(parse(&[text]), after(ms), "{text:?}");
        }
    }

    #[test]
    fn pushback_with_invalid_value_means_do_not_retry() {
        for text in [
            "-1",
            "-2147483648",
            "-2147483649",
            "2147483648",
            "4294967296",
            "99999999999999999999",
            "-0",
            "-",
            "+",
            "+0",
            "+5",
            "00",
            "050",
            "-050",
            "--1",
            "",
            " ",
            " 5",
            "5 ",
            "5\t",
            "5\n",
            "5\0",
            "1 0",
            "50.5",
            "5.",
            "1e2",
            "0x10",
            "1_000",
            "5,6",
            "soon",
            "NaN",
            "٥",
            "５",
        ] {
            assert_eq!(parse(&[text]), Pushback::Stop, "{text:?}");
        }
        let not_text: [&[u8]; 3] = [b"\xff", b"5\xff", b"\xef\xbb\xbf5"];
        for bytes in not_text {
            assert_eq!(Pushback::parse([bytes]), Pushback::Stop, "{bytes:?}");
        }
    }

    #[test]
    fn pushback_sent_twice_means_do_not_retry() {
        for values in [&["5", "5"], &["5", ""], &["", "5"], &["-1", "5"]] {
            assert_eq!(parse(values), Pushback::Stop, "{values:?}");
        }
        assert_eq!(parse(&["1", "2", "3"]), Pushback::Stop);
        assert_eq!(parse(&[]), Pushback::None);
    }
}
