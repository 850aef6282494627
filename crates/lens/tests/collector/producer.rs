//! A thread that ends numbered spans for as long as it is let.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lens::{Group, Span, TelemetryHandle};

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];

/// How a producer goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Looks to it that the buffer never overflows, which is the test's affair alone.
    WhatFits,
    /// As fast as it can.
    Unbridled,
}

pub struct Producer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

/// Spans that are ended between two looks at the buffer; a tenth of a slot.
const STEP: u64 = 50;

pub fn end_spans(numbers: Range<u64>) {
    for number in numbers {
        let mut span = Span::start(&WORK, "numbered");
        span.set("number", number);
        span.end();
    }
}

/// Makes the group known; before setup.
pub fn register() {
    lens::register("test", GROUPS, &[]);
}

impl Producer {
    pub fn start(handle: &TelemetryHandle, pace: Pace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, handle) = (Arc::clone(&stop), handle.clone());
        let thread = std::thread::spawn(move || {
            let mut next = 0;
            while !stopped.load(Ordering::Relaxed) {
                while pace == Pace::WhatFits && handle.snapshot().buffer_fill > 0.8 {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                end_spans(next..next + STEP);
                next += STEP;
            }
            next
        });
        Self { stop, thread }
    }

    /// How many it ended.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}
