//! One state of a store, for as long as somebody looks at it.

use std::sync::Arc;

use super::dedup::deduplicate;
use super::error::StoreError;
use super::memory::MemoryView;
use crate::ids::TraceId;
use crate::manifest::Manifest;
use crate::raw::{RawLog, RawMetric, RawSpan};

/// What a store held at one moment. It stays as it is while the store goes on.
#[derive(Clone, Debug)]
pub struct Snapshot {
    manifest: Arc<Manifest>,
    /// Oldest first.
    memory: Vec<MemoryView>,
}

impl Snapshot {
    pub(super) fn new(manifest: Arc<Manifest>, memory: Vec<MemoryView>) -> Self {
        Self { manifest, memory }
    }

    /// What says which segments count.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The spans of a trace, each once, by start; empty when it is unknown.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, StoreError> {
        let mut spans = Vec::new();
        for memory in &self.memory {
            memory.trace(id, &mut spans);
        }
        deduplicate(&mut spans);
        Ok(spans)
    }

    /// Ids of traces that begin with these hex digits, ascending, no more than `limit`.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn find_by_prefix(&self, digits: &str, limit: usize) -> Result<Vec<TraceId>, StoreError> {
        let Some((low, high)) = prefix_range(digits) else { return Ok(Vec::new()) };
        let traces = self.memory.iter().flat_map(MemoryView::traces);
        let mut found: Vec<TraceId> =
            traces.map(|(id, _)| id).filter(|id| (low..=high).contains(&id.number())).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        Ok(found)
    }

    /// The spans that are in no segment yet, in the order of their arrival; repeated ones are repeated.
    pub fn memory_spans(&self) -> impl Iterator<Item = RawSpan> + use<'_> {
        self.memory.iter().flat_map(MemoryView::spans)
    }

    /// How many [`Self::memory_spans`] there are.
    pub fn memory_span_count(&self) -> usize {
        self.memory.iter().map(MemoryView::span_count).sum()
    }

    /// Traces with spans in memory, and how many each has there, in no order.
    pub fn memory_traces(&self) -> Vec<(TraceId, u32)> {
        let mut traces: Vec<_> = self.memory.iter().flat_map(MemoryView::traces).collect();
        if self.memory.len() > 1 {
            traces.sort_unstable();
            traces.dedup_by(|later, kept| {
                let is_same = later.0 == kept.0;
                kept.1 += if is_same { later.1 } else { 0 };
                is_same
            });
        }
        traces
    }

    /// Log records that are in no segment yet, in the order of their arrival.
    pub fn memory_logs(&self) -> Vec<RawLog> {
        self.memory.iter().flat_map(MemoryView::logs).collect()
    }

    /// Metrics that are in no segment yet, in the order of their arrival.
    pub fn memory_metrics(&self) -> Vec<RawMetric> {
        self.memory.iter().flat_map(MemoryView::metrics).collect()
    }
}

/// The lowest and highest id that begin with some hex digits.
fn prefix_range(digits: &str) -> Option<(u128, u128)> {
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.is_empty() || digits.len() > 32 || !is_hex {
        return None;
    }
    let low = u128::from_str_radix(&format!("{digits:0<32}"), 16).ok()?;
    let high = u128::from_str_radix(&format!("{digits:f<32}"), 16).ok()?;
    Some((low, high))
}
