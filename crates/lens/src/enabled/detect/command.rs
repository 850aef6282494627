//! A program's output within a time.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// Nobody whom we ask has more to say.
const MOST_BYTES: usize = 1 << 20;
/// How long a killed program may take to be gone; one that hangs in a driver is left behind.
const REAP_LIMIT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);

/// What `program` writes to stdout; `None` when it cannot be started, fails, or takes longer than `limit`. Then it is
/// killed together with what it started.
pub(super) fn output(program: &Path, arguments: &[&str], limit: Duration) -> Option<String> {
    let deadline = Instant::now() + limit;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    if let Some(text) = child.stdout.take().and_then(|stdout| read(&stdout, deadline).ok())
        && let Some(is_success) = ended_well(&mut child, deadline)
    {
        return is_success.then_some(text);
    }
    // Nobody has waited for it yet, so that the number is still its own.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    ended_well(&mut child, Instant::now() + REAP_LIMIT);
    None
}

/// Whether it ended with success; `None` when it still runs at the deadline.
fn ended_well(child: &mut Child, deadline: Instant) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Ok(None) => return None,
            Err(_) => return Some(false),
        }
    }
}

fn read(stdout: &impl AsFd, deadline: Instant) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let count = rustix::io::read(stdout, &mut piece)?;
        if count == 0 {
            return String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > MOST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}
