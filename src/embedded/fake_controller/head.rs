//! The head of a request as the controller sees it; nothing of it is judged here.

use super::wire::{Framing, header_text};

/// What matters of a request's head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    /// The request target, raw.
    pub(super) target: String,
    /// May the connection carry another request?
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) framing: Framing,
    pub(super) content_type: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) access_key: Option<String>,
    pub(super) timestamp: Option<String>,
    pub(super) nonce: Option<String>,
    pub(super) signature: Option<String>,
}

/// What can be made of the first bytes of a request.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A head, and how many bytes it took.
    Complete(Box<Head>, usize),
    /// More is needed.
    Partial,
    /// No HTTP.
    Malformed,
}

/// The most that Node.js reads of a head, in bytes.
pub(super) const HEAD_MAX: usize = 16 * 1024;

/// Reads a head from the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; 96];
    let mut request = httparse::Request::new(&mut headers);
    let used = match request.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(_) => return Parsed::Malformed,
    };
    let (Some(method), Some(target)) = (request.method, request.path) else { return Parsed::Malformed };
    let mut head = Head::new(method, target, request.version == Some(1));
    for header in request.headers.iter() {
        if head.note(header.name, header.value).is_none() {
            return Parsed::Malformed;
        }
    }
    Parsed::Complete(Box::new(head), used)
}

impl Head {
    fn new(method: &str, target: &str, keep_alive: bool) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            keep_alive,
            expects_continue: false,
            framing: Framing::None,
            content_type: None,
            content_encoding: None,
            access_key: None,
            timestamp: None,
            nonce: None,
            signature: None,
        }
    }

    /// The target up to its query; of an absolute target only the path.
    pub(super) fn path(&self) -> &str {
        let target = self.target.split('?').next().unwrap_or_default();
        match target.split_once("://") {
            Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |start| &rest[start..]),
            _ => target,
        }
    }

    /// Takes note of one header; none when it makes the request malformed.
    fn note(&mut self, name: &str, value: &[u8]) -> Option<()> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("content-length") {
            let length = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
            // Chunked wins; Node.js would refuse the pair, a client never sends it.
            if self.framing == Framing::None {
                self.framing = Framing::Length(length);
            }
        } else if is("transfer-encoding") {
            self.framing = value.eq_ignore_ascii_case(b"chunked").then_some(Framing::Chunked)?;
        } else if is("connection") {
            self.note_connection(value);
        } else if is("expect") {
            self.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
        } else if is("content-type") {
            // Of this one Node.js keeps the first, of unknown ones it joins all.
            self.content_type.get_or_insert_with(|| header_text(value));
        } else if is("content-encoding") {
            join(&mut self.content_encoding, value);
        } else if is("x-heng-accesskey") {
            join(&mut self.access_key, value);
        } else if is("x-heng-timestamp") {
            join(&mut self.timestamp, value);
        } else if is("x-heng-nonce") {
            join(&mut self.nonce, value);
        } else if is("x-heng-signature") {
            join(&mut self.signature, value);
        }
        Some(())
    }

    fn note_connection(&mut self, value: &[u8]) {
        for word in value.split(|byte| *byte == b',') {
            let word = word.trim_ascii();
            if word.eq_ignore_ascii_case(b"close") {
                self.keep_alive = false;
            } else if word.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            }
        }
    }
}

fn join(all: &mut Option<String>, value: &[u8]) {
    let value = header_text(value);
    match all {
        None => *all = Some(value),
        Some(before) => {
            before.push_str(", ");
            before.push_str(&value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        match parse(text.as_bytes()) {
            Parsed::Complete(head, used) => {
                assert_eq!(used, text.len());
                *head
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn of_an_absolute_target_only_the_path_counts() {
        let head = head("POST http://host:1/c/v1/judges?a=1 HTTP/1.1\r\n\r\n");
        assert_eq!(head.path(), "/c/v1/judges");
    }

    #[test]
    fn a_repeated_header_is_joined_but_the_content_type_is_the_first() {
        let text = "GET / HTTP/1.1\r\nX-Heng-Nonce: 1\r\nx-heng-nonce: 2\r\nContent-Type: a\r\nContent-Type: b\r\n\r\n";
        let head = head(text);
        assert_eq!(head.nonce.as_deref(), Some("1, 2"));
        assert_eq!(head.content_type.as_deref(), Some("a"));
    }

    #[test]
    fn an_old_client_is_not_kept_unless_it_asks() {
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(head("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").keep_alive);
    }
}
