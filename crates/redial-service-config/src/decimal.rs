//! Exact decimal numbers of a JSON text, of any size and precision.

/// A JSON number.
#[derive(Clone, Copy, Debug)]
pub struct Decimal<'t> {
    minus: bool,
    whole: &'t str,
    fraction: &'t str,
    exponent: i64,
}

/// A number converted to a unit of `10^-n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The absolute value in that unit, rounded down; `u64::MAX` if it does not fit.
    pub value: u64,
    /// Whether the conversion was exact.
    pub exact: bool,
}

impl<'t> Decimal<'t> {
    /// Larger than every valid exponent, and small enough that adding a text's length cannot overflow.
    const EXPONENT_MAX: i64 = 1 << 40;

    /// Parses a number of the JSON grammar.
    #[must_use]
    pub fn new(text: &'t str) -> Self {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            None => (text, 0),
            Some((mantissa, exponent)) => {
                let most = Decimal::EXPONENT_MAX;
                let far = if exponent.starts_with('-') { -most } else { most };
                // An exponent that does not fit into 64 bits is clamped.
                (mantissa, exponent.parse().unwrap_or(far).clamp(-most, most))
            }
        };
        let minus = mantissa.starts_with('-');
        let digits = mantissa.trim_start_matches('-');
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        Decimal { minus, whole, fraction, exponent }
    }

    fn digits(&self) -> impl Iterator<Item = u8> + 't {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    /// Whether the number is 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.digits().all(|digit| digit == b'0')
    }

    /// Whether the number is below 0.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.minus && !self.is_zero()
    }

    /// Whether the number is above 0.
    #[must_use]
    pub fn is_positive(&self) -> bool {
        !self.minus && !self.is_zero()
    }

    /// Converts the number to units of `10^-decimals`, without its sign.
    #[must_use]
    pub fn scaled(&self, decimals: u8) -> Scaled {
        let length = self.whole.len() + self.fraction.len();
        // The number of digits before the decimal point, after padding with zeros.
        let point = self.whole.len() as i64 + self.exponent + i64::from(decimals);
        let mut digits = self.digits();
        let mut value: u64 = 0;
        for index in 0..point {
            if value == 0 && index >= length as i64 {
                break;
            }
            let digit = u64::from(digits.next().unwrap_or(b'0') - b'0');
            match value.checked_mul(10).and_then(|value| value.checked_add(digit)) {
                Some(next) => value = next,
                None => return Scaled { value: u64::MAX, exact: false },
            }
        }
        Scaled { value, exact: digits.all(|digit| digit == b'0') }
    }

    /// The number as an integer, if it is whole and not negative; `u64::MAX` if it is larger.
    #[must_use]
    pub fn whole(&self) -> Option<u64> {
        let Scaled { value, exact } = self.scaled(0);
        let whole = exact || value == u64::MAX && self.is_whole();
        (whole && !self.is_negative()).then_some(value)
    }

    /// Whether all digits after the decimal point are 0, also for numbers that do not fit into 64 bits.
    fn is_whole(&self) -> bool {
        let point = self.whole.len() as i64 + self.exponent;
        let rest = self.digits().skip(usize::try_from(point).unwrap_or(0));
        rest.into_iter().all(|digit| digit == b'0')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_scaling_is_exact() {
        for (text, decimals, value, exact) in [
            ("0", 0, 0, true),
            ("14", 0, 14, true),
            ("14.0", 0, 14, true),
            ("14.5", 0, 14, false),
            ("1.4e1", 0, 14, true),
            ("140E-1", 0, 14, true),
            ("1400e-03", 0, 1, false),
            ("0.5466", 3, 546, false),
            ("0.29", 3, 290, true),
            ("0.0009999999999999999999999", 3, 0, false),
            ("1e-400", 3, 0, false),
            ("0e-99999999999999999999", 3, 0, true),
            ("0e99999999999999999999", 0, 0, true),
            ("18446744073709551615", 0, u64::MAX, true),
            ("18446744073709551616", 0, u64::MAX, false),
            ("1e99999999999999999999", 0, u64::MAX, false),
        ] {
            assert_eq!(Decimal::new(text).scaled(decimals), Scaled { value, exact }, "{text}");
        }
    }

    #[test]
    fn decimal_detects_whole_numbers_of_any_size() {
        for (text, whole) in [
            ("4", Some(4)),
            ("4.000", Some(4)),
            ("4.0001", None),
            ("1.00000000000000000000000000000001", None),
            ("-4", None),
            ("-0", Some(0)),
            ("1e300", Some(u64::MAX)),
            ("123456789012345678901234567890.5", None),
            ("123456789012345678901234567890.0", Some(u64::MAX)),
            ("123456789012345678901234567890e-2", None),
        ] {
            assert_eq!(Decimal::new(text).whole(), whole, "{text}");
        }
        // Many leading zeros, offset by the exponent.
        let long = format!("0.{}1e{}", "0".repeat(5000), 5001);
        assert_eq!(Decimal::new(&long).whole(), Some(1));
    }

    #[test]
    fn decimal_sign_of_zero_is_neither() {
        let signs = |text| {
            let number = Decimal::new(text);
            (number.is_negative(), number.is_zero(), number.is_positive())
        };
        assert_eq!(signs("-0.0e5"), (false, true, false));
        assert_eq!(signs("-1e-500"), (true, false, false));
        assert_eq!(signs("1e-500"), (false, false, true));
    }
}
