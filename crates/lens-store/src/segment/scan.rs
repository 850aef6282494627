//! Rows of a file of spans as queries see them. Only the columns that a query asks for are read, and no span is put
//! together again.
//!
//! What columns cannot say is judged as it came, from the column `otlp`, so that an answer is the same as for spans
//! in memory.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    Array, BinaryViewArray, BooleanArray, Float64Array, Int64Array, ListArray, MapArray,
    RecordBatch, StringViewArray, StructArray,
};
use bytes::Bytes;
use lens_otlp::encode::StatusCode;
use lens_otlp::view::Attributes;
use parquet::file::statistics::Statistics;
use serde_json::Value as Json;

use super::file::{column, guarded, next_batch, typed};
use super::rebuild::{Origins, kind_number, unhex};
use super::schema::{Map, PROMOTED, leaf};
use super::table::Leaf;
use super::{SegmentError, SpanReader};
use crate::ids::{SpanId, TraceId};
use crate::query::row::{SpanRow, attribute, scope_text};
use crate::query::{AttributeScope, Field, Row, Value};
use crate::raw::{Origin, RawSpan};

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 8_192;

impl SpanReader {
    /// Hands over the spans that start in a range, one by one, with what they say of some fields; returns how many it
    /// looked at. Pieces are row groups; without one it looks at all.
    ///
    /// # Errors
    ///
    /// When the file is damaged; what was handed over before counts for nothing.
    pub fn scan(
        &self,
        piece: Option<usize>,
        fields: &[Field],
        starts: &Range<u64>,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, SegmentError> {
        let wanted = wanted(fields);
        let mut looked = 0;
        let pieces = piece.map_or(0..self.row_groups(), |piece| piece..piece + 1);
        for row_group in pieces {
            if !self.may_start_in(row_group, starts) {
                continue;
            }
            let columns = self.file.columns(|name| wanted.contains(&name));
            let mut batches = self.file.read(columns, vec![row_group], None, BATCH_ROWS)?;
            let mut origins = Origins::default();
            while let Some(batch) = next_batch(&mut batches)? {
                looked += batch.num_rows() as u64;
                guarded(|| rows_of(&batch, starts, &mut origins, take))?;
            }
        }
        Ok(looked)
    }

    fn may_start_in(&self, row_group: usize, starts: &Range<u64>) -> bool {
        let metadata = self.file.footer().row_group(row_group).column(leaf::START);
        let Some(Statistics::Int64(statistics)) = metadata.statistics() else { return true };
        match (statistics.min_opt(), statistics.max_opt()) {
            // Starts beyond the year 2262 are negative here.
            (Some(min), Some(max)) if *min >= 0 => {
                (*min as u64) < starts.end && *max as u64 >= starts.start
            }
            _ => true,
        }
    }
}

/// The columns that say what is asked.
fn wanted(fields: &[Field]) -> Vec<&str> {
    let mut wanted = vec!["trace_id", "start_unix_nano", "duration_nano", "span_id", "otlp"];
    // A span that columns cannot say needs its origin too.
    wanted.push("origin_otlp");
    for field in fields {
        match field {
            Field::Name => wanted.push("name"),
            Field::Kind => wanted.push("kind"),
            Field::Status => wanted.push("status_code"),
            Field::StatusMessage => wanted.push("status_message"),
            Field::ParentId => wanted.push("parent_span_id"),
            Field::EventName => wanted.push("events"),
            Field::Attribute(AttributeScope::Event, _) => wanted.push("events"),
            Field::Attribute(AttributeScope::Any | AttributeScope::Span, key) => {
                wanted.extend(Map::NAMES);
                wanted.push(key);
            }
            _ => {}
        }
    }
    wanted
}

/// The columns of a batch, as far as they were read.
struct Columns<'a> {
    trace_ids: &'a StringViewArray,
    span_ids: &'a StringViewArray,
    starts: &'a Int64Array,
    durations: &'a Int64Array,
    otlp: &'a BinaryViewArray,
    origins: &'a BinaryViewArray,
    parent_ids: Option<&'a StringViewArray>,
    names: Option<&'a StringViewArray>,
    kinds: Option<&'a StringViewArray>,
    statuses: Option<&'a StringViewArray>,
    status_messages: Option<&'a StringViewArray>,
    events: Option<Events<'a>>,
    /// Promoted keys that were read.
    promoted: Vec<(&'static str, &'a dyn Array)>,
    /// All maps, or none.
    maps: Vec<Entries<'a>>,
}

struct Events<'a> {
    list: &'a ListArray,
    names: &'a StringViewArray,
    attributes: &'a StringViewArray,
}

struct Entries<'a> {
    map: &'a MapArray,
    keys: &'a StringViewArray,
    values: &'a dyn Array,
    is_json: bool,
}

fn optional<'a, T: 'static>(
    batch: &'a RecordBatch,
    name: &'static str,
) -> Result<Option<&'a T>, SegmentError> {
    batch.column_by_name(name).map(|array| typed(array, name)).transpose()
}

impl<'a> Columns<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self, SegmentError> {
        let events = match optional::<ListArray>(batch, "events")? {
            Some(list) => {
                let fields: &StructArray = typed(list.values(), "events")?;
                let field = |name: &'static str| {
                    typed(fields.column_by_name(name).ok_or(SegmentError::Column(name))?, name)
                };
                Some(Events { list, names: field("name")?, attributes: field("attributes")? })
            }
            None => None,
        };
        let mut maps = Vec::new();
        for (nth, name) in Map::NAMES.into_iter().enumerate() {
            if let Some(map) = optional::<MapArray>(batch, name)? {
                maps.push(Entries {
                    map,
                    keys: typed(map.keys(), name)?,
                    values: map.values(),
                    is_json: nth == Map::Json as usize,
                });
            }
        }
        let mut promoted: Vec<(&'static str, &'a dyn Array)> = Vec::new();
        for (key, leaf) in PROMOTED {
            if let Some(array) = batch.column_by_name(key) {
                // Makes sure of its type.
                match leaf {
                    Leaf::Text => typed::<StringViewArray>(array, key).map(|_| ())?,
                    _ => typed::<Int64Array>(array, key).map(|_| ())?,
                }
                promoted.push((key, array.as_ref()));
            }
        }
        Ok(Self {
            trace_ids: column(batch, "trace_id")?,
            span_ids: column(batch, "span_id")?,
            starts: column(batch, "start_unix_nano")?,
            durations: column(batch, "duration_nano")?,
            otlp: column(batch, "otlp")?,
            origins: column(batch, "origin_otlp")?,
            parent_ids: optional(batch, "parent_span_id")?,
            names: optional(batch, "name")?,
            kinds: optional(batch, "kind")?,
            statuses: optional(batch, "status_code")?,
            status_messages: optional(batch, "status_message")?,
            events,
            promoted,
            maps,
        })
    }
}

fn rows_of(
    batch: &RecordBatch,
    starts: &Range<u64>,
    origins: &mut Origins,
    take: &mut dyn FnMut(&dyn Row),
) -> Result<(), SegmentError> {
    let columns = Columns::new(batch)?;
    let mut trace: Option<(&str, TraceId)> = None;
    for row in 0..batch.num_rows() {
        let start_nanos = columns.starts.value(row) as u64;
        if !starts.contains(&start_nanos) {
            continue;
        }
        let text = columns.trace_ids.value(row);
        let trace_id = match trace {
            Some((known, id)) if known == text => id,
            _ => {
                TraceId::from_bytes(&unhex::<16>(text)?).ok_or(SegmentError::Column("trace_id"))?
            }
        };
        trace = Some((text, trace_id));
        let span_id = SpanId::from_bytes(&unhex::<8>(columns.span_ids.value(row))?)
            .ok_or(SegmentError::Column("span_id"))?;
        let origin = origins.get(columns.origins.value(row))?;
        if columns.otlp.is_valid(row) {
            let message = Bytes::copy_from_slice(columns.otlp.value(row));
            let raw = RawSpan { trace_id, span_id, start_nanos, message, origin, ingest_seq: 0 };
            take(&SpanRow::new(&raw)?);
        } else {
            take(&ColumnRow { columns: &columns, row, trace_id, span_id, origin: &origin });
        }
    }
    Ok(())
}

/// A row of a batch.
struct ColumnRow<'a> {
    columns: &'a Columns<'a>,
    row: usize,
    trace_id: TraceId,
    span_id: SpanId,
    origin: &'a Arc<Origin>,
}

impl Row for ColumnRow<'_> {
    fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    fn start_nanos(&self) -> u64 {
        self.columns.starts.value(self.row) as u64
    }

    fn has_bad_times(&self) -> bool {
        self.columns.durations.value(self.row) < 0 || self.start_nanos() == 0
    }

    fn span_id(&self) -> SpanId {
        self.span_id
    }

    fn parent_id(&self) -> Option<SpanId> {
        let ids = self.columns.parent_ids.filter(|ids| ids.is_valid(self.row))?;
        SpanId::from_bytes(&unhex::<8>(ids.value(self.row)).ok()?)
    }

    fn any(&self, field: &Field, take: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
        let text = |array: Option<&StringViewArray>, take: &mut dyn FnMut(Value<'_>) -> bool| {
            let array = array.filter(|array| array.is_valid(self.row));
            array.is_some_and(|array| take(Value::Text(array.value(self.row))))
        };
        let filled = |text: &str, take: &mut dyn FnMut(Value<'_>) -> bool| {
            !text.is_empty() && take(Value::Text(text))
        };
        let columns = self.columns;
        match field {
            Field::Name => text(columns.names, take),
            Field::StatusMessage => text(columns.status_messages, take),
            Field::Kind => {
                let kinds = columns.kinds;
                kinds.is_some_and(|kinds| take(Value::Kind(kind_number(kinds.value(self.row)))))
            }
            Field::Status => {
                let status = columns.statuses.map(|statuses| status_of(statuses.value(self.row)));
                status.is_some_and(|status| take(Value::Status(status)))
            }
            Field::Duration => take(Value::Int(columns.durations.value(self.row).max(0))),
            Field::EventName => self.events().any(|(name, _)| take(Value::Text(name))),
            Field::ScopeName => filled(scope_text(self.origin, 1), take),
            Field::ScopeVersion => filled(scope_text(self.origin, 2), take),
            Field::Attribute(scope, key) => self.attribute(*scope, key, take),
            // Ids are no fields, and of its trace a row knows nothing.
            Field::TraceId
            | Field::SpanId
            | Field::ParentId
            | Field::RootName
            | Field::RootServiceName
            | Field::TraceDuration => false,
        }
    }
}

impl<'a> ColumnRow<'a> {
    fn events(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let events = self.columns.events.as_ref();
        let row = self.row;
        events.into_iter().flat_map(move |events| {
            let offsets = events.list.value_offsets();
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            range.map(|nth| (events.names.value(nth), events.attributes.value(nth)))
        })
    }

    fn attribute(
        &self,
        scope: AttributeScope,
        key: &str,
        take: &mut dyn FnMut(Value<'_>) -> bool,
    ) -> bool {
        let of_resource = Attributes::new(&self.origin.resource.message, 1);
        match scope {
            AttributeScope::Span => self.own(key, take).1,
            AttributeScope::Any => {
                let (is_there, is_taken) = self.own(key, take);
                if is_there { is_taken } else { attribute(of_resource, key, take).1 }
            }
            AttributeScope::Resource => attribute(of_resource, key, take).1,
            AttributeScope::Instrumentation => {
                attribute(Attributes::new(&self.origin.scope, 3), key, take).1
            }
            AttributeScope::Event => self.events().any(|(_, attributes)| {
                let attributes: Option<Json> = serde_json::from_str(attributes).ok();
                attributes.is_some_and(|all| all.get(key).is_some_and(|json| any_json(json, take)))
            }),
        }
    }

    /// Whether the span has an attribute, and whether one of its values was taken.
    fn own(&self, key: &str, take: &mut dyn FnMut(Value<'_>) -> bool) -> (bool, bool) {
        let row = self.row;
        if let Some((_, array)) = self.columns.promoted.iter().find(|(name, _)| *name == key)
            && array.is_valid(row)
        {
            return (true, scalar(*array, row).is_some_and(&mut *take));
        }
        for entries in &self.columns.maps {
            let offsets = entries.map.value_offsets();
            let mut range = offsets[row] as usize..offsets[row + 1] as usize;
            let Some(nth) = range.find(|nth| entries.keys.value(*nth) == key) else { continue };
            let value = scalar(entries.values, nth);
            let is_taken = match value {
                Some(Value::Text(json)) if entries.is_json => {
                    serde_json::from_str(json).is_ok_and(|json: Json| any_json(&json, take))
                }
                Some(value) => take(value),
                None => false,
            };
            return (true, is_taken);
        }
        (false, false)
    }
}

fn scalar(array: &dyn Array, row: usize) -> Option<Value<'_>> {
    let array = array.as_any();
    if let Some(texts) = array.downcast_ref::<StringViewArray>() {
        return Some(Value::Text(texts.value(row)));
    }
    if let Some(numbers) = array.downcast_ref::<Int64Array>() {
        return Some(Value::Int(numbers.value(row)));
    }
    if let Some(numbers) = array.downcast_ref::<Float64Array>() {
        return Some(Value::Float(numbers.value(row)));
    }
    array.downcast_ref::<BooleanArray>().map(|flags| Value::Bool(flags.value(row)))
}

/// A status by its name in a column.
pub(crate) fn status_of(name: &str) -> StatusCode {
    match name {
        "OK" => StatusCode::Ok,
        "ERROR" => StatusCode::Error,
        _ => StatusCode::Unset,
    }
}

/// A list has each of its values.
pub(crate) fn any_json(json: &Json, take: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
    let scalar = |json: &Json, take: &mut dyn FnMut(Value<'_>) -> bool| match json {
        Json::String(text) => take(Value::Text(text)),
        Json::Bool(flag) => take(Value::Bool(*flag)),
        Json::Number(number) => take(match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().unwrap_or_default()),
        }),
        _ => take(Value::Other),
    };
    match json {
        Json::Array(values) => values.iter().any(|value| scalar(value, take)),
        json => scalar(json, take),
    }
}
