//! The controller's half: what it computes from a request as it arrived.
//!
//! It computes; comparing signatures, clocks, nonces and roles is for whoever plays the controller.

use std::borrow::Cow;
use std::fmt;

use super::super::json::{self, Object, Value, stringify};
use super::{ACCESS_KEY, CONTENT_TYPE, NONCE, Parts, TIMESTAMP, query, sorted_pairs};

/// The largest body, decompressed, that the controller reads.
pub const BODY_BYTES_MAX: usize = 102_400;

/// A request as the controller sees it.
#[derive(Clone, Debug)]
pub struct Received {
    /// The text whose HMAC must equal the request's signature.
    pub canonical: String,
    /// The body as it was parsed.
    pub body: Value,
}

/// Why the body was refused, before anything else is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyRefusal {
    /// Not JSON, or neither an object nor a list.
    Malformed(String),
    /// More than [`BODY_BYTES_MAX`].
    TooLarge,
    /// A charset the controller does not read.
    Charset(String),
}

impl BodyRefusal {
    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            BodyRefusal::Malformed(_) => 400,
            BodyRefusal::TooLarge => 413,
            BodyRefusal::Charset(_) => 415,
        }
    }
}

impl fmt::Display for BodyRefusal {
    /// The message of the answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyRefusal::Malformed(reason) => f.write_str(reason),
            BodyRefusal::TooLarge => f.write_str("request entity too large"),
            BodyRefusal::Charset(charset) => write!(f, "unsupported charset \"{}\"", charset.to_uppercase()),
        }
    }
}

/// What the controller computes for a request. Header names may be in any case; `body` is already decompressed.
pub fn received_canonical(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Received, BodyRefusal> {
    let header =
        |name: &str| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| *value);
    let body = parsed_body(header(CONTENT_TYPE), body)?;
    let (path, query_text) = split_target(target);
    let parameters = query::parse(query_text, query::QUERY);
    let pairs =
        parameters.iter().map(|(key, value)| (Cow::from(key.as_str()), Cow::from(value.signed_text()))).collect();
    let parts = Parts {
        method,
        path,
        query: &sorted_pairs(pairs),
        content_type: header(CONTENT_TYPE),
        access_key: header(ACCESS_KEY),
        nonce: header(NONCE),
        timestamp: header(TIMESTAMP),
        hashed_body: &stringify(&body),
    };
    Ok(Received { canonical: parts.canonical(), body })
}

/// Path and query of a request target. Of an absolute one, only its path counts.
fn split_target(target: &str) -> (&str, &str) {
    let target = target.split_once('#').map_or(target, |(before, _)| before);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path.split_once("://") {
        Some((_, rest)) if !path.starts_with('/') => (rest.find('/').map_or("/", |slash| &rest[slash..]), query),
        _ => (path, query),
    }
}

fn parsed_body(content_type: &str, body: &[u8]) -> Result<Value, BodyRefusal> {
    let (media_type, charset) = media_type_and_charset(content_type);
    let is_form = media_type == "application/x-www-form-urlencoded";
    if body.is_empty() || (media_type != "application/json" && !is_form) {
        return Ok(Value::Object(Object::default()));
    }
    if charset != "utf-8" {
        return Err(BodyRefusal::Charset(charset));
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(BodyRefusal::TooLarge);
    }
    if is_form {
        return Ok(query::form_value(&String::from_utf8_lossy(body)));
    }
    match json::parse(body) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(value),
        Ok(_) => Err(BodyRefusal::Malformed("Unexpected token in JSON: an object or a list was expected".to_owned())),
        Err(error) => Err(BodyRefusal::Malformed(error.reason)),
    }
}

/// Both in lower case; the charset is UTF-8 unless it is named.
fn media_type_and_charset(content_type: &str) -> (String, String) {
    let mut parts = content_type.split(';');
    let media_type = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    (media_type, charset.unwrap_or_else(|| "utf-8".to_owned()))
}
