//! Every form of site, once as instrumented code writes it and once without: `tests/nothing.rs` proves that both are
//! the same machine code when `lens` is built without its feature `enable`.
//!
//! A function of [`instrumented`] and the one of the same name in [`bare`] belong together.

pub mod bare;
pub mod instrumented;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Stands for the work that is instrumented.
#[inline(always)]
pub(crate) fn work(value: u64) -> u64 {
    value.rotate_left(7) ^ 0x9e37_79b9_7f4a_7c15
}

#[inline(always)]
pub(crate) fn may_fail(value: u64) -> Result<u64, Refused> {
    if value > 7 { Ok(work(value)) } else { Err(Refused) }
}

/// An error that can be displayed, so that the instrumented code would record it.
#[derive(Debug)]
pub struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("refused")
    }
}

/// Pending so many times.
pub(crate) struct Yields(pub u64);

impl Future for Yields {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _task: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        Poll::Pending
    }
}

#[inline(always)]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut task = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
            return output;
        }
    }
}

/// Calls every function of a module with what only the running program knows.
#[macro_export]
macro_rules! run_all {
    ($module:ident, $value:expr) => {{
        let value: u64 = $value;
        [
            $crate::$module::guard(value),
            $crate::$module::nested_guards(value),
            $crate::$module::scope_in_a_loop(value),
            $crate::$module::expression(value).unwrap_or(1),
            $crate::$module::ungrouped(value),
            $crate::$module::built(value),
            $crate::$module::spoken(value),
            $crate::$module::future(value),
            $crate::$module::context_of_a_future(value),
            $crate::$module::traced(value),
            $crate::$module::traced_result(value).unwrap_or(2),
            $crate::$module::traced_future(value).unwrap_or(3),
            $crate::$module::metrics(value),
            $crate::$module::bound_metrics(value),
            $crate::$module::propagation(value),
            $crate::$module::baggage(value),
            $crate::$module::logs(value),
        ]
    }};
}

/// Names of the functions in both modules.
pub const FORMS: &[&str] = &[
    "guard",
    "nested_guards",
    "scope_in_a_loop",
    "expression",
    "ungrouped",
    "built",
    "spoken",
    "future",
    "context_of_a_future",
    "traced",
    "traced_result",
    "traced_future",
    "metrics",
    "bound_metrics",
    "propagation",
    "baggage",
    "logs",
];
