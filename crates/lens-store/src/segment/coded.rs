//! One field of the spans of a row group, as numbers of its distinct values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, BinaryArray, BooleanArray, DictionaryArray, Float64Array, Int64Array, MapArray,
    RecordBatch, StringArray, StringViewArray,
};

use super::file::{guarded, next_batch, typed};
use super::rebuild::Origins;
use super::schema::{Map, PROMOTED};
use super::table::Leaf;
use super::{SegmentError, SpanReader};
use crate::raw::Origin;

/// The column of origins.
const ORIGIN: &str = "origin_otlp";

/// What spans are told apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// Name of the span.
    Name,
    /// `SERVER`, `CLIENT`, …
    Kind,
    /// `UNSET`, `OK` or `ERROR`.
    Status,
    /// The process and the instrumentation scope, with all that these say.
    Origin,
    /// An attribute of the span.
    Attribute(Box<str>),
}

/// A value of a field.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(Arc<str>),
    Int(i64),
    Double(f64),
    Bool(bool),
    /// Lists and the like.
    Json(Arc<str>),
    Origin(Arc<Origin>),
}

/// Rows of a row group by value.
pub(super) struct Coded {
    /// One for each row: 0 for none, else a place in [`values`](Self::values).
    pub(super) codes: Vec<u32>,
    /// The first is none.
    pub(super) values: Vec<Option<Value>>,
}

impl Coded {
    /// The value of a row.
    pub(super) fn value(&self, row: usize) -> Option<&Value> {
        self.values[self.codes[row] as usize].as_ref()
    }
}

/// Where a field is.
enum Place<'a> {
    /// A top-level column of text.
    Text(&'a str),
    /// A top-level column of integers, or the maps for values of other types.
    Int(&'a str),
    Maps,
    Origin,
}

impl Field {
    fn place(&self) -> Place<'_> {
        match self {
            Self::Name => Place::Text("name"),
            Self::Kind => Place::Text("kind"),
            Self::Status => Place::Text("status_code"),
            Self::Origin => Place::Origin,
            Self::Attribute(key) => match PROMOTED.iter().find(|(name, _)| *name == &**key) {
                Some((name, Leaf::Text)) => Place::Text(name),
                Some((name, _)) => Place::Int(name),
                None => Place::Maps,
            },
        }
    }

    /// Whether the columns to read are these.
    fn reads(&self, column: &str) -> bool {
        match self.place() {
            Place::Origin => column == ORIGIN,
            Place::Maps => Map::NAMES.contains(&column),
            // A value of another type than its column's is in a map.
            Place::Text(name) | Place::Int(name) => {
                column == name || matches!(self, Self::Attribute(_)) && Map::NAMES.contains(&column)
            }
        }
    }
}

/// Gathers distinct values.
struct Gather {
    coded: Coded,
    texts: HashMap<Box<str>, u32>,
    others: HashMap<(u8, u64), u32>,
}

impl Gather {
    fn new(rows: usize) -> Self {
        Self {
            coded: Coded { codes: vec![0; rows], values: vec![None] },
            texts: HashMap::new(),
            others: HashMap::new(),
        }
    }

    fn push(&mut self, value: Value) -> u32 {
        self.coded.values.push(Some(value));
        self.coded.values.len() as u32 - 1
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(code) = self.texts.get(text) {
            return *code;
        }
        let code = self.push(Value::Text(text.into()));
        self.texts.insert(text.into(), code);
        code
    }

    fn other(&mut self, kind: u8, bits: u64, value: impl FnOnce() -> Value) -> u32 {
        if let Some(code) = self.others.get(&(kind, bits)) {
            return *code;
        }
        let code = self.push(value());
        self.others.insert((kind, bits), code);
        code
    }

    /// Texts of a dictionary.
    fn dictionary(&mut self, array: &DictionaryArray<Int32Type>) -> Result<(), SegmentError> {
        let values: &StringArray = typed(array.values(), "dictionary")?;
        let codes = (0..values.len()).map(|nth| self.text(values.value(nth))).collect();
        self.put_codes(array, codes);
        Ok(())
    }

    fn origins(&mut self, array: &DictionaryArray<Int32Type>) -> Result<(), SegmentError> {
        let values: &BinaryArray = typed(array.values(), ORIGIN)?;
        let mut origins = Origins::default();
        let mut known: HashMap<&[u8], u32> = HashMap::new();
        let mut codes = Vec::with_capacity(values.len());
        for nth in 0..values.len() {
            let message = values.value(nth);
            let code = match known.get(message) {
                Some(code) => *code,
                None => self.push(Value::Origin(origins.get(message)?)),
            };
            known.insert(message, code);
            codes.push(code);
        }
        self.put_codes(array, codes);
        Ok(())
    }

    fn put_codes(&mut self, array: &DictionaryArray<Int32Type>, codes: Vec<u32>) {
        let keys = array.keys();
        for (row, place) in self.coded.codes.iter_mut().enumerate() {
            if keys.is_valid(row) {
                *place = codes[keys.value(row) as usize];
            }
        }
    }

    /// The values of a key in one of the maps.
    fn map(&mut self, map: &MapArray, key: &str, is_json: bool) -> Result<(), SegmentError> {
        let keys: &StringViewArray = typed(map.keys(), "key")?;
        let values = map.values().as_any();
        let offsets = map.value_offsets();
        for row in 0..map.len() {
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            // A key is there once.
            let Some(nth) = range.into_iter().find(|nth| keys.value(*nth) == key) else {
                continue;
            };
            let code = if let Some(values) = values.downcast_ref::<StringViewArray>() {
                let text = values.value(nth);
                if is_json { self.push(Value::Json(text.into())) } else { self.text(text) }
            } else if let Some(values) = values.downcast_ref::<Int64Array>() {
                let value = values.value(nth);
                self.other(0, value as u64, || Value::Int(value))
            } else if let Some(values) = values.downcast_ref::<Float64Array>() {
                let value = values.value(nth);
                self.other(1, value.to_bits(), || Value::Double(value))
            } else if let Some(values) = values.downcast_ref::<BooleanArray>() {
                let value = values.value(nth);
                self.other(2, u64::from(value), || Value::Bool(value))
            } else {
                0
            };
            self.coded.codes[row] = code;
        }
        Ok(())
    }

    fn field(&mut self, batch: &RecordBatch, field: &Field) -> Result<(), SegmentError> {
        let missing = || SegmentError::Column("of a field");
        match field.place() {
            Place::Text(name) => {
                let array = batch.column_by_name(name).ok_or_else(missing)?;
                self.dictionary(array.as_dictionary_opt::<Int32Type>().ok_or_else(missing)?)?;
            }
            Place::Origin => {
                let array = batch.column_by_name(ORIGIN).ok_or_else(missing)?;
                self.origins(array.as_dictionary_opt::<Int32Type>().ok_or_else(missing)?)?;
            }
            Place::Int(name) => {
                let array: &Int64Array =
                    typed(batch.column_by_name(name).ok_or_else(missing)?, "of a field")?;
                for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
                    let value = array.value(row);
                    let code = self.other(0, value as u64, || Value::Int(value));
                    self.coded.codes[row] = code;
                }
            }
            Place::Maps => {}
        }
        let Field::Attribute(key) = field else { return Ok(()) };
        for (nth, name) in Map::NAMES.into_iter().enumerate() {
            if let Some(array) = batch.column_by_name(name) {
                self.map(typed(array, "map")?, key, nth == Map::Json as usize)?;
            }
        }
        Ok(())
    }
}

/// Columns that are left as dictionaries when fields are read.
const DICTIONARIES: [&str; 4] = ["name", "kind", "status_code", ORIGIN];

/// Some fields and some columns of integers or flags, of one row group.
pub(super) struct RowGroup {
    pub(super) fields: Vec<Coded>,
    pub(super) batch: RecordBatch,
}

impl SpanReader {
    /// Reads fields, and the columns `plain` as they are.
    pub(super) fn row_group(
        &self,
        row_group: usize,
        fields: &[Field],
        plain: &[&str],
    ) -> Result<RowGroup, SegmentError> {
        let mut names = DICTIONARIES.to_vec();
        names.extend(PROMOTED.iter().filter(|(_, leaf)| *leaf == Leaf::Text).map(|(key, _)| *key));
        let file = self.file.with_dictionaries(&names)?;
        let absent = self.absent_maps(row_group, fields)?;
        let columns = file.columns(|name| {
            plain.contains(&name)
                || !absent.contains(&name) && fields.iter().any(|field| field.reads(name))
        });
        let rows = file.footer().row_group(row_group).num_rows().unsigned_abs() as usize;
        let mut batches = file.read(columns, vec![row_group], None, rows.max(1))?;
        let batch = next_batch(&mut batches)?.ok_or(SegmentError::Column("of a row group"))?;
        if batch.num_rows() != rows {
            return Err(SegmentError::Column("of a row group"));
        }
        let fields = guarded(|| {
            let mut coded = Vec::with_capacity(fields.len());
            for field in fields {
                let mut gather = Gather::new(rows);
                gather.field(&batch, field)?;
                coded.push(gather.coded);
            }
            Ok(coded)
        })?;
        Ok(RowGroup { fields, batch })
    }

    /// Maps that have none of the wanted keys, as the dictionaries of their keys say.
    fn absent_maps(
        &self,
        row_group: usize,
        fields: &[Field],
    ) -> Result<Vec<&'static str>, SegmentError> {
        let keys = fields.iter().filter_map(|field| match field {
            Field::Attribute(key) => Some(key.as_bytes()),
            _ => None,
        });
        let keys: Vec<&[u8]> = keys.collect();
        let mut absent = Vec::new();
        if keys.is_empty() {
            return Ok(absent);
        }
        for (nth, name) in Map::NAMES.into_iter().enumerate() {
            let leaf = super::schema::leaf::MAPS + 2 * nth;
            let known = self.file.dictionary(row_group, leaf)?;
            if known.is_some_and(|known| keys.iter().all(|key| !known.contains(*key))) {
                absent.push(name);
            }
        }
        Ok(absent)
    }
}
