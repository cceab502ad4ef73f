//! Parses targets in the syntax of gRPC ("gRPC Name Resolution").
//!
//! Rule: the host and the port have the same syntax in all schemes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::Uri;

/// The default port of a target, as in gRPC; 80 for `http://`.
pub const PORT_DEFAULT: u16 = 443;

const PORT_HTTP: u16 = 80;
const PORT_NAME_SERVER: u16 = 53;

/// A parsed target.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The name for TLS and `:authority`.
    pub origin: Uri,
    pub location: Location,
    /// The name server to query, if the target names one.
    pub name_server: Option<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Location {
    Addresses(Vec<SocketAddr>),
    Name { host: Box<str>, port: u16 },
}

impl Target {
    /// # Errors
    /// The problem, and what to write instead.
    pub fn parse(text: &str) -> Result<Target, &'static str> {
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        let scheme = scheme.to_ascii_lowercase();
        match (&*scheme, rest.strip_prefix("//")) {
            ("http", Some(rest)) => single_host("http", without_path(rest)?, PORT_HTTP),
            ("https", Some(rest)) => single_host("https", without_path(rest)?, PORT_DEFAULT),
            ("ipv4", _) => address_list(rest, IpAddr::is_ipv4),
            ("ipv6", _) => address_list(rest, IpAddr::is_ipv6),
            // `dns:53` is a host called `dns` with a port.
            ("dns", _) if rest.bytes().all(|byte| byte.is_ascii_digit()) => {
                single_host("http", text, PORT_DEFAULT)
            }
            ("dns", None) => single_host("http", rest, PORT_DEFAULT),
            ("dns", Some(rest)) => {
                let (server, rest) = rest.split_once('/').ok_or(NO_SLASH)?;
                let name_server = name_server(server)?;
                Ok(Target { name_server, ..single_host("http", rest, PORT_DEFAULT)? })
            }
            (_, Some(_)) => Err(SCHEME),
            // Other schemes of gRPC. With a port number it is a host of that name.
            ("unix" | "unix-abstract" | "vsock" | "xds", None) if rest.parse::<u16>().is_err() => {
                Err(SCHEME)
            }
            (_, None) if text.contains(',') => Err(LIST),
            (_, None) => single_host("http", text, PORT_DEFAULT),
        }
    }
}

const SCHEME: &str = "the scheme is not known; use dns, ipv4, ipv6, http or https";
const NO_SLASH: &str = "write dns:///host:port, or dns://1.2.3.4/host:port to ask that name server";
const LIST: &str = "write addresses, as in ipv4:10.0.0.1:50051,10.0.0.2:50051";

fn without_path(rest: &str) -> Result<&str, &'static str> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if matches!(path, "" | "/") { Ok(authority) } else { Err("a target has no path") }
}

fn name_server(text: &str) -> Result<Option<SocketAddr>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    match Host::split(text)? {
        (Host::Address(ip), port) => {
            Ok(Some(SocketAddr::new(ip, port.unwrap_or(PORT_NAME_SERVER))))
        }
        (Host::Name(_), _) => Err("a name server must be an IP address"),
    }
}

/// One host with an optional port.
fn single_host(scheme: &str, text: &str, default_port: u16) -> Result<Target, &'static str> {
    let (host, port) = Host::split(text)?;
    let host_text = match &host {
        Host::Address(IpAddr::V6(ip)) => format!("[{ip}]"),
        Host::Address(ip) => ip.to_string(),
        Host::Name(name) => (*name).to_owned(),
    };
    let port_text = port.map(|port| format!(":{port}")).unwrap_or_default();
    let origin = format!("{scheme}://{host_text}{port_text}").parse();
    let origin: Uri = origin
        .map_err(|_| "the host is not valid; write an international name in its xn-- form")?;
    let port = port.unwrap_or(default_port);
    let location = match host {
        Host::Address(ip) => Location::Addresses(vec![SocketAddr::new(ip, port)]),
        Host::Name(name) => Location::Name { host: name.into(), port },
    };
    Ok(Target { origin, location, name_server: None })
}

/// A list of addresses of one family.
fn address_list(text: &str, is_family: impl Fn(&IpAddr) -> bool) -> Result<Target, &'static str> {
    let mut addresses = Vec::new();
    for text in text.split(',') {
        let (Host::Address(ip), port) = Host::split(text).map_err(|_| LIST)? else {
            return Err(LIST);
        };
        if !is_family(&ip) {
            return Err("the address family does not match the scheme; use ipv4: or ipv6:");
        }
        addresses.push(SocketAddr::new(ip, port.unwrap_or(PORT_DEFAULT)));
    }
    let first = addresses.first().ok_or(LIST)?;
    let origin = format!("http://{first}").parse().map_err(|_| LIST)?;
    Ok(Target { origin, location: Location::Addresses(addresses), name_server: None })
}

enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

impl Host<'_> {
    /// Splits a host from its port, if it has one.
    fn split(text: &str) -> Result<(Host<'_>, Option<u16>), &'static str> {
        // An IPv6 address needs no brackets if no port follows.
        if let Ok(ip) = text.parse::<Ipv6Addr>() {
            return Ok((Host::Address(ip.into()), None));
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (ip, after) = rest.split_once(']').ok_or("expected a ] after the address")?;
                let ip: Ipv6Addr =
                    ip.parse().map_err(|_| "expected an IPv6 address in brackets")?;
                let port = match after {
                    "" => None,
                    after => Some(after.strip_prefix(':').ok_or("expected a : after the ]")?),
                };
                (Host::Address(ip.into()), port)
            }
            None => {
                let (host, port) = match text.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (text, None),
                };
                if host.is_empty() {
                    return Err("it has no host; write host:port");
                }
                if host.contains(|it: char| "/@?#".contains(it) || it.is_whitespace()) {
                    return Err("a host must not contain / @ ? # or a space; write host:port");
                }
                let ip = host.parse().map(Host::Address);
                (ip.unwrap_or(Host::Name(host)), port)
            }
        };
        let port = match port {
            None => None,
            Some(text) => {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let port = text.parse().ok().filter(|port| digits && *port != 0);
                Some(port.ok_or("expected a port from 1 to 65535 after the host")?)
            }
        };
        Ok((host, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The origin, the location and the name server of a valid target, as text.
    fn read(text: &str) -> (String, String, String) {
        let target = Target::parse(text).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        let location = match target.location {
            Location::Addresses(addresses) => format!("{addresses:?}"),
            Location::Name { host, port } => format!("{host} {port}"),
        };
        let origin = target.origin.to_string();
        let origin = origin.strip_suffix('/').unwrap_or(&origin).to_owned();
        (origin, location, target.name_server.map(|it| it.to_string()).unwrap_or_default())
    }

    #[test]
    fn target_accepts_every_documented_form() {
        for (text, origin, location, name_server) in [
            ("orders.internal:50051", "http://orders.internal:50051", "orders.internal 50051", ""),
            ("orders.internal", "http://orders.internal", "orders.internal 443", ""),
            ("orders.internal.:1", "http://orders.internal.:1", "orders.internal. 1", ""),
            ("localhost:65535", "http://localhost:65535", "localhost 65535", ""),
            ("dns:///a:1", "http://a:1", "a 1", ""),
            ("DNS:///a", "http://a", "a 443", ""),
            ("dns:a:80", "http://a:80", "a 80", ""),
            ("dns:a", "http://a", "a 443", ""),
            ("dns:53", "http://dns:53", "dns 53", ""),
            ("dns", "http://dns", "dns 443", ""),
            ("http:1", "http://http:1", "http 1", ""),
            ("dns://1.2.3.4/a:80", "http://a:80", "a 80", "1.2.3.4:53"),
            ("dns://1.2.3.4:5353/a", "http://a", "a 443", "1.2.3.4:5353"),
            ("dns://[::1]:5353/a", "http://a", "a 443", "[::1]:5353"),
            ("dns://::1/a", "http://a", "a 443", "[::1]:53"),
            ("http://a:50051", "http://a:50051", "a 50051", ""),
            ("http://a", "http://a", "a 80", ""),
            ("https://a", "https://a", "a 443", ""),
            ("HTTPS://a:1/", "https://a:1", "a 1", ""),
            ("http://[::1]:1", "http://[::1]:1", "[[::1]:1]", ""),
            ("127.0.0.1:80", "http://127.0.0.1:80", "[127.0.0.1:80]", ""),
            ("127.0.0.1", "http://127.0.0.1", "[127.0.0.1:443]", ""),
            ("[::1]:80", "http://[::1]:80", "[[::1]:80]", ""),
            ("[::1]", "http://[::1]", "[[::1]:443]", ""),
            ("dns:///::1", "http://[::1]", "[[::1]:443]", ""),
            ("::1", "http://[::1]", "[[::1]:443]", ""),
            ("ipv4:10.0.0.1:1,10.0.0.2", "http://10.0.0.1:1", "[10.0.0.1:1, 10.0.0.2:443]", ""),
            ("ipv6:[::1]:1,::2", "http://[::1]:1", "[[::1]:1, [::2]:443]", ""),
        ] {
            assert_eq!(read(text), (origin.into(), location.into(), name_server.into()), "{text}");
        }
    }

    #[test]
    fn target_that_is_invalid_is_rejected_with_advice() {
        const PORT: &str = "expected a port from 1 to 65535 after the host";
        const HOST: &str = "it has no host; write host:port";
        const CHARACTERS: &str = "a host must not contain / @ ? # or a space; write host:port";
        const XN: &str = "the host is not valid; write an international name in its xn-- form";
        for (text, expected) in [
            ("", HOST),
            ("unix:/tmp/socket", SCHEME),
            ("vsock:2:50051", SCHEME),
            ("a:1,b:2", LIST),
            (":80", HOST),
            ("dns:///", HOST),
            ("http://", HOST),
            ("dns:", PORT),
            ("a:", PORT),
            ("a:0", PORT),
            ("a:+80", PORT),
            ("a:65536", PORT),
            ("a:80:81", PORT),
            ("https://a:0", PORT),
            ("dns://1.2.3.4:x/a", PORT),
            ("dns://1.2.3.4", NO_SLASH),
            ("dns://ns.example/a", "a name server must be an IP address"),
            ("[::1", "expected a ] after the address"),
            ("[::1]80", "expected a : after the ]"),
            ("[127.0.0.1]:80", "expected an IPv6 address in brackets"),
            ("[fe80::1%3]:80", "expected an IPv6 address in brackets"),
            ("a/path", CHARACTERS),
            ("a:1/path", PORT),
            ("my host", CHARACTERS),
            ("user@a:1", CHARACTERS),
            ("http://user@a:1", CHARACTERS),
            ("http://a:1/path", "a target has no path"),
            ("http://a:1?query", "a target has no path"),
            ("bücher.example:1", XN),
            ("a<b:1", XN),
            ("xds:///a:1", SCHEME),
            ("unix:///a", SCHEME),
            ("ipv4:", LIST),
            ("ipv4:a:1", LIST),
            ("ipv4:10.0.0.1:1,", LIST),
            ("ipv4:10.0.0.1:x", LIST),
            ("ipv4:[::1]:1", "the address family does not match the scheme; use ipv4: or ipv6:"),
            ("ipv6:10.0.0.1:1", "the address family does not match the scheme; use ipv4: or ipv6:"),
        ] {
            assert_eq!(Target::parse(text), Err(expected), "{text}");
        }
    }
}
