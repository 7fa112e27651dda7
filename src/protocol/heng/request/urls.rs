//! Which addresses the controller accepts, by the rules of its validation library.
//!
//! Accepted is not deliverable: the controller takes addresses that it can never reach.

use std::net::{Ipv4Addr, Ipv6Addr};

/// This many UTF-16 units or more are refused.
const URL_UNITS_MAX: usize = 2_083;

/// Longer bases leave no room for two callback URLs in a request of the largest size.
pub const CALLBACK_BASE_BYTES_MAX: usize = 256;

/// A label of a host name may be this long.
const LABEL_UNITS_MAX: usize = 63;

/// Does a member that has to be an address pass the controller's validation?
pub fn is_accepted_url(url: &str) -> bool {
    let is_refused_outright = url.is_empty()
        || url.contains(|character| is_javascript_space(character) || character == '<' || character == '>')
        || url.starts_with("mailto:")
        || url.encode_utf16().count() >= URL_UNITS_MAX;
    if is_refused_outright {
        return false;
    }
    let Some(authority) = authority(url) else {
        return false;
    };
    let Some(host_and_port) = without_user(authority) else {
        return false;
    };
    is_accepted_host_and_port(host_and_port)
}

/// What JavaScript's `\s` matches.
fn is_javascript_space(character: char) -> bool {
    (character.is_whitespace() && character != '\u{85}') || character == '\u{feff}'
}

/// User info, host and port; none when the scheme is not one the controller takes.
fn authority(url: &str) -> Option<&str> {
    let end = url.find(['#', '?']).unwrap_or(url.len());
    let url = &url[..end];
    let rest = match url.split_once("://") {
        Some((scheme, rest)) => ["http", "https", "ftp"].contains(&scheme.to_lowercase().as_str()).then_some(rest)?,
        None if url.starts_with("//") => return None,
        None => url,
    };
    Some(rest.split_once('/').map_or(rest, |(authority, _)| authority))
}

fn without_user(authority: &str) -> Option<&str> {
    let Some((user_info, host_and_port)) = authority.split_once('@') else {
        return Some(authority);
    };
    let is_refused = user_info.is_empty() || user_info == ":" || user_info.matches(':').count() > 1;
    (!is_refused).then_some(host_and_port)
}

fn is_accepted_host_and_port(text: &str) -> bool {
    if let Some((address, port)) = bracketed(text) {
        return is_accepted_port(port) && is_ipv6(address);
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    is_accepted_port(port) && (host.parse::<Ipv4Addr>().is_ok() || is_accepted_name(host))
}

/// `[address]` or `[address]:digits`; nothing else counts as bracketed.
fn bracketed(text: &str) -> Option<(&str, Option<&str>)> {
    let (address, rest) = text.strip_prefix('[')?.split_once(']')?;
    if address.is_empty() {
        return None;
    }
    if rest.is_empty() {
        return Some((address, None));
    }
    let port = rest.strip_prefix(':')?;
    let is_digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then_some((address, Some(port)))
}

/// A missing or empty port passes.
fn is_accepted_port(port: Option<&str>) -> bool {
    let Some(port) = port.filter(|port| !port.is_empty()) else {
        return true;
    };
    let significant = port.trim_start_matches('0');
    port.bytes().all(|byte| byte.is_ascii_digit()) && significant.parse::<u16>().is_ok()
}

fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let is_zone_character = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let is_sound_zone = zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(is_zone_character));
    is_sound_zone && address.parse::<Ipv6Addr>().is_ok()
}

/// At least two labels, the last of two or more letters.
fn is_accepted_name(host: &str) -> bool {
    let Some((_, top)) = host.rsplit_once('.') else {
        return false;
    };
    is_accepted_top_level(top) && host.split('.').all(is_accepted_label)
}

fn is_accepted_top_level(top: &str) -> bool {
    let is_letter = |character: char| {
        character.is_ascii_alphabetic()
            || matches!(character,
                '\u{a1}'..='\u{a8}' | '\u{aa}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{ffef}')
    };
    let is_word = top.chars().count() >= 2 && top.chars().all(is_letter);
    let encoded = top.get(..2).filter(|start| start.eq_ignore_ascii_case("xn")).map(|_| &top[2..]);
    let is_encoded =
        |rest: &str| rest.len() >= 2 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_word || encoded.is_some_and(is_encoded)
}

fn is_accepted_label(label: &str) -> bool {
    let is_accepted = |character: char| {
        let is_full_width = matches!(character, '\u{ff01}'..='\u{ff5e}');
        character.is_ascii_alphanumeric() || character == '-' || (character >= '\u{a1}' && !is_full_width)
    };
    !label.is_empty()
        && label.encode_utf16().count() <= LABEL_UNITS_MAX
        && label.chars().all(is_accepted)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Why callbacks to this base would be refused by the controller, or accepted and never delivered; with the fix.
///
/// `base` is the address below which the callback paths are served, for example `http://relay.judge.svc:8080`.
pub fn callback_host_problem(base: &str) -> Option<String> {
    if base.len() > CALLBACK_BASE_BYTES_MAX {
        return Some(format!("is longer than {CALLBACK_BASE_BYTES_MAX} bytes; use a shorter address"));
    }
    if !base.starts_with("http://") && !base.starts_with("https://") {
        return Some("does not begin with http:// or https://; write the whole address".to_owned());
    }
    if base.contains(['?', '#']) {
        return Some("has a query or a fragment; end it with the path".to_owned());
    }
    if !base.is_ascii() {
        return Some("has characters outside ASCII, which the controller cannot send; percent-encode them".to_owned());
    }
    if base.contains(|character: char| character.is_ascii_control()) {
        return Some("has control characters; remove them".to_owned());
    }
    (!is_accepted_url(base)).then(|| refusal(base))
}

fn refusal(base: &str) -> String {
    let authority = authority(base).unwrap_or_default();
    let host_and_port = without_user(authority).unwrap_or_default();
    let host = host_and_port.split_once(':').map_or(host_and_port, |(host, _)| host);
    let reason = if base.contains(|character| is_javascript_space(character) || character == '<' || character == '>') {
        "has spaces, < or > in it; remove or percent-encode them"
    } else if host.is_empty() || host_and_port.starts_with('[') {
        "has no host that the controller accepts; write a name or an IP address"
    } else if host.contains('_') {
        "has an underscore in its host name, which the controller refuses; use a name without"
    } else if !host.contains('.') {
        "has a host name of a single label (like localhost or a bare service name), which the controller refuses; use \
         an IP address or a name with a dot, in Kubernetes service.namespace.svc.cluster.local"
    } else if is_accepted_name(host) || host.parse::<Ipv4Addr>().is_ok() {
        "has a port or user info that the controller refuses; the port must lie between 1 and 65535"
    } else {
        "has a host name that the controller refuses; each label must be of letters, digits and hyphens, and the last \
         of at least two letters"
    };
    reason.to_owned()
}
