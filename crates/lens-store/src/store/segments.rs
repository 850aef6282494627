//! Committed segments: known by what the manifest says and an index of their traces, opened when they are asked,
//! removed when the last snapshot lets go of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::error::{Damage, StoreError, at};
use crate::ids::TraceId;
use crate::manifest::{SegmentEntry, Table};
use crate::raw::{RawLog, RawMetric, RawSpan};
use crate::rollouts::RolloutRow;
use crate::segment::{
    SegmentError, SpanReader, TraceIndex, TraceRow, read_logs, read_points, read_rollout_traces,
    read_rollouts, read_traces,
};
use crate::vfs::Vfs;

/// What one commit added for one date. Its files do not change (S-1).
#[derive(Debug)]
pub struct Segment {
    entry: SegmentEntry,
    store: PathBuf,
    /// Its footer is read when it is needed first, and stays in memory.
    spans: OnceLock<SpanReader>,
    index: OnceLock<TraceIndex>,
    rollouts: OnceLock<Vec<RolloutRow>>,
    /// The traces of its rows of rollouts.
    rollout_traces: OnceLock<Vec<TraceId>>,
    /// Something in it cannot be read: it is passed over from now on.
    is_damaged: AtomicBool,
    /// Its files are removed with the last one who reads it.
    is_replaced: AtomicBool,
    vfs: Arc<dyn Vfs>,
}

impl Segment {
    /// Opens a segment. Its files are there and as long as they should be; more is known only when they are read.
    pub(super) fn open(
        vfs: &Arc<dyn Vfs>,
        store: &Path,
        entry: SegmentEntry,
    ) -> Result<Self, SegmentError> {
        for file in &entry.files {
            if file.table == Table::Index {
                continue;
            }
            let found = std::fs::metadata(store.join(entry.path(file.table)))?.len();
            if found != file.bytes {
                let name = file.table.folder();
                let reason = format!("{name} has {found} bytes, not {}", file.bytes);
                return Err(SegmentError::Damaged(reason.into()));
            }
        }
        let index = std::fs::read(store.join(entry.path(Table::Index)));
        let index = index.ok().and_then(|bytes| TraceIndex::read(&bytes).ok());
        Ok(Self {
            entry,
            store: store.to_owned(),
            spans: OnceLock::new(),
            // Where it is missing or broken it is made again from the spans.
            index: index.map_or_else(OnceLock::new, OnceLock::from),
            rollouts: OnceLock::new(),
            rollout_traces: OnceLock::new(),
            is_damaged: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            vfs: Arc::clone(vfs),
        })
    }

    /// What the manifest says of it.
    pub fn entry(&self) -> &SegmentEntry {
        &self.entry
    }

    /// Where its file of a table is, when it has one and that can be read.
    pub fn path(&self, table: Table) -> Option<PathBuf> {
        let file = self.entry.file(table).filter(|_| !self.is_damaged());
        file.map(|_| self.store.join(self.entry.path(table)))
    }

    /// Its file of spans, when it has one and that can be read.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn spans(&self) -> Result<Option<&SpanReader>, SegmentError> {
        let Some(path) = self.path(Table::Spans) else { return Ok(None) };
        let spans = match self.spans.get() {
            Some(spans) => spans,
            None => {
                let opened = SpanReader::open(&path)?;
                self.spans.get_or_init(|| opened)
            }
        };
        Ok(Some(spans))
    }

    /// Whether a part of it could not be read.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Whether it may have spans of a trace; `false` is always right.
    pub(super) fn may_have(&self, id: TraceId) -> Result<bool, SegmentError> {
        if self.path(Table::Spans).is_none() {
            return Ok(false);
        }
        if self.index.get().is_none() {
            let index = self.spans()?.map(TraceIndex::of).transpose()?.unwrap_or_default();
            self.index.set(index).ok();
        }
        Ok(self.index.get().is_none_or(|index| index.may_have(id)))
    }

    /// The spans of some traces, whose ids are in order.
    pub(super) fn spans_of(&self, ids: &[TraceId]) -> Result<Vec<RawSpan>, SegmentError> {
        let mut here = Vec::new();
        for id in ids {
            if self.may_have(*id)? {
                here.push(*id);
            }
        }
        if here.is_empty() {
            return Ok(Vec::new());
        }
        self.spans()?.map_or_else(|| Ok(Vec::new()), |spans| spans.traces(&here))
    }

    /// Ids of traces that begin with some hex digits, ascending, no more than `limit`.
    pub(super) fn trace_ids(
        &self,
        digits: &str,
        limit: usize,
    ) -> Result<Vec<TraceId>, SegmentError> {
        self.spans()?.map_or_else(|| Ok(Vec::new()), |spans| spans.trace_ids(digits, limit))
    }

    /// Its rows of rollouts.
    pub(super) fn rollouts(&self) -> Result<&[RolloutRow], SegmentError> {
        let Some(path) = self.path(Table::Rollouts) else { return Ok(&[]) };
        if self.rollouts.get().is_none() {
            self.rollouts.set(read_rollouts(&path)?).ok();
        }
        Ok(self.rollouts.get().map_or(&[], Vec::as_slice))
    }

    /// Whether it has rows of rollouts of a trace. The rows themselves are not kept for that.
    pub(super) fn has_rollouts_of(&self, id: TraceId) -> Result<bool, SegmentError> {
        let Some(path) = self.path(Table::Rollouts) else { return Ok(false) };
        let traces = match self.rollout_traces.get() {
            Some(traces) => traces,
            None => {
                let read = read_rollout_traces(&path)?;
                self.rollout_traces.get_or_init(|| read)
            }
        };
        Ok(traces.binary_search(&id).is_ok())
    }

    /// Its rows of traces.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn traces(&self) -> Result<Vec<TraceRow>, SegmentError> {
        self.path(Table::Traces).map_or_else(|| Ok(Vec::new()), |path| read_traces(&path))
    }

    /// Its log records.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn logs(&self) -> Result<Vec<RawLog>, SegmentError> {
        self.path(Table::Logs).map_or_else(|| Ok(Vec::new()), |path| read_logs(&path))
    }

    /// Its metrics.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn metrics(&self) -> Result<Vec<RawMetric>, SegmentError> {
        self.path(Table::Points).map_or_else(|| Ok(Vec::new()), |path| read_points(&path))
    }

    /// Reads nothing from it from now on.
    pub(super) fn pass_over(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Passes over it from now on, if it is broken; says what to tell about that.
    pub(super) fn sort_out(&self, error: SegmentError) -> Result<Damage, StoreError> {
        let table = self.entry.files.first().map_or(Table::Spans, |file| file.table);
        let path = self.store.join(self.entry.path(table));
        match error {
            SegmentError::Io(error) => Err(at("read", &path)(error)),
            error => {
                self.pass_over();
                Ok(Damage { path, reason: reason(&error) })
            }
        }
    }

    /// Lets its files go with the last one who reads it.
    pub(super) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// Removes its files at once: nobody else knows them.
    pub(super) fn remove_files(vfs: &Arc<dyn Vfs>, store: &Path, entry: &SegmentEntry) {
        for file in &entry.files {
            // What stays is removed when the store is opened the next time.
            vfs.remove(&store.join(entry.path(file.table))).ok();
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.is_replaced.load(Ordering::Relaxed) {
            Self::remove_files(&self.vfs, &self.store, &self.entry);
        }
    }
}

/// An error with its causes.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
