//! Rules: faults by method, path, header, count and rate.

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

use super::fault::{ConnectionFault, Fault, InvalidFault};
use crate::grpc::json::values::header_value;

/// Which of the matching requests or connections get the fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frequency {
    pub(super) skip: u64,
    pub(super) times: Option<u64>,
    pub(super) rate: f64,
}

impl Default for Frequency {
    fn default() -> Frequency {
        Frequency { skip: 0, times: None, rate: 1.0 }
    }
}

impl Frequency {
    fn check(&self) -> Result<(), InvalidFault> {
        if (0.0..=1.0).contains(&self.rate) {
            return Ok(());
        }
        let text = format!("rate: expected a number from 0 to 1, found {}", self.rate);
        Err(InvalidFault(text))
    }
}

/// How often a rule matched, and how often it applied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    matched: u64,
    applied: u64,
}

impl Uses {
    /// Counts a match, and decides whether the fault applies to it.
    ///
    /// The draw depends on the seed, the rule and the number of the match, so that requests of
    /// other rules do not change it.
    pub(super) fn apply(&mut self, frequency: &Frequency, seed: u64, rule: usize) -> bool {
        let number = self.matched;
        self.matched += 1;
        let applies = number >= frequency.skip
            && frequency.times.is_none_or(|times| self.applied < times)
            && draw(seed, rule as u64, number) < frequency.rate;
        self.applied += u64::from(applies);
        applies
    }
}

/// A number from 0 up to but not including 1.
fn draw(seed: u64, rule: u64, number: u64) -> f64 {
    let mixed = mix(mix(seed.wrapping_add(mix(rule))).wrapping_add(number));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// The finalizer of `SplitMix64`.
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A fault for all requests of a kind.
///
/// ```
/// use redial_faults::proxy::{Fault, ProxyRule};
///
/// // Every other upload fails, from the second on, at most ten times.
/// let rule = ProxyRule::new(Fault::status(503))
///     .method("PUT")
///     .path("/bucket/*")
///     .header("x-test", "*")
///     .rate(0.5)
///     .skip(1)
///     .times(10);
/// # rule.check()?;
/// # Ok::<(), redial_faults::proxy::InvalidFault>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule does nothing until it is part of a script"]
pub struct ProxyRule {
    pub(super) fault: Fault,
    pub(super) frequency: Frequency,
    method: Option<String>,
    path: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
    invalid: Option<InvalidFault>,
}

impl ProxyRule {
    /// A rule for every request.
    pub fn new(fault: Fault) -> ProxyRule {
        let frequency = Frequency::default();
        ProxyRule { fault, frequency, method: None, path: None, headers: Vec::new(), invalid: None }
    }

    /// Only requests with this method.
    pub fn method(mut self, method: &str) -> ProxyRule {
        self.method = Some(method.to_owned());
        self
    }

    /// Only requests with this path, without the query; a `*` at the end stands for any rest.
    pub fn path(mut self, path: &str) -> ProxyRule {
        self.path = Some(path.to_owned());
        self
    }

    /// Only requests with this header; the value `*` stands for any value.
    pub fn header(mut self, name: &str, value: &str) -> ProxyRule {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{name:?} is no name of a header"));
        match (parsed, header_value(value)) {
            (Ok(name), Ok(value)) => self.headers.push((name, value)),
            (Err(text), _) | (_, Err(text)) => {
                self.invalid.get_or_insert(InvalidFault(text));
            }
        }
        self
    }

    pub(super) fn all_headers(mut self, headers: &HeaderMap) -> ProxyRule {
        self.headers.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        self
    }

    /// Passes the first matching requests.
    pub fn skip(mut self, count: u64) -> ProxyRule {
        self.frequency.skip = count;
        self
    }

    /// Applies at most this often.
    pub fn times(mut self, count: u64) -> ProxyRule {
        self.frequency.times = Some(count);
        self
    }

    /// Applies to this share of the matching requests, from 0 to 1.
    pub fn rate(mut self, rate: f64) -> ProxyRule {
        self.frequency.rate = rate;
        self
    }

    pub(super) fn matches(&self, head: &Parts) -> bool {
        let method = |wanted: &String| head.method.as_str() == wanted;
        let path = |wanted: &String| matches_path(wanted, head.uri.path());
        self.method.as_ref().is_none_or(method)
            && self.path.as_ref().is_none_or(path)
            && self.headers.iter().all(|(name, value)| {
                let mut values = head.headers.get_all(name).iter();
                values.any(|found| value == "*" || found == value)
            })
    }

    /// Checks the rule and its fault.
    ///
    /// # Errors
    /// The fault is invalid, the rate is not from 0 to 1, or the method, path or a header is not
    /// possible.
    pub fn check(&self) -> Result<(), InvalidFault> {
        if let Some(invalid) = &self.invalid {
            return Err(invalid.clone());
        }
        if let Some(method) = &self.method
            && Method::from_bytes(method.as_bytes()).is_err()
        {
            return Err(InvalidFault(format!("{method:?} is no method of HTTP")));
        }
        if let Some(path) = &self.path
            && !path.starts_with(['/', '*'])
        {
            let text = format!("path: expected \"/...\" or \"*\", found {path:?}");
            return Err(InvalidFault(text));
        }
        self.frequency.check()?;
        self.fault.check()
    }
}

fn matches_path(wanted: &str, path: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == wanted,
    }
}

/// A fault for a share of all connections.
///
/// ```
/// use redial_faults::proxy::{ConnectionFault, ConnectionRule};
///
/// let rule = ConnectionRule::new(ConnectionFault::reset()).rate(0.1).skip(5);
/// # rule.check()?;
/// # Ok::<(), redial_faults::proxy::InvalidFault>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule does nothing until it is part of a script"]
pub struct ConnectionRule {
    pub(super) fault: ConnectionFault,
    pub(super) frequency: Frequency,
}

impl ConnectionRule {
    /// A rule for every connection.
    pub fn new(fault: ConnectionFault) -> ConnectionRule {
        ConnectionRule { fault, frequency: Frequency::default() }
    }

    /// Passes the first connections.
    pub fn skip(mut self, count: u64) -> ConnectionRule {
        self.frequency.skip = count;
        self
    }

    /// Applies at most this often.
    pub fn times(mut self, count: u64) -> ConnectionRule {
        self.frequency.times = Some(count);
        self
    }

    /// Applies to this share of the connections, from 0 to 1.
    pub fn rate(mut self, rate: f64) -> ConnectionRule {
        self.frequency.rate = rate;
        self
    }

    /// Checks the rule and its fault.
    ///
    /// # Errors
    /// The fault is invalid, or the rate is not from 0 to 1.
    pub fn check(&self) -> Result<(), InvalidFault> {
        self.frequency.check()?;
        self.fault.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_draws_depend_on_seed_rule_and_match_number() {
        let draws = |seed, rule| (0..100).map(move |number| draw(seed, rule, number));
        assert!(draws(1, 0).eq(draws(1, 0)));
        assert!(!draws(1, 0).eq(draws(2, 0)));
        assert!(!draws(1, 0).eq(draws(1, 1)));
        let mean = draws(7, 3).sum::<f64>() / 100.0;
        assert!((0.35..0.65).contains(&mean), "{mean}");
        assert!(draws(7, 3).all(|draw| (0.0..1.0).contains(&draw)));
    }

    #[test]
    fn rule_rate_of_zero_never_and_of_one_always_applies() {
        for (rate, expected) in [(0.0, 0), (1.0, 1000)] {
            let frequency = Frequency { rate, ..Frequency::default() };
            let mut uses = Uses::default();
            let applied = (0..1000).filter(|_| uses.apply(&frequency, 5, 0)).count();
            assert_eq!(applied, expected);
        }
    }

    #[test]
    fn rule_skip_and_times_count_matches_and_faults() {
        let frequency = Frequency { skip: 2, times: Some(3), rate: 1.0 };
        let mut uses = Uses::default();
        let applied: Vec<_> = (0..7).map(|_| uses.apply(&frequency, 0, 0)).collect();
        assert_eq!(applied, [false, false, true, true, true, false, false]);
    }

    #[test]
    fn rule_path_star_matches_any_rest() {
        assert!(matches_path("*", "/a") && matches_path("/a*", "/a/b") && matches_path("/a", "/a"));
        assert!(!matches_path("/a", "/a/b") && !matches_path("/b*", "/a"));
    }
}
