//! What a target names: a host or an address, a port, and perhaps whom to ask.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The port of a target that has none.
pub const PORT: u16 = 443;

/// The port of a name server.
const NAME_SERVER_PORT: u16 = 53;

/// A target that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
    /// The name server that the target says to ask.
    pub(super) name_server: Option<SocketAddr>,
}

/// What is to be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Address(IpAddr),
    Name(String),
}

impl Target {
    /// Reads `dns:///host:port`, `dns://authority/host:port`, `dns:host:port` or `host:port`.
    pub(super) fn parse(text: &str) -> Result<Target, String> {
        let dns = text.get(..4).filter(|scheme| scheme.eq_ignore_ascii_case("dns:"));
        let (authority, endpoint) = match dns.map(|_| &text[4..]) {
            // A host with this name, and a port.
            Some(rest) if rest.bytes().all(|byte| byte.is_ascii_digit()) => ("", text),
            Some(rest) => match rest.strip_prefix("//") {
                Some(rest) => rest.split_once('/').ok_or("expected a / after the name server")?,
                None => ("", rest),
            },
            None => match text.split_once("://") {
                Some((scheme, _)) => {
                    return Err(format!(
                        "expected host:port or dns:///host:port, found {scheme}://"
                    ));
                }
                None => ("", text),
            },
        };
        let name_server = match authority {
            "" => None,
            authority => match split(authority, NAME_SERVER_PORT)? {
                (Host::Address(ip), port) => Some(SocketAddr::new(ip, port)),
                (Host::Name(_), _) => return Err("a name server is given by its address".into()),
            },
        };
        let (host, port) = split(endpoint, PORT)?;
        Ok(Target { host, port, name_server })
    }
}

/// A host and its port.
fn split(text: &str, default: u16) -> Result<(Host, u16), String> {
    // An IPv6 address may stand without brackets if no port follows.
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok((Host::Address(address.into()), default));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or("expected a ] after the address")?;
            let address: Ipv6Addr =
                address.parse().map_err(|_| "expected an IPv6 address in brackets")?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or("expected a : after the ]")?),
            };
            (Host::Address(address.into()), port)
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            let host = match host.parse::<IpAddr>() {
                Ok(address) => Host::Address(address),
                Err(_) if host.is_empty() => return Err("expected a host".into()),
                Err(_) if host.contains(|it: char| it == '/' || it.is_whitespace()) => {
                    return Err("a host has no slash and no blank".into());
                }
                Err(_) => Host::Name(host.to_owned()),
            };
            (host, port)
        }
    };
    let port = match port {
        None => default,
        Some(port) => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|number| digits && *number != 0);
            number.ok_or("expected a port from 1 to 65535 after the host")?
        }
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that is right, as host, port and name server.
    fn read(text: &str) -> (String, u16, String) {
        let target = Target::parse(text).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        let host = match target.host {
            Host::Address(address) => format!("<{address}>"),
            Host::Name(name) => name,
        };
        (host, target.port, target.name_server.map(|it| it.to_string()).unwrap_or_default())
    }

    #[test]
    fn a_target_is_read_in_all_its_forms() {
        for (text, host, port, name_server) in [
            ("echo.example:50051", "echo.example", 50051, ""),
            ("echo.example", "echo.example", 443, ""),
            ("echo.example.:1", "echo.example.", 1, ""),
            ("localhost:65535", "localhost", 65535, ""),
            ("dns:///echo.example:50051", "echo.example", 50051, ""),
            ("DNS:///echo.example", "echo.example", 443, ""),
            ("dns:echo.example:80", "echo.example", 80, ""),
            ("dns:echo.example", "echo.example", 443, ""),
            ("dns:53", "dns", 53, ""),
            ("dns", "dns", 443, ""),
            ("dns://1.2.3.4/echo.example:80", "echo.example", 80, "1.2.3.4:53"),
            ("dns://1.2.3.4:5353/echo.example", "echo.example", 443, "1.2.3.4:5353"),
            ("dns://[::1]:5353/echo.example", "echo.example", 443, "[::1]:5353"),
            ("127.0.0.1:80", "<127.0.0.1>", 80, ""),
            ("127.0.0.1", "<127.0.0.1>", 443, ""),
            ("[::1]:80", "<::1>", 80, ""),
            ("[::1]", "<::1>", 443, ""),
            ("dns:///::1", "<::1>", 443, ""),
        ] {
            assert_eq!(read(text), (host.into(), port, name_server.into()), "{text}");
        }
    }

    #[test]
    fn a_target_that_is_none_says_what_was_expected() {
        for (text, expected) in [
            ("", "expected a host"),
            (":80", "expected a host"),
            ("dns:///", "expected a host"),
            ("dns://1.2.3.4", "expected a / after the name server"),
            ("dns://ns.example/echo", "a name server is given by its address"),
            ("dns://1.2.3.4:x/echo", "expected a port from 1 to 65535 after the host"),
            ("echo:", "expected a port from 1 to 65535 after the host"),
            ("echo:0", "expected a port from 1 to 65535 after the host"),
            ("echo:+80", "expected a port from 1 to 65535 after the host"),
            ("echo:65536", "expected a port from 1 to 65535 after the host"),
            ("echo:80:81", "expected a port from 1 to 65535 after the host"),
            ("[::1", "expected a ] after the address"),
            ("[::1]80", "expected a : after the ]"),
            ("[127.0.0.1]:80", "expected an IPv6 address in brackets"),
            ("echo/path", "a host has no slash and no blank"),
            ("my host", "a host has no slash and no blank"),
            ("http://echo:80", "expected host:port or dns:///host:port, found http://"),
            ("xds:///echo", "expected host:port or dns:///host:port, found xds://"),
        ] {
            assert_eq!(Target::parse(text), Err(expected.to_owned()), "{text}");
        }
    }
}
