//! Processes that receive: the acknowledging sink of `lens-testing`, and one that reads slowly.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lens_otlp::view::resources;
use serde_json::{Value, json};

use crate::Outcome;
use crate::workload::Transport;

/// Where `cargo build --release -p lens-testing --bin otlp-sink` leaves it.
pub fn default_sink() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/otlp-sink")
}

/// A receiver in a process of its own.
pub struct Receiver {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    endpoints: Value,
}

impl Receiver {
    /// The sink that acknowledges at once.
    pub fn sink(path: &Path) -> Outcome<Self> {
        Self::spawn(Command::new(path)).map_err(|error| {
            let build = "cargo build --release -p lens-testing --bin otlp-sink";
            format!("{}: {error}; build it with: {build}", path.display()).into()
        })
    }

    /// The sink that reads so many bytes a second.
    pub fn slow(bytes_per_second: u64) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["slow-receiver", &bytes_per_second.to_string()]);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        Ok(Self { child, stdout, endpoints: serde_json::from_str(&line)? })
    }

    pub fn endpoint(&self, transport: Transport) -> Outcome<String> {
        let name = match transport {
            Transport::Http => "http",
            Transport::Grpc => "grpc",
        };
        Ok(self.endpoints[name].as_str().ok_or("no such endpoint")?.to_owned())
    }

    /// Ends it and returns how many spans it received.
    pub fn spans(mut self) -> Outcome<u64> {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        self.child.wait()?;
        let counts: Value = serde_json::from_str(&line)?;
        Ok(counts["spans"].as_u64().ok_or("no count")?)
    }
}

/// Bytes that may be read by now, for all connections together.
struct Allowance {
    bytes_per_second: u64,
    started: Instant,
    taken: u64,
}

impl Allowance {
    fn take(&mut self, bytes: usize) -> Duration {
        // What was not taken while nobody sent is not saved up.
        let elapsed = self.started.elapsed();
        let earned = (elapsed.as_secs_f64() * self.bytes_per_second as f64) as u64;
        self.taken = self.taken.max(earned) + bytes as u64;
        Duration::from_secs_f64(self.taken as f64 / self.bytes_per_second as f64)
            .saturating_sub(elapsed)
    }
}

/// Receives OTLP over HTTP/1.1 at a limited rate until its stdin ends.
pub fn serve_slowly(bytes_per_second: u64) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", json!({ "http": format!("http://{}", listener.local_addr()?) }));
    io::stdout().flush()?;
    let spans = Arc::new(AtomicU64::new(0));
    let allowance =
        Arc::new(Mutex::new(Allowance { bytes_per_second, started: Instant::now(), taken: 0 }));
    let counted = Arc::clone(&spans);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (spans, allowance) = (Arc::clone(&counted), Arc::clone(&allowance));
            std::thread::spawn(move || {
                // A sender that goes away is its own affair.
                let _ = receive(stream, &allowance, &spans);
            });
        }
    });
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    println!("{}", json!({ "spans": spans.load(Ordering::Acquire) }));
    Ok(())
}

fn receive(stream: TcpStream, allowance: &Mutex<Allowance>, spans: &AtomicU64) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(16 << 10, stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut body_bytes = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(length) = line.strip_prefix("content-length:") {
                body_bytes = length.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; body_bytes];
        for part in body.chunks_mut(16 << 10) {
            let wait = allowance.lock().map(|mut allowance| allowance.take(part.len()));
            std::thread::sleep(wait.unwrap_or_default());
            reader.read_exact(part)?;
        }
        spans.fetch_add(count_spans(&body), Ordering::Release);
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
        )?;
    }
}

fn count_spans(request: &[u8]) -> u64 {
    resources(request)
        .flatten()
        .flat_map(|resource| resource.scopes().flatten().collect::<Vec<_>>())
        .map(|scope| scope.items().flatten().count() as u64)
        .sum()
}
