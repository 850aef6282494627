//! The work of [`instrumented`](crate::instrumented) without a site.

// The proof looks the functions up by name.
#![allow(unsafe_code)]

use crate::{Refused, Yields, block_on, may_fail, work};

#[unsafe(export_name = "bare_guard")]
pub fn guard(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_nested_guards")]
pub fn nested_guards(value: u64) -> u64 {
    work(work(value) + 1)
}

#[unsafe(export_name = "bare_scope_in_a_loop")]
pub fn scope_in_a_loop(value: u64) -> u64 {
    let mut sum = 0;
    for at in 0..value {
        sum ^= work(at);
    }
    sum
}

#[unsafe(export_name = "bare_expression")]
pub fn expression(value: u64) -> Result<u64, Refused> {
    may_fail(value)
}

#[unsafe(export_name = "bare_ungrouped")]
pub fn ungrouped(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_built")]
pub fn built(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_spoken")]
pub fn spoken(value: u64) -> u64 {
    may_fail(value).unwrap_or(9)
}

#[unsafe(export_name = "bare_future")]
pub fn future(value: u64) -> u64 {
    block_on(async move {
        Yields(value).await;
        let first = work(value);
        Yields(first & 3).await;
        work(first)
    })
}

#[unsafe(export_name = "bare_context_of_a_future")]
pub fn context_of_a_future(value: u64) -> u64 {
    block_on(async move {
        Yields(value).await;
        work(value)
    })
}

#[unsafe(export_name = "bare_traced")]
pub fn traced(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_traced_result")]
pub fn traced_result(value: u64) -> Result<u64, Refused> {
    let first = may_fail(value)?;
    Ok(first + 1)
}

async fn fetch(value: u64) -> Result<u64, Refused> {
    Yields(value & 3).await;
    let first = may_fail(value)?;
    Yields(first & 3).await;
    Ok(first + 1)
}

#[unsafe(export_name = "bare_traced_future")]
pub fn traced_future(value: u64) -> Result<u64, Refused> {
    block_on(fetch(value))
}

#[unsafe(export_name = "bare_metrics")]
pub fn metrics(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_bound_metrics")]
pub fn bound_metrics(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_propagation")]
pub fn propagation(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_baggage")]
pub fn baggage(value: u64) -> u64 {
    work(value)
}

#[unsafe(export_name = "bare_logs")]
pub fn logs(value: u64) -> u64 {
    may_fail(value).unwrap_or(5)
}
