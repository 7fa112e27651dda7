//! A private PostgreSQL server.
//! Not a cluster that Debian's tools see: a data directory of its own, made with `initdb` at every start.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::Signal;

use super::{
    StoreError, StoreOptions,
    address::Address,
    programs::{postgres_directory, private_command},
    server::Server,
};

/// Names the socket; on a socket nothing listens at this number.
const SOCKET_PORT: u16 = 5432;
/// The longest path of a socket that Linux takes, in bytes.
const SOCKET_PATH_MAX: usize = 107;
/// Fast shutdown: clients are disconnected, transactions rolled back, data written.
const STOP: Signal = Signal::INT;
/// Immediate shutdown for a dead owner and for a drop: nobody will read the data again, so none are written, but the
/// workers end and what is shared with the kernel is given back.
const ABANDON: Signal = Signal::QUIT;
const OWNER_DIED: &str = "QUIT";

/// A running PostgreSQL server, stopped and removed on drop. Its superuser is `postgres`.
///
/// Starting, stopping and dropping block the thread, for about a second at the start; they may be called anywhere, an
/// asynchronous runtime included, as the server's life does not depend on the calling thread.
pub struct PrivatePostgres {
    server: Server,
    programs: PathBuf,
    data: PathBuf,
    options: StoreOptions,
}

impl PrivatePostgres {
    /// Makes an empty server and returns when it accepts connections.
    ///
    /// # Errors
    ///
    /// PostgreSQL is not installed, or the system refuses a directory, a process or a socket.
    pub fn start(options: &StoreOptions) -> Result<Self, StoreError> {
        let programs = postgres_directory()?;
        let server = Server::prepare("postgres", options.listen)?;
        check_socket_path(server.directory.path())?;
        let data = server.directory.make_directory("data")?;
        let mut store = Self { server, programs, data, options: options.clone() };
        store.initialise()?;
        let (programs, data, options) = (&store.programs, &store.data, &store.options);
        store.server.launch_first(|server| command(server, programs, data, options), |_, id| is_ready(data, id))?;
        Ok(store)
    }

    /// The address of the database `postgres`, in the form that tokio-postgres takes. With [`Listen::Loopback`](super::Listen::Loopback) it
    /// contains the password.
    pub fn url(&self) -> String {
        match &self.server.address {
            Address::UnixSocket { directory } => {
                let host = directory.to_string_lossy();
                format!("postgres://postgres@{}:{SOCKET_PORT}/postgres", utf8_percent_encode(&host, NON_ALPHANUMERIC))
            }
            Address::Loopback { port, password } => format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres"),
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

    /// Disconnects the clients and shuts the server down in good order. Data and address stay, for [`Self::start_again`].
    ///
    /// # Errors
    ///
    /// The system refuses to signal the process or to wait for it.
    pub fn stop(&mut self) -> Result<(), StoreError> {
        self.server.stop(STOP)
    }

    /// Ends the server and its connections with SIGKILL. Data and address stay, for [`Self::start_again`].
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
        let (programs, data, options) = (&self.programs, &self.data, &self.options);
        self.server.launch(|server| command(server, programs, data, options), |_, id| is_ready(data, id))
    }

    fn initialise(&self) -> Result<(), StoreError> {
        let mut initdb = private_command(&self.programs.join("initdb"), self.server.account, "KILL")?;
        initdb.args(["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]);
        initdb.arg("--pgdata").arg(&self.data).arg("--auth-local=trust");
        match &self.server.address {
            // Nobody else gets to the socket, and nothing listens elsewhere.
            Address::UnixSocket { .. } => {
                initdb.arg("--auth-host=reject");
            }
            // In clear text: it does not leave the machine, and a hash would cost each new connection milliseconds.
            Address::Loopback { password, .. } => {
                let file = self.server.directory.write("password", password)?;
                initdb.arg("--auth-host=password").arg("--pwfile").arg(file);
            }
        }
        self.server.run_to_end(initdb)
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if let Err(error) = self.server.stop(ABANDON) {
            log::warn!("the private PostgreSQL did not stop: {error}");
        }
    }
}

impl fmt::Debug for PrivatePostgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrivatePostgres").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

fn check_socket_path(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join(format!(".s.PGSQL.{SOCKET_PORT}"));
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(StoreError::SocketPathTooLong { path, max: SOCKET_PATH_MAX });
    }
    Ok(())
}

fn command(server: &Server, programs: &Path, data: &Path, options: &StoreOptions) -> Result<Command, StoreError> {
    let mut postgres = private_command(&programs.join("postgres"), server.account, OWNER_DIED)?;
    postgres.arg("-D").arg(data);
    let mut set = |name: &str, value: &str| {
        postgres.arg("-c").arg(format!("{name}={value}"));
    };
    match &server.address {
        Address::UnixSocket { directory } => {
            set("listen_addresses", "");
            set("unix_socket_directories", &directory.to_string_lossy());
            set("port", &SOCKET_PORT.to_string());
        }
        Address::Loopback { port, .. } => {
            set("listen_addresses", "127.0.0.1");
            set("unix_socket_directories", "");
            set("port", &port.to_string());
        }
    }
    if !options.durable {
        // Commits still reach the kernel, so that a killed server loses none.
        set("fsync", "off");
        set("full_page_writes", "off");
    }
    for (name, value) in &options.settings {
        set(name, value);
    }
    Ok(postgres)
}

/// The server writes its state into the eighth line of this file, where pg_ctl reads it too. The first line is the
/// process id: the file of a killed predecessor says nothing about us.
fn is_ready(data: &Path, id: u32) -> bool {
    let state = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = state.lines().map(str::trim).collect();
    lines.first() == Some(&id.to_string().as_str()) && lines.get(7) == Some(&"ready")
}
