//! Reads a file of spans: one trace without touching the others, or all of it in its order.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use arrow_array::{Array, StringViewArray};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection, RowSelector};
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

/// Rows of one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    row_group: usize,
    from: usize,
    to: usize,
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
        let chunk = self.file.footer().row_group(row_group).column(leaf::START);
        let Some(Statistics::Int64(statistics)) = chunk.statistics() else { return Some(false) };
        let (Some(low), Some(high)) = (statistics.min_opt(), statistics.max_opt()) else {
            return Some(false);
        };
        if *low < 0 {
            // Later than 2262: as numbers without sign they are the last.
            return Some(false);
        }
        let (low, high) = (*low as u64, *high as u64);
        let is_apart = high < starts.start || low >= starts.end;
        (!is_apart).then_some(low >= starts.start && high < starts.end)
    }

    /// The spans of a trace, by start.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn trace(&self, trace_id: TraceId) -> Result<Vec<RawSpan>, SegmentError> {
        let wanted = trace_id.to_string();
        let mut found = Vec::new();
        let mut origins = Origins::default();
        for stretch in self.stretches(&wanted, &wanted)? {
            let Some(exact) = self.exact(stretch, |id| id == wanted)? else { continue };
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
        for stretch in self.stretches(prefix, &last)? {
            let mut batches = self.read(self.file.columns(|name| name == "trace_id"), stretch)?;
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
        stretch: Stretch,
    ) -> Result<ParquetRecordBatchReader, SegmentError> {
        let selection = RowSelection::from(vec![
            RowSelector::skip(stretch.from),
            RowSelector::select(stretch.to - stretch.from),
        ]);
        let rows = (stretch.to - stretch.from).clamp(1, BATCH_ROWS);
        self.file.read(columns, vec![stretch.row_group], Some(selection), rows)
    }

    /// Pages that may hold ids from one to another, by the statistics of row groups and pages.
    fn stretches(&self, least: &str, most: &str) -> Result<Vec<Stretch>, SegmentError> {
        let footer = self.file.footer();
        let mut found = Vec::new();
        for (row_group, metadata) in footer.row_groups().iter().enumerate() {
            let rows = metadata.num_rows().unsigned_abs() as usize;
            if let Some(Statistics::ByteArray(statistics)) =
                metadata.column(leaf::TRACE_ID).statistics()
                && let (Some(low), Some(high)) = (statistics.min_opt(), statistics.max_opt())
                && (high.data() < least.as_bytes() || low.data() > most.as_bytes())
            {
                continue;
            }
            let pages = || {
                let ColumnIndexMetaData::BYTE_ARRAY(index) =
                    footer.column_index()?.get(row_group)?.get(leaf::TRACE_ID)?
                else {
                    return None;
                };
                let pages = footer.offset_index()?.get(row_group)?.get(leaf::TRACE_ID)?;
                let pages = pages.page_locations();
                let is_hit = |nth: usize| {
                    index.max_value(nth).is_none_or(|high| high >= least.as_bytes())
                        && index.min_value(nth).is_none_or(|low| low <= most.as_bytes())
                };
                let first = (0..pages.len()).find(|nth| is_hit(*nth))?;
                let last = (first..pages.len()).take_while(|nth| is_hit(*nth)).last()?;
                let row = |nth: usize| {
                    pages.get(nth).map_or(rows, |page| page.first_row_index.unsigned_abs() as usize)
                };
                Some((row(first), row(last + 1)))
            };
            let is_indexed = footer.column_index().is_some() && footer.offset_index().is_some();
            match pages() {
                Some((from, to)) => found.push(Stretch { row_group, from, to }),
                None if is_indexed => {}
                None => found.push(Stretch { row_group, from: 0, to: rows }),
            }
        }
        Ok(found)
    }

    /// The rows of a stretch whose ids are wanted: they follow each other.
    fn exact(
        &self,
        stretch: Stretch,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Stretch>, SegmentError> {
        let (mut at, mut exact) = (stretch.from, None::<Stretch>);
        let mut batches = self.read(self.file.columns(|name| name == "trace_id"), stretch)?;
        while let Some(batch) = next_batch(&mut batches)? {
            let ids: &StringViewArray = column(&batch, "trace_id")?;
            for row in 0..ids.len() {
                if is_wanted(ids.value(row)) {
                    let exact = exact.get_or_insert(Stretch { from: at, ..stretch });
                    exact.to = at + 1;
                } else if exact.is_some() {
                    return Ok(exact);
                }
                at += 1;
            }
        }
        Ok(exact)
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
