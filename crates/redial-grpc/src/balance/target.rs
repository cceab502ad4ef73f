//! What a channel is to reach, as gRPC writes it ("gRPC Name Resolution").

use std::net::{IpAddr, SocketAddr};

use http::Uri;

use super::error::{BuildError, Wrong};

/// A target that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// What TLS and `:authority` are told.
    pub(crate) origin: Uri,
    pub(crate) place: Place,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    Listed(Vec<SocketAddr>),
    Named { host: Box<str>, port: u16 },
}

impl Target {
    pub(crate) fn parse(target: &str) -> Result<Target, BuildError> {
        read(target).map_err(|why| BuildError(Wrong::Target { target: target.to_owned(), why }))
    }
}

const LIST: &str = "write addresses with ports, as in ipv4:10.0.0.1:50051,10.0.0.2:50051";

fn read(target: &str) -> Result<Target, &'static str> {
    if target.starts_with("http://") || target.starts_with("https://") {
        let origin: Uri = target.parse().map_err(|_| "not a URI")?;
        if origin.path() != "/" || origin.query().is_some() {
            return Err("a target has no path");
        }
        let usual = if origin.scheme_str() == Some("https") { 443 } else { 80 };
        return named(origin, Some(usual));
    }
    for (scheme, is_v4) in [("ipv4:", true), ("ipv6:", false)] {
        if let Some(list) = target.strip_prefix(scheme) {
            let addresses: Result<Vec<SocketAddr>, _> = list.split(',').map(str::parse).collect();
            let addresses = addresses.map_err(|_| LIST)?;
            if addresses.iter().any(|it| it.is_ipv4() != is_v4) {
                return Err("an address is not of the family that it is said to be");
            }
            let first = addresses.first().ok_or(LIST)?;
            let origin = format!("http://{first}").parse().map_err(|_| LIST)?;
            return Ok(Target { origin, place: Place::Listed(addresses) });
        }
    }
    let name = match target.strip_prefix("dns:") {
        Some(rest) => match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix('/').ok_or(
                "a DNS server cannot be named here; write dns:///host:port, or give a resolver",
            )?,
            None => rest,
        },
        None if target.contains("://") => {
            return Err("the scheme is not known; use dns, ipv4, ipv6, http or https");
        }
        None => target,
    };
    if name.is_empty() || name.contains(['/', '@', '?', '#']) {
        return Err("write host:port");
    }
    let origin: Uri = format!("http://{name}").parse().map_err(|_| "write host:port")?;
    named(origin, None)
}

/// The host and port of an origin.
fn named(origin: Uri, usual: Option<u16>) -> Result<Target, &'static str> {
    let host = origin.host().filter(|host| !host.is_empty()).ok_or("it has no host")?;
    let port = origin.port_u16().or(usual).filter(|port| *port != 0);
    let port = port.ok_or("it has no port; write host:port")?;
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let place = match bare.parse::<IpAddr>() {
        Ok(ip) => Place::Listed(vec![SocketAddr::new(ip, port)]),
        Err(_) => Place::Named { host: host.into(), port },
    };
    Ok(Target { origin, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(target: &str) -> Place {
        read(target).unwrap_or_else(|why| panic!("{target}: {why}")).place
    }

    #[test]
    fn names_are_read_as_grpc_writes_them() {
        let orders = Place::Named { host: "orders.internal".into(), port: 50051 };
        for target in [
            "dns:///orders.internal:50051",
            "dns:orders.internal:50051",
            "orders.internal:50051",
            "http://orders.internal:50051",
            "https://orders.internal:50051",
        ] {
            assert_eq!(place(target), orders, "{target}");
        }
        let of = |port| Place::Named { host: "a".into(), port };
        assert_eq!((place("http://a"), place("https://a")), (of(80), of(443)));
        assert_eq!(read("dns:///a:1").unwrap().origin, Uri::from_static("http://a:1"));
        assert_eq!(read("https://a").unwrap().origin, Uri::from_static("https://a"));
    }

    #[test]
    fn addresses_are_listed() {
        let listed =
            |text: &str| Place::Listed(text.split(' ').map(|it| it.parse().unwrap()).collect());
        assert_eq!(place("ipv4:10.0.0.1:1,10.0.0.2:2"), listed("10.0.0.1:1 10.0.0.2:2"));
        assert_eq!(place("ipv6:[::1]:1,[::2]:2"), listed("[::1]:1 [::2]:2"));
        assert_eq!(place("127.0.0.1:1"), listed("127.0.0.1:1"));
        assert_eq!(place("http://[::1]:1"), listed("[::1]:1"));
    }

    #[test]
    fn what_is_no_target_is_refused_with_a_reason() {
        for (target, why) in [
            ("", "write host:port"),
            ("a", "no port"),
            ("a:0", "no port"),
            ("dns:///a", "no port"),
            ("a:99999", "host:port"),
            ("dns://8.8.8.8/a:1", "DNS server"),
            ("xds:///a:1", "scheme"),
            ("unix:///a", "scheme"),
            ("http://a:1/path", "path"),
            ("a:1/path", "host:port"),
            ("user@a:1", "host:port"),
            ("ipv4:10.0.0.1", "with ports"),
            ("ipv4:", "with ports"),
            ("ipv4:[::1]:1", "family"),
            ("http://", ""),
        ] {
            let wrong = Target::parse(target).expect_err(target).to_string();
            assert!(wrong.contains(why), "{target}: {wrong}");
        }
    }
}
