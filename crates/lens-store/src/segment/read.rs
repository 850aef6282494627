//! Reads a file of spans: one trace without touching the others, or all of it in its order.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use arrow_array::{Array, StringViewArray};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

use super::SegmentError;
use super::file::{ColumnFile, column, guarded, next_batch};
use super::rebuild::{DERIVED, Origins, spans, unhex};
use super::schema::leaf;
use crate::ids::TraceId;
use crate::raw::RawSpan;

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 1_024;

/// A file of spans that is open. Its footer and page index stay in memory, nothing else does; threads may share it.
pub struct SpanReader {
    pub(super) file: ColumnFile,
}

impl fmt::Debug for SpanReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanReader").field("rows", &self.rows()).finish_non_exhaustive()
    }
}

/// Some rows of one row group, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rows {
    row_group: usize,
    ranges: Vec<Range<usize>>,
}

/// Whether one of some values, which are in order, lies between two.
fn has_between(values: &[String], low: &[u8], high: &[u8]) -> bool {
    let at = values.partition_point(|value| value.as_bytes() < low);
    values.get(at).is_some_and(|value| value.as_bytes() <= high)
}

impl SpanReader {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is no file of spans.
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        let file = ColumnFile::open(path)?;
        if file.metadata_value(lens::semconv::FILE_VERSION).is_none() {
            return Err(SegmentError::Column(lens::semconv::FILE_VERSION));
        }
        Ok(Self { file })
    }

    /// Spans in the file.
    pub fn rows(&self) -> u64 {
        self.file.rows()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    pub(super) fn row_groups(&self) -> usize {
        self.file.footer().num_row_groups()
    }

    /// Whether all starts of a row group are in a range; `None` when none is.
    pub(super) fn overlap(&self, row_group: usize, starts: &Range<u64>) -> Option<bool> {
        if starts.start == 0 && starts.end == u64::MAX {
            return Some(true);
        }
        let Some((low, high)) = self.starts(row_group) else { return Some(false) };
        let is_apart = high < starts.start || low >= starts.end;
        (!is_apart).then_some(low >= starts.start && high < starts.end)
    }

    /// First and last start of a row group, where its statistics say them.
    pub(super) fn starts(&self, row_group: usize) -> Option<(u64, u64)> {
        let (low, high) = self.bounds(row_group, leaf::START)?;
        // Later than 2262: as numbers without sign they are the last.
        (low >= 0).then_some((low as u64, high as u64))
    }

    /// Whether no span of a row group ends before it starts.
    pub(super) fn has_no_negative_duration(&self, row_group: usize) -> bool {
        self.bounds(row_group, leaf::DURATION).is_some_and(|(low, _)| low >= 0)
    }

    fn bounds(&self, row_group: usize, leaf: usize) -> Option<(i64, i64)> {
        match self.file.footer().row_group(row_group).column(leaf).statistics()? {
            Statistics::Int64(statistics) => Some((*statistics.min_opt()?, *statistics.max_opt()?)),
            _ => None,
        }
    }

    /// The spans of a trace, by start.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn trace(&self, trace_id: TraceId) -> Result<Vec<RawSpan>, SegmentError> {
        self.traces(&[trace_id])
    }

    /// The spans of some traces, whose ids are in order: trace after trace, each by start. A page is decoded once,
    /// however many of the traces lie in it.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn traces(&self, trace_ids: &[TraceId]) -> Result<Vec<RawSpan>, SegmentError> {
        let wanted: Vec<String> = trace_ids.iter().map(TraceId::to_string).collect();
        debug_assert!(wanted.is_sorted(), "ids are in order");
        let mut found = Vec::new();
        let mut origins = Origins::default();
        for pages in self.pages(|low, high| has_between(&wanted, low, high))? {
            let exact = self.exact(pages, &wanted)?;
            if exact.ranges.is_empty() {
                continue;
            }
            let columns = self.file.columns(|name| !DERIVED.contains(&name));
            let mut batches = self.read(columns, exact)?;
            while let Some(batch) = next_batch(&mut batches)? {
                found.extend(guarded(|| spans(&batch, &mut origins))?);
            }
        }
        Ok(found)
    }

    /// Ids of traces that begin with some lower-case hex digits, at most `limit`, in order.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn trace_ids(&self, prefix: &str, limit: usize) -> Result<Vec<TraceId>, SegmentError> {
        let last = format!("{prefix:f<32}");
        let mut found: Vec<TraceId> = Vec::new();
        let is_hit = |low: &[u8], high: &[u8]| high >= prefix.as_bytes() && low <= last.as_bytes();
        for pages in self.pages(is_hit)? {
            let mut batches = self.read(self.file.columns(|name| name == "trace_id"), pages)?;
            while let Some(batch) = next_batch(&mut batches)? {
                let ids: &StringViewArray = column(&batch, "trace_id")?;
                for id in ids.iter().flatten().filter(|id| id.starts_with(prefix)) {
                    let id = TraceId::from_bytes(&unhex::<16>(id)?);
                    if id == found.last().copied() {
                        continue;
                    }
                    if found.len() == limit {
                        return Ok(found);
                    }
                    found.extend(id);
                }
            }
        }
        Ok(found)
    }

    /// All spans in the order of the file.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn spans(&self) -> Result<Spans, SegmentError> {
        let columns = self.file.columns(|name| !DERIVED.contains(&name));
        let row_groups = (0..self.file.footer().num_row_groups()).collect();
        Ok(Spans {
            batches: self.file.read(columns, row_groups, None, BATCH_ROWS)?,
            origins: Origins::default(),
            ready: Vec::new().into_iter(),
        })
    }

    fn read(
        &self,
        columns: parquet::arrow::ProjectionMask,
        rows: Rows,
    ) -> Result<ParquetRecordBatchReader, SegmentError> {
        let in_group = self.rows_of(rows.row_group);
        let wanted: usize = rows.ranges.iter().map(ExactSizeIterator::len).sum();
        // An index of pages has no checksum: its rows may be in no order.
        let ranges = rows.ranges.into_iter();
        let selection = guarded(|| Ok(RowSelection::from_consecutive_ranges(ranges, in_group)))?;
        let batch_rows = wanted.clamp(1, BATCH_ROWS);
        self.file.read(columns, vec![rows.row_group], Some(selection), batch_rows)
    }

    fn rows_of(&self, row_group: usize) -> usize {
        self.file.footer().row_group(row_group).num_rows().unsigned_abs() as usize
    }

    /// Rows of pages that may hold ids that are wanted, by the lowest and highest id of row groups and pages.
    fn pages(&self, is_hit: impl Fn(&[u8], &[u8]) -> bool) -> Result<Vec<Rows>, SegmentError> {
        let footer = self.file.footer();
        let mut found = Vec::new();
        for (row_group, metadata) in footer.row_groups().iter().enumerate() {
            if let Some(Statistics::ByteArray(statistics)) =
                metadata.column(leaf::TRACE_ID).statistics()
                && let (Some(low), Some(high)) = (statistics.min_opt(), statistics.max_opt())
                && !is_hit(low.data(), high.data())
            {
                continue;
            }
            let all = std::iter::once(0..self.rows_of(row_group));
            let ranges = guarded(|| Ok(self.ranges_of_pages(row_group, &is_hit)))?;
            let ranges = ranges.unwrap_or_else(|| all.collect());
            if !ranges.is_empty() {
                found.push(Rows { row_group, ranges });
            }
        }
        Ok(found)
    }

    /// Of one row group; `None` when it has no index of its pages.
    fn ranges_of_pages(
        &self,
        row_group: usize,
        is_hit: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<Vec<Range<usize>>> {
        let footer = self.file.footer();
        let ColumnIndexMetaData::BYTE_ARRAY(index) =
            footer.column_index()?.get(row_group)?.get(leaf::TRACE_ID)?
        else {
            return None;
        };
        let pages = footer.offset_index()?.get(row_group)?.get(leaf::TRACE_ID)?.page_locations();
        let rows = self.rows_of(row_group);
        let first_row = |nth: usize| {
            pages.get(nth).map_or(rows, |page| page.first_row_index.unsigned_abs() as usize)
        };
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for nth in 0..pages.len() {
            let bounds = index.min_value(nth).zip(index.max_value(nth));
            if !bounds.is_none_or(|(low, high)| is_hit(low, high)) {
                continue;
            }
            let range = first_row(nth)..first_row(nth + 1);
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        Some(ranges)
    }

    /// Of some rows those whose ids are wanted.
    fn exact(&self, rows: Rows, wanted: &[String]) -> Result<Rows, SegmentError> {
        let row_group = rows.row_group;
        let mut exact: Vec<Range<usize>> = Vec::new();
        let mut places = rows.ranges.clone().into_iter().flatten();
        let mut batches = self.read(self.file.columns(|name| name == "trace_id"), rows)?;
        let mut left = wanted;
        while let Some(batch) = next_batch(&mut batches)? {
            let ids: &StringViewArray = column(&batch, "trace_id")?;
            for (row, at) in (0..ids.len()).zip(&mut places) {
                let id = ids.value(row);
                while let Some((_, rest)) =
                    left.split_first().filter(|(next, _)| next.as_str() < id)
                {
                    left = rest;
                }
                match (left.first(), exact.last_mut()) {
                    (None, _) => return Ok(Rows { row_group, ranges: exact }),
                    (Some(next), Some(last)) if next == id && last.end == at => last.end += 1,
                    (Some(next), _) if next == id => exact.push(at..at + 1),
                    _ => {}
                }
            }
        }
        Ok(Rows { row_group, ranges: exact })
    }
}

/// The spans of a file; see [`SpanReader::spans`].
pub struct Spans {
    batches: ParquetRecordBatchReader,
    origins: Origins,
    ready: std::vec::IntoIter<RawSpan>,
}

impl Iterator for Spans {
    type Item = Result<RawSpan, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(span) = self.ready.next() {
                return Some(Ok(span));
            }
            let next = next_batch(&mut self.batches).and_then(|batch| {
                let origins = &mut self.origins;
                batch.map(|batch| guarded(|| spans(&batch, origins))).transpose()
            });
            match next.transpose()? {
                Ok(spans) => self.ready = spans.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans").finish_non_exhaustive()
    }
}
