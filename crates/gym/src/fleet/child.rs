//! One process of the fleet: how it is started, what it hears and how it ends.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gym_server::config::{Instance, Program};
use gym_telemetry::env_vars;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::ChildStdin;
use tokio::sync::{Notify, mpsc, watch};

use super::pump::{Log, Pump, Stream, Tail};
use super::{FleetError, Obituary};
use crate::printer::Printer;

/// The interpreter of Python servers that bring no environment of their own.
const PYTHON: &str = "python3";
/// Where a Python server's own environment is looked for, below its directory.
const OWN_PYTHON: &str = ".venv/bin/python";
const PIPE_BYTES: usize = 1 << 20;
/// How long the last output of a dead process is waited for.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// What happens to the output of the servers.
#[derive(Clone, Debug)]
pub struct Output {
    /// Directory of the logs, if any.
    pub log_dir: Option<std::path::PathBuf>,
    /// Whether stdout lines go to our stdout.
    pub forwards_stdout: bool,
    /// Whether stderr lines go to our stderr.
    pub forwards_stderr: bool,
    /// Writes to our own streams.
    pub printer: Printer,
    /// Told when our stdout has no reader any more.
    pub on_closed_stdout: Arc<Notify>,
}

/// A process of the fleet.
#[derive(Debug)]
pub struct Child {
    /// Name of its instance.
    pub instance: String,
    /// The server's own process id, which is also its process group.
    pub pid: u32,
    tail: Tail,
    log: Option<Arc<Log>>,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// The life pipe: the server ends when this end is closed, however that comes about.
    life: Option<ChildStdin>,
}

impl Child {
    /// Starts `command` as the process of `instance`.
    ///
    /// `exits` is touched when it ends, after its last output has been read.
    ///
    /// # Errors
    ///
    /// [`FleetError::Spawn`] and [`FleetError::Log`].
    pub fn spawn(
        instance: &Instance,
        command: Command,
        output: &Output,
        exits: Arc<watch::Sender<()>>,
    ) -> Result<Self, FleetError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let fail = |source| FleetError::Spawn {
            instance: instance.name.clone(),
            program: program.clone(),
            source,
        };
        let log = output.log_dir.as_deref().map(|dir| open_log(dir, &instance.name)).transpose()?;
        let tail = Tail::default();
        let (stdout_reader, stdout) = pipe().map_err(fail)?;
        let (stderr_reader, stderr) = pipe().map_err(fail)?;

        let mut command = tokio::process::Command::from(command);
        command.process_group(0).stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        let mut process = command.spawn().map_err(fail)?;
        // Our copies of the writing ends go with it, else the pumps would never see the end.
        drop(command);

        let (pumps_alive, mut pumps_done) = mpsc::channel::<()>(1);
        for (stream, reader, forwards) in [
            (Stream::Stdout, stdout_reader, output.forwards_stdout),
            (Stream::Stderr, stderr_reader, output.forwards_stderr),
        ] {
            let pump = Pump {
                instance: instance.name.clone(),
                stream,
                log: log.clone(),
                forwards,
                translates: !matches!(instance.program, Program::Builtin),
                tail: tail.clone(),
                printer: output.printer.clone(),
                on_closed_stdout: Arc::clone(&output.on_closed_stdout),
            };
            let alive = pumps_alive.clone();
            std::thread::Builder::new()
                .name(format!("{} output", instance.name))
                .spawn(move || {
                    pump.run(reader);
                    drop(alive);
                })
                .map_err(fail)?;
        }
        drop(pumps_alive);

        let pid = process.id().unwrap_or_default();
        let life = process.stdin.take();
        let (exit_sender, exit) = watch::channel(None);
        tokio::spawn(async move {
            let status = process.wait().await.unwrap_or_default();
            let _ = tokio::time::timeout(LAST_OUTPUT, pumps_done.recv()).await;
            exit_sender.send_replace(Some(status));
            exits.send_replace(());
        });
        Ok(Self { instance: instance.name.clone(), pid, tail, log, exit, life })
    }

    /// The exit status, once it has ended.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Waits for its end.
    pub async fn ended(&mut self) {
        let _ = self.exit.wait_for(Option::is_some).await;
    }

    /// Signals its process group, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        if self.exit_status().is_none()
            && let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Closes the life pipe.
    pub fn let_go(&mut self) {
        self.life = None;
    }

    /// How it ended, and its last words.
    pub fn obituary(&self) -> Obituary {
        let status = match self.exit_status() {
            Some(status) => status.to_string(),
            None => "still running".to_owned(),
        };
        let signal = self.exit_status().and_then(|status| status.signal());
        Obituary {
            status,
            last_lines: self.tail.lines(),
            was_killed: signal == Some(Signal::KILL.as_raw()),
            log: self.log.as_ref().map(|log| log.path().to_owned()),
        }
    }
}

fn pipe() -> io::Result<(io::PipeReader, Stdio)> {
    let (reader, writer) = io::pipe()?;
    // A burst of telemetry must not stall a server; the default size is only slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader, writer.into()))
}

fn open_log(dir: &Path, instance: &str) -> Result<Arc<Log>, FleetError> {
    let path = dir.join(format!("{}.log", instance.replace('/', "_")));
    Log::open(path.clone()).map_err(|source| FleetError::Log { path, source })
}

/// The command that runs the program of `instance`, in its directory.
///
/// # Errors
///
/// [`FleetError::System`] when our own binary cannot be found.
pub fn command_for(instance: &Instance) -> Result<Command, FleetError> {
    let own = std::env::current_exe().map_err(|source| FleetError::System {
        action: "find the program of the built-in servers",
        source,
    })?;
    let mut command = Command::new(own);
    match &instance.program {
        Program::Builtin => {
            command.arg("serve-instance");
        }
        Program::Python { dir, entrypoint } => {
            let own_python = dir.join(OWN_PYTHON);
            let python =
                if own_python.exists() { own_python.into_os_string() } else { PYTHON.into() };
            command.args(["guard", "--"]).arg(python).arg(entrypoint).current_dir(dir);
            command
                .env(env_vars::PYTHONPATH, python_path(dir))
                .env(env_vars::PYTHONUNBUFFERED, "1");
        }
        Program::Exec { dir, path } => {
            command.args(["guard", "--"]).arg(path).current_dir(dir);
        }
    }
    Ok(command)
}

/// The server's directory, its search root, then what was inherited.
fn python_path(dir: &Path) -> std::ffi::OsString {
    let inherited = std::env::var_os(env_vars::PYTHONPATH).unwrap_or_default();
    let root = dir.parent().and_then(Path::parent);
    let paths = std::iter::once(dir.to_path_buf())
        .chain(root.map(Path::to_path_buf))
        .chain(std::env::split_paths(&inherited).filter(|path| !path.as_os_str().is_empty()));
    std::env::join_paths(paths).unwrap_or_else(|_| dir.into())
}
