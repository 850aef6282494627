//! Spans that are kept from one flush to the next: those of traces that seem to go on.
//!
//! Rows of rollouts come from all spans of a trace. What a process sends of it seldom ends in the request in which
//! another's begins, so at each flush many traces have spans in the segments of the flush before, and to read those
//! back costs more than to write them. These copies hold nothing else of their requests alive, and are bounded.
//!
//! # Guarantee
//!
//! What is carried of a trace is all of it that is in segments.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::ids::TraceId;
use crate::raw::{Origin, RawResource, RawSpan};

/// What a span takes besides its message.
const SPAN_BYTES: usize = size_of::<RawSpan>();
/// What a trace takes besides its spans, and an origin besides its texts; about.
const TRACE_BYTES: usize = 160;
const ORIGIN_BYTES: usize = size_of::<Origin>() + size_of::<RawResource>() + 32;

/// Committed spans of traces.
#[derive(Debug, Default)]
pub(super) struct Carried {
    traces: HashMap<TraceId, OfTrace>,
    bytes: usize,
}

#[derive(Debug)]
struct OfTrace {
    spans: Vec<RawSpan>,
    bytes: usize,
}

impl Carried {
    /// All spans of a trace that are in segments, copies among them, where they are known.
    pub(super) fn get(&self, id: TraceId) -> Option<&[RawSpan]> {
        self.traces.get(&id).map(|trace| trace.spans.as_slice())
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its traces, the one that got a span last first.
    pub(super) fn newest_first(&self) -> Vec<TraceId> {
        let newest = |spans: &[RawSpan]| spans.iter().map(|span| span.ingest_seq).max();
        let mut traces: Vec<_> =
            self.traces.iter().map(|(id, trace)| (newest(&trace.spans), *id)).collect();
        traces.sort_unstable_by(|one, other| other.cmp(one));
        traces.into_iter().map(|(_, id)| id).collect()
    }
}

/// What is to be carried to the next flush, while it is chosen.
#[derive(Debug)]
pub(super) struct Carrying<'a> {
    before: &'a Carried,
    next: Carried,
    room_bytes: usize,
    /// With less room than this it is full: most traces would be looked at in vain.
    least_bytes: usize,
    origins: HashSet<Arc<Origin>>,
    /// The copy that was asked for last: spans of a request share one origin.
    last: Option<(Arc<Origin>, Arc<Origin>)>,
}

impl<'a> Carrying<'a> {
    pub(super) fn new(before: &'a Carried, room_bytes: usize) -> Self {
        let (next, origins) = (Carried::default(), HashSet::new());
        Self { before, next, room_bytes, least_bytes: room_bytes / 16, origins, last: None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.room_bytes <= self.least_bytes
    }

    /// Takes a trace along, if there is room: all its spans in segments are those that were carried so far and these.
    pub(super) fn take(&mut self, id: TraceId, more: &[RawSpan]) {
        let before = self.before.traces.get(&id);
        let of_spans: usize = more.iter().map(|span| span.message.len() + SPAN_BYTES).sum();
        let mut bytes = before.map_or(TRACE_BYTES, |trace| trace.bytes) + of_spans;
        if bytes > self.room_bytes {
            return;
        }
        let mut messages = Vec::with_capacity(more.iter().map(|span| span.message.len()).sum());
        more.iter().for_each(|span| messages.extend_from_slice(&span.message));
        let mut messages = Bytes::from(messages);
        let mut spans = before.map_or_else(Vec::new, |trace| trace.spans.clone());
        spans.reserve_exact(more.len());
        for span in more {
            let message = messages.split_to(span.message.len());
            let (origin, of_origin) = self.origin(&span.origin);
            bytes += of_origin;
            spans.push(RawSpan { message, origin, ..*span });
        }
        // Origins are few and short, or the room is at its end early.
        self.room_bytes = self.room_bytes.saturating_sub(bytes);
        self.next.bytes += bytes;
        self.next.traces.insert(id, OfTrace { spans, bytes });
    }

    /// A copy that holds no request alive, and what it takes if it is new.
    fn origin(&mut self, origin: &Arc<Origin>) -> (Arc<Origin>, usize) {
        if let Some((asked, copy)) = &self.last
            && Arc::ptr_eq(asked, origin)
        {
            return (Arc::clone(copy), 0);
        }
        let mut bytes = 0;
        let copy = match self.origins.get(origin) {
            Some(copy) => Arc::clone(copy),
            None => {
                let copied = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
                let resource = RawResource {
                    message: copied(&origin.resource.message),
                    schema_url: origin.resource.schema_url.clone(),
                };
                let copy = Arc::new(Origin {
                    resource: Arc::new(resource),
                    scope: copied(&origin.scope),
                    schema_url: origin.schema_url.clone(),
                });
                let resource = &copy.resource;
                let texts = copy.schema_url.len() + resource.schema_url.len();
                bytes = ORIGIN_BYTES + texts + copy.scope.len() + resource.message.len();
                self.origins.insert(Arc::clone(&copy));
                copy
            }
        };
        self.last = Some((Arc::clone(origin), Arc::clone(&copy)));
        (copy, bytes)
    }

    pub(super) fn finish(self) -> Carried {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use lens_otlp::encode::{SpanParts, put_request, put_scope_item};

    use super::*;
    use crate::raw::decode;

    /// A request with a span of each of some traces, and its spans.
    fn request(traces: &[u8], span: u8) -> (Bytes, Vec<RawSpan>) {
        let (mut items, mut out) = (Vec::new(), Vec::new());
        for trace in traces {
            let mut message = Vec::new();
            let (trace_id, span_id) = ([*trace; 16], [span; 8]);
            SpanParts { trace_id, span_id, name: "n", ..SpanParts::default() }.put(&mut message);
            put_scope_item(&mut items, &message);
        }
        let scope = lens_otlp::encode::Scope { name: "s", version: "" };
        put_request(&mut out, &[], std::iter::once((scope, items.as_slice())));
        let request = Bytes::from(out);
        let spans = decode(&request, u64::from(span)).expect("a request").spans;
        (request, spans)
    }

    fn id(trace: u8) -> TraceId {
        TraceId::from_bytes(&[trace; 16]).expect("an id")
    }

    #[test]
    fn what_is_carried_holds_no_request_alive_and_is_bounded() {
        let (request, spans) = request(&[1, 2, 3, 4], 1);
        let one = spans[0].message.len() + SPAN_BYTES + TRACE_BYTES;
        let of_origin = ORIGIN_BYTES + spans[0].origin.scope.len();
        let none = Carried::default();
        let mut carrying = Carrying::new(&none, 3 * one + of_origin);
        for span in &spans {
            carrying.take(span.trace_id, std::slice::from_ref(span));
        }
        assert!(carrying.is_full());
        let carried = carrying.finish();
        let there: Vec<bool> = (1..=4).map(|trace| carried.get(id(trace)).is_some()).collect();
        assert_eq!(there, [true, true, true, false]);
        assert_eq!(carried.bytes(), 3 * one + of_origin);
        let copies = [carried.get(id(1)).unwrap(), carried.get(id(2)).unwrap()];
        assert_eq!(
            (&copies[0][0].message, &copies[0][0].origin),
            (&spans[0].message, &spans[0].origin)
        );
        assert!(Arc::ptr_eq(&copies[0][0].origin, &copies[1][0].origin));
        drop(spans);
        assert!(request.is_unique(), "no part of it is held");
    }

    #[test]
    fn a_trace_keeps_what_was_carried_of_it_and_the_newest_comes_first() {
        let (_, first) = request(&[1, 2], 1);
        let (_, second) = request(&[1], 2);
        let none = Carried::default();
        let mut carrying = Carrying::new(&none, 1 << 20);
        first.iter().for_each(|span| carrying.take(span.trace_id, std::slice::from_ref(span)));
        let carried = carrying.finish();
        let mut carrying = Carrying::new(&carried, 1 << 20);
        carrying.take(id(2), &[]);
        carrying.take(id(1), &second);
        let carried = carrying.finish();
        let seqs = |trace| -> Vec<u64> {
            carried.get(id(trace)).unwrap().iter().map(|span| span.ingest_seq).collect()
        };
        assert_eq!((seqs(1), seqs(2)), (vec![1, 2], vec![1]));
        assert_eq!(carried.newest_first(), [id(1), id(2)]);
    }
}
