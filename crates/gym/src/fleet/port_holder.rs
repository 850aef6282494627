//! Who listens on a port, found in `/proc`.

use std::fmt;
use std::fs;

/// A process that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder {
    /// Its id.
    pub pid: u32,
    /// Its command line, cut to a readable length.
    pub command: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pid {} ({})", self.pid, self.command)
    }
}

const COMMAND_CHARS: usize = 120;

/// Finds the process that listens on `port`; `None` where it belongs to
/// somebody else, is in another namespace, or there is no `/proc`.
pub fn find(port: u16) -> Option<PortHolder> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| holds_any(*pid, &inodes))
        .map(|pid| PortHolder { pid, command: command_of(pid) })
}

/// Inodes of listening sockets with this local port, from a table of `/proc/net`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
            (local.ends_with(&suffix) && *state == LISTEN).then(|| (*inode).to_owned())
        })
        .collect()
}

fn holds_any(pid: u32, sockets: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

fn command_of(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(COMMAND_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None if line.is_empty() => "unknown command".to_owned(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found_by_its_listening_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let holder = find(port).expect("it is us");
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.command.is_empty());
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:2AF8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1\n\
            1: 0100007F:2AF8 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 222 1\n\
            2: 0100007F:2AF9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1\n";
        assert_eq!(listening_inodes(table, 11000), ["111"]);
    }
}
