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
    let mut kept: Vec<RawSpan> = Vec::with_capacity(before);
    // Where those begin that agree with the newest in ids and start.
    let mut group = 0;
    for span in spans.drain(..) {
        if kept.get(group).is_none_or(|first| !agree(first, &span)) {
            group = kept.len();
            kept.push(span);
            continue;
        }
        let own = name(&span);
        match kept[group..].iter_mut().find(|other| name(other) == own) {
            // They come in order of arrival.
            Some(other) if is_truncated(&span) && !is_truncated(other) => {}
            Some(other) => *other = span,
            None => kept.push(span),
        }
    }
    *spans = kept;
    before - spans.len()
}

fn agree(one: &RawSpan, other: &RawSpan) -> bool {
    (one.trace_id, one.span_id, one.start_nanos)
        == (other.trace_id, other.span_id, other.start_nanos)
}

fn name(span: &RawSpan) -> Vec<u8> {
    span.view().map_or_else(|_| Vec::new(), |view| view.name.as_bytes().to_vec())
}

fn is_truncated(span: &RawSpan) -> bool {
    let says = |view: SpanView<'_>| {
        (view.attributes()).filter_map(Result::ok).any(|(key, value)| {
            key == lens::semconv::TRUNCATED && matches!(value, AnyValue::Bool(true))
        })
    };
    span.view().is_ok_and(says)
}
