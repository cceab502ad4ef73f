//! Times in scenario files: milliseconds, exact to the nanosecond.

use redial::time::Ns;
use redial_service_config::json::Decimal;

/// Decimals of a millisecond down to a nanosecond.
const DECIMALS: u8 = 6;

/// Parses a JSON number of milliseconds: fractions of a nanosecond are rounded down, and times
/// above 584 years saturate (decision P2). `None` if it is negative.
pub(super) fn from_ms(text: &str) -> Option<Ns> {
    let number = Decimal::new(text);
    (!number.is_negative()).then(|| number.scaled(DECIMALS).value)
}

/// The milliseconds in the shortest exact notation.
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
    fn time_milliseconds_convert_exactly() {
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
    fn time_is_printed_without_trailing_zeros() {
        assert_eq!(to_ms(0), "0");
        assert_eq!(to_ms(150_000_000), "150");
        assert_eq!(to_ms(8_750_000), "8.75");
        assert_eq!(to_ms(1), "0.000001");
    }
}
