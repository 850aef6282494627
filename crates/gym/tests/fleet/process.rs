//! Starting the binary and looking at processes.

use std::process::Command;
use std::time::{Duration, Instant};

/// The binary under test, in an environment without telemetry settings.
pub fn gym() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gym"));
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if ["NEMO_", "OTEL_", "TRACEPARENT", "TRACESTATE", "BAGGAGE"]
            .iter()
            .any(|prefix| name_text.starts_with(prefix))
        {
            command.env_remove(&name);
        }
    }
    command
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('Z')))
        .is_some_and(|is_zombie| !is_zombie)
}

/// Waits until `condition` holds; false after `limit`.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
