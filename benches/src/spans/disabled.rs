//! A site that is switched off, beside an empty loop.

use std::hint::black_box;
use std::time::Instant;

use fastrace::local::LocalSpan;
use opentelemetry::trace::Tracer as _;

use crate::allocator;
use crate::subjects::otel::{self, Otel};
use crate::subjects::{fastrace as fast, lens as ours, tracing as theirs};
use crate::workload::*;
use crate::{Outcome, Sample, median};

/// Measurements within one process, of which the median counts.
const TURNS: usize = 7;
/// For sites of about a nanosecond.
const MANY: u64 = 10_000_000;
/// For sites of about a hundred.
const FEW: u64 = 300_000;

/// Sites one behind the other in a turn, so that what the loop itself costs, and where it lies, matters little.
const UNROLLED: u64 = 8;

#[inline(always)]
fn timed(times: u64, mut site: impl FnMut(u64)) -> f64 {
    let turns = times / UNROLLED;
    let started = Instant::now();
    for at in 0..turns {
        site(black_box(at));
        site(black_box(at));
        site(black_box(at));
        site(black_box(at));
        site(black_box(at));
        site(black_box(at));
        site(black_box(at));
        site(black_box(at));
    }
    started.elapsed().as_nanos() as f64 / (turns * UNROLLED) as f64
}

/// Time of a site over that of an empty loop that turns as often, both taken in turns.
fn over_empty_loop(times: u64, mut site: impl FnMut(u64)) -> Sample {
    timed(times / 10, &mut site);
    let (mut gross, mut net) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let empty = timed(times, |_| {});
        let with_site = timed(times, &mut site);
        gross.push(with_site);
        net.push(with_site - empty);
    }
    let (count, _) = allocator::count(|| (0..1000).for_each(&mut site));
    Sample::from_iter([
        ("wall", median(&gross)),
        ("net", median(&net)),
        ("allocations", count.calls as f64 / 1000.0),
        ("bytes", count.bytes as f64 / 1000.0),
    ])
}

pub fn run<const N: usize>(subject: &str) -> Outcome<Sample> {
    let data = Data::new();
    let data = &data;
    Ok(match subject {
        "empty" => over_empty_loop(MANY, |_| {}),
        "lens" => {
            let _lens = ours::Lens::start(&Destination::Counted, ours::Ring::Private)?;
            over_empty_loop(MANY, |_| drop(ours::site::<N>(&ours::OFF, "child", data)))
        }
        "lens-not-set-up" => {
            over_empty_loop(MANY, |_| drop(ours::site::<N>(&ours::OFF, "child", data)))
        }
        "tracing-no-subscriber" => {
            over_empty_loop(MANY, |_| drop(theirs::child::<N>(data).entered()))
        }
        "tracing-off" => {
            use tracing_subscriber::filter::LevelFilter;
            use tracing_subscriber::layer::SubscriberExt as _;
            let subscriber = tracing_subscriber::registry().with(LevelFilter::OFF);
            tracing::subscriber::set_global_default(subscriber)?;
            over_empty_loop(MANY, |_| drop(theirs::child::<N>(data).entered()))
        }
        "fastrace-no-parent" => {
            let _fastrace = fast::Fastrace::start();
            over_empty_loop(MANY / 10, |_| {
                let span = LocalSpan::enter_with_local_parent("child");
                drop(if N == 0 { span } else { span.with_properties(|| fast::properties(data)) });
            })
        }
        "otel-always-off" => {
            let otel = Otel::off();
            over_empty_loop(FEW, |_| {
                let builder = otel.tracer.span_builder("child");
                let builder = match N {
                    0 => builder,
                    _ => builder.with_attributes(otel::attributes::<N>(data)),
                };
                drop(builder.start(&otel.tracer));
            })
        }
        other => return Err(format!("unknown subject {other}").into()),
    })
}
