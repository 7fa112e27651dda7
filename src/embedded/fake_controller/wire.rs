//! One TCP connection read as HTTP/1.1, in either direction: heads, and bodies of every framing. It knows no routes.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body.
    None,
    /// So many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// A body as far as it was wanted.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// The first bytes, at most as many as were asked for.
    pub(super) bytes: Vec<u8>,
    /// Was there more?
    pub(super) is_cut: bool,
}

/// A connection and what was read from it ahead.
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        // A failure only costs speed: the answer then waits for the kernel to fill a segment.
        if let Err(error) = stream.set_nodelay(true) {
            log::debug!("no TCP_NODELAY: {error}");
        }
        Self { stream, buffer: Vec::new() }
    }

    /// The bytes read and not yet used.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer
    }

    /// Marks the first bytes as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.buffer.drain(..count);
    }

    /// Sends all of it.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Makes the coming close a reset.
    pub(super) fn reset(self) {
        if let Err(error) = self.stream.set_zero_linger() {
            log::debug!("closed instead of reset: {error}");
        }
    }

    /// Reads some more.
    ///
    /// # Errors
    /// The connection's own, and `UnexpectedEof` when it has ended.
    pub(super) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.reserve(2048);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Like [`Wire::fill`], and `TimedOut` when nothing came until then.
    pub(super) async fn fill_until(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        match deadline {
            None => self.fill().await,
            Some(deadline) => timeout_at(deadline, self.fill()).await.unwrap_or_else(timed_out),
        }
    }

    /// Like [`Wire::fill`], and `TimedOut` when nothing came for so long.
    pub(super) async fn fill_within(&mut self, patience: Option<Duration>) -> io::Result<()> {
        match patience {
            None => self.fill().await,
            Some(patience) => timeout(patience, self.fill()).await.unwrap_or_else(timed_out),
        }
    }

    /// Has the other side said or closed something although nothing was due?
    pub(super) fn is_stale(&self) -> bool {
        let mut byte = [0];
        let nothing =
            matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        !self.buffer.is_empty() || !nothing
    }

    /// Reads a body to its end and keeps its first `max` bytes.
    ///
    /// # Errors
    /// The connection's own; `UnexpectedEof` when the body is cut short, `InvalidData` when its chunks make no sense,
    /// `TimedOut` when no byte came for as long as `patience`.
    pub(super) async fn body(&mut self, framing: Framing, max: usize, patience: Option<Duration>) -> io::Result<Body> {
        let mut body = Body::default();
        match framing {
            Framing::None => {}
            Framing::Length(length) => self.take(length, max, patience, &mut body).await?,
            Framing::Chunked => while self.chunk(max, patience, &mut body).await? {},
            Framing::UntilClose => self.rest(max, patience, &mut body).await?,
        }
        Ok(body)
    }

    async fn take(&mut self, length: u64, max: usize, patience: Option<Duration>, body: &mut Body) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            if self.buffer.is_empty() {
                self.fill_within(patience).await?;
            }
            let count = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            body.keep(&self.buffer[..count], max);
            self.consume(count);
            left -= count as u64;
        }
        Ok(())
    }

    async fn rest(&mut self, max: usize, patience: Option<Duration>, body: &mut Body) -> io::Result<()> {
        loop {
            body.keep(&self.buffer, max);
            self.buffer.clear();
            match self.fill_within(patience).await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one chunk; false after the last one and its trailers.
    async fn chunk(&mut self, max: usize, patience: Option<Duration>, body: &mut Body) -> io::Result<bool> {
        let size = loop {
            match httparse::parse_chunk_size(&self.buffer) {
                Ok(httparse::Status::Complete((used, size))) => {
                    self.consume(used);
                    break size;
                }
                Ok(httparse::Status::Partial) => self.fill_within(patience).await?,
                Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        };
        if size == 0 {
            while !self.line(patience).await? {}
            return Ok(false);
        }
        self.take(size, max, patience, body).await?;
        if self.line(patience).await? { Ok(true) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Skips one line; was it empty?
    async fn line(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                self.consume(end + 2);
                return Ok(end == 0);
            }
            self.fill_within(patience).await?;
        }
    }
}

impl Body {
    fn keep(&mut self, bytes: &[u8], max: usize) {
        let room = max - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_cut |= bytes.len() > room;
    }
}

fn timed_out(_: tokio::time::error::Elapsed) -> io::Result<()> {
    Err(io::ErrorKind::TimedOut.into())
}

/// Header bytes as Node.js shows them: each byte one character.
pub(super) fn header_text(value: &[u8]) -> String {
    value.iter().copied().map(char::from).collect()
}
