//! How long spans say they took, wherever they are written. One test: a process sets telemetry up once.

use std::time::{Duration, Instant};

use lens::{Group, managed_span};
use lens_testing::collect_groups;

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
/// More spans than one slot of the ring has room for.
const SPANS: usize = 1_500;
const LENGTH: Duration = Duration::from_micros(20);
/// As a share of that: the counter's rate is measured, and better every second.
const LEAST: f64 = 0.9;

/// Guarantees: the end is right of a thread's first span, of a slot's first span, and of all others.
#[test]
fn every_span_is_as_long_as_what_it_spans() {
    lens::register("test", GROUPS, &[("default", &["work"])]);
    let work = || {
        for _ in 0..SPANS {
            let _span = managed_span!(WORK, "timed", "text" = "some bytes, to fill a slot");
            let since = Instant::now();
            while since.elapsed() < LENGTH {
                std::hint::spin_loop();
            }
        }
    };
    let ((), spans) = collect_groups("work", || {
        for _ in 0..2 {
            std::thread::spawn(work).join().expect("no panic");
        }
    });
    assert_eq!(spans.len(), 2 * SPANS);
    let least = LENGTH.mul_f64(LEAST).as_nanos() as u64;
    for (at, span) in spans.iter().enumerate() {
        let length = span.end_nanos - span.start_nanos;
        assert!(length >= least, "span {at} took {length} ns");
    }
}
