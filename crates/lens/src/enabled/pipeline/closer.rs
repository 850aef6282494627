//! Ends what is open when telemetry shuts down, from the start records of spans of long-lived groups.
//!
//! A record says whose turn it is: a span that its own code ends meanwhile is left to it, and a span that was ended
//! here is not ended again, so each arrives once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use lens_otlp::view::SpanView;

use super::Pipeline;
use crate::enabled::raw::records::{RECORD_BYTES, Record, Started};
use crate::enabled::{clock, lock, truncated};

/// More than what [`truncated::truncate`] adds to a record.
const ADDED_BYTES: usize = 256;

struct Open {
    record: Record,
    span_id: [u8; 8],
    parent_id: Option<[u8; 8]>,
    start_nanos: u64,
}

impl Pipeline {
    /// Lends what is known of every open span.
    pub(in crate::enabled) fn read_open(&self, read: impl FnMut(Record, Started<'_>)) {
        let _alone = lock(&self.records);
        self.ring.read_open(read);
    }

    /// Whether any span has been open for so long.
    pub(super) fn is_open_since(&self, age: Duration) -> bool {
        let age_nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let before = clock::now_unix_nanos().saturating_sub(age_nanos);
        let mut is_old = false;
        self.read_open(|_, started| {
            is_old |= SpanView::read(started.message).is_ok_and(|span| span.start_nanos <= before);
        });
        is_old
    }

    /// Ends open spans, innermost first, as far as there is room; returns how many.
    pub(in crate::enabled) fn close_open_spans(&self) -> usize {
        let _alone = lock(&self.records);
        let mut open = Vec::new();
        self.ring.read_open(|record, started| {
            let Ok(span) = SpanView::read(started.message) else { return };
            let Ok(span_id) = span.span_id.try_into() else { return };
            let parent_id = span.parent_id.try_into().ok();
            open.push(Open { record, span_id, parent_id, start_nanos: span.start_nanos });
        });
        let mut writer = None;
        let mut closed = 0;
        for record in innermost_first(open) {
            if writer
                .as_ref()
                .is_none_or(|writer: &super::RingWriter| writer.room() < RECORD_BYTES + ADDED_BYTES)
            {
                // Sealed first, as it may be the one slot that can be freed.
                drop(writer.take());
                writer = self.ring.claim();
            }
            // Without room it stays open: there is some when what is in the ring is on its way.
            let Some(writer) = &mut writer else { break };
            if !self.ring.take(record) {
                continue;
            }
            let (scope, message) = self.ring.read_taken(record, |started| {
                let start = SpanView::read(started.message).map_or(0, |span| span.start_nanos);
                let mut message = started.message.to_vec();
                truncated::truncate(&mut message, clock::now_unix_nanos().max(start));
                (started.scope, message)
            });
            if writer.append(scope, 0, message.len(), |out| out.copy_from_slice(&message)) {
                self.count_queued();
                closed += 1;
            }
            self.ring.close_taken(record);
        }
        closed
    }
}

fn innermost_first(open: Vec<Open>) -> Vec<Record> {
    let parents: HashMap<_, _> = open.iter().map(|span| (span.span_id, span.parent_id)).collect();
    let depth = |span: &Open| {
        let mut above = span.parent_id;
        let mut depth = 0;
        // A chain of parents is no longer than there are spans.
        while let Some(parent) = above.and_then(|id| parents.get(&id))
            && depth < parents.len()
        {
            above = *parent;
            depth += 1;
        }
        depth
    };
    let mut ranked: Vec<_> =
        open.iter().map(|span| ((depth(span), span.start_nanos), span.record)).collect();
    ranked.sort_by_key(|(rank, _)| Reverse(*rank));
    ranked.into_iter().map(|(_, record)| record).collect()
}
