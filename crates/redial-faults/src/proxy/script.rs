//! Scripts: which fault each connection and each request gets.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use http::request::Parts;

use super::fault::{ConnectionFault, Fault, InvalidFault};
use super::rule::{ConnectionRule, ProxyRule, Uses};
use crate::grpc::CALL_HEADER;

/// The request header that carries a fault as JSON; the proxy removes it.
pub const FAULT_HEADER: &str = "x-redial-fault";

/// The faults of a proxy.
///
/// A request gets the first fault that is found: in its header [`FAULT_HEADER`], in the list of the
/// call that its header [`CALL_HEADER`] names, in the list for requests that name no call, or from
/// the first rule that matches and applies. Otherwise it passes.
///
/// ```
/// use redial_faults::proxy::{ConnectionFault, Fault, ProxyRule, Script};
///
/// let script = Script::new()
///     // The first request fails, the second is slow, the third meets a rule or passes.
///     .requests([Fault::status(503), Fault::pass().delay(std::time::Duration::from_millis(20))])
///     // The requests with `x-redial-call: upload`.
///     .call("upload", [Fault::reset().at_request_bytes(100)])
///     // One in ten of the rest.
///     .rule(ProxyRule::new(Fault::status(500)).rate(0.1))
///     // The first connection is reset.
///     .connections([ConnectionFault::reset()])
///     .seed(7);
/// # script.check()?;
/// # Ok::<(), redial_faults::proxy::InvalidFault>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Script {
    connections: VecDeque<ConnectionFault>,
    connection_rules: Vec<(ConnectionRule, Uses)>,
    requests: VecDeque<Fault>,
    calls: HashMap<String, VecDeque<Fault>>,
    rules: Vec<(ProxyRule, Uses)>,
    refusals: Vec<Refusal>,
    seed: u64,
}

/// A time in which connections are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    from: Duration,
    until: Duration,
}

/// Where the fault of a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultSource {
    /// The request's header.
    Header,
    /// The list of its call.
    Call,
    /// The list for requests that name no call.
    Requests,
    /// The rule with this index, from 0.
    Rule(usize),
}

impl Script {
    /// A script without faults.
    #[must_use]
    pub fn new() -> Script {
        Script::default()
    }

    /// Adds faults for the next requests that name no call, in order of arrival.
    #[must_use]
    pub fn requests(mut self, faults: impl IntoIterator<Item = Fault>) -> Script {
        self.requests.extend(faults);
        self
    }

    /// Adds faults for the next requests of this call.
    #[must_use]
    pub fn call(mut self, name: &str, faults: impl IntoIterator<Item = Fault>) -> Script {
        self.add_call(name, faults);
        self
    }

    pub(super) fn add_call(&mut self, name: &str, faults: impl IntoIterator<Item = Fault>) {
        self.calls.entry(name.to_owned()).or_default().extend(faults);
    }

    pub(super) fn add_requests(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.requests.extend(faults);
    }

    pub(super) fn add_connections(&mut self, faults: impl IntoIterator<Item = ConnectionFault>) {
        self.connections.extend(faults);
    }

    pub(super) fn add_rule(&mut self, rule: ProxyRule) {
        self.rules.push((rule, Uses::default()));
    }

    /// Adds a rule for requests that no list has a fault for.
    #[must_use]
    pub fn rule(mut self, rule: ProxyRule) -> Script {
        self.add_rule(rule);
        self
    }

    /// Adds faults for the next connections, in order of arrival.
    #[must_use]
    pub fn connections(mut self, faults: impl IntoIterator<Item = ConnectionFault>) -> Script {
        self.connections.extend(faults);
        self
    }

    /// Adds a rule for connections that the list has no fault for.
    #[must_use]
    pub fn connection_rule(mut self, rule: ConnectionRule) -> Script {
        self.connection_rules.push((rule, Uses::default()));
        self
    }

    /// Refuses connections (`ECONNREFUSED`) from this time after the start, for this long.
    #[must_use]
    pub fn refuse(mut self, from: Duration, for_: Duration) -> Script {
        self.refusals.push(Refusal { from, until: from.saturating_add(for_) });
        self
    }

    /// Sets the seed of the rates; 0 by default. The same seed and the same requests give the same
    /// faults.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Script {
        self.seed = seed;
        self
    }

    /// Checks every fault and every rule.
    ///
    /// # Errors
    /// One is invalid: see [`Fault::check`] and [`ProxyRule::check`].
    pub fn check(&self) -> Result<(), InvalidFault> {
        self.connections.iter().try_for_each(ConnectionFault::check)?;
        self.connection_rules.iter().try_for_each(|(rule, _)| rule.check())?;
        self.requests.iter().try_for_each(Fault::check)?;
        self.calls.values().flatten().try_for_each(Fault::check)?;
        self.rules.iter().try_for_each(|(rule, _)| rule.check())
    }

    /// Whether a fault is for requests, which a TCP proxy does not see.
    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.calls.is_empty() || !self.rules.is_empty()
    }

    /// The fault of a new connection.
    pub(super) fn next_connection(&mut self) -> ConnectionFault {
        if let Some(fault) = self.connections.pop_front() {
            return fault;
        }
        for (index, (rule, uses)) in self.connection_rules.iter_mut().enumerate() {
            // Another sequence of draws than that of the rules for requests.
            if uses.apply(&rule.frequency, !self.seed, index) {
                return rule.fault.clone();
            }
        }
        ConnectionFault::pass()
    }

    /// The fault of a request, and where it came from.
    pub(super) fn next_request(&mut self, head: &Parts) -> (Fault, Option<FaultSource>) {
        let call = head.headers.get(CALL_HEADER).and_then(|it| it.to_str().ok());
        let listed = match call {
            Some(name) => {
                let fault = self.calls.get_mut(name).and_then(VecDeque::pop_front);
                fault.map(|fault| (fault, FaultSource::Call))
            }
            None => self.requests.pop_front().map(|fault| (fault, FaultSource::Requests)),
        };
        if let Some((fault, source)) = listed {
            return (fault, Some(source));
        }
        for (index, (rule, uses)) in self.rules.iter_mut().enumerate() {
            if rule.matches(head) && uses.apply(&rule.frequency, self.seed, index) {
                return (rule.fault.clone(), Some(FaultSource::Rule(index)));
            }
        }
        (Fault::pass(), None)
    }

    /// Whether connections are refused at this time, and when that changes.
    pub(super) fn refusal(&self, now: Duration) -> (bool, Option<Duration>) {
        let refused = self.refusals.iter().any(|it| it.from <= now && now < it.until);
        let changes = self.refusals.iter().flat_map(|it| [it.from, it.until]);
        (refused, changes.filter(|at| *at > now).min())
    }
}

/// The faults of the next requests.
impl<const N: usize> From<[Fault; N]> for Script {
    fn from(faults: [Fault; N]) -> Script {
        Script::new().requests(faults)
    }
}

/// The fault of the first request.
impl From<Fault> for Script {
    fn from(fault: Fault) -> Script {
        Script::new().requests([fault])
    }
}

/// A rule for all requests.
impl From<ProxyRule> for Script {
    fn from(rule: ProxyRule) -> Script {
        Script::new().rule(rule)
    }
}

/// The fault of the first connection.
impl From<ConnectionFault> for Script {
    fn from(fault: ConnectionFault) -> Script {
        Script::new().connections([fault])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_refusals_end_and_may_overlap() {
        let ms = Duration::from_millis;
        let script = Script::new().refuse(ms(10), ms(20)).refuse(ms(20), ms(30));
        assert_eq!(script.refusal(ms(0)), (false, Some(ms(10))));
        assert_eq!(script.refusal(ms(10)), (true, Some(ms(20))));
        assert_eq!(script.refusal(ms(49)), (true, Some(ms(50))));
        assert_eq!(script.refusal(ms(50)), (false, None));
    }
}
