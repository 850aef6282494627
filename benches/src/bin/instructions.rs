//! The paths whose instructions `benches/callgrind` counts: a site that is off, and an ended span.
//!
//! Valgrind's callgrind counts while [`measured_spans`] runs on this thread and at no other time, so start-up, warm-up
//! and the exporting thread are not in the figures. Alone it does nothing worth seeing.

use std::hint::black_box;
use std::time::Duration;

use lens::config::{ExporterKind, LensConfig};
use lens::{
    Context, ExportOutcome, Group, InSpan as _, Span, SpanBatch, SpanExporter, managed_span,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

static OFF: Group = Group::new("off");
static ON: Group = Group::new("on");
static GROUPS: &[&Group] = &[&OFF, &ON];

/// Turns before those that count, so that buffers have grown.
const WARM_UP: u64 = 4_000;
const PATIENCE: Duration = Duration::from_secs(60);
const IDS: &[&str] = &[
    "nemo.gym.rollout.id",
    "nemo.gym.task.index",
    "nemo.gym.rollout.index",
    "nemo.gym.attempt.index",
    "nemo.gym.collection.id",
];

struct Discard;

impl SpanExporter for Discard {
    fn export(&mut self, _batch: &SpanBatch) -> ExportOutcome {
        ExportOutcome::Exported { rejected: 0 }
    }
}

/// What callgrind looks for by name.
#[unsafe(no_mangle)]
#[inline(never)]
fn measured_spans(turns: u64, turn: &mut dyn FnMut(u64)) {
    turn(turns);
}

/// Repeats a site; one indirect call covers all turns.
fn repeat(turns: u64, mut site: impl FnMut(u64)) {
    let mut turn = |turns| (0..turns).for_each(|at| site(black_box(at)));
    turn(WARM_UP);
    measured_spans(turns, &mut turn);
}

macro_rules! four {
    ($group:expr, $at:expr, $text:expr) => {
        managed_span!(
            $group,
            "span",
            "bench.fixed" = "a fixed text",
            "bench.text" = $text,
            "bench.number" = $at as i64,
            "bench.flag" = true
        )
    };
}

macro_rules! eight {
    ($group:expr, $at:expr, $text:expr) => {
        managed_span!(
            $group,
            "span",
            "bench.fixed" = "a fixed text",
            "bench.text" = $text,
            "bench.number" = $at as i64,
            "bench.flag" = true,
            "bench.fixed.again" = "a fixed text",
            "bench.text.again" = $text,
            "bench.number.again" = $at as i64,
            "bench.flag.again" = true
        )
    };
}

fn rollout() -> Context {
    let values = ["1235-3", "1235", "3", "0", "5eed12345678"].map(str::to_owned);
    let entries: Vec<_> = IDS.iter().copied().zip(values).collect();
    Context::empty().with_baggage(&entries)
}

/// Polls a future once.
fn poll(future: impl Future) {
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = black_box(std::pin::pin!(future).poll(&mut task).is_ready());
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(case), Some(turns)) = (arguments.next(), arguments.next()) else {
        return Err("usage: instructions CASE TURNS".into());
    };
    let turns: u64 = turns.parse()?;
    let text = format!("runtime {}", black_box(1234));
    let text = text.as_str();

    lens::register("bench", GROUPS, &[]);
    lens::promote_baggage_keys(IDS);
    let config = LensConfig {
        enabled: true,
        span_groups: "on".to_owned(),
        traces_exporter: ExporterKind::None,
        metrics_exporter: ExporterKind::None,
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry_with(config, vec![Box::new(Discard)])?;
    match case.as_str() {
        "empty_loop" => repeat(turns, |_| {}),
        "off_0_attributes" => repeat(turns, |_| drop(managed_span!(OFF, "span"))),
        "off_4_attributes" => repeat(turns, |at| drop(four!(OFF, at, text))),
        "off_future" => repeat(turns, |_| {
            poll(std::future::ready(()).in_span(Span::start(&OFF, "span")));
        }),
        "on_0_attributes" => repeat(turns, |_| drop(managed_span!(ON, "span"))),
        "on_4_attributes" => repeat(turns, |at| drop(four!(ON, at, text))),
        "on_8_attributes" => repeat(turns, |at| drop(eight!(ON, at, text))),
        "on_4_attributes_of_a_rollout" => {
            let _rollout = rollout().attach();
            repeat(turns, |at| drop(four!(ON, at, text)));
        }
        "on_4_attributes_below_a_span" => {
            let _root = managed_span!(ON, "root");
            repeat(turns, |at| drop(four!(ON, at, text)));
        }
        "on_future" => repeat(turns, |_| {
            poll(std::future::ready(()).in_span(Span::start(&ON, "span")));
        }),
        other => return Err(format!("unknown case {other}").into()),
    }
    handle.force_flush(PATIENCE);
    let snapshot = handle.snapshot();
    // A span that is thrown away takes another path.
    if snapshot.dropped_total() > 0 || case.starts_with("on") && snapshot.ended < turns {
        return Err(format!("not every span was kept: {snapshot:?}").into());
    }
    Ok(())
}
