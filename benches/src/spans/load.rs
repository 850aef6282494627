//! Whole ways out of the process: paced so that nothing is lost, at a fixed rate, flat out, and against a receiver
//! that is too slow.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::receivers::Receiver;
use crate::workload::*;
use crate::{Outcome, Sample, clocks};

/// Attributes of a span in all of these.
const ATTRIBUTES: usize = 4;

/// Spans sent end to end in one measurement.
const WIRE_SPANS: u64 = 300_000;
/// Spans on their way at a time; half of the queue that the peers get.
const IN_FLIGHT_SPANS: u64 = 32_768;

/// Sends spans as fast as nothing is lost.
pub fn end_to_end<S: Subject>(subject: &S, receiver: Receiver) -> Outcome<Sample> {
    let data = Data::new();
    // Connections and buffers exist before the clock runs.
    let warm_up = 10_000;
    send(subject, &data, warm_up);
    subject.flush();
    let (cpu, started) = (clocks::process_nanos(), Instant::now());
    send(subject, &data, WIRE_SPANS);
    subject.flush();
    let (wall, cpu) = (started.elapsed().as_secs_f64(), clocks::process_nanos() - cpu);
    subject.shut_down();
    let received = receiver.spans()?;
    Ok(Sample::from_iter([
        ("spans_per_second", WIRE_SPANS as f64 / wall),
        ("cpu_seconds_per_million", cpu / 1e9 / (WIRE_SPANS as f64 / 1e6)),
        ("lost", (warm_up + WIRE_SPANS) as f64 - received as f64),
    ]))
}

fn send<S: Subject>(subject: &S, data: &Data, spans: u64) {
    let before = subject.delivered();
    let mut made = 0;
    while made < spans {
        for _ in 0..10 {
            subject.group::<ATTRIBUTES>(data, &mut || {});
            made += SPANS as u64;
        }
        let lost = subject.said_lost().unwrap_or(0);
        while made - (subject.delivered() - before + lost).min(made) > IN_FLIGHT_SPANS {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// How producers behave.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub threads: usize,
    pub seconds: f64,
    /// Of all threads together; `None` is as fast as they can.
    pub spans_per_second: Option<f64>,
}

pub const PACED: Plan = Plan { threads: 2, seconds: 10.0, spans_per_second: Some(1e6) };
pub const FLAT_OUT: Plan = Plan { threads: 2, seconds: 2.0, spans_per_second: None };
pub const SLOW: Plan = Plan { threads: 2, seconds: 8.0, spans_per_second: None };
pub const SLOW_BYTES_PER_SECOND: u64 = 1_000_000;

/// What one producer saw.
#[derive(Clone, Copy, Debug, Default)]
struct Produced {
    spans: u64,
    cpu_nanos: f64,
    worst_group_nanos: u64,
    waits: f64,
}

fn produce<S: Subject>(subject: &S, plan: Plan, started: Instant, stop: &AtomicBool) -> Produced {
    let data = Data::new();
    let rate = plan.spans_per_second.map(|rate| rate / plan.threads as f64);
    let mut produced = Produced::default();
    let (cpu, waits) = (clocks::thread_nanos(), clocks::waits_of_this_thread());
    let mut sleeps = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = rate.map_or(u64::MAX, |rate| (started.elapsed().as_secs_f64() * rate) as u64);
        if produced.spans >= due {
            sleeps += 1;
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        let before = Instant::now();
        subject.group::<ATTRIBUTES>(&data, &mut || {});
        let nanos = before.elapsed().as_nanos() as u64;
        produced.worst_group_nanos = produced.worst_group_nanos.max(nanos);
        produced.spans += SPANS as u64;
    }
    produced.cpu_nanos = clocks::thread_nanos() - cpu;
    produced.waits = clocks::waits_of_this_thread() - waits - f64::from(sleeps);
    produced
}

/// Runs producers beside an exporter and says what became of their spans.
pub fn run<S: Subject>(subject: &S, receiver: Receiver, plan: Plan) -> Outcome<Sample> {
    subject.group::<ATTRIBUTES>(&Data::new(), &mut || {});
    subject.flush();
    let at_start = clocks::resident_bytes();
    let (process, started) = (clocks::process_nanos(), Instant::now());
    let stop = AtomicBool::new(false);
    let (mut most_fill, mut most_resident, mut at_half) = (0.0_f64, 0.0_f64, 0.0_f64);
    let (produced, delivered_live) = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..plan.threads)
            .map(|_| scope.spawn(|| produce(subject, plan, started, &stop)))
            .collect();
        while started.elapsed().as_secs_f64() < plan.seconds {
            std::thread::sleep(Duration::from_millis(20));
            most_fill = most_fill.max(subject.fill().unwrap_or(0.0));
            let resident = clocks::resident_bytes();
            most_resident = most_resident.max(resident);
            if started.elapsed().as_secs_f64() <= plan.seconds / 2.0 {
                at_half = at_half.max(resident);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let delivered = subject.delivered();
        let produced: Vec<Produced> =
            producers.into_iter().map(|producer| producer.join().expect("no panic")).collect();
        (produced, delivered)
    });
    let seconds = started.elapsed().as_secs_f64();
    subject.shut_down();
    let cpu = clocks::process_nanos() - process;
    let received = receiver.spans()?;

    let made = produced.iter().map(|one| one.spans).sum::<u64>() + SPANS as u64;
    let spans = made as f64;
    let mut sample = Sample::from_iter([
        ("offered_per_second", spans / seconds),
        ("delivered_live_per_second", delivered_live as f64 / seconds),
        ("made", spans),
        ("received", received as f64),
        ("lost_percent", (spans - received as f64) / spans * 100.0),
        ("producer_cpu", produced.iter().map(|one| one.cpu_nanos).sum::<f64>() / spans),
        ("all_cpu", cpu / spans),
        (
            "worst_call_millis",
            produced.iter().map(|one| one.worst_group_nanos).max().unwrap_or(0) as f64 / 1e6,
        ),
        ("waits", produced.iter().map(|one| one.waits).sum()),
        ("resident_mb", (most_resident - at_start) / 1e6),
        ("later_growth_mb", (most_resident - at_half).max(0.0) / 1e6),
    ]);
    if subject.fill().is_some() {
        sample.insert("most_fill_percent", most_fill * 100.0);
    }
    if let Some(lost) = subject.said_lost() {
        // Every span is delivered or counted as lost; what nobody counted is an error of the library.
        let left = subject.waiting().unwrap_or(0);
        let uncounted = spans - subject.delivered() as f64 - lost as f64 - left as f64;
        sample.insert("uncounted", uncounted);
    }
    Ok(sample)
}

/// The receiver of a mode.
pub fn receiver(slow: bool, sink: &Path) -> Outcome<Receiver> {
    if slow { Receiver::slow(SLOW_BYTES_PER_SECOND) } else { Receiver::sink(sink) }
}
