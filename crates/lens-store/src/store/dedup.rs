//! Spans that arrived more than once.
//!
//! Rows that agree in trace id, span id, start and name count once: a complete one beats one that was cut off, then
//! the later arrival wins. Rows that agree in their ids only are different spans.

use lens_otlp::view::{AnyValue, SpanView};

use crate::raw::RawSpan;

/// Sorts spans by trace, start and span id, and leaves one of each. Returns how many went.
pub fn deduplicate(spans: &mut Vec<RawSpan>) -> usize {
    let before = spans.len();
    spans.sort_by_key(|span| (span.trace_id, span.start_nanos, span.span_id, span.ingest_seq));
    if spans.is_sorted_by(|one, other| !agree(one, other)) {
        return 0;
    }
    let all: Vec<usize> = (0..before).collect();
    let mut kept = one_of_each(&all, |at| &spans[at]).into_iter().peekable();
    let mut at = 0;
    spans.retain(|_| {
        at += 1;
        kept.next_if_eq(&(at - 1)).is_some()
    });
    before - spans.len()
}

/// Leaves one of each of spans that lie in the order of trace, start, span id and arrival, and keeps that order but
/// for arrival.
pub(super) fn one_of_each<'a, T: Copy + Ord>(
    ordered: &[T],
    span: impl Fn(T) -> &'a RawSpan,
) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(ordered.len());
    // Where those begin that agree with the newest in ids and start.
    let mut group = 0;
    for one in ordered {
        if kept.get(group).is_none_or(|first| !agree(span(*first), span(*one))) {
            group = kept.len();
            kept.push(*one);
            continue;
        }
        let own = name(span(*one));
        match kept[group..].iter_mut().find(|other| name(span(**other)) == own) {
            // They come in order of arrival.
            Some(other) if is_truncated(span(*one)) && !is_truncated(span(*other)) => {}
            Some(other) => *other = *one,
            None => kept.push(*one),
        }
        kept[group..].sort_unstable();
    }
    kept
}

fn agree(one: &RawSpan, other: &RawSpan) -> bool {
    (one.trace_id, one.span_id, one.start_nanos)
        == (other.trace_id, other.span_id, other.start_nanos)
}

fn name(span: &RawSpan) -> &str {
    span.view().map_or("", |view| view.name)
}

fn is_truncated(span: &RawSpan) -> bool {
    let says = |view: SpanView<'_>| {
        (view.attributes()).filter_map(Result::ok).any(|(key, value)| {
            key == lens::semconv::TRUNCATED && matches!(value, AnyValue::Bool(true))
        })
    };
    span.view().is_ok_and(says)
}
