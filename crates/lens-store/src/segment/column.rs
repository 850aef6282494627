//! One leaf column of a row group: values as they come, then pages.
//!
//! The `parquet` crate lays out the file and its footer; pages are made here, because its writer hashes each value of
//! a dictionary again and works levels out from Arrow arrays, where both are known already when a span is walked.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::SegmentError;
use super::bounds::{bounds, plain_range, statistics};
use super::encode::{
    Bits, put_deltas, put_hybrid, put_levels, put_prefixed, put_same_length, width_of,
};
use super::intern::{Guess, Interner, put_plain};
use super::ints::Ints;

/// Rows of a page at most: what a read of one trace decodes for nothing stays small.
const PAGE_ROWS: usize = if cfg!(test) { 256 } else { 4_096 };
/// A page with as many bytes or entries ends earlier.
const PAGE_BYTES: usize = 128 * 1_024;
const PAGE_ENTRIES: usize = 32 * 1_024;
/// Larger dictionaries are given up, since each read of a page reads the dictionary too.
const DICTIONARY_BYTES: usize = 1024 * 1_024;
/// At the first value after so many that was not guessed, a dictionary with more entries than half of them is given up.
const PROBATION: usize = 16 * 1_024;

/// The lower-case hex digits of every byte.
const HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// How many entries each row has: none or one in a nullable column, any number in a list or map.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) is_list: bool,
    per_row: Vec<u32>,
    entries: usize,
}

impl Counts {
    pub(super) fn new(is_list: bool) -> Self {
        Self { is_list, ..Self::default() }
    }

    /// Adds entries to a row, which is the last that has any.
    #[inline]
    pub(super) fn add(&mut self, row: usize, entries: u32) {
        if self.per_row.len() <= row {
            self.per_row.resize(row + 1, 0);
        }
        self.per_row[row] += entries;
        self.entries += entries as usize;
    }

    fn clear(&mut self) {
        self.per_row.clear();
        self.entries = 0;
    }

    /// Rows after the last with an entry have none. Where none has any nobody looks at rows.
    pub(super) fn fill(&mut self, rows: usize) {
        if self.entries > 0 {
            self.per_row.resize(rows, 0);
        }
    }
}

/// What statistics a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stats {
    None,
    /// Of the row group.
    Chunk,
    /// Of the row group and of each page.
    Pages,
}

/// Values in the encoding that they are gathered for.
pub(super) enum Values {
    /// Texts with a dictionary, until that is not worth it.
    Text {
        codes: Vec<u32>,
        dictionary: Interner,
        limit_bytes: usize,
        /// Whether it is known that the dictionary is worth it.
        is_settled: bool,
    },
    /// Hex digits of ids of one length.
    Ids {
        digits: Vec<u8>,
        width: usize,
        /// Whether they lie in order.
        is_sorted: bool,
    },
    /// Texts as they are.
    Plain {
        bytes: Vec<u8>,
        ends: Vec<u32>,
    },
    /// Sorted or slowly changing integers.
    Deltas(Vec<i64>),
    /// Integers that may repeat.
    Ints(Vec<i64>),
    /// The same, of 32 bits.
    Words(Vec<i64>),
    Doubles(Vec<f64>),
    Bools(Vec<bool>),
}

impl Values {
    pub(super) fn text() -> Self {
        Self::Text {
            codes: Vec::new(),
            dictionary: Interner::default(),
            limit_bytes: DICTIONARY_BYTES,
            is_settled: false,
        }
    }

    /// Texts that are known to be few.
    pub(super) fn keys() -> Self {
        Self::Text {
            codes: Vec::new(),
            dictionary: Interner::default(),
            limit_bytes: usize::MAX,
            is_settled: true,
        }
    }

    /// Ids of so many hex digits.
    pub(super) fn ids(width: usize, is_sorted: bool) -> Self {
        Self::Ids { digits: Vec::new(), width, is_sorted }
    }

    pub(super) fn plain() -> Self {
        Self::Plain { bytes: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text { codes, .. } => codes.len(),
            Self::Ids { digits, width, .. } => digits.len() / width,
            Self::Plain { ends, .. } => ends.len(),
            Self::Deltas(values) | Self::Ints(values) | Self::Words(values) => values.len(),
            Self::Doubles(values) => values.len(),
            Self::Bools(values) => values.len(),
        }
    }

    fn capacity_bytes(&self) -> usize {
        match self {
            Self::Text { codes, dictionary, .. } => {
                codes.capacity() * size_of::<u32>() + dictionary.capacity_bytes()
            }
            Self::Ids { digits, .. } => digits.capacity(),
            Self::Plain { bytes, ends } => bytes.capacity() + ends.capacity() * size_of::<u32>(),
            Self::Deltas(values) | Self::Ints(values) | Self::Words(values) => {
                values.capacity() * size_of::<i64>()
            }
            Self::Doubles(values) => values.capacity() * size_of::<f64>(),
            Self::Bools(values) => values.capacity(),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Text { codes, dictionary, limit_bytes, is_settled } => {
                codes.clear();
                dictionary.clear();
                *is_settled = *limit_bytes == usize::MAX;
            }
            Self::Ids { digits, .. } => digits.clear(),
            Self::Plain { bytes, ends } => {
                bytes.clear();
                ends.clear();
            }
            Self::Deltas(values) | Self::Ints(values) | Self::Words(values) => values.clear(),
            Self::Doubles(values) => values.clear(),
            Self::Bools(values) => values.clear(),
        }
    }
}

/// A leaf column of the row group that is being gathered.
pub(super) struct Column {
    pub(super) values: Values,
    /// What holds the texts of a row group with a dictionary while `values` holds those of one without, or the other
    /// way round: each row group begins with a dictionary again.
    spare: Option<Box<Values>>,
    pub(super) stats: Stats,
    /// Its [`Counts`]; a required column has none.
    pub(super) counts: Option<usize>,
}

impl Column {
    pub(super) fn new(values: Values, stats: Stats, counts: Option<usize>) -> Self {
        Self { values, spare: None, stats, counts }
    }

    #[inline]
    pub(super) fn push_text(&mut self, bytes: &[u8]) {
        self.push_text_like(&mut Guess::default(), bytes);
    }

    /// As [`push_text`](Self::push_text), of a text that is likely the one that was guessed.
    #[inline(always)]
    pub(super) fn push_text_like(&mut self, guess: &mut Guess, bytes: &[u8]) {
        if let Values::Text { codes, dictionary, .. } = &mut self.values
            && let Some(code) = dictionary.guessed(guess, bytes)
        {
            codes.push(code);
            return;
        }
        self.push_any_text(guess, bytes);
    }

    fn push_any_text(&mut self, guess: &mut Guess, bytes: &[u8]) {
        match &mut self.values {
            Values::Text { codes, dictionary, limit_bytes, is_settled } => {
                codes.push(dictionary.intern_like(guess, bytes));
                let mut is_worth_it = dictionary.plain.len() <= *limit_bytes;
                if !*is_settled && codes.len() >= PROBATION {
                    is_worth_it &= dictionary.len() <= codes.len() / 2;
                    *is_settled = true;
                }
                if !is_worth_it {
                    self.give_dictionary_up();
                }
            }
            Values::Plain { bytes: plain, ends } => {
                put_plain(plain, bytes);
                ends.push(plain.len() as u32);
            }
            _ => {}
        }
    }

    /// Adds an id, which has the length of its kind.
    #[inline]
    pub(super) fn push_id<const N: usize>(&mut self, id: &[u8; N]) {
        if let Values::Ids { digits, .. } = &mut self.values {
            let pairs = id.map(|byte| HEX[usize::from(byte)]);
            digits.extend_from_slice(pairs.as_flattened());
        }
    }

    /// The number of a text that is not pushed; only for columns of keys.
    pub(super) fn code_of(&mut self, bytes: &[u8]) -> u32 {
        match &mut self.values {
            Values::Text { dictionary, .. } => dictionary.intern(bytes),
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn push_code(&mut self, code: u32) {
        if let Values::Text { codes, .. } = &mut self.values {
            codes.push(code);
        }
    }

    #[inline]
    pub(super) fn push_int(&mut self, value: i64) {
        if let Values::Deltas(values) | Values::Ints(values) | Values::Words(values) =
            &mut self.values
        {
            values.push(value);
        }
    }

    #[inline]
    pub(super) fn push_double(&mut self, value: f64) {
        if let Values::Doubles(values) = &mut self.values {
            values.push(value);
        }
    }

    #[inline]
    pub(super) fn push_bool(&mut self, value: bool) {
        if let Values::Bools(values) = &mut self.values {
            values.push(value);
        }
    }

    #[cold]
    fn give_dictionary_up(&mut self) {
        let mut plain = self.spare.take().unwrap_or_else(|| Box::new(Values::plain()));
        if let (Values::Text { codes, dictionary, .. }, Values::Plain { bytes, ends }) =
            (&self.values, &mut *plain)
        {
            for code in codes {
                put_plain(bytes, dictionary.get(*code));
                ends.push(bytes.len() as u32);
            }
        }
        std::mem::swap(&mut self.values, &mut plain);
        plain.clear();
        self.spare = Some(plain);
    }

    /// Bytes that are held, roughly.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.values {
            Values::Text { codes, dictionary, .. } => codes.len() * 4 + dictionary.plain.len(),
            Values::Ids { digits, .. } => digits.len(),
            Values::Plain { bytes, ends } => bytes.len() + ends.len() * 4,
            values => values.len() * 8,
        }
    }

    /// Bytes that are held, used or not.
    pub(super) fn capacity_bytes(&self) -> usize {
        let spare = self.spare.as_ref().map_or(0, |spare| spare.capacity_bytes());
        self.values.capacity_bytes() + spare
    }

    /// Forgets the row group.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        if let (Values::Plain { .. }, Some(spare)) = (&self.values, &mut self.spare) {
            std::mem::swap(&mut self.values, spare);
        }
    }
}

/// Forgets the entries of a row group.
pub(super) fn clear_counts(counts: &mut [Counts]) {
    counts.iter_mut().for_each(Counts::clear);
}

/// A column chunk as it lies in the file.
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

/// Makes chunks of columns; keeps what can be used again.
pub(super) struct Pages {
    compressor: zstd::bulk::Compressor<'static>,
    page: Vec<u8>,
    repetition: Bits,
    definition: Bits,
    codes: Vec<u32>,
    ints: Ints,
}

impl Pages {
    pub(super) fn new(level: i32) -> Result<Self, SegmentError> {
        let mut compressor = zstd::bulk::Compressor::new(level)?;
        // Costs next to nothing, and a damaged page is an error before anybody looks into it.
        compressor.include_checksum(true)?;
        Ok(Self {
            compressor,
            page: Vec::new(),
            repetition: Bits::default(),
            definition: Bits::default(),
            codes: Vec::new(),
            ints: Ints::default(),
        })
    }

    /// Encodes a column of `rows` rows.
    pub(super) fn chunk(
        &mut self,
        column: &Column,
        counts: Option<&Counts>,
        rows: usize,
        descriptor: &ColumnDescPtr,
    ) -> Result<Chunk, SegmentError> {
        let has_int_codes = match &column.values {
            Values::Ints(values) | Values::Words(values) => {
                self.ints.encode(values, &mut self.codes)
            }
            _ => false,
        };
        let mut sink = TrackedWrite::new(Vec::with_capacity(column.held_bytes() / 4 + 1_024));
        let mut totals = Totals::default();
        let mut out = SerializedPageWriter::new(&mut sink);
        let dictionary_len = match &column.values {
            Values::Text { dictionary, .. } => {
                self.put_dictionary(&mut out, &mut totals, &dictionary.plain, dictionary.len())?;
                Some(dictionary.len())
            }
            values if has_int_codes => {
                let is_wide = matches!(values, Values::Ints(_));
                let mut plain = Vec::new();
                put_ints(&mut plain, &self.ints.distinct, is_wide);
                self.put_dictionary(&mut out, &mut totals, &plain, self.ints.distinct.len())?;
                Some(self.ints.distinct.len())
            }
            _ => None,
        };
        let mut column_index = ColumnIndexBuilder::new(descriptor.physical_type());
        let mut offset_index = OffsetIndexBuilder::new();
        let mut cursor = Cursor { row: 0, value: 0, entry: 0 };
        while cursor.row < rows {
            let end = cursor.page_end(column, counts, rows);
            let entries = self.put_page(column, counts, cursor, end, dictionary_len);
            let encoding = encoding(&column.values, dictionary_len.is_some());
            let page = Page::DataPage {
                buf: compress(&mut self.compressor, &self.page)?,
                num_values: entries as u32,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            };
            let spec = out.write_page(CompressedPage::new(page, self.page.len()))?;
            totals.add(&spec);
            totals.data_page_offset.get_or_insert(spec.offset as i64);
            totals.data_pages += 1;
            totals.entries += entries;
            offset_index.append_row_count((end.row - cursor.row) as i64);
            offset_index.append_offset_and_size(spec.offset as i64, spec.compressed_size as i32);
            if column.stats == Stats::Pages {
                let nulls = (entries - (end.value - cursor.value)) as i64;
                match bounds(&column.values, cursor.value..end.value) {
                    Some((least, most)) => column_index.append(false, least, most, nulls),
                    None => column_index.append(true, Vec::new(), Vec::new(), nulls),
                }
            }
            cursor = end;
        }
        out.close()?;
        let encoding = encoding(&column.values, dictionary_len.is_some());
        let nulls = (totals.entries - column.values.len()) as u64;
        let mut metadata = ColumnChunkMetaData::builder(descriptor.clone())
            .set_compression(Compression::ZSTD(parquet::basic::ZstdLevel::default()))
            .set_encodings(match dictionary_len {
                Some(_) => vec![Encoding::PLAIN, Encoding::RLE, encoding],
                None => vec![Encoding::RLE, encoding],
            })
            .set_page_encoding_stats(totals.encoding_stats(dictionary_len.is_some(), encoding))
            .set_total_compressed_size(totals.compressed as i64)
            .set_total_uncompressed_size(totals.uncompressed as i64)
            .set_num_values(totals.entries as i64)
            .set_data_page_offset(totals.data_page_offset.unwrap_or(0))
            .set_dictionary_page_offset(dictionary_len.map(|_| 0));
        if column.stats != Stats::None
            && let Some(statistics) = statistics(&column.values, nulls)
        {
            metadata = metadata.set_statistics(statistics);
        }
        let bytes = sink.into_inner()?;
        Ok(Chunk {
            close: ColumnCloseResult {
                bytes_written: bytes.len() as u64,
                rows_written: rows as u64,
                metadata: metadata.build()?,
                bloom_filter: None,
                column_index: (column.stats == Stats::Pages)
                    .then(|| column_index.build())
                    .transpose()?,
                offset_index: Some(offset_index.build()),
            },
            bytes: bytes.into(),
        })
    }

    fn put_dictionary(
        &mut self,
        out: &mut SerializedPageWriter<'_, Vec<u8>>,
        totals: &mut Totals,
        plain: &[u8],
        values: usize,
    ) -> Result<(), SegmentError> {
        let page = Page::DictionaryPage {
            buf: compress(&mut self.compressor, plain)?,
            num_values: values as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let spec = out.write_page(CompressedPage::new(page, plain.len()))?;
        totals.add(&spec);
        Ok(())
    }

    /// Fills `self.page` with levels and values from one place to another; returns the number of entries, nulls
    /// and empty lists among them.
    fn put_page(
        &mut self,
        column: &Column,
        counts: Option<&Counts>,
        from: Cursor,
        to: Cursor,
        dictionary_len: Option<usize>,
    ) -> usize {
        self.page.clear();
        let mut entries = to.row - from.row;
        if let Some(counts) = counts {
            self.repetition.clear();
            self.definition.clear();
            entries = to.entry - from.entry;
            if counts.entries == 0 {
                self.definition.push_run(false, entries);
                self.repetition.push_run(false, entries);
            } else if counts.is_list {
                for count in &counts.per_row[from.row..to.row] {
                    let count = *count as usize;
                    self.definition.push_run(count > 0, count.max(1));
                    self.repetition.push(false);
                    self.repetition.push_run(true, count.saturating_sub(1));
                }
            } else {
                for count in &counts.per_row[from.row..to.row] {
                    self.definition.push(*count > 0);
                }
            }
            if counts.is_list {
                put_levels(&mut self.page, &mut self.repetition);
            }
            put_levels(&mut self.page, &mut self.definition);
        }
        let range = from.value..to.value;
        let mut put_codes = |codes: &[u32]| {
            let width = width_of(dictionary_len.unwrap_or(0).saturating_sub(1) as u64).max(1);
            self.page.push(width as u8);
            put_hybrid(&mut self.page, codes, width);
        };
        match &column.values {
            Values::Text { codes, .. } => put_codes(&codes[range]),
            Values::Ints(_) | Values::Words(_) if dictionary_len.is_some() => {
                put_codes(&self.codes[range]);
            }
            Values::Ids { digits, width, is_sorted } => {
                let digits = &digits[range.start * width..range.end * width];
                let put = if *is_sorted { put_prefixed } else { put_same_length };
                put(&mut self.page, digits, *width);
            }
            Values::Plain { bytes, ends } => {
                self.page.extend_from_slice(&bytes[plain_range(ends, range)]);
            }
            Values::Deltas(values) => put_deltas(&mut self.page, &values[range]),
            Values::Ints(values) => put_ints(&mut self.page, &values[range], true),
            Values::Words(values) => put_ints(&mut self.page, &values[range], false),
            Values::Doubles(values) => {
                for value in &values[range] {
                    self.page.extend_from_slice(&value.to_le_bytes());
                }
            }
            Values::Bools(values) => {
                self.definition.clear();
                values[range].iter().for_each(|value| self.definition.push(*value));
                self.page.extend_from_slice(self.definition.finish().0);
            }
        }
        entries
    }
}

/// A place between two rows.
#[derive(Clone, Copy)]
struct Cursor {
    row: usize,
    value: usize,
    entry: usize,
}

impl Cursor {
    /// Where the page ends that begins here.
    fn page_end(self, column: &Column, counts: Option<&Counts>, rows: usize) -> Self {
        let most = (self.row + PAGE_ROWS).min(rows);
        let Some(counts) = counts else {
            let rows = most - self.row;
            return Self { row: most, value: self.value + rows, entry: self.entry + rows };
        };
        if counts.entries == 0 {
            return Self { row: rows, value: 0, entry: rows };
        }
        let is_full = |at: &Self| {
            let bytes = match &column.values {
                Values::Plain { ends, .. } => plain_range(ends, self.value..at.value).len(),
                _ => 0,
            };
            bytes >= PAGE_BYTES || at.entry - self.entry >= PAGE_ENTRIES
        };
        // Mostly the rows are what ends a page.
        let counts = &counts.per_row[..most];
        let all = Self {
            row: most,
            value: self.value
                + counts[self.row..].iter().map(|count| *count as usize).sum::<usize>(),
            entry: self.entry
                + counts[self.row..].iter().map(|count| *count.max(&1) as usize).sum::<usize>(),
        };
        if !is_full(&all) {
            return all;
        }
        let mut at = self;
        while at.row < most && !is_full(&at) {
            let count = counts[at.row] as usize;
            at.row += 1;
            at.value += count;
            at.entry += count.max(1);
        }
        at
    }
}

fn compress(
    compressor: &mut zstd::bulk::Compressor<'static>,
    plain: &[u8],
) -> Result<Bytes, SegmentError> {
    Ok(compressor.compress(plain)?.into())
}

fn put_ints(out: &mut Vec<u8>, values: &[i64], is_wide: bool) {
    for value in values {
        match is_wide {
            true => out.extend_from_slice(&value.to_le_bytes()),
            false => out.extend_from_slice(&(*value as i32).to_le_bytes()),
        }
    }
}

const fn encoding(values: &Values, has_dictionary: bool) -> Encoding {
    match values {
        _ if has_dictionary => Encoding::RLE_DICTIONARY,
        Values::Deltas(_) => Encoding::DELTA_BINARY_PACKED,
        Values::Ids { is_sorted: true, .. } => Encoding::DELTA_BYTE_ARRAY,
        Values::Ids { .. } => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        _ => Encoding::PLAIN,
    }
}

#[derive(Default)]
struct Totals {
    compressed: usize,
    uncompressed: usize,
    entries: usize,
    data_pages: i32,
    data_page_offset: Option<i64>,
}

impl Totals {
    fn add(&mut self, spec: &parquet::column::page::PageWriteSpec) {
        self.compressed += spec.compressed_size;
        self.uncompressed += spec.uncompressed_size;
    }

    fn encoding_stats(&self, has_dictionary: bool, encoding: Encoding) -> Vec<PageEncodingStats> {
        let mut stats = Vec::new();
        if has_dictionary {
            let page_type = PageType::DICTIONARY_PAGE;
            stats.push(PageEncodingStats { page_type, encoding: Encoding::PLAIN, count: 1 });
        }
        let page_type = PageType::DATA_PAGE;
        stats.push(PageEncodingStats { page_type, encoding, count: self.data_pages });
        stats
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: a page ends at the first row with which it has enough rows, bytes or entries.
        #[test]
        fn pages_end_where_going_row_by_row_ends_them(
            rows in prop::collection::vec((0_usize..3, 0_usize..4_096), 1..600),
            many in 0_usize..600,
        ) {
            let mut column = Column::new(Values::plain(), Stats::None, Some(0));
            let mut counts = Counts::new(true);
            let mut ends = Vec::new();
            for (row, (count, length)) in rows.iter().enumerate() {
                // One row has more entries than a page.
                let count = if row == many { PAGE_ENTRIES + count } else { *count };
                let length = if row == many { 0 } else { *length };
                (0..count).for_each(|_| column.push_text(&b"x".repeat(length)));
                counts.add(row, count as u32);
                ends.push((count, count * (4 + length)));
            }
            counts.fill(rows.len());
            prop_assume!(counts.entries > 0);
            let mut cursor = Cursor { row: 0, value: 0, entry: 0 };
            while cursor.row < rows.len() {
                let (mut row, mut bytes, mut entries) = (cursor.row, 0, 0);
                while row < rows.len()
                    && row - cursor.row < PAGE_ROWS
                    && bytes < PAGE_BYTES
                    && entries < PAGE_ENTRIES
                {
                    bytes += ends[row].1;
                    entries += ends[row].0.max(1);
                    row += 1;
                }
                let end = cursor.page_end(&column, Some(&counts), rows.len());
                let values: usize = ends[cursor.row..row].iter().map(|(count, _)| count).sum();
                prop_assert_eq!(
                    (end.row, end.value - cursor.value, end.entry - cursor.entry),
                    (row, values, entries)
                );
                cursor = end;
            }
        }
    }
}
