//! What column files cost and give: CPU of writing a span, bytes a span, a trace by id.
//!
//! Times are CPU times of the measuring thread, so they say the same on a busy machine, within its caches' mood.
//!
//! ```text
//! store-columns write SHAPE SPANS          decode, sort and write one file; µs of CPU and bytes a span
//! store-columns rows SHAPE SPANS           rows of rollouts of decoded spans; µs of CPU a span
//! store-columns make SHAPE SPANS FILES DIR write FILES files
//! store-columns lookup DIR LOOKUPS         random traces by id, wall clock and CPU
//! ```

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lens_store::raw::{RawSpan, decode};
use lens_store::rollouts::rows_of_spans;
use lens_store::segment::{SpanOptions, SpanReader, write_spans};
use lens_store::trace::Reader;
use lens_testing::load::{self, Batch, Options, Order, Rollouts};
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Done = Result<(), Box<dyn Error>>;

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn batches(shape: &str, seed: u64, spans: u64) -> Result<Vec<Batch>, Box<dyn Error>> {
    let options = Options { seed, order: Order::Ended, ..Options::default() };
    Ok(match shape {
        "jaeger" => load::jaeger(options, spans / 10).collect(),
        "rl" => {
            let wanted = Rollouts { tasks: u64::MAX / 8, fleets: 8, ..Rollouts::default() };
            let mut made = 0;
            let until = |batch: &Batch| {
                made += batch.spans as u64;
                made <= spans
            };
            load::rollouts(options, wanted).take_while(until).collect()
        }
        other => return Err(format!("no shape {other}: jaeger or rl").into()),
    })
}

/// Decodes as a receiver does, and sorts as a flush does.
fn decoded(batches: &[Batch]) -> Result<(Vec<RawSpan>, Duration, Duration), Box<dyn Error>> {
    let begun = cpu();
    let mut spans = Vec::new();
    for (batch, seq) in batches.iter().zip(1..) {
        spans.extend(decode(&batch.request, seq)?.spans);
    }
    let decoded = cpu();
    spans.sort_unstable_by_key(|span| (span.trace_id, span.start_nanos));
    Ok((spans, decoded - begun, cpu() - decoded))
}

fn write(shape: &str, spans: u64) -> Done {
    let batches = batches(shape, 1, spans)?;
    let body_bytes: usize = batches.iter().map(|batch| batch.request.len()).sum();
    for _ in 0..3 {
        let (spans, decode, sort) = decoded(&batches)?;
        let begun = cpu();
        let path = std::env::temp_dir().join(format!("store-columns-{}", std::process::id()));
        let facts = write_spans(File::create(&path)?, &spans, &SpanOptions::default())?;
        let write = cpu() - begun;
        std::fs::remove_file(&path)?;
        let count = spans.len() as f64;
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / count;
        println!(
            "{shape} spans={} body={:.0} B/span decode={:.2} sort={:.2} write={:.2} total={:.2} us/span file={:.1} B/span",
            spans.len(),
            body_bytes as f64 / count,
            micros(decode),
            micros(sort),
            micros(write),
            micros(decode + sort + write),
            facts.bytes as f64 / count,
        );
    }
    Ok(())
}

/// The rows of the rollouts of each trace, as a flush computes them.
fn rows(shape: &str, spans: u64) -> Done {
    let (spans, ..) = decoded(&batches(shape, 1, spans)?)?;
    for _ in 0..3 {
        let traces = spans.chunk_by(|one, other| one.trace_id == other.trace_id);
        let traces: Vec<Vec<RawSpan>> = traces.map(<[RawSpan]>::to_vec).collect();
        let arrived_nanos = spans.iter().map(|span| span.start_nanos).max();
        let begun = cpu();
        let mut reader = Reader::default();
        let count: usize = traces
            .into_iter()
            .map(|spans| rows_of_spans(&mut reader, spans, arrived_nanos).len())
            .sum();
        let micros = (cpu() - begun).as_secs_f64() * 1e6 / spans.len() as f64;
        println!("{shape} spans={} rows={count} {micros:.2} us/span", spans.len());
    }
    Ok(())
}

fn make(shape: &str, spans: u64, files: u64, dir: &Path) -> Done {
    std::fs::create_dir_all(dir)?;
    let mut bytes = 0;
    for nth in 0..files {
        let (spans, ..) = decoded(&batches(shape, nth + 1, spans)?)?;
        let path = dir.join(format!("{nth:06}.parquet"));
        bytes += write_spans(File::create(&path)?, &spans, &SpanOptions::default())?.bytes;
    }
    println!("files={files} bytes={bytes} bytes/span={:.1}", bytes as f64 / (files * spans) as f64);
    Ok(())
}

fn paths(dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, Duration::as_secs_f64) * 1e3
}

fn lookup(dir: &Path, lookups: usize) -> Done {
    let begun = Instant::now();
    let mut readers = Vec::new();
    for path in paths(dir)? {
        readers.push(SpanReader::open(&path)?);
    }
    println!("opened {} files in {:.0} ms", readers.len(), begun.elapsed().as_secs_f64() * 1e3);
    let mut ids = Vec::new();
    for nth in 0..lookups {
        let prefix = format!("{:04x}", nth.wrapping_mul(40_503) & 0xffff);
        let reader = (nth * 7_919) % readers.len();
        ids.extend(readers[reader].trace_ids(&prefix, 1)?.into_iter().map(|id| (reader, id)));
    }
    for round in ["first", "second"] {
        let (mut wall, mut used, mut spans) = (Vec::new(), Vec::new(), 0);
        for (reader, id) in &ids {
            let (begun, begun_cpu) = (Instant::now(), cpu());
            spans += readers[*reader].trace(*id)?.len();
            wall.push(begun.elapsed());
            used.push(cpu() - begun_cpu);
        }
        wall.sort();
        used.sort();
        println!(
            "{round}: lookups={} spans={spans} wall p50={:.2} p99={:.2} max={:.2} ms, cpu p50={:.2} p99={:.2} ms",
            ids.len(),
            percentile(&wall, 0.5),
            percentile(&wall, 0.99),
            percentile(&wall, 1.0),
            percentile(&used, 0.5),
            percentile(&used, 0.99),
        );
    }
    Ok(())
}

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["write", shape, spans] => write(shape, spans.parse()?),
        ["rows", shape, spans] => rows(shape, spans.parse()?),
        ["make", shape, spans, files, dir] => {
            make(shape, spans.parse()?, files.parse()?, Path::new(dir))
        }
        ["lookup", dir, lookups] => lookup(Path::new(dir), lookups.parse()?),
        _ => Err("usage: store-columns write|rows|make|lookup …; see the source".into()),
    }
}
