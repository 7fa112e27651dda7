//! Where a private store listens, with the password that a TCP port needs.
//! Not a URL: each store writes its own form.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use uuid::Uuid;

use super::Listen;

/// One address, the same over all restarts of the store. No `Debug`: it may hold a password.
pub(super) enum Address {
    /// The server puts its socket into this directory.
    UnixSocket { directory: PathBuf },
    /// 127.0.0.1. Other users of the machine reach the port too, hence the password.
    Loopback { port: u16, password: String },
}

impl Address {
    pub(super) fn choose(listen: Listen, directory: &Path) -> io::Result<Self> {
        Ok(match listen {
            Listen::UnixSocket => Self::UnixSocket { directory: directory.to_owned() },
            Listen::Loopback => Self::Loopback { port: free_port()?, password: Uuid::new_v4().simple().to_string() },
        })
    }

    /// Takes another port if this address has one. Says whether it had.
    pub(super) fn take_another_port(&mut self) -> io::Result<bool> {
        match self {
            Self::UnixSocket { .. } => Ok(false),
            Self::Loopback { port, .. } => {
                *port = free_port()?;
                Ok(true)
            }
        }
    }
}

/// A port that was free a moment ago. Another program may take it before our server does; the first start then tries
/// again with another one.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Sends `question` to a local server and returns what it says until it closes the connection or `limit` passes without
/// a byte.
pub(super) fn ask(socket: &SocketAddress<'_>, question: &[u8], limit: Duration) -> io::Result<String> {
    match socket {
        SocketAddress::Path(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(limit))?;
            converse(stream, question)
        }
        SocketAddress::Port(port) => {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
            stream.set_read_timeout(Some(limit))?;
            converse(stream, question)
        }
    }
}

/// What [`ask`] connects to.
pub(super) enum SocketAddress<'a> {
    Path(&'a Path),
    Port(u16),
}

fn converse(mut stream: impl Read + Write, question: &[u8]) -> io::Result<String> {
    stream.write_all(question)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
