//! Spans that have one id: copies, of which one counts, and others, which are all kept.
//!
//! Rows that agree in trace id, span id, start and name are copies: a request that was sent twice, or what was recovered
//! for a process beside what it had sent itself. What is complete beats what was cut off, then the later arrival.

use std::cmp::Ordering;

use super::span::Span;
use crate::buckets::sort_large;

/// Leaves out copies, marks other spans of one id, and orders by trace and span id; returns how many were left out.
pub fn distinct(spans: &mut Vec<Span>) -> usize {
    let before = spans.len();
    sort_by_ids(spans);
    let mut is_left_out = Vec::new();
    let mut first = 0;
    while first < spans.len() {
        let id = |span: &Span| (span.raw.trace_id, span.raw.span_id);
        let same = spans[first..].iter().take_while(|span| id(span) == id(&spans[first])).count();
        if same > 1 {
            is_left_out.resize(before, false);
            settle(&mut spans[first..first + same], &mut is_left_out[first..first + same]);
        }
        first += same;
    }
    if !is_left_out.is_empty() {
        let mut left_out = is_left_out.into_iter();
        spans.retain(|_| !left_out.next().unwrap_or(false));
    }
    before - spans.len()
}

/// Sorts by trace and span id.
fn sort_by_ids(spans: &mut [Span]) {
    if !spans.is_sorted_by_key(|span| span.raw.trace_id) {
        spans.sort_unstable_by_key(|span| span.raw.trace_id);
    }
    for of_trace in spans.chunk_by_mut(|one, other| one.raw.trace_id == other.raw.trace_id) {
        if !of_trace.is_sorted_by_key(|span| span.raw.span_id) {
            sort_large(of_trace, |span| span.raw.span_id.number());
        }
    }
}

/// All spans of one id.
fn settle(spans: &mut [Span], is_left_out: &mut [bool]) {
    spans.sort_by(order);
    let mut kept = 1;
    for at in 1..spans.len() {
        is_left_out[at] = is_copy(&spans[at - 1], &spans[at]);
        kept += usize::from(!is_left_out[at]);
    }
    if kept > 1 {
        spans.iter_mut().for_each(|span| span.is_twin = true);
    }
}

fn is_copy(one: &Span, other: &Span) -> bool {
    one.raw.start_nanos == other.raw.start_nanos && raw_name(one) == raw_name(other)
}

/// Copies beside each other, the one that counts first; the same whatever the order of arrival was.
fn order(one: &Span, other: &Span) -> Ordering {
    let by_name = || raw_name(one).cmp(raw_name(other));
    let by_end = || one.is_truncated.cmp(&other.is_truncated);
    let by_arrival = || other.raw.ingest_seq.cmp(&one.raw.ingest_seq);
    let by_content = || other.raw.message.cmp(&one.raw.message);
    let by_start = one.raw.start_nanos.cmp(&other.raw.start_nanos);
    by_start.then_with(by_name).then_with(by_end).then_with(by_arrival).then_with(by_content)
}

fn raw_name(span: &Span) -> &str {
    span.raw.view().map_or("", |view| view.name)
}
