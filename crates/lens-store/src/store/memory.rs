//! What was received and is not in a segment yet: spans as they came, and where each trace's are.
//!
//! It only grows, so a snapshot of it is how long it was ([`MemoryView`]). Nothing is converted here: a span is a
//! slice of its request.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::dedup::one_of_each;
use crate::buckets::sort_spread;
use crate::ids::TraceId;
use crate::raw::{RawLog, RawMetric, RawSpan};
use crate::trace::may_be_rollout_root;

/// Spans of one allocation.
const CHUNK: usize = 1 << 14;
/// Spans that are looked at together.
const LOOKED_AT: usize = 64;
/// Spans that are copied out of the lock at a time.
const BLOCK: usize = 1 << 10;
/// No span.
const NONE: u32 = u32::MAX;
/// What a span takes besides its bytes: itself, its link, its share of the map.
const SPAN_BYTES: u64 = (size_of::<RawSpan>() + size_of::<u32>() + 8) as u64;

/// What one request carries.
#[derive(Debug)]
pub(super) enum Batch {
    Spans {
        spans: Vec<RawSpan>,
        /// Traces among whose spans may be a root of a rollout.
        with_roots: Vec<TraceId>,
    },
    Logs(Vec<RawLog>),
    Metrics(Vec<RawMetric>),
}

impl Batch {
    /// Spans, as long as they are in the cache.
    pub(super) fn of_spans(spans: Vec<RawSpan>) -> Self {
        let roots = spans.iter().filter(|span| may_be_rollout_root(span));
        Self::Spans { with_roots: roots.map(|span| span.trace_id).collect(), spans }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Spans { spans, .. } => spans.len(),
            Self::Logs(items) => items.len(),
            Self::Metrics(items) => items.len(),
        }
    }

    /// Puts the number of their request on the items.
    pub(super) fn set_seq(&mut self, seq: u64) {
        match self {
            Self::Spans { spans, .. } => spans.iter_mut().for_each(|span| span.ingest_seq = seq),
            Self::Logs(items) => items.iter_mut().for_each(|item| item.ingest_seq = seq),
            Self::Metrics(items) => items.iter_mut().for_each(|item| item.ingest_seq = seq),
        }
    }
}

/// A part of the store that is in memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Full ones of `CHUNK`, and the last.
    spans: Vec<Vec<RawSpan>>,
    /// The span of the same trace that came before.
    previous: Vec<u32>,
    /// The newest span of each trace.
    newest: HashMap<TraceId, u32, IdState>,
    /// Traces among whose spans may be a root of a rollout.
    with_roots: HashSet<TraceId, IdState>,
    logs: Vec<RawLog>,
    metrics: Vec<RawMetric>,
    /// When each request was received, in order of their numbers.
    arrivals: Vec<(u64, u64)>,
    bytes: u64,
}

/// How much of it there was at a moment.
#[derive(Clone, Debug)]
pub(super) struct MemoryView {
    memory: Arc<Memory>,
    spans: usize,
    logs: usize,
    metrics: usize,
}

/// What is in memory, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Spans.
    pub spans: u64,
    /// Traces.
    pub traces: u64,
    /// Log records.
    pub logs: u64,
    /// Metrics.
    pub metrics: u64,
    /// Bytes of requests and of what leads to their spans.
    pub bytes: u64,
    /// When the oldest request was received, Unix nanoseconds; 0 when there is none.
    pub oldest_nanos: u64,
    /// Number of the newest request; 0 when there is none.
    pub last_seq: u64,
}

impl MemoryStats {
    /// Together with what was received before; traces that are in both count twice.
    pub(super) fn with_older(self, older: Self) -> Self {
        Self {
            spans: self.spans + older.spans,
            traces: self.traces + older.traces,
            logs: self.logs + older.logs,
            metrics: self.metrics + older.metrics,
            bytes: self.bytes + older.bytes,
            oldest_nanos: older.oldest_nanos,
            last_seq: self.last_seq.max(older.last_seq),
        }
    }
}

impl Memory {
    /// Adds what a request carries, all at once.
    pub(super) fn push(&self, batch: Batch, seq: u64, arrived_nanos: u64, request_bytes: usize) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.arrivals.push((seq, arrived_nanos));
        inner.bytes += request_bytes as u64;
        match batch {
            Batch::Spans { spans, with_roots } => {
                inner.bytes += spans.len() as u64 * SPAN_BYTES;
                inner.with_roots.extend(with_roots);
                spans.into_iter().for_each(|span| inner.push_span(span));
            }
            Batch::Logs(logs) => {
                inner.bytes += (logs.len() * size_of::<RawLog>()) as u64;
                inner.logs.extend(logs);
            }
            Batch::Metrics(metrics) => {
                inner.bytes += (metrics.len() * size_of::<RawMetric>()) as u64;
                inner.metrics.extend(metrics);
            }
        }
    }

    /// All that is there now.
    pub(super) fn view(self: &Arc<Self>) -> MemoryView {
        let inner = self.read();
        MemoryView {
            spans: inner.previous.len(),
            logs: inner.logs.len(),
            metrics: inner.metrics.len(),
            memory: Arc::clone(self),
        }
    }

    pub(super) fn stats(&self) -> MemoryStats {
        let inner = self.read();
        MemoryStats {
            spans: inner.previous.len() as u64,
            traces: inner.newest.len() as u64,
            logs: inner.logs.len() as u64,
            metrics: inner.metrics.len() as u64,
            bytes: inner.bytes,
            oldest_nanos: inner.arrivals.first().map_or(0, |arrival| arrival.1),
            last_seq: inner.arrivals.last().map_or(0, |arrival| arrival.0),
        }
    }

    /// Tells every span in the order of a file, by trace id and start, with its position and when it was received.
    /// Copies of a span are told once, the one that counts.
    pub(super) fn in_file_order(&self, mut tell: impl FnMut(u32, &RawSpan, u64)) {
        let inner = self.read();
        let mut traces: Vec<(TraceId, u32)> =
            inner.newest.iter().map(|(id, newest)| (*id, *newest)).collect();
        traces.sort_unstable_by_key(|trace| trace.0);
        let (mut places, mut positions) = (Vec::new(), Vec::new());
        let span = |position: u32| inner.span(position as usize);
        for (_, newest) in traces {
            places.clear();
            places.extend(inner.chain(newest).map(|position| (0, 0, position)));
            // Spans lie all over memory: each is looked at once, and no look waits for another.
            for (start_nanos, span_id, position) in &mut places {
                let span = span(*position);
                (*start_nanos, *span_id) = (span.start_nanos, span.span_id.number());
            }
            // Later positions came later.
            sort_spread(&mut places, |(start_nanos, ..)| start_nanos);
            positions.clear();
            positions.extend(places.iter().map(|(.., position)| *position));
            let has_copies =
                places.windows(2).any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
            if has_copies {
                positions = one_of_each(&positions, span);
            }
            for position in &positions {
                let span = span(*position);
                tell(*position, span, inner.arrival_of(span.ingest_seq));
            }
        }
    }

    /// Looks at the spans at some positions, until an error.
    pub(super) fn at<E>(
        &self,
        positions: &[u32],
        mut look: impl FnMut(&[&RawSpan]) -> Result<(), E>,
    ) -> Result<(), E> {
        let inner = self.read();
        let mut spans = Vec::with_capacity(LOOKED_AT);
        for positions in positions.chunks(LOOKED_AT) {
            spans.clear();
            spans.extend(positions.iter().map(|position| inner.span(*position as usize)));
            look(&spans)?;
        }
        Ok(())
    }

    /// Whether a root of a rollout may be among the spans of a trace; `false` is always right.
    pub(super) fn may_have_root(&self, id: TraceId) -> bool {
        self.read().with_roots.contains(&id)
    }

    /// Traces without and with what may be a root of a rollout, the one that got a span last first.
    pub(super) fn newest_first(&self) -> [Vec<TraceId>; 2] {
        let inner = self.read();
        let mut traces: Vec<(u32, TraceId)> =
            inner.newest.iter().map(|(id, newest)| (*newest, *id)).collect();
        traces.sort_unstable_by(|one, other| other.cmp(one));
        let ids = traces.into_iter().map(|(_, id)| id);
        let (with, without) = ids.partition(|id| inner.with_roots.contains(id));
        [without, with]
    }

    /// Whether there is a span of a trace.
    pub(super) fn has_trace(&self, id: TraceId) -> bool {
        self.read().newest.contains_key(&id)
    }

    /// Whether there may be roots of rollouts.
    pub(super) fn may_have_roots(&self) -> bool {
        !self.read().with_roots.is_empty()
    }

    /// When the newest request was received.
    pub(super) fn newest_arrival(&self) -> u64 {
        self.read().arrivals.iter().map(|arrival| arrival.1).max().unwrap_or(0)
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn push_span(&mut self, span: RawSpan) {
        let position = self.previous.len() as u32;
        let previous = self.newest.insert(span.trace_id, position).unwrap_or(NONE);
        self.previous.push(previous);
        match self.spans.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(span),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(span);
                self.spans.push(chunk);
            }
        }
    }

    /// When the request with a number was received.
    fn arrival_of(&self, seq: u64) -> u64 {
        // Numbers follow each other as long as nothing is lost.
        let first = self.arrivals.first().map_or(0, |arrival| arrival.0);
        if let Some((found, nanos)) = self.arrivals.get(seq.wrapping_sub(first) as usize)
            && *found == seq
        {
            return *nanos;
        }
        let at = self.arrivals.binary_search_by_key(&seq, |arrival| arrival.0);
        at.map_or(0, |at| self.arrivals[at].1)
    }

    /// Positions of the spans of a trace from its newest on.
    fn chain(&self, newest: u32) -> impl Iterator<Item = u32> + use<'_> {
        let previous = |position: &u32| {
            self.previous.get(*position as usize).copied().filter(|position| *position != NONE)
        };
        std::iter::successors(Some(newest).filter(|position| *position != NONE), previous)
    }

    fn span(&self, position: usize) -> &RawSpan {
        &self.spans[position / CHUNK][position % CHUNK]
    }
}

impl MemoryView {
    /// Appends the spans of a trace, in the order of their arrival.
    pub(super) fn trace(&self, id: TraceId, spans: &mut Vec<RawSpan>) {
        let inner = self.memory.read();
        let newest = inner.newest.get(&id).copied().unwrap_or(NONE);
        let positions: Vec<u32> = self.of_chain(&inner, newest).collect();
        spans.extend(positions.iter().rev().map(|at| inner.span(*at as usize).clone()));
    }

    /// Positions of the spans of a trace in this view, from its newest on.
    fn of_chain<'a>(&self, inner: &'a Inner, newest: u32) -> impl Iterator<Item = u32> + use<'a> {
        let end = self.spans;
        inner.chain(newest).skip_while(move |position| *position as usize >= end)
    }

    /// Whether a root of a rollout may be among the spans of a trace; `false` is always right.
    pub(super) fn may_have_root(&self, id: TraceId) -> bool {
        self.memory.may_have_root(id)
    }

    /// Ids of its traces with how many spans each has, in no order.
    pub(super) fn traces(&self) -> Vec<(TraceId, u32)> {
        let inner = self.memory.read();
        let mut traces = Vec::with_capacity(inner.newest.len());
        for (id, newest) in &inner.newest {
            let count = self.of_chain(&inner, *newest).count();
            if count > 0 {
                traces.push((*id, count as u32));
            }
        }
        traces
    }

    /// All spans, in the order of their arrival.
    pub(super) fn spans(&self) -> impl Iterator<Item = RawSpan> + use<'_> {
        (0..self.spans.div_ceil(BLOCK)).flat_map(|block| {
            // A copy, so that nobody waits for who looks at them.
            let range = block * BLOCK..self.spans.min((block + 1) * BLOCK);
            let inner = self.memory.read();
            range.map(|position| inner.span(position).clone()).collect::<Vec<_>>()
        })
    }

    pub(super) fn span_count(&self) -> usize {
        self.spans
    }

    pub(super) fn logs(&self) -> Vec<RawLog> {
        self.memory.read().logs[..self.logs].to_vec()
    }

    pub(super) fn metrics(&self) -> Vec<RawMetric> {
        self.memory.read().metrics[..self.metrics].to_vec()
    }
}

/// Ids are random already, unless somebody means harm; then they do not know the seed.
#[derive(Clone, Debug)]
struct IdState(u64);

#[derive(Debug)]
struct IdHasher(u64);

impl Default for IdState {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0_u8) | 1)
    }
}

impl BuildHasher for IdState {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(self.0)
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u128(u128::from(*byte));
        }
    }

    fn write_u128(&mut self, id: u128) {
        let (high, low) = ((id >> 64) as u64, id as u64);
        // Each half meets the seed in a product whose halves are folded.
        for half in [high, low] {
            let product = u128::from(half ^ self.0) * 0x9e37_79b9_7f4a_7c15;
            self.0 = (product >> 64) as u64 ^ product as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
