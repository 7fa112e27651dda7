//! The fake's answers, byte for byte as Express writes them; what they say is decided elsewhere.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::json;
use sha1::Digest as _;

use super::switches::StatusAnswer;

/// One answer before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status code.
    pub(super) status: u16,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Empty,
    Express { media_type: &'static str, body: String },
    Gateway { retry_after: Option<u32>, location: Option<String> },
}

impl Answer {
    /// A created job: 201 and nothing else.
    pub(super) fn created() -> Self {
        Self { status: 201, content: Content::Empty }
    }

    /// What the root of the controller says.
    pub(super) fn hello() -> Self {
        let content = Content::Express { media_type: "text/html; charset=utf-8", body: "Hello World!".to_owned() };
        Self { status: 200, content }
    }

    /// A JSON answer.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        let content = Content::Express { media_type: "application/json; charset=utf-8", body: body.to_string() };
        Self { status, content }
    }

    /// 400 with one message, or with a list of them.
    pub(super) fn bad_request(message: impl Into<serde_json::Value>) -> Self {
        Self::error(400, message.into(), Some("Bad Request"))
    }

    /// 403; every reason gives the same.
    pub(super) fn forbidden() -> Self {
        Self::error(403, "Forbidden resource".into(), Some("Forbidden"))
    }

    /// 404 for a method and a target.
    pub(super) fn not_found(method: &str, target: &str) -> Self {
        Self::error(404, format!("Cannot {method} {target}").into(), Some("Not Found"))
    }

    /// 413.
    pub(super) fn too_large() -> Self {
        Self::error(413, "request entity too large".into(), None)
    }

    /// 415.
    pub(super) fn unsupported(what: &str, name: &str) -> Self {
        Self::error(415, format!("unsupported {what} \"{name}\"").into(), None)
    }

    /// 500.
    pub(super) fn server_error() -> Self {
        Self::error(500, "Internal server error".into(), None)
    }

    /// An answer of something in front of the controller.
    pub(super) fn gateway(answer: StatusAnswer) -> Self {
        let StatusAnswer { status, retry_after, location } = answer;
        Self { status, content: Content::Gateway { retry_after, location } }
    }

    fn error(status: u16, message: serde_json::Value, name: Option<&str>) -> Self {
        // Written by hand because the order of the members is part of the recorded bytes.
        let name = name.map(|name| format!(",\"error\":{}", json!(name))).unwrap_or_default();
        let body = format!("{{\"statusCode\":{status},\"message\":{message}{name}}}");
        Self { status, content: Content::Express { media_type: "application/json; charset=utf-8", body } }
    }

    /// Head and body.
    pub(super) fn bytes(&self, date: &str, keep_alive: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        let connection = if keep_alive { "keep-alive\r\nKeep-Alive: timeout=5" } else { "close" };
        let status = self.status;
        let reason = reason(status);
        // Writing into memory cannot fail.
        let written = match &self.content {
            Content::Empty => write!(
                bytes,
                "HTTP/1.1 {status} {reason}\r\nX-Powered-By: Express\r\nDate: {date}\r\nConnection: {connection}\r\n\
                 Content-Length: 0\r\n\r\n"
            ),
            Content::Express { media_type, body } => write!(
                bytes,
                "HTTP/1.1 {status} {reason}\r\nX-Powered-By: Express\r\nContent-Type: {media_type}\r\n\
                 Content-Length: {}\r\nETag: {}\r\nDate: {date}\r\nConnection: {connection}\r\n\r\n{body}",
                body.len(),
                entity_tag(body.as_bytes())
            ),
            Content::Gateway { retry_after, location } => {
                let retry_after = retry_after.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
                let location = location.as_ref().map(|url| format!("Location: {url}\r\n")).unwrap_or_default();
                let body = format!("{status} {reason}\n");
                write!(
                    bytes,
                    "HTTP/1.1 {status} {reason}\r\nDate: {date}\r\nContent-Type: text/plain\r\n\
                     Content-Length: {}\r\n{retry_after}{location}Connection: {connection}\r\n\r\n{body}",
                    body.len()
                )
            }
        };
        debug_assert!(written.is_ok(), "writing into memory cannot fail");
        bytes
    }
}

/// What Node.js itself writes when the head is not HTTP, before it closes.
pub(super) const MALFORMED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";

/// What Node.js itself writes when the head is too long, before it closes.
pub(super) const HEAD_TOO_LARGE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n";

/// Express's weak entity tag: the length in hex and most of a SHA-1.
fn entity_tag(body: &[u8]) -> String {
    let digest = sha1::Sha1::digest(body);
    format!("W/\"{:x}-{}\"", body.len(), STANDARD_NO_PAD.encode(digest))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Payload Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_are_those_of_the_recorded_traffic() {
        let body = br#"{"statusCode":403,"message":"Forbidden resource","error":"Forbidden"}"#;
        assert_eq!(entity_tag(body), "W/\"45-T7Txzr/IRLfQ4TEPfbVWLpgje4Q\"");
    }

    #[test]
    fn a_gateway_says_when_to_come_again() {
        let answer = Answer::gateway(StatusAnswer { status: 429, retry_after: Some(3), location: None });
        let text = String::from_utf8(answer.bytes("now", true)).unwrap();
        assert!(text.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{text}");
        assert!(text.contains("\r\nRetry-After: 3\r\n"), "{text}");
    }
}
