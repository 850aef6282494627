//! A column file that is open: its footer and page index in memory, the rest read where it is wanted.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::column::page::{Page, PageReader as _};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::SegmentError;

/// Reads by position, so that threads can share it.
#[derive(Clone)]
pub(super) struct Positioned {
    file: Arc<File>,
    bytes: u64,
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.bytes
    }
}

/// The rest of a file from a place on.
pub(super) struct Rest {
    file: Arc<File>,
    at: u64,
}

impl Read for Rest {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let taken = self.file.read_at(out, self.at)?;
        self.at += taken as u64;
        Ok(taken)
    }
}

impl ChunkReader for Positioned {
    type T = io::BufReader<Rest>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(io::BufReader::new(Rest { file: Arc::clone(&self.file), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(parquet::errors::ParquetError::EOF("a page ends after the file".into()));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// An open file.
pub(super) struct ColumnFile {
    reader: Positioned,
    metadata: ArrowReaderMetadata,
}

/// The same type with texts and bytes as views, which copies nothing out of pages.
fn viewed(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 => DataType::Utf8View,
        DataType::Binary => DataType::BinaryView,
        DataType::Struct(fields) => DataType::Struct(viewed_fields(fields)),
        DataType::List(field) => DataType::List(viewed_field(field)),
        DataType::Map(field, is_sorted) => DataType::Map(viewed_field(field), *is_sorted),
        other => other.clone(),
    }
}

fn viewed_field(field: &FieldRef) -> FieldRef {
    let data_type = viewed(field.data_type());
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

fn viewed_fields(fields: &Fields) -> Fields {
    fields.iter().map(viewed_field).collect()
}

impl ColumnFile {
    pub(super) fn open(path: &Path) -> Result<Self, SegmentError> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let reader = Positioned { file: Arc::new(file), bytes };
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_page_index_policy(PageIndexPolicy::Optional);
        let load = || Ok(ArrowReaderMetadata::load(&reader, options.clone())?);
        let plain = guarded(load)?;
        let schema = Arc::new(Schema::new(viewed_fields(plain.schema().fields())));
        let options = options.with_schema(schema);
        let view = || Ok(ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options)?);
        Ok(Self { metadata: guarded(view)?, reader })
    }

    pub(super) fn footer(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// The footer with dictionaries left as they are for some top-level columns of text or bytes.
    pub(super) fn with_dictionaries(&self, names: &[&str]) -> Result<Self, SegmentError> {
        let fields = self.metadata.schema().fields().iter().map(|field| {
            if names.contains(&field.name().as_str()) {
                let values = match field.data_type() {
                    DataType::Binary | DataType::BinaryView => DataType::Binary,
                    _ => DataType::Utf8,
                };
                let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
                return Arc::new(Field::new(field.name(), data_type, field.is_nullable()));
            }
            Arc::clone(field)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Fields>()));
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(schema);
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(self.metadata.metadata()), options)?;
        Ok(Self { reader: self.reader.clone(), metadata })
    }

    /// Bytes of the dictionary's values of a column chunk; `None` when it has no dictionary.
    pub(super) fn dictionary(
        &self,
        row_group: usize,
        leaf: usize,
    ) -> Result<Option<HashSet<Bytes>>, SegmentError> {
        let footer = self.footer();
        let row_group = footer.row_group(row_group);
        let chunk = row_group.column(leaf);
        // Our writer never has both: pages with a dictionary and pages without.
        if chunk.dictionary_page_offset().is_none() {
            return Ok(None);
        }
        guarded(|| {
            let rows = row_group.num_rows().unsigned_abs() as usize;
            let reader = Arc::new(self.reader.clone());
            let mut pages = SerializedPageReader::new(reader, chunk, rows, None)?;
            let Some(Page::DictionaryPage { buf, .. }) = pages.get_next_page()? else {
                return Ok(None);
            };
            let (mut rest, mut values) = (buf, HashSet::new());
            while let Some(len) = rest.first_chunk::<4>() {
                let len = u32::from_le_bytes(*len) as usize;
                if rest.len() < 4 + len {
                    return Err(SegmentError::Column("of a dictionary"));
                }
                let value = rest.split_to(4 + len).slice(4..);
                values.insert(value);
            }
            Ok(Some(values))
        })
    }

    pub(super) fn rows(&self) -> u64 {
        self.footer().file_metadata().num_rows().unsigned_abs()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.reader.bytes
    }

    pub(super) fn metadata_value(&self, key: &str) -> Option<&str> {
        let pairs = self.footer().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    /// Selects top-level columns by name.
    pub(super) fn columns(&self, is_wanted: impl Fn(&str) -> bool) -> ProjectionMask {
        let schema = self.footer().file_metadata().schema_descr();
        let roots = schema.root_schema().get_fields().iter().enumerate();
        let wanted = roots.filter(|(_, field)| is_wanted(field.name())).map(|(nth, _)| nth);
        ProjectionMask::roots(schema, wanted)
    }

    /// Reads everything.
    pub(super) fn read_all(
        &self,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchReader, SegmentError> {
        let row_groups = (0..self.footer().num_row_groups()).collect();
        self.read(ProjectionMask::all(), row_groups, None, batch_rows)
    }

    /// Reads columns of row groups, of all rows or of those selected.
    pub(super) fn read(
        &self,
        columns: ProjectionMask,
        row_groups: Vec<usize>,
        selection: Option<RowSelection>,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchReader, SegmentError> {
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.reader.clone(),
            self.metadata.clone(),
        )
        .with_projection(columns)
        .with_row_groups(row_groups)
        .with_batch_size(batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        guarded(|| Ok(builder.build()?))
    }
}

/// Runs what reads a file. The crates below are known to panic on damage that no checksum covers, such as that of a
/// page's header; a reader must not.
pub(super) fn guarded<T>(
    read: impl FnOnce() -> Result<T, SegmentError>,
) -> Result<T, SegmentError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Err(SegmentError::Damaged(text.into()))
    })
}

/// The next rows of a file.
pub(super) fn next_batch(
    reader: &mut ParquetRecordBatchReader,
) -> Result<Option<RecordBatch>, SegmentError> {
    guarded(|| reader.next().transpose().map_err(|error| SegmentError::Damaged(Box::new(error))))
}

/// A column that must be there, with the type that it must have.
pub(super) fn column<'a, T: 'static>(
    batch: &'a RecordBatch,
    name: &'static str,
) -> Result<&'a T, SegmentError> {
    typed(batch.column_by_name(name).ok_or(SegmentError::Column(name))?, name)
}

/// An array with the type that it must have.
pub(super) fn typed<'a, T: 'static>(
    array: &'a dyn arrow_array::Array,
    name: &'static str,
) -> Result<&'a T, SegmentError> {
    array.as_any().downcast_ref().ok_or(SegmentError::Column(name))
}

/// Texts that come again and again, shared.
#[derive(Default)]
pub(super) struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// How many are shared at most.
    const MOST: usize = 65_536;

    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        if self.0.len() < Self::MOST {
            self.0.insert(Arc::clone(&new));
        }
        new
    }
}
