//! Ends a foreign program when its supervisor is gone.
//!
//! Our own servers watch their life pipe themselves; a foreign program does
//! not know of it. `gym guard -- program` therefore starts a *watcher* and then
//! becomes the program, so that the pid, the exit status and the signals of
//! the process are the program's own. The watcher holds the reading end of the
//! pipe and a handle of the program: at the end of the pipe it stops the
//! program's process group, at the end of the program it stops what the program
//! left in its group, and ends.
//!
//! The watcher is started through a process that ends at once, so that the
//! program has no child it did not make.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, setpgid, test_kill_process_group,
};

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(8);
/// How long what a dead program left behind may take.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
const DETACH: &str = "--detach-watcher";
const WATCH: &str = "--watch";

/// Why a guarded program did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The watcher did not start.
    #[error("failed to start the watcher of the program")]
    Watcher(#[source] io::Error),
    /// The program did not start.
    #[error("failed to start {program:?}")]
    Program {
        /// What was to be run.
        program: OsString,
        /// Why it was not.
        source: io::Error,
    },
}

/// Does what `gym guard` was asked to do; returns only when there is nothing to become.
///
/// # Errors
///
/// [`GuardError`] when the program or its watcher did not start.
pub fn run(command: &[OsString]) -> Result<(), GuardError> {
    match command {
        [mode, pid] if mode == DETACH => start_watcher(pid).map_err(GuardError::Watcher),
        [mode, pid] if mode == WATCH => {
            if let Some(pid) = pid.to_str().and_then(|pid| Pid::from_raw(pid.parse().ok()?)) {
                watch(pid, &io::stdin());
            }
            Ok(())
        }
        _ => Err(become_program(command)),
    }
}

fn become_program(command: &[OsString]) -> GuardError {
    // The supervisor has made us a group leader already; by hand we become one here.
    let _ = setpgid(None, None);
    let watcher = own_command()
        .and_then(|mut own| own.arg(DETACH).arg(std::process::id().to_string()).status())
        .and_then(|status| {
            if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
        });
    if let Err(error) = watcher {
        return GuardError::Watcher(error);
    }
    let empty = OsString::new();
    let (program, arguments) = command.split_first().unwrap_or((&empty, &[]));
    let source = Command::new(program).args(arguments).stdin(Stdio::null()).exec();
    GuardError::Program { program: program.clone(), source }
}

fn start_watcher(pid: &OsStr) -> io::Result<()> {
    own_command()?
        .arg(WATCH)
        .arg(pid)
        .process_group(0)
        // It must not keep the program's output open.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

fn own_command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["guard", "--"]);
    Ok(command)
}

/// Waits for the end of the pipe or of the program, and leaves nothing of the group.
fn watch(pid: Pid, life: &impl AsFd) {
    // A program that is gone already has no handle.
    let program = pidfd_open(pid, PidfdFlags::empty());
    let grace = match &program {
        Ok(program) if !ended_first(program, life) => GRACE,
        _ => LEFTOVER_GRACE,
    };
    stop_group(pid, program.as_ref().ok(), grace);
}

/// True when the program ended, false when the pipe did.
fn ended_first(program: &OwnedFd, life: &impl AsFd) -> bool {
    let mut discarded = [0; 64];
    loop {
        let mut both = [PollFd::new(program, PollFlags::IN), PollFd::new(life, PollFlags::IN)];
        if poll(&mut both, None).is_err() {
            continue;
        }
        if !both[0].revents().is_empty() {
            return true;
        }
        if !both[1].revents().is_empty()
            && !matches!(
                rustix::io::read(life, &mut discarded),
                Ok(1..) | Err(rustix::io::Errno::INTR)
            )
        {
            return false;
        }
    }
}

/// SIGTERM to the group, SIGKILL to what is left of it after `grace`.
fn stop_group(group: Pid, program: Option<&OwnedFd>, grace: Duration) {
    const STEP: Duration = Duration::from_millis(20);
    let mut deadline = Instant::now() + grace;
    let _ = kill_process_group(group, Signal::TERM);
    while test_kill_process_group(group).is_ok() {
        if Instant::now() >= deadline {
            let _ = kill_process_group(group, Signal::KILL);
            return;
        }
        // A dead leader counts as its group until it is reaped, which may be nobody's business.
        if program.is_some_and(has_ended) {
            deadline = deadline.min(Instant::now() + LEFTOVER_GRACE);
        }
        std::thread::sleep(STEP);
    }
}

fn has_ended(program: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(program, PollFlags::IN)], Some(&now)) == Ok(1)
}
