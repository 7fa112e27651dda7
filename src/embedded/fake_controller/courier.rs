//! Sends one callback after another as axios on Node.js does: its headers, its connections, its idea of what counts as
//! delivered. Not spoken: https, proxies from the environment, and compressed answers (their content is ignored anyway).

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::ledger::Outcome;
use super::target::{self, Target};
use super::wire::{Framing, Wire};

/// The largest body that is sent, in bytes.
const BODY_MAX: usize = 10 * 1024 * 1024;
/// How many redirects are followed.
const REDIRECTS_MAX: usize = 21;
/// The longest head of an answer, in bytes: Node.js's own limit.
const HEAD_MAX: usize = 16 * 1024;

/// How to send one callback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    /// How long to wait for the headers, and for each further part of the body. None: for ever.
    pub(super) limit: Option<Duration>,
    pub(super) follow_redirects: bool,
    /// Close the connection once everything is sent.
    pub(super) abort_after_send: bool,
}

/// One worker's HTTP client.
pub(super) struct Courier {
    idle_close: Duration,
    idle: Vec<Idle>,
}

struct Idle {
    host_header: String,
    wire: Wire,
    since: Instant,
}

/// The head of an answer.
struct Reply {
    status: u16,
    location: Option<String>,
    framing: Framing,
    keep_alive: bool,
}

/// How a hop ended.
enum Hop {
    Final(u16),
    Redirect(u16, String),
    Aborted,
}

impl Courier {
    pub(super) fn new(idle_close: Duration) -> Self {
        Self { idle_close, idle: Vec::new() }
    }

    /// When the oldest idle connection is to be closed.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.idle.iter().map(|idle| idle.since + self.idle_close).min()
    }

    /// Closes connections that were idle for too long.
    pub(super) fn close_expired(&mut self) {
        let now = Instant::now();
        self.idle.retain(|idle| idle.since + self.idle_close > now);
    }

    /// Sends a callback and waits for its end.
    pub(super) async fn deliver(&mut self, url: &str, body: &str, orders: Orders) -> Outcome {
        if body.len() > BODY_MAX {
            return Outcome::Undeliverable;
        }
        match self.follow(url, body, orders).await {
            Ok(outcome) => outcome,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Outcome::TimedOut,
            Err(_) => Outcome::Broken,
        }
    }

    async fn follow(&mut self, url: &str, body: &str, orders: Orders) -> io::Result<Outcome> {
        // One limit for everything up to the last headers: follow-redirects keeps its timer over all hops.
        let deadline = orders.limit.map(|limit| Instant::now() + limit);
        let (mut url, mut body) = (url.to_owned(), Some(body));
        for _ in 0..=REDIRECTS_MAX {
            let Some(target) = target::parse(&url) else { return Ok(Outcome::Undeliverable) };
            match self.hop(&target, body, orders, deadline).await? {
                Hop::Aborted => return Ok(Outcome::Aborted),
                Hop::Final(status @ 200..=299) => {
                    return Ok(Outcome::Delivered { status, swallowed: body.is_none() });
                }
                Hop::Final(status) => return Ok(Outcome::Refused { status }),
                Hop::Redirect(status, location) => {
                    let next = Url::parse(&url).and_then(|base| base.join(&location));
                    url = next.map_err(|_| io::ErrorKind::InvalidData)?.into();
                    if matches!(status, 301..=303) {
                        body = None;
                    }
                }
            }
        }
        Ok(Outcome::Broken)
    }

    async fn hop(
        &mut self,
        target: &Target,
        body: Option<&str>,
        orders: Orders,
        deadline: Option<Instant>,
    ) -> io::Result<Hop> {
        let mut wire = self.connect(target, deadline).await?;
        within(deadline, wire.send(&request(target, body))).await?;
        if orders.abort_after_send {
            return Ok(Hop::Aborted);
        }
        let reply = reply(&mut wire, deadline).await?;
        if let Some(location) = reply.location
            && orders.follow_redirects
        {
            // The connection is not used again; seen in the recorded traffic.
            return Ok(Hop::Redirect(reply.status, location));
        }
        wire.body(reply.framing, 0, orders.limit).await?;
        if reply.keep_alive {
            let host_header = target.host_header.clone();
            self.idle.push(Idle { host_header, wire, since: Instant::now() });
        }
        Ok(Hop::Final(reply.status))
    }

    /// The connection used last, or a new one.
    async fn connect(&mut self, target: &Target, deadline: Option<Instant>) -> io::Result<Wire> {
        self.close_expired();
        while let Some(index) = self.idle.iter().rposition(|idle| idle.host_header == target.host_header) {
            let Idle { wire, .. } = self.idle.swap_remove(index);
            if !wire.is_stale() {
                return Ok(wire);
            }
        }
        let stream = within(deadline, TcpStream::connect((target.host.as_str(), target.port))).await?;
        Ok(Wire::new(stream))
    }
}

async fn within<T>(deadline: Option<Instant>, action: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match deadline {
        None => action.await,
        Some(deadline) => timeout_at(deadline, action).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    }
}

/// The request's bytes, with the headers and their order as recorded. Without a body it is a GET.
fn request(target: &Target, body: Option<&str>) -> Vec<u8> {
    let Target { path, host_header, .. } = target;
    let authorization = target.authorization.as_ref().map(|value| format!("Authorization: {value}\r\n"));
    let authorization = authorization.unwrap_or_default();
    let (method, content) = match body {
        None => ("GET", [String::new(), String::new()]),
        Some(body) => {
            let length = format!("Content-Length: {}\r\n", body.len());
            ("POST", ["Content-Type: application/json\r\n".to_owned(), length])
        }
    };
    let [content_type, content_length] = content;
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nAccept: application/json, text/plain, */*\r\n{content_type}\
         User-Agent: axios/0.27.2\r\n{content_length}Host: {host_header}\r\n{authorization}Connection: keep-alive\r\n\r\n"
    );
    request.push_str(body.unwrap_or_default());
    request.into_bytes()
}

/// Reads the head of the final answer, skipping informational ones.
async fn reply(wire: &mut Wire, deadline: Option<Instant>) -> io::Result<Reply> {
    loop {
        match parse_reply(wire.unread())? {
            Some((used, reply)) => {
                wire.consume(used);
                if !(100..200).contains(&reply.status) {
                    return Ok(reply);
                }
            }
            None if wire.unread().len() > HEAD_MAX => return Err(io::ErrorKind::InvalidData.into()),
            None => wire.fill_until(deadline).await?,
        }
    }
}

fn parse_reply(bytes: &[u8]) -> io::Result<Option<(usize, Reply)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let used = match response.parse(bytes) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    let status = response.code.unwrap_or_default();
    let mut reply =
        Reply { status, location: None, framing: Framing::UntilClose, keep_alive: response.version == Some(1) };
    for header in response.headers.iter() {
        reply.note(header).ok_or(io::ErrorKind::InvalidData)?;
    }
    if matches!(status, 100..=199 | 204 | 304) {
        reply.framing = Framing::None;
    }
    reply.keep_alive &= reply.framing != Framing::UntilClose;
    Ok(Some((used, reply)))
}

impl Reply {
    fn note(&mut self, header: &httparse::Header<'_>) -> Option<()> {
        let is = |wanted: &str| header.name.eq_ignore_ascii_case(wanted);
        let value = header.value.trim_ascii();
        if is("content-length") {
            if self.framing != Framing::Chunked {
                self.framing = Framing::Length(std::str::from_utf8(value).ok()?.parse().ok()?);
            }
        } else if is("transfer-encoding") {
            self.framing = value.eq_ignore_ascii_case(b"chunked").then_some(Framing::Chunked)?;
        } else if is("connection") {
            self.keep_alive = !value.eq_ignore_ascii_case(b"close");
        } else if is("location") && (300..400).contains(&self.status) {
            self.location = Some(std::str::from_utf8(value).ok()?.to_owned());
        }
        Some(())
    }
}
