//! The signature of a request: how we sign, and how the controller computes again what it compares with.
//!
//! No clock and no randomness: nonce and timestamp come in. Whether a timestamp is fresh or a nonce was seen is not
//! decided here.

mod query;
mod received;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

pub use received::{BODY_BYTES_MAX, BodyRefusal, Received, received_canonical};

pub(crate) type HmacSha256 = Hmac<Sha256>;

/// The content type that the controller's own client library signs and sends with JSON.
pub const CONTENT_TYPE_JSON: &str = "application/json;charset=utf-8";

/// The names of the headers, as they are signed.
pub const CONTENT_TYPE: &str = "content-type";
/// The access key: exact case, it is looked up.
pub const ACCESS_KEY: &str = "x-heng-accesskey";
/// Anything not used before; ours is digits only, because case is not signed.
pub const NONCE: &str = "x-heng-nonce";
/// Unix time in seconds.
pub const TIMESTAMP: &str = "x-heng-timestamp";
/// Lower-case hex.
pub const SIGNATURE: &str = "x-heng-signature";

/// What the controller hashes when there is no body.
pub const EMPTY_BODY: &str = "{}";

/// An access key and its secret, ready to sign. The secret cannot be read back.
#[derive(Clone)]
pub struct Credentials {
    access_key: String,
    mac: HmacSha256,
}

impl Credentials {
    /// The secret is used as the UTF-8 bytes of its text, even if it looks like hex.
    pub fn new(access_key: impl Into<String>, secret_key: &str) -> Credentials {
        Credentials { access_key: access_key.into(), mac: keyed_mac(secret_key.as_bytes()) }
    }

    /// The access key, which is not secret.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// Lower-case hex HMAC-SHA256 of a canonical text.
    pub fn signature(&self, canonical: &str) -> String {
        let mut mac = self.mac.clone();
        mac.update(canonical.as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// An HMAC with its key already mixed in, to be cloned for each message.
///
/// The key is fitted to the hash block as RFC 2104 says, so that there is no length that could be refused.
pub(crate) fn keyed_mac(secret: &[u8]) -> HmacSha256 {
    let hashed;
    let fitting = if secret.len() > 64 {
        hashed = Sha256::digest(secret);
        &hashed[..]
    } else {
        secret
    };
    let mut block = [0; 64];
    block[..fitting.len()].copy_from_slice(fitting);
    HmacSha256::new(&block.into())
}

/// The headers of a signed request.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedHeaders {
    /// `content-type`; empty when there is no body.
    pub content_type: &'static str,
    /// `x-heng-accesskey`.
    pub access_key: String,
    /// `x-heng-nonce`.
    pub nonce: String,
    /// `x-heng-timestamp`.
    pub timestamp: String,
    /// `x-heng-signature`.
    pub signature: String,
}

impl SignedHeaders {
    /// Names and values in the order in which the controller's own client library sends them.
    pub fn pairs(&self) -> [(&'static str, &str); 5] {
        [
            (CONTENT_TYPE, self.content_type),
            (ACCESS_KEY, &self.access_key),
            (NONCE, &self.nonce),
            (TIMESTAMP, &self.timestamp),
            (SIGNATURE, &self.signature),
        ]
    }
}

impl fmt::Debug for SignedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A signature is valid for a minute, so it does not belong into logs either.
        f.debug_struct("SignedHeaders")
            .field("access_key", &self.access_key)
            .field("nonce", &self.nonce)
            .field("timestamp", &self.timestamp)
            .finish_non_exhaustive()
    }
}

/// A request as its sender describes it.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    /// In any case.
    pub method: &'a str,
    /// The whole address, or only its path. It must hold neither query nor fragment: they would be signed as path.
    pub url: &'a str,
    /// The query's parameters, not encoded. A repeated key counts once, with its last value.
    pub parameters: &'a [(&'a str, &'a str)],
    /// The body that is sent, already as JavaScript would print it.
    pub body: Option<&'a str>,
    /// Not used before with this access key.
    pub nonce: &'a str,
    /// Unix time in seconds.
    pub timestamp: &'a str,
}

impl Unsigned<'_> {
    fn content_type(&self) -> &'static str {
        let has_data = self.body.is_some() && !self.method.eq_ignore_ascii_case("GET");
        if has_data { CONTENT_TYPE_JSON } else { "" }
    }

    /// The text that is signed.
    pub fn canonical(&self, access_key: &str) -> String {
        Parts {
            method: self.method,
            path: path_of(self.url),
            query: &sorted_pairs(last_of_each(self.parameters)),
            content_type: self.content_type(),
            access_key,
            nonce: self.nonce,
            timestamp: self.timestamp,
            hashed_body: self.body.filter(|body| !body.is_empty()).unwrap_or(EMPTY_BODY),
        }
        .canonical()
    }

    /// The headers to send with it.
    pub fn sign(&self, credentials: &Credentials) -> SignedHeaders {
        SignedHeaders {
            content_type: self.content_type(),
            access_key: credentials.access_key.clone(),
            nonce: self.nonce.to_owned(),
            timestamp: self.timestamp.to_owned(),
            signature: credentials.signature(&self.canonical(&credentials.access_key)),
        }
    }
}

/// Signs a JSON request without a query. `body_text` is sent as it is, so it must be canonical.
pub fn sign(
    credentials: &Credentials,
    method: &str,
    url: &str,
    body_text: &str,
    nonce: &str,
    timestamp: i64,
) -> SignedHeaders {
    let timestamp = timestamp.to_string();
    Unsigned { method, url, parameters: &[], body: Some(body_text), nonce, timestamp: &timestamp }.sign(credentials)
}

/// Everything that both sides put into the signed text.
struct Parts<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    content_type: &'a str,
    access_key: &'a str,
    nonce: &'a str,
    timestamp: &'a str,
    hashed_body: &'a str,
}

impl Parts<'_> {
    fn canonical(&self) -> String {
        let headers = [
            (CONTENT_TYPE, self.content_type),
            (ACCESS_KEY, self.access_key),
            (NONCE, self.nonce),
            (TIMESTAMP, self.timestamp),
        ];
        let headers: Vec<String> =
            headers.into_iter().map(|(name, value)| format!("{name}={}", lowered_and_encoded(value))).collect();
        let body_hash = hex::encode(Sha256::digest(self.hashed_body.as_bytes()));
        let method = self.method.to_uppercase();
        format!("{method}\n{}\n{}\n{}\n{body_hash}\n", self.path, self.query, headers.join("&"))
    }
}

/// The path as the controller's client library cuts it out of an address: nothing is decoded or normalised.
fn path_of(url: &str) -> &str {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or(url);
    rest.find('/').map_or("/", |slash| &rest[slash..])
}

/// What JavaScript's `encodeURIComponent` leaves as it is.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

fn lowered_and_encoded(text: &str) -> String {
    utf8_percent_encode(&text.to_lowercase(), UNRESERVED).to_string()
}

fn last_of_each<'a>(parameters: &[(&'a str, &'a str)]) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
    let mut kept: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
    for (key, value) in parameters {
        match kept.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = Cow::Borrowed(value),
            None => kept.push((Cow::Borrowed(key), Cow::Borrowed(value))),
        }
    }
    kept
}

/// The query's line: lower-cased, then encoded, then sorted as encoded.
fn sorted_pairs(pairs: Vec<(Cow<'_, str>, Cow<'_, str>)>) -> String {
    let mut encoded: Vec<(String, String)> =
        pairs.iter().map(|(key, value)| (lowered_and_encoded(key), lowered_and_encoded(value))).collect();
    encoded.sort();
    let joined: Vec<String> = encoded.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    joined.join("&")
}
