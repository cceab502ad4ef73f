//! Durations as text: `"250ms"`, `"1.5s"`, `"1m30s"`.
//!
//! Invariant: a duration is kept exactly, even above 584 years; it saturates only in a call (decision
//! P2). A duration that was written is read back as the same duration.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// The longest text of a duration, in bytes.
const TEXT_MAX: usize = 64;

/// The units, the largest first, with their nanoseconds.
const UNITS: [(&[&str], u128); 7] = [
    (&["d"], 86_400 * NANOS),
    (&["h"], 3_600 * NANOS),
    (&["m", "min"], 60 * NANOS),
    (&["s"], NANOS),
    (&["ms"], 1_000_000),
    (&["us", "µs", "μs"], 1_000),
    (&["ns"], 1),
];

const NANOS: u128 = 1_000_000_000;

/// A text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DurationError {
    Number,
    Unit,
    Order,
    Length,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationError::Number => "a number must come first, without a sign",
            DurationError::Unit => "the unit must be one of ns, us, ms, s, m, h, d",
            DurationError::Order => "of several units the larger comes first, each once",
            DurationError::Length => "it is too long",
        })
    }
}

/// Parses a duration, rounded down to the nanosecond.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.len() > TEXT_MAX {
        return Err(DurationError::Length);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    let mut next_unit = 0;
    loop {
        let (value, after) = number(rest)?;
        let length = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (name, after) = after.split_at(length);
        let index = UNITS.iter().position(|(names, _)| names.contains(&name));
        let index = index.ok_or(DurationError::Unit)?;
        if index < next_unit {
            return Err(DurationError::Order);
        }
        next_unit = index + 1;
        let span = value.times(UNITS[index].1).ok_or(DurationError::Length)?;
        total = total.checked_add(span).ok_or(DurationError::Length)?;
        if after.is_empty() {
            break;
        }
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    let secs = u64::try_from(total / NANOS).map_err(|_| DurationError::Length)?;
    // The remainder is below a billion, so it fits.
    Ok(Duration::new(secs, (total % NANOS) as u32))
}

/// A decimal number: `digits / 10^decimals`.
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    fn times(&self, unit: u128) -> Option<u128> {
        Some(self.digits.checked_mul(unit)? / 10u128.pow(self.decimals))
    }
}

/// The number at the start of the text, and the rest.
fn number(text: &str) -> Result<(Decimal, &str), DurationError> {
    // Further digits are below a nanosecond in every unit.
    const DECIMALS_MAX: u32 = 14;
    let not_digit = |c: char| !c.is_ascii_digit();
    let (whole, rest) = text.split_at(text.find(not_digit).unwrap_or(text.len()));
    let (fraction, rest) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => match rest.split_at(rest.find(not_digit).unwrap_or(rest.len())) {
            ("", _) => return Err(DurationError::Number),
            parts => parts,
        },
    };
    if whole.is_empty() {
        return Err(DurationError::Number);
    }
    let mut number =
        Decimal { digits: whole.parse().map_err(|_| DurationError::Length)?, decimals: 0 };
    for digit in fraction.bytes().take(DECIMALS_MAX as usize) {
        let digit = u128::from(digit - b'0');
        let digits = number.digits.checked_mul(10).ok_or(DurationError::Length)?;
        number = Decimal { digits: digits + digit, decimals: number.decimals + 1 };
    }
    Ok((number, rest))
}

/// Formats a duration in the largest unit of which it is a multiple.
pub(crate) fn write(span: Duration) -> String {
    let nanos = span.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let fits = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    let (names, unit) = fits.unwrap_or(&UNITS[UNITS.len() - 1]);
    format!("{}{}", nanos / unit, names[0])
}

/// A duration with serde's traits.
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like \"250ms\" or \"1.5s\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                parse(text).map(Span).map_err(|error| {
                    E::custom(format_args!(
                        "{text:?} is not a duration: {error}; write it like \"250ms\" or \"1.5s\""
                    ))
                })
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// For `#[serde(with = "span")]` on a `Duration`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    Span::deserialize(deserializer).map(|span| span.0)
}

pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&write(*span))
}

/// For `#[serde(with = "span::option")]` on an `Option<Duration>`.
pub mod option {
    use super::{Deserialize, Deserializer, Duration, Serializer, Span, write};

    /// Deserializes the duration.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Span>::deserialize(deserializer)?.map(|span| span.0))
    }

    /// Serializes the duration.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => serializer.serialize_some(&write(*span)),
            None => serializer.serialize_none(),
        }
    }
}

/// For `#[serde(with = "span::list")]` on a `Vec<Duration>`.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, Duration, Serializer, Span, write};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Duration>, D::Error> {
        let spans = Vec::<Span>::deserialize(deserializer)?;
        Ok(spans.into_iter().map(|span| span.0).collect())
    }

    pub(crate) fn serialize<S: Serializer>(
        spans: &[Duration],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(spans.iter().map(|span| write(*span)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial_core::{ms, s};

    #[test]
    fn config_duration_accepts_every_unit() {
        for (text, span) in [
            ("0s", Duration::ZERO),
            ("7ns", Duration::from_nanos(7)),
            ("7us", Duration::from_micros(7)),
            ("7µs", Duration::from_micros(7)),
            ("7μs", Duration::from_micros(7)), // the Greek letter
            ("250ms", ms(250)),
            ("1.5s", ms(1500)),
            ("0.000000001s", Duration::from_nanos(1)),
            ("2m", s(120)),
            ("2min", s(120)),
            ("1.5h", s(5400)),
            ("1d", s(86_400)),
            ("1m30s", s(90)),
            ("1h 2m 3s 4ms", s(3723) + ms(4)),
            ("007s", s(7)),
        ] {
            assert_eq!(parse(text), Ok(span), "{text}");
        }
    }

    #[test]
    fn config_duration_rounds_down_to_nanoseconds() {
        assert_eq!(parse("1.9ns"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse("0.33333333333333333333s"), Ok(Duration::from_nanos(333_333_333)));
        assert_eq!(parse("0.00000000000001d"), Ok(Duration::ZERO));
    }

    #[test]
    fn config_duration_above_584_years_is_kept() {
        let aeon = parse("1000000000000d").unwrap();
        assert_eq!(aeon.as_secs(), 86_400_000_000_000_000);
        assert_eq!(write(aeon), "1000000000000d");
        let longest = Duration::new(u64::MAX, 999_999_999);
        assert_eq!(parse(&write(longest)), Ok(longest));
        assert_eq!(parse("18446744073709551616s"), Err(DurationError::Length));
    }

    #[test]
    fn config_duration_errors_name_the_cause() {
        for (text, error) in [
            ("", DurationError::Number),
            ("ms", DurationError::Number),
            ("-5ms", DurationError::Number),
            ("+5ms", DurationError::Number),
            (".5s", DurationError::Number),
            ("5.s", DurationError::Number),
            (" 5s", DurationError::Number),
            ("5s ", DurationError::Number),
            ("5", DurationError::Unit),
            ("5 s", DurationError::Unit),
            ("5S", DurationError::Unit),
            ("5years", DurationError::Unit),
            ("1e3ms", DurationError::Unit),
            ("5s5s", DurationError::Order),
            ("5s1m", DurationError::Order),
            ("99999999999999999999999999999999999999999s", DurationError::Length),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        let longest = format!("{}s", "0".repeat(TEXT_MAX - 1));
        assert_eq!(parse(&longest), Ok(Duration::ZERO));
        assert_eq!(parse(&format!("0{longest}")), Err(DurationError::Length));
    }

    proptest::proptest! {
        #[test]
        fn config_duration_round_trips(secs: u64, nanos in 0u32..1_000_000_000, shift in 0u32..64) {
            let span = Duration::new(secs >> shift, nanos);
            proptest::prop_assert_eq!(parse(&write(span)), Ok(span));
            let whole = Duration::from_secs(secs >> shift);
            proptest::prop_assert_eq!(parse(&write(whole)), Ok(whole));
        }
    }
}
