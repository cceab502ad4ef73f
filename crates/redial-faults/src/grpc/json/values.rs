//! Value types of the JSON format.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde::de::{Deserialize, Deserializer, Error};

use super::Ordered;
use crate::grpc::action::{Close, LastStream, OnConnect, Payload, WaitFor};
use crate::grpc::status_number::StatusNumber;

/// The largest message that a script can generate.
const ZEROS_MAX: usize = 64 * 1024 * 1024;

/// A number of milliseconds, with fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ms(pub(crate) Duration);

impl<'de> Deserialize<'de> for Ms {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ms, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "expected a number of milliseconds")]
        enum Number {
            Number(f64),
        }
        let Number::Number(ms) = Number::deserialize(from)?;
        let duration = Duration::try_from_secs_f64(ms / 1000.0);
        duration.map(Ms).map_err(|_| {
            D::Error::custom(format!("expected milliseconds that are not negative, found {ms}"))
        })
    }
}

/// One string or a list of strings.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
pub(super) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    pub(super) fn into_vec(self) -> Vec<String> {
        match self {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        }
    }
}

/// The bytes of a header's value: each character up to U+00FF is one byte.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue, String> {
    let bytes: Option<Vec<u8>> = text.chars().map(|it| u8::try_from(it).ok()).collect();
    let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
    value.ok_or_else(|| {
        format!("{text:?} cannot stand in a header: no control characters, nothing above U+00FF")
    })
}

/// Header fields.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) HeaderMap);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
        let mut fields = HeaderMap::new();
        for (name, texts) in Ordered::<Texts>::deserialize(from)?.0 {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| D::Error::custom(format!("{name:?} is no name of a header")))?;
            for text in texts.into_vec() {
                fields.append(name.clone(), header_value(&text).map_err(D::Error::custom)?);
            }
        }
        Ok(Fields(fields))
    }
}

/// A name or a number.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a name or a number")]
enum Named {
    Number(i64),
    Name(String),
}

/// A status by name or number.
pub(crate) struct Status(pub(crate) StatusNumber);

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Status, D::Error> {
        match Named::deserialize(from)? {
            Named::Number(number) => Ok(Status(StatusNumber(number))),
            Named::Name(name) => match StatusNumber::from_name(&name) {
                Some(status) => Ok(Status(status)),
                None => Err(D::Error::custom(format!(
                    "unknown status {name:?}; expected a number or one of {}",
                    status_names()
                ))),
            },
        }
    }
}

fn status_names() -> String {
    let names: Vec<_> = StatusNumber::named().map(|code| code.to_string()).collect();
    names.join(", ")
}

/// A status, or `"hang"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Status(StatusNumber),
    Hang,
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Outcome, D::Error> {
        match Named::deserialize(from)? {
            Named::Number(number) => Ok(Outcome::Status(StatusNumber(number))),
            Named::Name(name) if name == "hang" => Ok(Outcome::Hang),
            Named::Name(name) => {
                StatusNumber::from_name(&name).map(Outcome::Status).ok_or_else(|| {
                    let names = status_names();
                    D::Error::custom(format!(
                        "unknown status {name:?}; expected \"hang\", a number or one of {names}"
                    ))
                })
            }
        }
    }
}

/// The error codes of HTTP/2 by number (RFC 9113, section 7).
const REASONS: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// The name of an error code of HTTP/2, or its number.
pub(super) fn reason_text(reason: Reason) -> String {
    let number = u32::from(reason);
    match REASONS.get(number as usize) {
        Some(name) => (*name).to_owned(),
        None => number.to_string(),
    }
}

pub(super) fn reason<'de, D: Deserializer<'de>>(from: D) -> Result<Reason, D::Error> {
    match Named::deserialize(from)? {
        Named::Number(number) => u32::try_from(number)
            .map(Reason::from)
            .map_err(|_| D::Error::custom("an error code of HTTP/2 has 32 bits")),
        Named::Name(name) => {
            let number = (0..).zip(REASONS).find(|(_, known)| *known == name);
            number.map(|(number, _)| Reason::from(number)).ok_or_else(|| {
                let names = REASONS.join(", ");
                D::Error::custom(format!(
                    "unknown error code {name:?}; expected a number or one of {names}"
                ))
            })
        }
    }
}

pub(super) fn some_reason<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Reason>, D::Error> {
    reason(from).map(Some)
}

pub(super) fn status<'de, D: Deserializer<'de>>(from: D) -> Result<StatusCode, D::Error> {
    let number = u16::deserialize(from)?;
    StatusCode::from_u16(number)
        .map_err(|_| D::Error::custom(format!("{number} is no status of HTTP: 200 to 999")))
}

/// One of a closed list of names.
fn one_of<T: Copy, E: Error>(what: &str, name: &str, list: &[(&str, T)]) -> Result<T, E> {
    let found = list.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = list.iter().map(|(known, _)| format!("{known:?}")).collect();
        E::custom(format!("unknown {what} {name:?}; expected one of {}", names.join(", ")))
    })
}

pub(super) fn on_connect<'de, D: Deserializer<'de>>(from: D) -> Result<OnConnect, D::Error> {
    one_of("door", &String::deserialize(from)?, &ON_CONNECT_ACTIONS)
}

pub(super) fn some_on_connect<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<OnConnect>, D::Error> {
    on_connect(from).map(Some)
}

const ON_CONNECT_ACTIONS: [(&str, OnConnect); 5] = [
    ("open", OnConnect::Serve),
    ("refused", OnConnect::Refuse),
    ("closed-at-once", OnConnect::CloseImmediately),
    ("closed-after-preface", OnConnect::CloseAfterPreface),
    ("silent", OnConnect::SendNothing),
];

pub(super) fn close<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Close>, D::Error> {
    let list = [("orderly", Close::Graceful), ("abrupt", Close::Abrupt)];
    one_of("way to close", &String::deserialize(from)?, &list).map(Some)
}

pub(super) fn last<'de, D: Deserializer<'de>>(from: D) -> Result<LastStream, D::Error> {
    match Named::deserialize(from)? {
        Named::Number(number) => u32::try_from(number)
            .ok()
            .filter(|id| *id < 1 << 31)
            .map(LastStream::Id)
            .ok_or_else(|| D::Error::custom("a stream id has 31 bits")),
        Named::Name(name) => {
            let list = [
                ("below", LastStream::Below),
                ("this", LastStream::This),
                ("above", LastStream::Above),
            ];
            one_of("last stream", &name, &list)
        }
    }
}

/// `"quiet"`, `{"messages": 2}`.
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum JsonOnce {
    Headers,
    Quiet,
    Request,
    Messages(u64),
}

pub(super) fn once<'de, D: Deserializer<'de>>(from: D) -> Result<WaitFor, D::Error> {
    Ok(match JsonOnce::deserialize(from)? {
        JsonOnce::Headers => WaitFor::Headers,
        JsonOnce::Quiet => WaitFor::Idle,
        JsonOnce::Request => WaitFor::Request,
        JsonOnce::Messages(least) => WaitFor::Messages(least),
    })
}

/// The content of a message or of raw DATA, in one of these notations.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default, expecting = r#"an object like {"text": "abc"}"#)]
pub(super) struct Content {
    /// The time, in lists of messages.
    pub(super) after: Option<Ms>,
    /// A text, as UTF-8.
    text: Option<String>,
    /// Hexadecimal, two digits for each byte.
    hex: Option<String>,
    /// This many zero bytes.
    bytes: Option<usize>,
    /// The next message of the request.
    echo: Option<True>,
    /// All remaining messages of the request.
    echo_rest: Option<True>,
}

impl Content {
    /// No bytes.
    pub(super) fn empty() -> Content {
        Content { bytes: Some(0), ..Content::default() }
    }

    pub(super) fn payload(self) -> Result<Payload, String> {
        let hex = self.hex.map(|digits| unhex(&digits).ok_or(UNHEX)).transpose()?;
        let zeros = self.bytes.map(zeros).transpose()?;
        let payloads = [
            self.text.map(Bytes::from).map(Payload::Bytes),
            hex.map(Payload::Bytes),
            zeros.map(Payload::Bytes),
            self.echo.map(|True| Payload::Echo),
            self.echo_rest.map(|True| Payload::EchoRest),
        ];
        let mut payloads = payloads.into_iter().flatten();
        match (payloads.next(), payloads.next()) {
            (Some(payload), None) => Ok(payload),
            _ => {
                Err("expected one of \"text\", \"hex\", \"bytes\", \"echo\", \"echo_rest\"".into())
            }
        }
    }

    /// The payload, where the time is given outside.
    pub(super) fn timeless(self) -> Result<Payload, String> {
        match self.after {
            None => self.payload(),
            Some(_) => Err("\"after\" belongs to the step".into()),
        }
    }

    /// Bytes that do not come from the request.
    pub(super) fn bytes(self) -> Result<Bytes, String> {
        match self.timeless()? {
            Payload::Bytes(bytes) => Ok(bytes),
            Payload::Echo | Payload::EchoRest => Err("an echo is a message, no data".into()),
        }
    }
}

/// `true`, and nothing else.
#[derive(serde::Deserialize)]
#[serde(try_from = "bool")]
pub(crate) struct True;

impl TryFrom<bool> for True {
    type Error = &'static str;

    fn try_from(it: bool) -> Result<True, &'static str> {
        if it { Ok(True) } else { Err("expected true, or no such field") }
    }
}

const UNHEX: &str = "hex: expected two digits for each byte";

/// This many zero bytes. All scripts share one buffer, so that a short file cannot allocate much
/// memory.
fn zeros(length: usize) -> Result<Bytes, String> {
    static ZEROS: OnceLock<Bytes> = OnceLock::new();
    if length > ZEROS_MAX {
        return Err(format!("bytes: at most {ZEROS_MAX} are made up"));
    }
    Ok(ZEROS.get_or_init(|| vec![0; ZEROS_MAX].into()).slice(..length))
}

fn unhex(text: &str) -> Option<Bytes> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect()
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()
}

fn digit(four_bits: u8) -> char {
    char::from_digit(u32::from(four_bits), 16).unwrap_or('0')
}
