//! What a store costs as it is used: `gym observe` in a process of its own, fed over OTLP/gRPC, then asked.
//!
//! ```text
//! store-whole ingest GYM DIR SHAPE SPANS   CPU of the receiving process a span, spans/s, memory, bytes a span
//! store-whole fill DIR SHAPE SPANS         fills a store in this process, for the questions
//! store-whole ask DIR LOOKUPS              start-up, traces by id, percentiles by name
//! ```
//!
//! Requests are encoded before anything is timed. Their sender has the same two cores, so the wall clock says what
//! both manage together; the CPU is the receiving process's alone, from its start until all is in files.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lens_store::ids::TraceId;
use lens_store::query::{Measured, Query, Stored, Window};
use lens_store::store::{Clock as _, Options as StoreOptions, Store, SystemClock};
use lens_store::wal::{Encoding, Signal};
use lens_testing::load::{self, Batch, Options, Rollouts};
use tokio::net::TcpStream;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Requests that are on their way at a time.
const ON_THE_WAY: usize = 8;
/// All must be in files after so long without a new span.
const SETTLE: Duration = Duration::from_secs(180);

fn batches(shape: &str, spans: u64) -> Result<Box<dyn Iterator<Item = Batch> + Send>> {
    // The traces are of the time at which they are sent.
    let options =
        Options { base_nanos: SystemClock.now_nanos() - 3_600_000_000_000, ..Options::default() };
    let mut made = 0;
    let until = move |batch: &Batch| {
        made += batch.spans as u64;
        made <= spans
    };
    Ok(match shape {
        "jaeger" => Box::new(load::jaeger(options, spans / 10)),
        "rl" => {
            let wanted = Rollouts { tasks: u64::MAX / 8, fleets: 8, ..Rollouts::default() };
            Box::new(load::rollouts(options, wanted).take_while(until))
        }
        other => return Err(format!("no shape {other}: jaeger or rl").into()),
    })
}

struct Observer {
    child: Child,
    grpc: String,
    http: String,
}

impl Observer {
    fn start(gym: &str, dir: &str) -> Result<Self> {
        let mut child = Command::new(gym)
            .args(["--quiet", "observe", "--json", "--until-stdin-closes", "--dir", dir])
            .args(["--listen-grpc", "127.0.0.1:0", "--listen-http", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = |key: &str| -> Result<String> {
            let url = ready[key][0].as_str().ok_or("no address")?;
            Ok(url.trim_start_matches("http://").to_owned())
        };
        Ok(Self { grpc: address("grpc")?, http: address("http")?, child })
    }

    /// User and system time so far, and the system's part of it.
    fn cpu(&self) -> Result<(f64, f64)> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let (user, system): (f64, f64) = (fields[11].parse()?, fields[12].parse()?);
        Ok(((user + system) / 100.0, system / 100.0))
    }

    fn peak_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no VmHWM")?;
        let kib: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn framed(request: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(request.len() + 5);
    frame.put_u8(0);
    frame.put_u32(request.len() as u32);
    frame.put_slice(request);
    frame.freeze()
}

/// Sends every request; a refusal for want of room is tried again.
async fn send(address: &str, frames: &[Bytes]) -> Result<u64> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(connection);
    let mut refused = 0;
    let mut waiting: VecDeque<tokio::task::JoinHandle<std::result::Result<bool, hyper::Error>>> =
        VecDeque::new();
    let mut left: VecDeque<&Bytes> = frames.iter().collect();
    let mut on_the_way: VecDeque<&Bytes> = VecDeque::new();
    loop {
        while waiting.len() < ON_THE_WAY
            && let Some(frame) = left.pop_front()
        {
            let request = Request::post(format!("http://{address}{EXPORT}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Full::new(frame.clone()))?;
            let mut sender = sender.clone();
            on_the_way.push_back(frame);
            waiting.push_back(tokio::spawn(async move {
                let response = sender.send_request(request).await?;
                let (head, body) = response.into_parts();
                let body = body.collect().await?;
                let status = head.headers.get("grpc-status").cloned();
                let trailers =
                    body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
                let is_ok = head.status == StatusCode::OK
                    && status.or(trailers).is_some_and(|status| status == "0");
                Ok(is_ok)
            }));
        }
        let (Some(first), Some(frame)) = (waiting.pop_front(), on_the_way.pop_front()) else {
            return Ok(refused);
        };
        if !first.await?? {
            refused += 1;
            left.push_back(frame);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn memory_spans(address: &str) -> Result<u64> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request =
        Request::get("/api/v1/status").header("host", address).body(Full::<Bytes>::default())?;
    let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    let status: serde_json::Value = serde_json::from_slice(&body)?;
    status["memory_spans"].as_u64().ok_or_else(|| "no memory_spans".into())
}

fn ingest(gym: &str, dir: &str, shape: &str, spans: u64) -> Result<()> {
    let made: Vec<Batch> = batches(shape, spans)?.collect();
    let count: usize = made.iter().map(|batch| batch.spans).sum();
    let frames: Vec<Bytes> = made.iter().map(|batch| framed(&batch.request)).collect();
    let body_bytes: usize = made.iter().map(|batch| batch.request.len()).sum();
    drop(made);
    let observer = Observer::start(gym, dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = observer.cpu()?;
    let begun = Instant::now();
    let (refused, sent, sent_cpu) = runtime.block_on(async {
        let half = frames.len() / 2;
        let (first, second) = tokio::join!(
            send(&observer.grpc, &frames[..half]),
            send(&observer.grpc, &frames[half..])
        );
        let sent = begun.elapsed();
        let sent_cpu = observer.cpu()?;
        let deadline = Instant::now() + SETTLE;
        while memory_spans(&observer.http).await? > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok::<_, Box<dyn Error>>((first? + second?, sent, sent_cpu))
    })?;
    let after = observer.cpu()?;
    let (used, used_by_system) = (after.0 - before.0, after.1 - before.1);
    let peak = observer.peak_mib()?;
    drop(observer);
    let count = count as f64;
    let bytes = bytes_below(Path::new(dir), &["wal"])?;
    println!(
        "{shape} spans={count} body={:.0} B/span: cpu {:.2} us/span (system {:.2}, while sending {:.2}), {:.0} spans/s of wall clock \
         with the sender on the same cores, {refused} requests sent again, peak {peak:.0} MiB, {:.1} B/span in files",
        body_bytes as f64 / count,
        used * 1e6 / count,
        used_by_system * 1e6 / count,
        (sent_cpu.0 - before.0) * 1e6 / count,
        count / sent.as_secs_f64(),
        bytes as f64 / count,
    );
    Ok(())
}

fn bytes_below(dir: &Path, except: &[&str]) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if except.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        bytes += if entry.file_type()?.is_dir() {
            bytes_below(&entry.path(), &[])?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

fn fill(dir: &str, shape: &str, spans: u64) -> Result<()> {
    let store = Store::open(Path::new(dir), StoreOptions::default())?;
    let begun = Instant::now();
    let mut count = 0;
    for batch in batches(shape, spans)? {
        loop {
            let request = batch.request.clone();
            match store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request) {
                Ok(_) => break,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        count += batch.spans;
    }
    store.flush()?;
    store.close()?;
    let bytes = bytes_below(Path::new(dir), &["wal"])? as f64;
    println!(
        "{shape} spans={count} in {:.0} s, {:.1} B/span",
        begun.elapsed().as_secs_f64(),
        bytes / count as f64
    );
    Ok(())
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, Duration::as_secs_f64) * 1e3
}

fn ask(dir: &str, lookups: usize) -> Result<()> {
    let begun = Instant::now();
    let store = Store::open_read_only(Path::new(dir))?;
    let snapshot = store.snapshot();
    println!(
        "opened {} segments in {:.0} ms",
        snapshot.segments().len(),
        begun.elapsed().as_secs_f64() * 1e3
    );

    let begun = Instant::now();
    let rows = snapshot.trace_rows()?;
    println!("listed {} traces in {:.0} ms", rows.len(), begun.elapsed().as_secs_f64() * 1e3);
    let ids: Vec<TraceId> = (0..lookups)
        .filter_map(|nth| {
            Some(rows.get(nth.wrapping_mul(2_654_435_761) % rows.len().max(1))?.trace_id)
        })
        .collect();
    drop(rows);
    for round in ["first", "second"] {
        let (mut times, mut spans) = (Vec::new(), 0);
        for id in &ids {
            let begun = Instant::now();
            spans += snapshot.trace(*id)?.len();
            times.push(begun.elapsed());
        }
        times.sort();
        println!(
            "by id, {round} time: {} traces, {spans} spans: p50 {:.2} p99 {:.2} max {:.2} ms",
            ids.len(),
            percentile(&times, 0.5),
            percentile(&times, 0.99),
            percentile(&times, 1.0)
        );
    }
    let now = SystemClock.now_nanos();
    for text in [
        "{} | quantile_over_time(duration, .5, .99) by (name)",
        "{} | quantile_over_time(duration, .5, .99) by (resource.service.name, name)",
        "{} | rate() by (name)",
        "{ span.http.response.status_code >= 500 } | count_over_time()",
    ] {
        let query = Query::parse(text)?;
        let mut times = Vec::new();
        let mut said = String::new();
        for _ in 0..3 {
            let begun = Instant::now();
            let Some(Measured { metrics, looked }) =
                query.measure(&Stored::new(&snapshot, now), &Window::default())?
            else {
                return Err("no metric".into());
            };
            times.push(format!("{:.0}", begun.elapsed().as_secs_f64() * 1e3));
            said = format!(
                "{} series over {} spans (looked at {})",
                metrics.series.len(),
                metrics.spans,
                looked.spans
            );
        }
        println!("{text}: {said} in {} ms", times.join(", "));
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["ingest", gym, dir, shape, spans] => ingest(gym, dir, shape, spans.parse()?),
        ["fill", dir, shape, spans] => fill(dir, shape, spans.parse()?),
        ["ask", dir, lookups] => ask(dir, lookups.parse()?),
        _ => Err("usage: store-whole ingest|fill|ask …; see the source".into()),
    }
}
