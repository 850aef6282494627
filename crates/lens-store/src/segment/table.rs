//! A table being written: its schema, the row group that is gathered, the file.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, Type, TypePtr};

use super::SegmentError;
use super::column::{Column, Counts, Pages, Stats, Values, clear_counts};

/// Rows of a row group.
/// Tests have smaller ones, so that they meet several.
pub(super) const ROW_GROUP_ROWS: usize = if cfg!(test) { 8_192 } else { 131_072 };
/// A row group that holds as many bytes ends earlier: what a writer holds in memory is bounded.
const ROW_GROUP_BYTES: usize = if cfg!(test) { 2 } else { 96 } * 1_024 * 1_024;
const ZSTD_LEVEL: i32 = 1;

/// What a leaf holds and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// UTF-8 with a dictionary.
    Text,
    /// Few UTF-8 texts.
    Key,
    /// Trace ids, which lie in order.
    TraceId,
    /// Ids of spans.
    SpanId,
    /// UTF-8 without a dictionary.
    PlainText,
    /// Few byte strings.
    KeyBytes,
    /// Bytes without a dictionary.
    PlainBytes,
    /// INT64 that changes slowly.
    Deltas,
    /// INT64.
    Int,
    /// INT32; more than fits is its bit pattern.
    Word,
    Double,
    Bool,
}

impl Leaf {
    fn values(self) -> Values {
        match self {
            Self::Text => Values::text(),
            Self::Key | Self::KeyBytes => Values::keys(),
            Self::TraceId => Values::ids(32, true),
            Self::SpanId => Values::ids(16, false),
            Self::PlainText | Self::PlainBytes => Values::plain(),
            Self::Deltas => Values::Deltas(Vec::new()),
            Self::Int => Values::Ints(Vec::new()),
            Self::Word => Values::Words(Vec::new()),
            Self::Double => Values::Doubles(Vec::new()),
            Self::Bool => Values::Bools(Vec::new()),
        }
    }

    fn parquet(self, name: &str, repetition: Repetition) -> Result<Type, SegmentError> {
        let physical = match self {
            Self::Text
            | Self::Key
            | Self::TraceId
            | Self::SpanId
            | Self::PlainText
            | Self::KeyBytes
            | Self::PlainBytes => Physical::BYTE_ARRAY,
            Self::Deltas | Self::Int => Physical::INT64,
            Self::Word => Physical::INT32,
            Self::Double => Physical::DOUBLE,
            Self::Bool => Physical::BOOLEAN,
        };
        let is_text = !matches!(self, Self::KeyBytes | Self::PlainBytes)
            && matches!(physical, Physical::BYTE_ARRAY);
        Ok(Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(is_text.then_some(LogicalType::String))
            .build()?)
    }
}

/// One column of a table.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Required(&'static str, Leaf, Stats),
    Optional(String, Leaf, Stats),
    /// Keys are text; a key has one value.
    Map(&'static str, Leaf),
    /// A list of structs.
    List(&'static str, &'static [(&'static str, Leaf)]),
    /// A list of values.
    Values(&'static str, Leaf),
}

fn group(name: &str, repetition: Repetition, fields: Vec<Type>) -> Result<Type, SegmentError> {
    let fields = fields.into_iter().map(Arc::new).collect();
    Ok(Type::group_type_builder(name).with_repetition(repetition).with_fields(fields).build()?)
}

fn annotated(name: &str, logical: LogicalType, inner: Type) -> Result<Type, SegmentError> {
    Ok(Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(logical))
        .with_fields(vec![Arc::new(inner)])
        .build()?)
}

impl Field {
    fn parquet(&self) -> Result<Type, SegmentError> {
        match self {
            Self::Required(name, leaf, _) => leaf.parquet(name, Repetition::REQUIRED),
            Self::Optional(name, leaf, _) => leaf.parquet(name, Repetition::OPTIONAL),
            Self::Map(name, value) => {
                let pair = vec![
                    Leaf::Key.parquet("key", Repetition::REQUIRED)?,
                    value.parquet("value", Repetition::REQUIRED)?,
                ];
                annotated(name, LogicalType::Map, group("key_value", Repetition::REPEATED, pair)?)
            }
            Self::List(name, leaves) => {
                let leaves: Result<Vec<Type>, SegmentError> = leaves
                    .iter()
                    .map(|(name, leaf)| leaf.parquet(name, Repetition::REQUIRED))
                    .collect();
                let element = group("element", Repetition::REQUIRED, leaves?)?;
                annotated(
                    name,
                    LogicalType::List,
                    group("list", Repetition::REPEATED, vec![element])?,
                )
            }
            Self::Values(name, leaf) => {
                let element = leaf.parquet("element", Repetition::REQUIRED)?;
                annotated(
                    name,
                    LogicalType::List,
                    group("list", Repetition::REPEATED, vec![element])?,
                )
            }
        }
    }

    fn add_columns(&self, columns: &mut Vec<Column>, counts: &mut Vec<Counts>) {
        let nested = match self {
            Self::Required(_, leaf, stats) => {
                columns.push(Column::new(leaf.values(), *stats, None));
                return;
            }
            Self::Optional(_, leaf, stats) => {
                columns.push(Column::new(leaf.values(), *stats, Some(counts.len())));
                counts.push(Counts::new(false));
                return;
            }
            Self::Map(_, value) => vec![Leaf::Key, *value],
            Self::List(_, leaves) => leaves.iter().map(|(_, leaf)| *leaf).collect(),
            Self::Values(_, leaf) => vec![*leaf],
        };
        for leaf in nested {
            columns.push(Column::new(leaf.values(), Stats::None, Some(counts.len())));
        }
        counts.push(Counts::new(true));
    }
}

/// A Parquet schema of fields.
pub(super) fn schema(name: &str, fields: &[Field]) -> Result<TypePtr, SegmentError> {
    let fields: Result<Vec<Type>, SegmentError> = fields.iter().map(Field::parquet).collect();
    let fields = fields?.into_iter().map(Arc::new).collect();
    Ok(Arc::new(Type::group_type_builder(name).with_fields(fields).build()?))
}

/// A sink that knows how much it took.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = self.inner.write(bytes)?;
        self.bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// What gathers a row group and makes pages of it: memory that the next file of the same fields can use again.
pub(super) struct Gatherer {
    columns: Vec<Column>,
    counts: Vec<Counts>,
    pages: Pages,
}

impl Gatherer {
    pub(super) fn new(fields: &[Field]) -> Result<Self, SegmentError> {
        let (mut columns, mut counts) = (Vec::new(), Vec::new());
        for field in fields {
            field.add_columns(&mut columns, &mut counts);
        }
        Ok(Self { columns, counts, pages: Pages::new(ZSTD_LEVEL)? })
    }

    /// Whether it holds no more than one row group takes; columns that were large in different files hold more together.
    pub(super) fn is_small(&self) -> bool {
        // What grows by doubling is up to half empty.
        self.columns.iter().map(Column::capacity_bytes).sum::<usize>() <= 2 * ROW_GROUP_BYTES
    }
}

/// A table being written.
pub(super) struct Table<W: Write + Send> {
    file: SerializedFileWriter<Counted<W>>,
    pub(super) columns: Vec<Column>,
    pub(super) counts: Vec<Counts>,
    descriptors: Vec<ColumnDescPtr>,
    /// Rows of the row group that is gathered.
    pub(super) rows: usize,
    pages: Pages,
    total_rows: u64,
}

impl<W: Write + Send> Table<W> {
    /// `sorted_by` are leaf columns.
    pub(super) fn new(
        out: W,
        name: &str,
        fields: &[Field],
        sorted_by: &[i32],
        metadata: Vec<(String, String)>,
    ) -> Result<Self, SegmentError> {
        Self::with(Gatherer::new(fields)?, out, name, fields, sorted_by, metadata)
    }

    /// As [`new`](Self::new), with what gathered a file of the same fields before.
    pub(super) fn with(
        gatherer: Gatherer,
        out: W,
        name: &str,
        fields: &[Field],
        sorted_by: &[i32],
        metadata: Vec<(String, String)>,
    ) -> Result<Self, SegmentError> {
        let sorting = sorted_by.iter().map(|column| SortingColumn {
            column_idx: *column,
            descending: false,
            nulls_first: false,
        });
        let metadata = metadata.into_iter().map(|(key, value)| KeyValue::new(key, value));
        let properties = WriterProperties::builder()
            .set_created_by(concat!("lens-store ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_sorting_columns(Some(sorting.collect()).filter(|list: &Vec<_>| !list.is_empty()))
            .set_key_value_metadata(Some(metadata.collect()))
            .build();
        let out = Counted { inner: out, bytes: 0 };
        let file = SerializedFileWriter::new(out, schema(name, fields)?, Arc::new(properties))?;
        let Gatherer { columns, counts, pages } = gatherer;
        Ok(Self {
            descriptors: file.schema_descr().columns().to_vec(),
            file,
            columns,
            counts,
            rows: 0,
            pages,
            total_rows: 0,
        })
    }

    /// Says that the row's last value was pushed. `true` when a row group was written.
    pub(super) fn end_row(&mut self) -> Result<bool, SegmentError> {
        self.rows += 1;
        let is_checked = self.rows.is_multiple_of(512);
        let is_full = self.rows == ROW_GROUP_ROWS
            || is_checked
                && self.columns.iter().map(Column::held_bytes).sum::<usize>() > ROW_GROUP_BYTES;
        if is_full {
            self.end_row_group()?;
        }
        Ok(is_full)
    }

    /// Rows so far.
    pub(super) fn total_rows(&self) -> u64 {
        self.total_rows + self.rows as u64
    }

    fn end_row_group(&mut self) -> Result<(), SegmentError> {
        if self.rows == 0 {
            return Ok(());
        }
        for counts in &mut self.counts {
            counts.fill(self.rows);
        }
        let mut row_group = self.file.next_row_group()?;
        for (column, descriptor) in self.columns.iter_mut().zip(&self.descriptors) {
            let counts = column.counts.map(|nth| &self.counts[nth]);
            let chunk = self.pages.chunk(column, counts, self.rows, descriptor)?;
            row_group.append_column(&chunk.bytes, chunk.close)?;
            column.clear();
        }
        row_group.close()?;
        clear_counts(&mut self.counts);
        self.total_rows += self.rows as u64;
        self.rows = 0;
        Ok(())
    }

    /// Writes the last row group and the footer; returns the bytes of the file.
    pub(super) fn finish(self) -> Result<u64, SegmentError> {
        Ok(self.finish_keeping()?.0)
    }

    /// As [`finish`](Self::finish); returns also what can be used again.
    pub(super) fn finish_keeping(mut self) -> Result<(u64, Gatherer), SegmentError> {
        self.end_row_group()?;
        let mut out = self.file.into_inner()?;
        out.inner.flush()?;
        let Self { columns, counts, pages, .. } = self;
        Ok((out.bytes, Gatherer { columns, counts, pages }))
    }
}
