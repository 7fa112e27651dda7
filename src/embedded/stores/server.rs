//! One server process of a private store: started, waited for, stopped, killed, started again.
//! Not PostgreSQL or Redis: those say which command to run and when it is ready.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Listen, StoreError, address::Address, directory::StoreDirectory, programs::Account};

/// How long a server may take until it answers. Crash recovery on a loaded machine takes seconds.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long an orderly stop may take before the server is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at a process that is starting or ending.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often the first start tries another port when it fails.
const PORT_ATTEMPTS: u32 = 5;
const LOG: &str = "server.log";
/// The log lines that an error repeats.
const LAST_WORDS: usize = 12;

/// A server's process, its private directory and its address.
pub(super) struct Server {
    pub(super) program: &'static str,
    pub(super) account: Option<Account>,
    pub(super) address: Address,
    child: Option<Child>,
    spawner: SpawningThread,
    // Last: fields are dropped in this order, and the directory must outlive the process.
    pub(super) directory: StoreDirectory,
}

impl Server {
    /// Makes the directory and chooses the address. Nothing runs yet.
    pub(super) fn prepare(program: &'static str, listen: Listen) -> Result<Self, StoreError> {
        let account = Account::for_servers();
        let directory = StoreDirectory::create(account)?;
        let address = Address::choose(listen, directory.path()).map_err(process_error("choose a port for", program))?;
        let spawner = SpawningThread::start().map_err(process_error("start the thread of", program))?;
        Ok(Self { program, account, address, child: None, spawner, directory })
    }

    /// The first launch: on a port that somebody took meanwhile it tries again with another.
    pub(super) fn launch_first(
        &mut self,
        command: impl Fn(&Self) -> Result<Command, StoreError>,
        is_ready: impl Fn(&Self, u32) -> bool,
    ) -> Result<(), StoreError> {
        let mut attempts = PORT_ATTEMPTS;
        loop {
            attempts -= 1;
            match self.launch(&command, &is_ready) {
                Err(StoreError::Ended { .. }) if attempts > 0 && self.take_another_port()? => {}
                launched => return launched,
            }
        }
    }

    /// Starts the server and returns when it is ready. Does nothing if it runs.
    pub(super) fn launch(
        &mut self,
        command: impl Fn(&Self) -> Result<Command, StoreError>,
        is_ready: impl Fn(&Self, u32) -> bool,
    ) -> Result<(), StoreError> {
        if self.child.is_some() && self.ended()?.is_none() {
            return Ok(());
        }
        let child = self.spawn(command(self)?)?;
        let id = child.id();
        self.child = Some(child);
        let deadline = Instant::now() + READY_LIMIT;
        while !is_ready(self, id) {
            if let Some(status) = self.ended()? {
                self.child = None;
                return Err(StoreError::Ended { program: self.program, status, last_words: self.last_words() });
            }
            if Instant::now() > deadline {
                self.kill()?;
                let (program, last_words) = (self.program, self.last_words());
                return Err(StoreError::NotReady { program, limit: READY_LIMIT, last_words });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Runs a command that ends by itself, such as `initdb`.
    pub(super) fn run_to_end(&self, command: Command) -> Result<(), StoreError> {
        let status = self.spawn(command)?.wait().map_err(process_error("wait for", self.program))?;
        if status.success() {
            return Ok(());
        }
        Err(StoreError::Ended { program: self.program, status, last_words: self.last_words() })
    }

    /// The process id while the server runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Asks the server to end with `signal`, and kills it if it does not.
    pub(super) fn stop(&mut self, signal: Signal) -> Result<(), StoreError> {
        let Some(child) = &self.child else { return Ok(()) };
        // A child that ended by itself stays a zombie until it is waited for: its id cannot have been given away.
        kill_process(Pid::from_child(child), signal)
            .map_err(|source| process_error("stop", self.program)(source.into()))?;
        let deadline = Instant::now() + STOP_LIMIT;
        while self.ended()?.is_none() {
            if Instant::now() > deadline {
                return self.kill();
            }
            thread::sleep(LOOK_EVERY);
        }
        self.child = None;
        Ok(())
    }

    /// Ends the server and all its worker processes at once, as a machine's failure would.
    pub(super) fn kill(&mut self) -> Result<(), StoreError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let failed = process_error("kill", self.program);
        // Held still, it starts no further worker between our list and its end. PostgreSQL's workers are in process
        // groups of their own and would go on for a moment, with their clients still connected.
        let workers = match kill_process(Pid::from_child(&child), Signal::STOP) {
            Ok(()) => workers_of(child.id()),
            Err(_) => Vec::new(),
        };
        child.kill().and_then(|()| child.wait().map(drop)).map_err(failed)?;
        for worker in &workers {
            // One that has ended meanwhile is what we want.
            kill_process(*worker, Signal::KILL).ok();
        }
        let deadline = Instant::now() + STOP_LIMIT;
        while workers.iter().any(|worker| is_running(*worker)) && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn take_another_port(&mut self) -> Result<bool, StoreError> {
        self.address.take_another_port().map_err(process_error("choose a port for", self.program))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, StoreError> {
        let Some(child) = &mut self.child else { return Ok(None) };
        child.try_wait().map_err(process_error("wait for", self.program))
    }

    fn spawn(&self, mut command: Command) -> Result<Child, StoreError> {
        let log = self.open_log().map_err(|source| StoreError::Directory { path: self.log_path(), source })?;
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command.stdout(log.0).stderr(log.1);
        // A group of its own: Ctrl-C in the owner's terminal is the owner's to handle, and it stops the servers last.
        command.process_group(0);
        self.spawner.spawn(command).map_err(process_error("start", self.program))
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join(LOG)
    }

    fn open_log(&self) -> io::Result<(File, File)> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        Ok((log.try_clone()?, log))
    }

    fn last_words(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The stores stop in their own way first; what is still alive here has no data that anyone will read.
        if let Err(error) = self.kill() {
            log::warn!("a private {} may still run: {error}", self.program);
        }
    }
}

fn process_error(verb: &'static str, program: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Process { verb, program, source }
}

fn workers_of(id: u32) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
}

/// Whether a process that is not our child is alive. A zombie that its parent has not collected is not.
fn is_running(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap_or_default();
    // The state follows the program's name, which is in parentheses and may contain some itself.
    let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// A thread that lives as long as the server and spawns its processes. The kernel's "signal me when my parent dies"
/// means the parent *thread*: spawned from a test's or a runtime's own thread, the servers would end with that thread.
struct SpawningThread {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl SpawningThread {
    fn start() -> io::Result<Self> {
        let (requests, received) = mpsc::channel::<Request>();
        let thread = thread::Builder::new().name("private store".to_owned()).spawn(move || {
            for (mut command, answer) in received {
                // Whoever asked waits for the answer; if it is gone all the same, the child is nobody's.
                if let Err(mpsc::SendError(Ok(mut orphan))) = answer.send(command.spawn()) {
                    orphan.kill().ok();
                    orphan.wait().ok();
                }
            }
        })?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts processes has ended");
        let (answer, answered) = mpsc::channel();
        self.requests.as_ref().ok_or_else(gone)?.send((command, answer)).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

impl Drop for SpawningThread {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
