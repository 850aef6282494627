//! What a site allocates. The counting allocator is the one place that needs `unsafe`.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lens::config::{ExporterKind, LensConfig};
use lens::{
    ExportOutcome, Group, InSpan as _, Span, SpanBatch, SpanExporter, managed_span, trace_fn,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static OFF: Group = Group::new("off");
static ON: Group = Group::new("on");
static GROUPS: &[&Group] = &[&OFF, &ON];
const SIZE: &str = "test.size";

fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    run();
    ALLOCATIONS.with(Cell::get) - before
}

#[trace_fn(group = OFF)]
fn traced(value: u64) -> u64 {
    value + 1
}

fn disabled_site(at: u64) {
    let _guard = managed_span!(OFF, format!("name {at}"), SIZE = at.to_string());
    let value = managed_span!(OFF, "expression", SIZE = at.to_string() => at);
    assert_eq!(traced(value), at + 1);
    let mut span = Span::start(&OFF, "span");
    span.set(SIZE, at);
    drop(std::future::ready(()).in_span(span));
}

struct Discard;

impl SpanExporter for Discard {
    fn export(&mut self, _batch: &SpanBatch) -> ExportOutcome {
        ExportOutcome::Exported { rejected: 0 }
    }
}

#[test]
fn disabled_site_allocates_nothing_and_enabled_one_only_while_buffers_grow() {
    lens::register("test", GROUPS, &[]);
    assert_eq!(allocations(|| (0..1000).for_each(disabled_site)), 0, "before setup");
    let config = LensConfig {
        enabled: true,
        span_groups: "on".to_owned(),
        traces_exporter: ExporterKind::None,
        metrics_exporter: ExporterKind::None,
        ..LensConfig::default()
    };
    lens::setup_telemetry_with(config, vec![Box::new(Discard)]).expect("starts");
    assert_eq!(allocations(|| (0..1000).for_each(disabled_site)), 0, "after setup");
    let enabled = |at: u64| {
        let mut guard = managed_span!(ON, "on", SIZE = at, "text" = "a text");
        guard.set("flag", true);
        drop(managed_span!(ON, "below", SIZE = at));
    };
    (0..10).for_each(enabled);
    let grown = allocations(|| (0..1000).for_each(enabled));
    assert!(grown < 20, "2000 spans made {grown} allocations");
}
