//! The JSON format of scripts and records, with serde.
//!
//! Unknown fields and invalid faults are errors, so a loaded script is valid.

mod record;

use http::HeaderMap;
use serde::de::{Deserialize, Deserializer, Error as _};

use super::fault::{BreakKind, ConnectionFault, Fault};
use super::rule::{ConnectionRule, Frequency, ProxyRule};
use super::script::Script;
use crate::grpc::json::values::{Fields, Ms, Status, True};
use crate::grpc::json::{Ordered, object};

/// A file with a script.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    seed: u64,
    requests: Vec<Fault>,
    calls: Calls,
    rules: Vec<ProxyRule>,
    connections: Vec<ConnectionFault>,
    connection_rules: Vec<ConnectionRule>,
    refuse: Vec<Refusal>,
}

#[derive(serde::Deserialize)]
struct Calls(Ordered<Vec<Fault>>);

impl Default for Calls {
    fn default() -> Calls {
        Calls(Ordered(Vec::new()))
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object like {"from": 100, "for": 50}"#)]
struct Refusal {
    #[serde(default)]
    from: Ms,
    #[serde(rename = "for")]
    for_: Ms,
}

/// The JSON format of a script: see [the module](crate::proxy#scripts-as-json).
impl<'de> Deserialize<'de> for Script {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Script, D::Error> {
        let file: File = object(from, "a script: an object")?;
        let mut script =
            Script::new().seed(file.seed).requests(file.requests).connections(file.connections);
        for (name, faults) in file.calls.0.0 {
            script = script.call(&name, faults);
        }
        for rule in file.rules {
            script = script.rule(rule);
        }
        for rule in file.connection_rules {
            script = script.connection_rule(rule);
        }
        for Refusal { from, for_ } in file.refuse {
            script = script.refuse(from.0, for_.0);
        }
        Ok(script)
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JsonFault {
    delay: Ms,
    delay_response: Ms,
    after_upstream: Option<True>,
    status: Option<u16>,
    grpc_status: Option<Status>,
    message: Option<String>,
    headers: Option<Fields>,
    body: Option<String>,
    reset: Option<JsonPoint>,
    close: Option<JsonPoint>,
    stall: Option<JsonPoint>,
}

/// Where in an exchange a connection fails.
#[derive(Default, serde::Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = r#"an object: {} or {"response_bytes": 100} or {"request_bytes": 100}"#
)]
struct JsonPoint {
    request_bytes: Option<u64>,
    response_bytes: Option<u64>,
}

impl JsonFault {
    fn fault(self) -> Result<Fault, String> {
        let grpc = self.grpc_status.map(|Status(status)| status);
        let breaks = [
            (BreakKind::Reset, self.reset),
            (BreakKind::Close, self.close),
            (BreakKind::Stall, self.stall),
        ];
        let breaks: Vec<_> =
            breaks.into_iter().filter_map(|(kind, at)| at.map(|at| (kind, at))).collect();
        let actions =
            breaks.len() + usize::from(self.status.is_some()) + usize::from(grpc.is_some());
        if actions > 1 {
            return Err(
                "expected at most one of \"status\", \"grpc_status\", \"reset\", \"close\", \"stall\""
                    .to_owned(),
            );
        }
        let mut fault = match (self.status, grpc, breaks.into_iter().next()) {
            (Some(status), ..) => Fault::status(status),
            (_, Some(status), _) => Fault::grpc_status(status),
            (.., Some((kind, point))) => broken(kind, &point)?,
            _ => Fault::pass(),
        };
        if let Some(Fields(headers)) = self.headers {
            fault = with_headers(fault, &headers);
        }
        if let Some(body) = self.body {
            fault = fault.body(body);
        }
        if let Some(message) = self.message {
            if grpc.is_none() {
                return Err("\"message\" belongs to \"grpc_status\"; use \"body\"".to_owned());
            }
            fault = fault.message(&message);
        }
        if self.after_upstream.is_some() {
            fault = fault.after_upstream();
        }
        let fault = fault.delay(self.delay.0).delay_response(self.delay_response.0);
        fault.check().map_err(|invalid| invalid.to_string())?;
        Ok(fault)
    }
}

fn with_headers(mut fault: Fault, headers: &HeaderMap) -> Fault {
    for (name, value) in headers {
        let text: String = value.as_bytes().iter().copied().map(char::from).collect();
        fault = fault.header(name.as_str(), &text);
    }
    fault
}

fn broken(kind: BreakKind, point: &JsonPoint) -> Result<Fault, String> {
    let fault = match kind {
        BreakKind::Reset => Fault::reset(),
        BreakKind::Close => Fault::close(),
        BreakKind::Stall => Fault::stall(),
    };
    match (point.request_bytes, point.response_bytes) {
        (None, None) => Ok(fault),
        (Some(bytes), None) => Ok(fault.at_request_bytes(bytes)),
        (None, Some(bytes)) => Ok(fault.at_response_bytes(bytes)),
        _ => Err("expected one of \"request_bytes\", \"response_bytes\"".to_owned()),
    }
}

/// The JSON format of a fault: see [the module](crate::proxy#faults-of-requests).
impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fault, D::Error> {
        let fault: JsonFault = object(from, r#"a fault: an object like {"status": 503}"#)?;
        fault.fault().map_err(D::Error::custom)
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JsonConnectionFault {
    delay: Ms,
    latency: Ms,
    reset: Option<JsonConnectionPoint>,
    close: Option<JsonConnectionPoint>,
    stall: Option<JsonConnectionPoint>,
}

/// Where a connection fails.
#[derive(Default, serde::Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = r#"an object: {} or {"up_bytes": 100} or {"down_bytes": 100}"#
)]
struct JsonConnectionPoint {
    up_bytes: Option<u64>,
    down_bytes: Option<u64>,
}

impl JsonConnectionFault {
    fn fault(self) -> Result<ConnectionFault, String> {
        let breaks = [
            (ConnectionFault::reset(), self.reset),
            (ConnectionFault::close(), self.close),
            (ConnectionFault::stall(), self.stall),
        ];
        let mut breaks = breaks.into_iter().filter_map(|(fault, at)| at.map(|at| (fault, at)));
        let fault = match (breaks.next(), breaks.next()) {
            (None, _) => ConnectionFault::pass(),
            (Some((fault, point)), None) => match (point.up_bytes, point.down_bytes) {
                (None, None) => fault,
                (Some(bytes), None) => fault.at_up_bytes(bytes),
                (None, Some(bytes)) => fault.at_down_bytes(bytes),
                _ => return Err("expected one of \"up_bytes\", \"down_bytes\"".to_owned()),
            },
            _ => {
                let text = "expected at most one of \"reset\", \"close\", \"stall\"";
                return Err(text.to_owned());
            }
        };
        Ok(fault.delay(self.delay.0).latency(self.latency.0))
    }
}

/// The JSON format of a connection's fault: see [the module](crate::proxy#faults-of-connections).
impl<'de> Deserialize<'de> for ConnectionFault {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ConnectionFault, D::Error> {
        let expected = r#"a fault of a connection: an object like {"reset": {}}"#;
        let fault: JsonConnectionFault = object(from, expected)?;
        fault.fault().map_err(D::Error::custom)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRule {
    fault: Fault,
    method: Option<String>,
    path: Option<String>,
    #[serde(default)]
    headers: Fields,
    #[serde(default)]
    skip: u64,
    times: Option<u64>,
    rate: Option<f64>,
}

/// The JSON format of a rule: see [the module](crate::proxy#rules).
impl<'de> Deserialize<'de> for ProxyRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ProxyRule, D::Error> {
        let expected = r#"a rule: an object like {"rate": 0.1, "fault": {"status": 503}}"#;
        let json: JsonRule = object(from, expected)?;
        let mut rule = ProxyRule::new(json.fault).all_headers(&json.headers.0);
        if let Some(method) = json.method {
            rule = rule.method(&method);
        }
        if let Some(path) = json.path {
            rule = rule.path(&path);
        }
        rule.frequency = frequency(json.skip, json.times, json.rate);
        rule.check().map_err(D::Error::custom)?;
        Ok(rule)
    }
}

fn frequency(skip: u64, times: Option<u64>, rate: Option<f64>) -> Frequency {
    Frequency { skip, times, rate: rate.unwrap_or(Frequency::default().rate) }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonConnectionRule {
    fault: ConnectionFault,
    #[serde(default)]
    skip: u64,
    times: Option<u64>,
    rate: Option<f64>,
}

/// The JSON format of a connection's rule: see [the module](crate::proxy#rules).
impl<'de> Deserialize<'de> for ConnectionRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ConnectionRule, D::Error> {
        let expected = r#"a rule: an object like {"rate": 0.1, "fault": {"reset": {}}}"#;
        let json: JsonConnectionRule = object(from, expected)?;
        let mut rule = ConnectionRule::new(json.fault);
        rule.frequency = frequency(json.skip, json.times, json.rate);
        rule.check().map_err(D::Error::custom)?;
        Ok(rule)
    }
}
