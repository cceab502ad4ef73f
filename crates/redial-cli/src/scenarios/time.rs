//! Times in scenario files: milliseconds, exact to the nanosecond.

use redial::Ns;

/// Decimals of a millisecond down to a nanosecond.
const DECIMALS: i64 = 6;
/// Beyond this exponent every number is nothing or for ever.
const EXPONENT_MAX: i64 = 1000;

/// The time that a JSON number of milliseconds means: what is finer than a nanosecond is rounded
/// down, what is longer than 584 years is for ever (ruling P2). `None` if it is negative.
pub(super) fn from_ms(text: &str) -> Option<Ns> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        None => (text, 0),
        // An exponent that does not fit is far beyond every bound.
        Some((mantissa, exponent)) => {
            let far = if exponent.starts_with('-') { -EXPONENT_MAX } else { EXPONENT_MAX };
            let exponent = exponent.parse::<i64>().unwrap_or(far);
            (mantissa, exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX))
        }
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes()).filter(u8::is_ascii_digit);
    if whole.starts_with('-') && digits().any(|digit| digit != b'0') {
        return None;
    }
    // The digits before the decimal point of the nanoseconds; zeros are added where there are none.
    let length = digits().count();
    let point = length as i64 - fraction.len() as i64 + exponent + DECIMALS;
    let mut ns: Ns = 0;
    for (index, digit) in (0..point).zip(digits().chain(std::iter::repeat(b'0'))) {
        if ns == 0 && index >= length as i64 {
            break;
        }
        ns = match ns.checked_mul(10).and_then(|ns| ns.checked_add(Ns::from(digit - b'0'))) {
            Some(ns) => ns,
            None => return Some(Ns::MAX),
        };
    }
    Some(ns)
}

/// The milliseconds, as short as they can be written exactly.
pub(super) fn to_ms(ns: Ns) -> String {
    let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
    if rest == 0 {
        return ms.to_string();
    }
    format!("{ms}.{rest:06}").trim_end_matches('0').to_owned()
}

/// The milliseconds as a number for JSON.
pub(super) fn to_json(ns: Ns) -> serde_json::Value {
    if ns.is_multiple_of(1_000_000) { (ns / 1_000_000).into() } else { (ns as f64 / 1e6).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_exact() {
        for (text, ns) in [
            ("0", 0),
            ("-0", 0),
            ("-0.0", 0),
            ("1", 1_000_000),
            ("8.75", 8_750_000),
            ("0.000001", 1),
            ("0.0000019", 1),
            ("0.1", 100_000),
            ("1e3", 1_000_000_000),
            ("1.5E+2", 150_000_000),
            ("1250e-3", 1_250_000),
            ("1e-6", 1),
            ("1e-7", 0),
            ("0e999999999999999999999", 0),
            ("1e-99999999999999999999", 0),
            ("9007199254740.993", 9_007_199_254_740_993_000),
            ("18446744073709.551615", Ns::MAX),
            ("1e300", Ns::MAX),
            ("1e99999999999999999999", Ns::MAX),
        ] {
            assert_eq!(from_ms(text), Some(ns), "{text}");
        }
        assert_eq!(from_ms("-1"), None);
        assert_eq!(from_ms("-0.1"), None);
    }

    #[test]
    fn times_are_written_short() {
        assert_eq!(to_ms(0), "0");
        assert_eq!(to_ms(150_000_000), "150");
        assert_eq!(to_ms(8_750_000), "8.75");
        assert_eq!(to_ms(1), "0.000001");
    }
}
