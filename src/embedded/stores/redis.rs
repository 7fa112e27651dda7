//! A private Redis server.
//! Not a cluster and not a cache: it refuses writes when memory is short rather than forget an entry.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;

use super::{
    StoreError, StoreOptions,
    address::{Address, SocketAddress, ask},
    programs::{private_command, program_in_path},
    server::Server,
};

const SOCKET: &str = "redis.sock";
/// A starting server that accepts a connection may not answer yet.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Redis flushes its file and ends.
const STOP: Signal = Signal::TERM;
/// SIGTERM waits for a running script; the data of a dead owner need no flush.
const OWNER_DIED: &str = "KILL";

/// A running Redis server, stopped and removed on drop.
///
/// Starting, stopping and dropping block the thread for some milliseconds; they may be called anywhere, an asynchronous
/// runtime included, as the server's life does not depend on the calling thread.
pub struct PrivateRedis {
    server: Server,
    program: PathBuf,
    options: StoreOptions,
}

impl PrivateRedis {
    /// Makes an empty server and returns when it answers.
    ///
    /// # Errors
    ///
    /// Redis is not installed, or the system refuses a directory, a process or a socket.
    pub fn start(options: &StoreOptions) -> Result<Self, StoreError> {
        let program = program_in_path("redis-server", "redis-server")?;
        let server = Server::prepare("redis-server", options.listen)?;
        let mut store = Self { server, program, options: options.clone() };
        let (program, options) = (&store.program, &store.options);
        store.server.launch_first(|server| command(server, program, options), is_ready)?;
        Ok(store)
    }

    /// The address of database 0, in the form that redis-rs takes. With [`Listen::Loopback`](super::Listen::Loopback) it contains the password.
    pub fn url(&self) -> String {
        match &self.server.address {
            Address::UnixSocket { directory } => format!("redis+unix://{}", directory.join(SOCKET).display()),
            Address::Loopback { port, password } => format!("redis://:{password}@127.0.0.1:{port}/0"),
        }
    }

    /// The private directory: data, socket and `server.log`.
    pub fn directory(&self) -> &Path {
        self.server.directory.path()
    }

    /// The server's process id, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.server.id()
    }

    /// Shuts the server down in good order. Address and, if durable, data stay, for [`Self::start_again`].
    ///
    /// # Errors
    ///
    /// The system refuses to signal the process or to wait for it.
    pub fn stop(&mut self) -> Result<(), StoreError> {
        self.server.stop(STOP)
    }

    /// Ends the server with SIGKILL. Address and, if durable, data stay, for [`Self::start_again`].
    ///
    /// # Errors
    ///
    /// The system refuses to signal the process or to wait for it.
    pub fn kill(&mut self) -> Result<(), StoreError> {
        self.server.kill()
    }

    /// Starts a stopped or killed server on the same data and address; does nothing if it runs.
    ///
    /// # Errors
    ///
    /// As [`Self::start`], or another program has taken the port meanwhile.
    pub fn start_again(&mut self) -> Result<(), StoreError> {
        let (program, options) = (&self.program, &self.options);
        self.server.launch(|server| command(server, program, options), is_ready)
    }
}

impl fmt::Debug for PrivateRedis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrivateRedis").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

/// The settings go through a file: the password must not appear in the machine's list of processes.
fn command(server: &Server, program: &Path, options: &StoreOptions) -> Result<Command, StoreError> {
    let file = server.directory.write("redis.conf", &settings(server, options))?;
    let mut redis = private_command(program, server.account, OWNER_DIED)?;
    redis.arg(file);
    Ok(redis)
}

fn settings(server: &Server, options: &StoreOptions) -> String {
    let directory = server.directory.path();
    let append = if options.durable { "yes" } else { "no" };
    let mut lines = vec![
        format!("dir \"{}\"", directory.display()),
        "save \"\"".to_owned(),
        format!("appendonly {append}"),
        "appendfsync everysec".to_owned(),
        // The streams are a conveyor, not a cache.
        "maxmemory-policy noeviction".to_owned(),
    ];
    match &server.address {
        Address::UnixSocket { directory } => {
            lines.push("port 0".to_owned());
            lines.push(format!("unixsocket \"{}\"", directory.join(SOCKET).display()));
        }
        Address::Loopback { port, password } => {
            lines.push(format!("bind 127.0.0.1\nport {port}\nrequirepass {password}"));
        }
    }
    lines.extend(options.settings.iter().map(|(name, value)| format!("{name} {value}")));
    lines.join("\n") + "\n"
}

/// The process id is asked for as well: on a port that somebody else took, another Redis could answer.
fn is_ready(server: &Server, id: u32) -> bool {
    let answer = ask_server(server).unwrap_or_default();
    answer.contains("+PONG\r\n") && answer.contains(&format!("process_id:{id}\r\n"))
}

fn ask_server(server: &Server) -> io::Result<String> {
    const QUESTION: &str = "PING\r\nINFO server\r\nQUIT\r\n";
    match &server.address {
        Address::UnixSocket { directory } => {
            ask(&SocketAddress::Path(&directory.join(SOCKET)), QUESTION.as_bytes(), ANSWER_LIMIT)
        }
        Address::Loopback { port, password } => {
            ask(&SocketAddress::Port(*port), format!("AUTH {password}\r\n{QUESTION}").as_bytes(), ANSWER_LIMIT)
        }
    }
}
