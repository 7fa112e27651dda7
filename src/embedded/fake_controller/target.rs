//! A callback URL as Node.js takes it apart; URLs that can never be delivered are told from those that can.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Where a callback goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Name or address, without brackets, in lower case.
    pub(super) host: String,
    pub(super) port: u16,
    /// What the `Host` header says.
    pub(super) host_header: String,
    /// Path and query as sent.
    pub(super) path: String,
    /// The value of an `Authorization` header.
    pub(super) authorization: Option<String>,
}

/// Takes a URL apart; none when nothing can be sent to it. https is not spoken by this fake.
pub(super) fn parse(url: &str) -> Option<Target> {
    let scheme = url.get(..7)?;
    if !scheme.eq_ignore_ascii_case("http://") {
        return None;
    }
    let rest = url[7..].split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user_info, address) = match authority.rsplit_once('@') {
        Some((user_info, address)) => (Some(user_info), address),
        None => (None, authority),
    };
    let (host, port) = split_port(address)?;
    let host = host.to_ascii_lowercase();
    let host_header = if port == 80 { host.clone() } else { format!("{host}:{port}") };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let authorization = user_info.map(|user_info| {
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(user_info).collect();
        format!("Basic {}", STANDARD.encode(decoded))
    });
    Some(Target { host, port, host_header, path: path_as_sent(path)?, authorization })
}

fn split_port(address: &str) -> Option<(&str, u16)> {
    let after_brackets = address.rfind(']').map_or(0, |end| end + 1);
    match address[after_brackets..].rfind(':') {
        None => Some((address, 80)),
        Some(colon) => {
            let (host, port) = address.split_at(after_brackets + colon);
            let port = if port.len() == 1 { 80 } else { port[1..].parse().ok()? };
            (!host.is_empty()).then_some((host, port))
        }
    }
}

/// Node.js escapes a few characters by itself, and refuses to send what is not ASCII.
fn path_as_sent(path: &str) -> Option<String> {
    let mut sent = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') && !path.starts_with('\\') {
        sent.push('/');
    }
    let query = path.find('?').unwrap_or(path.len());
    for (at, character) in path.char_indices() {
        match character {
            '\\' if at < query => sent.push('/'),
            '{' | '}' | '|' | '\\' | '^' | '`' | '<' | '>' | '"' | ' ' | '\'' => {
                sent.push_str(&format!("%{:02X}", u32::from(character)));
            }
            '!'..='~' => sent.push(character),
            _ => return None,
        }
    }
    Some(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_url_is_sent_as_written() {
        let target = parse("http://127.0.0.1:28090/demo-0/finish?a=1&b=%2F+x#part").unwrap();
        assert_eq!(target.host, "127.0.0.1");
        assert_eq!(target.host_header, "127.0.0.1:28090");
        assert_eq!(target.path, "/demo-0/finish?a=1&b=%2F+x");
        assert_eq!(target.authorization, None);
    }

    #[test]
    fn user_info_becomes_a_basic_authorization_and_the_default_port_is_not_named() {
        let target = parse("HTTP://me:p%40ss@Judge.Local?x").unwrap();
        assert_eq!(target.host_header, "judge.local");
        assert_eq!(target.path, "/?x");
        assert_eq!(target.authorization.as_deref(), Some("Basic bWU6cEBzcw=="));
    }

    #[test]
    fn an_ipv6_host_loses_its_brackets_only_for_the_connection() {
        let target = parse("http://[::1]:81/x").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.host_header.as_str()), ("::1", 81, "[::1]:81"));
    }

    #[test]
    fn the_same_characters_are_escaped_as_in_the_recorded_traffic() {
        assert_eq!(parse("http://a.de/%E4%B8%AD%2f?x=|{}^").unwrap().path, "/%E4%B8%AD%2f?x=%7C%7B%7D%5E");
    }

    #[test]
    fn what_node_cannot_send_is_no_target() {
        for url in ["example.com/x", "ftp://example.com/x", "http://example.com/中", "https://example.com/x"] {
            assert_eq!(parse(url), None, "{url}");
        }
    }
}
