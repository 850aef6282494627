//! A foreign program under `gym guard`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use crate::process::{eventually, gym, is_alive};

const SOON: Duration = Duration::from_secs(10);

/// Starts a shell script under the guard and reads `lines` pids from its output. The script lives no longer than the
/// pipe, which [`Child::wait`] would close first.
fn guarded(script: &str, lines: usize) -> (Child, ChildStdin, Vec<u32>) {
    let mut child = gym()
        .args(["guard", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the guard starts");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let pids = output
        .lines()
        .take(lines)
        .map(|line| line.expect("a line").parse().expect("a pid"))
        .collect();
    let life = child.stdin.take().expect("piped");
    (child, life, pids)
}

#[test]
fn the_guarded_program_has_the_pid_and_the_exit_status_of_the_guard() {
    let (mut child, _life, pids) = guarded("echo $$; exit 7", 1);
    assert_eq!(pids, [child.id()]);
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn the_end_of_the_pipe_ends_the_program_and_its_children() {
    let (mut child, life, pids) = guarded("sleep 1000 & echo $!; echo $$; wait", 2);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    drop(life);
    assert_eq!(child.wait().expect("it ends").signal(), Some(15));
    assert!(eventually(SOON, || !pids.iter().any(|pid| is_alive(*pid))), "{pids:?}");
}

#[test]
fn what_a_dead_program_left_behind_is_stopped() {
    let (mut child, _life, pids) = guarded("sleep 1000 & echo $!; exit 3", 1);
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    assert!(eventually(SOON, || !is_alive(pids[0])));
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let mut command = gym();
    command.args(["guard", "--", "/nonexistent/server"]);
    // Open until the end: a pipe that ends first ends the guard.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the guard runs");
    let _life = child.stdin.take();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("failed to start \"/nonexistent/server\""), "{stderr}");
}
