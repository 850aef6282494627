//! What an ended span costs its caller: warm, with a walked cache, and on two threads at once.

use std::sync::Barrier;
use std::time::Instant;

use crate::clocks::{self, Ticks};
use crate::workload::*;
use crate::{Outcome, Sample, allocator, median};

/// Groups between two flushes: fewer spans than the shortest default queue of a peer holds (2,048).
const BURST_GROUPS: usize = 100;
const BURST_SPANS: f64 = (BURST_GROUPS * SPANS) as f64;
const WARM_UP_BURSTS: usize = 20;
const BURSTS: usize = 200;
const COUNTED_BURSTS: usize = 10;
const THREADS: usize = 2;

fn burst<S: Subject, const N: usize>(subject: &S, data: &Data) {
    for _ in 0..BURST_GROUPS {
        subject.group::<N>(data, &mut || {});
    }
}

fn in_context<S: Subject, const N: usize>(subject: &S, data: &Data, mut run: impl FnMut()) {
    if N == WITH_CONTEXT { subject.in_rollout(data, &mut run) } else { run() }
}

/// Every span that was made must have been delivered, else its cost is that of throwing it away.
fn check(subject: &impl Subject, made: u64) -> Outcome<()> {
    subject.flush();
    let delivered = subject.delivered();
    if delivered != made {
        return Err(format!("{made} spans were made and {delivered} delivered").into());
    }
    Ok(())
}

pub fn warm<S: Subject, const N: usize>(subject: &S) -> Outcome<Sample> {
    let data = Data::new();
    let (mut wall, mut thread) = (Vec::new(), Vec::new());
    let mut all = 0.0;
    let mut sample = Sample::new();
    in_context::<S, N>(subject, &data, || {
        for _ in 0..WARM_UP_BURSTS {
            burst::<S, N>(subject, &data);
            subject.flush();
        }
        let process = clocks::process_nanos();
        for _ in 0..BURSTS {
            let cpu = clocks::thread_nanos();
            let started = Instant::now();
            burst::<S, N>(subject, &data);
            wall.push(started.elapsed().as_nanos() as f64 / BURST_SPANS);
            thread.push((clocks::thread_nanos() - cpu) / BURST_SPANS);
            subject.flush();
        }
        all = (clocks::process_nanos() - process) / (BURSTS as f64 * BURST_SPANS);
        let (mut calls, mut bytes, mut everywhere) = (0, 0, 0);
        for _ in 0..COUNTED_BURSTS {
            let (count, _) = allocator::count(|| burst::<S, N>(subject, &data));
            (calls, bytes) = (calls + count.calls, bytes + count.bytes);
            subject.flush();
        }
        for _ in 0..COUNTED_BURSTS {
            let (_, all) = allocator::count(|| {
                burst::<S, N>(subject, &data);
                subject.flush();
            });
            everywhere += all;
        }
        let spans = COUNTED_BURSTS as f64 * BURST_SPANS;
        sample.insert("allocations", calls as f64 / spans);
        sample.insert("bytes", bytes as f64 / spans);
        sample.insert("all_allocations", everywhere as f64 / spans);
    });
    let bursts = WARM_UP_BURSTS + BURSTS + 2 * COUNTED_BURSTS;
    check(subject, (bursts * BURST_GROUPS * SPANS) as u64)?;
    sample.extend([("wall", median(&wall)), ("thread", median(&thread)), ("all", all)]);
    Ok(sample)
}

/// Two threads make spans at the same time; their flushes are not timed.
pub fn two_threads<S: Subject, const N: usize>(subject: &S) -> Outcome<Sample> {
    let begin = Barrier::new(THREADS);
    let end = Barrier::new(THREADS);
    let one_thread = |flushes: bool| {
        let data = Data::new();
        let (mut wall, mut thread) = (Vec::new(), Vec::new());
        for at in 0..WARM_UP_BURSTS + BURSTS {
            begin.wait();
            let cpu = clocks::thread_nanos();
            let started = Instant::now();
            burst::<S, N>(subject, &data);
            if at >= WARM_UP_BURSTS {
                wall.push(started.elapsed().as_nanos() as f64 / BURST_SPANS);
                thread.push((clocks::thread_nanos() - cpu) / BURST_SPANS);
            }
            end.wait();
            if flushes {
                subject.flush();
            }
        }
        (median(&wall), median(&thread))
    };
    let process = clocks::process_nanos();
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| one_thread(false));
        let first = one_thread(true);
        (first, other.join().expect("no panic"))
    });
    let spans = ((WARM_UP_BURSTS + BURSTS) * THREADS * BURST_GROUPS * SPANS) as u64;
    let all = (clocks::process_nanos() - process) / spans as f64;
    check(subject, spans)?;
    Ok(Sample::from_iter([
        ("wall", (first.0 + second.0) / 2.0),
        ("thread", (first.1 + second.1) / 2.0),
        ("all", all),
    ]))
}

/// More than a core's first cache, about as much as its second.
const WALKED_BYTES: usize = 1 << 20;
const CACHE_LINE_BYTES: usize = 64;
const COLD_GROUPS: usize = 200;
/// A group has one timed stretch more than spans: the root's start and end are apart.
const STRETCHES: usize = SPANS + 1;

/// Stops the clock, walks a buffer, and starts the clock again.
struct Walk {
    buffer: Vec<u8>,
    since: u64,
    ticks: u64,
    stretches: usize,
}

impl Walk {
    #[inline(always)]
    fn between(&mut self) {
        self.pause();
        for at in (0..WALKED_BYTES).step_by(CACHE_LINE_BYTES) {
            self.buffer[at] = self.buffer[at].wrapping_add(1);
        }
        self.since = Ticks::now();
    }

    #[inline(always)]
    fn pause(&mut self) {
        self.ticks += Ticks::now() - self.since;
        self.stretches += 1;
    }
}

fn cold_group<S: Subject, const N: usize>(
    subject: &S,
    data: &Data,
    ticks: Ticks,
    walk: &mut Walk,
) -> f64 {
    (walk.since, walk.ticks, walk.stretches) = (Ticks::now(), 0, 0);
    subject.group::<N>(data, &mut || walk.between());
    walk.pause();
    assert_eq!(walk.stretches, STRETCHES + 1, "a subject forgot to say where it is");
    ticks.nanos(walk.ticks) / SPANS as f64
}

/// Each operation after a walk through a mebibyte; what the walk and the clock cost by themselves is subtracted.
pub fn cold<S: Subject, const N: usize>(subject: &S) -> Outcome<Sample> {
    let data = Data::new();
    let ticks = Ticks::calibrated();
    let mut walk = Walk { buffer: vec![0; WALKED_BYTES], since: 0, ticks: 0, stretches: 0 };
    let (mut with_spans, mut without) = (Vec::new(), Vec::new());
    for _ in 0..COLD_GROUPS {
        with_spans.push(cold_group::<S, N>(subject, &data, ticks, &mut walk));
        subject.flush();
        without.push(cold_group::<Nothing, N>(&Nothing, &data, ticks, &mut walk));
    }
    check(subject, (COLD_GROUPS * SPANS) as u64)?;
    Ok(Sample::from_iter([("wall", median(&with_spans) - median(&without))]))
}
