//! A receiver in a process of its own, to see what it takes of the system.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the child reports by them")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lens_observe::Receiver;
use lens_observe::receiver::{Notice, Options};

use crate::support::{EXPORT, Keeper, PROTOBUF, call, framed, gzip, options, parse, request, send};

const ORDER: &str = "RECEIVER_TEST_CHILD";

/// Not a test of its own: what the other process runs.
#[test]
fn as_a_child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (descriptors, hogged) = order.split_once(',').expect("an order");
    let descriptors: u64 = descriptors.parse().unwrap();
    if descriptors > 0 {
        let limit =
            rustix::process::Rlimit { current: Some(descriptors), maximum: Some(descriptors) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    }
    let notify = Arc::new(|notice: &Notice| eprintln!("NOTICE {notice}"));
    let receiver =
        Receiver::start(Options { notify, ..options() }, Arc::new(Keeper::default())).unwrap();
    let hogged: Vec<_> =
        (0..hogged.parse().unwrap()).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    println!("LISTENS {} {}", receiver.grpc_addresses()[0], receiver.http_addresses()[0]);
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(hogged);
    receiver.stop();
}

struct Process {
    child: Child,
    /// Held, because the harness writes to it when it ends.
    _stdout: BufReader<ChildStdout>,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Process {
    fn start(descriptors: u64, hogged: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::as_a_child", "--nocapture", "--test-threads=1"])
            .env(ORDER, format!("{descriptors},{hogged}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("LISTENS ") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "it ended");
        }
        let mut addresses = line.trim().split("LISTENS ").nth(1).unwrap().split(' ');
        let mut next = || addresses.next().unwrap().parse().unwrap();
        Self { grpc: next(), http: next(), child, _stdout: stdout }
    }

    /// The most memory that it ever had.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Ends it; what it said on stderr.
    fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

/// Guarantees: a small body cannot take more memory than the bound of a request, whatever it inflates to.
#[test]
fn a_body_that_inflates_without_end_is_refused_within_a_memory_cap() {
    let process = Process::start(0, 0);
    assert_eq!(send(process.http, "POST", "/v1/traces", PROTOBUF, &request(1)).status, 200);
    let before_kib = process.peak_kib();
    let zstd = zstd::encode_all([0; 1 << 20].repeat(32).as_slice(), 3).unwrap().repeat(32);
    assert!(zstd.len() <= 100 << 10, "{} bytes that inflate to 1 GiB", zstd.len());
    let gzip = gzip(&vec![0; 1 << 20]).repeat(100);
    assert!(gzip.len() <= 110 << 10, "{} bytes that inflate to 100 MiB", gzip.len());
    for (name, times, body) in [("zstd", 2, &zstd), ("gzip", 1, &gzip)] {
        let headers = format!("{PROTOBUF}content-encoding: {name}\r\n");
        for _ in 0..times {
            let answer = send(process.http, "POST", "/v1/traces", &headers, body);
            assert_eq!(answer.status, 413, "{name}: {answer:?}");
            assert!(answer.status_message().contains("larger than max"), "{answer:?}");
            let reply = call(process.grpc, EXPORT, &[("grpc-encoding", name)], framed(1, body));
            assert_eq!(reply.code, "8", "{name}: {reply:?}");
            // Without a time to come back: it would never pass.
            assert!(!reply.headers.contains_key("grpc-status-details-bin"), "{reply:?}");
        }
    }
    let grown_kib = process.peak_kib() - before_kib;
    // Two threads with a request of 64 MiB each, and what is around it.
    assert!(grown_kib < 160 << 10, "{grown_kib} KiB");
    process.stop();
}

fn storm(process: Process, connections: usize) -> String {
    let body = request(1);
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\n{PROTOBUF}content-length: {}\r\n\r\n",
        body.len()
    );
    let mut streams = Vec::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(process.http).expect("the backlog has room");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        streams.push(stream);
    }
    // All of them stay open, and all are answered.
    for (at, stream) in streams.iter_mut().enumerate() {
        let mut answer = [0; 512];
        let length =
            stream.read(&mut answer).unwrap_or_else(|error| panic!("connection {at}: {error}"));
        assert_eq!(parse(&answer[..length]).status, 200);
    }
    drop(streams);
    // It is as it was before.
    assert_eq!(send(process.http, "POST", "/v1/traces", PROTOBUF, &body).status, 200);
    let said = process.stop();
    said.lines().filter(|line| line.contains("NOTICE")).collect::<Vec<_>>().join("\n")
}

#[test]
fn with_256_descriptors_1000_connections_are_all_answered_and_little_is_said() {
    for (hogged, expected) in [(0, "as many as there may be"), (150, "Too many open files")] {
        let said = storm(Process::start(256, hogged), 1000);
        assert!(said.contains(expected), "{said}");
        assert!(said.lines().count() <= 8, "{said}");
    }
}
