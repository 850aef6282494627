//! Sandboxes that are processes of this machine, with limits and a folder of their own.
//!
//! A limit, not a wall: a command has the rights of the server's user, its network and its file system. Limits hold for
//! each process; what bounds all of them together is the wall clock. The shell of the system sets them, so that nothing
//! runs between `fork` and `exec`.
//!
//! # Guarantees
//!
//! * After a command has ended, was given up or was cancelled, none of its process group runs. A process that left the
//!   group is found by a mark in its environment when the sandbox stops, unless it removed that too.
//! * A command sees no variable of the server but `PATH` and the language: no key, no header.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

use super::{Command, Ended, Limits, Output, Provider, Running, SandboxError, Stream};
use crate::session::SessionId;

const NAME: &str = "local_process";
/// In the environment of whatever runs in a sandbox.
const MARK: &str = "GYM_SANDBOX_ID";
/// How long output of processes that cannot be reached any more is waited for.
const DRAIN: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 16 << 10;
/// Variables that a command inherits.
const INHERITED: [&str; 3] = ["PATH", "LANG", "LC_ALL"];
/// Returned for a signal: this and its number.
const SIGNAL_BASE: i32 = 128;

/// Makes sandboxes below a folder.
#[derive(Clone, Debug)]
pub struct LocalProcesses {
    folder: PathBuf,
}

impl Default for LocalProcesses {
    /// Below the system's folder for temporary files.
    fn default() -> Self {
        Self::below(std::env::temp_dir())
    }
}

impl LocalProcesses {
    /// Below a folder that exists.
    pub fn below(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }
}

impl Provider for LocalProcesses {
    type Running = LocalSandbox;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn create(&self) -> Result<LocalSandbox, SandboxError> {
        let id = SessionId::random();
        let folder = self.folder.join(format!("gym-sandbox-{}", id.as_str()));
        DirBuilder::new().mode(0o700).create(&folder).map_err(SandboxError::Create)?;
        Ok(LocalSandbox { rest: Some(Rest { folder, id }) })
    }
}

/// A folder, and whatever runs in it.
#[derive(Debug)]
pub struct LocalSandbox {
    /// Taken by whoever removes it.
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Rest {
    folder: PathBuf,
    id: SessionId,
}

impl Rest {
    /// Blocks for as long as the system takes.
    fn remove(self) {
        kill_marked(&format!("{MARK}={}", self.id.as_str()));
        // What cannot be removed is in a folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for LocalSandbox {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || rest.remove())),
            Err(_) => rest.remove(),
        }
    }
}

impl Running for LocalSandbox {
    async fn run(&mut self, command: &Command, limits: &Limits) -> Result<Output, SandboxError> {
        let Some(rest) = &self.rest else {
            return Err(SandboxError::Spawn(io::ErrorKind::NotFound.into()));
        };
        let mut child = spawn(rest, command, limits).map_err(SandboxError::Spawn)?;
        let group = Group::of(&child);
        let (mut stdout, mut stderr) = (Stream::default(), Stream::default());
        let pipes = (child.stdout.take(), child.stderr.take());
        let exited = {
            let read = async {
                tokio::join!(
                    keep(pipes.0, limits.output_bytes, &mut stdout),
                    keep(pipes.1, limits.output_bytes, &mut stderr),
                )
            };
            tokio::pin!(read);
            let mut is_read = false;
            let deadline = tokio::time::sleep(limits.wall);
            tokio::pin!(deadline);
            let exited = loop {
                tokio::select! {
                    biased;
                    exited = child.wait() => break Some(exited.map_err(SandboxError::Wait)?),
                    _ = &mut read, if !is_read => is_read = true,
                    () = &mut deadline => break None,
                }
            };
            // Also what the command left behind.
            drop(group);
            if !is_read {
                // Who left the group may hold the pipes.
                let _ = tokio::time::timeout(DRAIN, &mut read).await;
            }
            exited
        };
        let status = match exited {
            Some(status) => status,
            None => child.wait().await.map_err(SandboxError::Wait)?,
        };
        let ended = if exited.is_none() { Ended::TimedOut } else { ended(status) };
        Ok(Output { return_code: return_code(status), ended, stdout, stderr })
    }

    async fn stop(mut self) {
        if let Some(rest) = self.rest.take() {
            // It runs to its end even when nobody waits.
            let _ = tokio::task::spawn_blocking(move || rest.remove()).await;
        }
    }
}

/// A process group that ends when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // There is none left: so much the better.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

fn spawn(rest: &Rest, command: &Command, limits: &Limits) -> io::Result<Child> {
    let mut process = tokio::process::Command::new("/bin/sh");
    process.arg("-c").arg(script(limits)).arg("sandbox");
    process.arg(&command.program).args(&command.arguments);
    process.env_clear().env(MARK, rest.id.as_str());
    process.env("HOME", &rest.folder).env("TMPDIR", &rest.folder);
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            process.env(name, value);
        }
    }
    process.current_dir(&rest.folder).process_group(0).kill_on_drop(true);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.spawn()
}

/// Sets the limits and becomes the command. What this process may not exceed itself cannot be granted.
fn script(limits: &Limits) -> String {
    let at_most = |resource, wanted: u64| {
        getrlimit(resource).maximum.map_or(wanted, |allowed| wanted.min(allowed))
    };
    let cpu_seconds = at_most(Resource::Cpu, limits.cpu.as_secs().max(1));
    // The signal that can be told from others comes at the soft limit.
    let kill_seconds = at_most(Resource::Cpu, cpu_seconds + 1);
    let memory_kib = at_most(Resource::As, limits.memory_bytes) / 1024;
    let file_blocks = at_most(Resource::Fsize, limits.file_bytes) / 512;
    format!(
        "ulimit -c 0; ulimit -S -t {cpu_seconds}; ulimit -H -t {kill_seconds}; \
         ulimit -f {file_blocks}; ulimit -v {memory_kib}; exec \"$@\""
    )
}

/// Reads to the end and keeps the first `max_bytes`.
async fn keep(pipe: Option<impl AsyncRead + Unpin>, max_bytes: usize, kept: &mut Stream) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; READ_BYTES];
    // A pipe that cannot be read has nothing more to say.
    while let Ok(read) = pipe.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        let room = max_bytes.saturating_sub(kept.bytes.len());
        kept.bytes.extend_from_slice(&buffer[..read.min(room)]);
        kept.is_truncated |= read > room;
    }
}

fn return_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| SIGNAL_BASE + status.signal().unwrap_or(0))
}

fn ended(status: ExitStatus) -> Ended {
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => Ended::OutOfCpu,
        Some(_) => Ended::Signalled,
        None => Ended::Exited,
    }
}

/// Kills every process of this user whose environment has `mark`.
fn kill_marked(mark: &str) {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    for process in processes.filter_map(Result::ok) {
        let name = process.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid
            && has_mark(&process.path(), mark)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn has_mark(process: &Path, mark: &str) -> bool {
    // Those of other users cannot be read.
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}
